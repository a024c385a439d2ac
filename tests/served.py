"""Real servers for tests: the service in a thread, or as the command that people run."""

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import uvicorn

from undertow.serve.protocol import Deadline


@contextmanager
def in_thread(app: Any, port: int = 0) -> Iterator[str]:
    """Serve an application from a thread of this process; yield its address."""
    config = uvicorn.Config(app, port=port, http=Deadline, ws="none", log_config=None, access_log=False)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(30)
        assert not thread.is_alive()


class Command(NamedTuple):
    """`undertow serve` in a process: its address, and the file that it logs to."""

    process: "subprocess.Popen[Any]"
    url: str
    log: Path


@contextmanager
def as_command(folder: Path, *words: str, **environment: str) -> Iterator[Command]:
    """Run `undertow serve` on a free port until the end."""
    log = folder / "serve.log"
    command = [sys.executable, "-m", "undertow", "serve", *words, "--port", "0"]
    with log.open("ab") as errors:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, env=os.environ | environment, text=True
        )
    assert process.stdout is not None
    try:
        found = re.search(r"http://\S+?:\d+", process.stdout.readline())
        assert found is not None, log.read_text()
        yield Command(process, found[0], log)
    finally:
        process.terminate()
        process.wait(60)
        process.stdout.close()
