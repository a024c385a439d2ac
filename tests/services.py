"""Real servers for tests, started when the first test asks for one: PostgreSQL, a pooler before it, and a browser.

All come from Debian's packages (`make services`). If one is missing, its tests are skipped; with
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
from urllib.parse import urlsplit

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


@pytest.fixture
def pgbouncer(postgres: Postgres, tmp_path: Path) -> Iterator[str]:
    """The address of a PgBouncer, which gives each transaction any of three connections to the server."""
    program = Path("/usr/sbin/pgbouncer")
    if not program.exists():
        missing("PgBouncer")
    port, server = _free_port(), urlsplit(postgres.url)
    settings = tmp_path / "pgbouncer.ini"
    settings.write_text(
        f"[databases]\n* = host={server.hostname} port={server.port} user=undertow password={server.password}\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n"
        f"pool_mode = transaction\ndefault_pool_size = 3\nserver_reset_query_always = 1\n"
        f"server_reset_query = DISCARD ALL\n"
    )
    shown = tmp_path.parents[0]
    for folder in (tmp_path, shown, shown.parent):
        folder.chmod(0o755)  # it refuses to run as root
    as_user = ["-u", "postgres"] if os.geteuid() == 0 else []
    process = subprocess.Popen(
        [program, "-q", *as_user, settings], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        until = time.monotonic() + 30
        while True:
            with socket.socket() as attempt:
                if attempt.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert process.poll() is None, "PgBouncer did not start"
            assert time.monotonic() < until, "PgBouncer does not listen"
            time.sleep(0.05)
        yield f"postgresql://undertow:{server.password}@127.0.0.1:{port}/postgres"
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture(scope="module")  # playwright keeps an event loop, in which other tests could not run one of their own
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
