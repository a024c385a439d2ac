"""A separate environment for every peer, with pinned versions, made on first use."""

import fcntl
import json
import math
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.peers.play import Job

ROOT = Path(__file__).parents[1]
ENVIRONMENTS = ROOT / ".bench"
PINS: dict[str, list[str]] = {
    peer: table["install"] for peer, table in tomllib.loads((ROOT / "benchmarks/peers/pins.toml").read_text()).items()
}
ONE_CORE = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class PeerError(Exception):
    """A peer that does not install or does not run, with the last line of its error."""


def versions() -> dict[str, str]:
    """Return the pinned version of every peer."""
    return {peer: install[0].partition("==")[2] for peer, install in PINS.items()}


def python_of(peer: str, pins: Sequence[str] = ()) -> Path:
    """Return the interpreter of a peer's environment, made again if its pins have changed."""
    pins = pins or PINS[peer]
    folder = ENVIRONMENTS / peer
    python, ready = folder / "bin" / "python", folder / "pins.json"
    ENVIRONMENTS.mkdir(exist_ok=True)
    with (ENVIRONMENTS / f"{peer}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two benchmarks may run together
        wanted = json.dumps(pins)
        if not (ready.exists() and ready.read_text() == wanted):
            run([sys.executable, "-m", "venv", "--clear", str(folder)])
            run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *pins])
            ready.write_text(wanted)
    return python


def run(command: list[str]) -> str:
    """Return the output of a command that runs in the root of the repository."""
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=os.environ | ONE_CORE)
    if done.returncode:
        raise PeerError(last_line(done.stderr))
    return done.stdout


def last_line(text: str) -> str:
    """Return the last line that is not empty."""
    said = [line for line in text.strip().splitlines() if line.strip() and not line.startswith(("hint:", "note:"))]
    return said[-1].strip() if said else "no message"


class Done(NamedTuple):
    """The outcome of a job: the last line of its error, None without one, and the peak memory of the process."""

    error: str | None
    megabytes: float = math.nan


def run_jobs(peer: str, jobs: Sequence[Job], advance: Callable[[], None] = lambda: None) -> list[Done]:
    """Let a peer do jobs in its own process; our own policies are called "undertow" and their name."""
    _, _, ours = peer.partition("undertow ")
    what = ["benchmarks.live", ours] if ours else ["benchmarks.peers.play", peer]
    python = sys.executable if ours else str(python_of(peer))
    done = []
    with tempfile.TemporaryDirectory() as folder, (Path(folder) / "errors").open("w+") as said:
        file = Path(folder) / "jobs.json"
        file.write_text(json.dumps([job._asdict() for job in jobs]))
        command = [python, "-W", "ignore", "-m", *what, str(file)]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=said, text=True, cwd=ROOT, env=os.environ | ONE_CORE
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith("{"):
                    done.append(Done(**json.loads(line)))
                    advance()
        said.seek(0)
        error = last_line(said.read())
    return done + [Done(error)] * (len(jobs) - len(done))
