"""Real servers for tests, started when the first test asks for one: PostgreSQL and a browser.

Both come from Debian's packages (`make services`). If one is missing, its tests are skipped; with
UNDERTOW_SERVICES=required, as in `.ci/run`, they fail.
"""

import os
import pwd
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

CHROMIUM = (  # no sandbox, as root has none; nothing that asks the network for anything
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def missing(service: str) -> NoReturn:
    """Skip a test for lack of a service, or have it fail if services are required."""
    outcome = pytest.fail if os.environ.get("UNDERTOW_SERVICES") == "required" else pytest.skip
    outcome(f"{service} is missing: `make services` installs it")


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


class Postgres:
    """A PostgreSQL server with a data folder of its own, on loopback; `stop` and `start` may be called at any time."""

    def __init__(self, programs: Path, folder: Path) -> None:
        # initdb and postgres refuse to run as root
        self._user: dict[str, Any] = {"user": "postgres", "group": "postgres"} if os.geteuid() == 0 else {}
        self._programs, self._data, self._port = programs, folder / "data", _free_port()
        self._password = secrets.token_hex(8)
        (folder / "password").write_text(self._password)
        if self._user:
            postgres = pwd.getpwnam("postgres")
            for path in (folder, folder / "password"):
                os.chown(path, postgres.pw_uid, postgres.pw_gid)
        authentication = ("--username", "undertow", "--auth", "scram-sha-256", "--pwfile", str(folder / "password"))
        self._run("initdb", "--pgdata", str(self._data), "--no-sync", "--encoding", "UTF8", *authentication)
        self._server: subprocess.Popen[Any] | None = None
        self.start()

    @property
    def url(self) -> str:
        """Where the server is, with its password."""
        return f"postgresql://undertow:{self._password}@127.0.0.1:{self._port}/postgres"

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        options = (
            "-p",
            str(self._port),
            "-c",
            "listen_addresses=127.0.0.1",
            "-c",
            f"unix_socket_directories={self._data}",
        )
        command = [str(self._programs / "postgres"), "-D", str(self._data), *options]
        with (self._data.parent / "log").open("ab") as log:
            self._server = server = subprocess.Popen(command, stdout=log, stderr=log, **self._user)
        until = time.monotonic() + 60
        ready = [str(self._programs / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self._port), "-d", "postgres"]
        while subprocess.run(ready, check=False).returncode:
            if server.poll() is not None or time.monotonic() > until:
                raise RuntimeError((self._data.parent / "log").read_text())
            time.sleep(0.05)

    def stop(self, *, kill: bool = False) -> None:
        """Stop the server; with `kill` as a crash would."""
        if self._server is None:
            return
        self._run("pg_ctl", "--pgdata", str(self._data), "stop", "--mode", "immediate" if kill else "fast")
        self._server.wait(30)
        self._server = None

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [self._programs / program, *arguments], capture_output=True, text=True, cwd="/", check=False, **self._user
        )
        if done.returncode:
            raise RuntimeError(f"{program}: {done.stdout}{done.stderr}")


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL server."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[4]))
    if not found:
        missing("PostgreSQL")
    folder = Path(tempfile.mkdtemp(prefix="undertow-postgres-"))
    try:
        server = Postgres(found[-1].parent, folder)
        yield server
        server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Debian's Chromium through playwright: `browser.new_page()`."""
    chromium = shutil.which("chromium")
    if chromium is None:
        missing("Chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=list(CHROMIUM))
        yield started
        started.close()
