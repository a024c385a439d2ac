"""Running the service: one process, or several workers that share a socket."""

import contextlib
import logging
import os
import socket
from functools import partial
from typing import Any, NamedTuple

import uvicorn
from starlette.applications import Starlette
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors.multiprocess import Multiprocess, Process

from undertow.errors import InvalidInputError
from undertow.serve.app import ENVIRONMENT, application
from undertow.serve.protocol import Deadline
from undertow.serve.service import LOCAL, is_loopback

try:
    import resource
except ModuleNotFoundError:  # there are systems without limits
    resource = None  # type: ignore[assignment]

__all__ = ["Plan", "listen", "run"]

_LOG = logging.getLogger("undertow.serve")
_PATIENCE = 30  # seconds that a worker may take to finish its calls
_BACKLOG = 2048
_FILES = 65_536  # connections, files and sockets of a process


class Plan(NamedTuple):
    """What to run: a store, an address, the number of workers, and the arguments of `application`."""

    store: str
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    tokens: str | None = None
    allowed: tuple[str, ...] = ()
    threads: int | None = None
    access_log: bool = True

    @property
    def hosts(self) -> tuple[str, ...] | None:
        """The accepted hosts: by default those of this machine on loopback, elsewhere any."""
        if "*" in self.allowed or not (self.allowed or is_loopback(self.host)):
            return None
        return (*LOCAL, *self.allowed)

    def make(self) -> Starlette:
        """Return the application of a worker."""
        _raise_limit()
        threads = max(80 // self.workers, 8) if self.threads is None else self.threads
        return application(self.store, tokens=self.tokens, hosts=self.hosts, threads=threads)


def listen(plan: Plan) -> socket.socket:
    """Return the socket of a service; without tokens, refuse all addresses but loopback."""
    if not is_loopback(plan.host) and plan.tokens is None and not os.environ.get(ENVIRONMENT):
        raise InvalidInputError(
            f"host: {plan.host} can be reached from other machines, so the service needs tokens: --tokens FILE with "
            f"lines such as `play {'…' * 3}`, or the same in {ENVIRONMENT}"
        )
    plan.make()  # tokens that cannot be read, and a store that cannot be opened, are refused here
    family = socket.AF_INET6 if ":" in plan.host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # TCP: asyncio sends without delay
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((plan.host.strip("[]"), plan.port))
        bound.listen(_BACKLOG)  # early connections wait for the workers
        bound.set_inheritable(True)
    except (OSError, OverflowError) as error:
        bound.close()
        why = getattr(error, "strerror", None) or error
        raise InvalidInputError(
            f"port: cannot listen at {plan.host}:{plan.port} ({why}); use another --port"
        ) from error
    return bound


def run(plan: Plan, bound: socket.socket) -> None:
    """Serve until SIGTERM or SIGINT, then finish the calls in progress."""
    config = uvicorn.Config(
        partial(_make, plan),
        factory=True,
        http=Deadline,
        ws="none",
        workers=plan.workers,
        access_log=False,
        server_header=False,
        log_config=_logging(access=plan.access_log),
        timeout_graceful_shutdown=_PATIENCE,
    )
    with contextlib.suppress(KeyboardInterrupt):
        if plan.workers == 1:
            uvicorn.Server(config).run(sockets=[bound])
        else:
            _Supervisor(config, sockets=[bound]).run()
    bound.close()


class _Supervisor(Multiprocess):
    """uvicorn's supervisor, which replaces workers that have ended.

    uvicorn's own also checks its workers' health and waits for the answer. A starting worker answers late, and a killed
    one never.
    """

    def keep_subprocess_alive(self) -> None:
        """Replace workers that have ended; give up if they cannot be started."""
        for place, worker in enumerate(self.processes):
            if worker.process.is_alive() or self.should_exit.is_set():
                continue
            worker.join()
            if worker.exitcode == STARTUP_FAILURE:
                _LOG.error("worker %s could not be started", worker.pid)
                self.should_exit.set()
                return
            _LOG.warning("worker %s ended with status %s; another one is started", worker.pid, worker.exitcode)
            self.processes[place] = Process(self.config, self.sockets)
            self.processes[place].start()


def _make(plan: Plan) -> Starlette:
    return plan.make()


def _raise_limit() -> None:
    """Raise the limit of open files as far as the system allows, for as many connections."""
    if resource is not None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = _FILES if hard == resource.RLIM_INFINITY else min(_FILES, hard)
        if soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _logging(*, access: bool) -> dict[str, Any]:
    """Return how workers log: lines on standard error."""
    level = {"level": "INFO", "handlers": ["lines"], "propagate": False}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"lines": {"format": "%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s"}},
        "handlers": {"lines": {"class": "logging.StreamHandler", "formatter": "lines"}},
        "loggers": {
            "undertow": level,
            "undertow.access": level | ({} if access else {"level": logging.WARNING}),
            "uvicorn": level | {"level": "WARNING"},
        },
    }
