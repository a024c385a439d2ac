"""The web service of docs/production.md, with real workers, one of which is killed."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import psutil
import pytest

import undertow

PAGE = Path(__file__).parents[2] / "docs" / "production.md"


def post(port: int, call: str, **values: Any) -> Any:
    """Post until a worker answers; the same id makes it safe to repeat."""
    address = f"http://127.0.0.1:{port}/{call}?{urllib.parse.urlencode(values)}"
    for _ in range(1200):
        try:
            with urllib.request.urlopen(urllib.request.Request(address, method="POST"), timeout=30) as answer:
                return json.load(answer)
        except urllib.error.HTTPError:
            raise
        except OSError:
            time.sleep(0.1)
    raise AssertionError("no worker answers")


@pytest.fixture
def program(tmp_path: Path) -> str:
    (block,) = (code for code in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S) if "FastAPI" in code)
    (tmp_path / "shop.py").write_text(f"url = 'sqlite:///{tmp_path}/shop.db'\n{block}")
    return f"sqlite:///{tmp_path}/shop.db"


def test_two_workers_one_of_which_is_killed(program: str, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        sys.executable,
        "-m",
        "uvicorn",
        "shop:app",
        "--workers",
        "2",
        "--port",
        str(port),
        "--log-level",
        "error",
    ]
    settings = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    server = subprocess.Popen(command, cwd=tmp_path, env=settings)
    try:
        arms = {t: post(port, "decide", order=f"order {t}", weight=t)["arm"] for t in range(10)}
        workers = [
            child for child in psutil.Process(server.pid).children() if "spawn_main" in " ".join(child.cmdline())
        ]
        workers[0].send_signal(signal.SIGKILL)
        for t in range(10, 20):
            arms[t] = post(port, "decide", order=f"order {t}", weight=t)["arm"]
        for t in range(20):
            assert post(port, "decide", order=f"order {t}", weight=t)["arm"] == arms[t]
            assert post(port, "reward", order=f"order {t}", value=t)["pending"] == 19 - t
        with pytest.raises(urllib.error.HTTPError, match="404"):
            post(port, "reward", order="order 99", value=1.0)
    finally:
        server.terminate()
        server.wait(60)
    policy = undertow.open(program, "shop")
    assert (policy.round, policy.pending) == (20, 0)
