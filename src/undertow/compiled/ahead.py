"""Compiling on two cores: a child process compiles what fits need, while this one compiles what decisions need.

numba compiles on one core, and a learner's kernels take half a minute and more, once. Many of them are those of fits,
which nothing needs before the start-up is over. A child process compiles these meanwhile and leaves them on disk, where
this one finds them. If anything goes wrong there, this one compiles them itself.
"""

import contextlib
import os
import subprocess
import sys
import threading
from pathlib import Path

from undertow.compiled.cache import to_be_compiled

__all__ = ["begin", "finish"]

_KERNELS = {
    "fit": "undertow.identify.system.descent",
    "fit_levels": "undertow.identify.levels.fit",
}  # where they are compiled
_PROGRAM = "from undertow import identify; identify.{}([0, 1, 0, 1], [0.0, 1.0, 2.0, 4.0])"
_PATIENCE = 300  # seconds

_lock = threading.Lock()
_under_way: threading.Thread | None = None


def begin(name: str) -> None:
    """Have a child process compile a function of `identify`, if it is not on disk yet and a core is free.

    With an empty name, there is nothing to compile.
    """
    global _under_way
    with _lock:
        idle = _under_way is None or not _under_way.is_alive()
        if name and idle and to_be_compiled(_KERNELS[name]) and _core_to_spare():
            command = [sys.executable, "-P", "-c", _PROGRAM.format(name)]  # -P: no modules of the present folder
            thread = threading.Thread(target=_run, args=(command,), name="undertow-compiles", daemon=True)
            thread.start()
            _under_way = thread


def _core_to_spare() -> bool:
    """Return whether a child process has a core to run on; a program that embeds Python cannot be started as one."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores > 1 and Path(sys.executable or "").name.startswith("python")


def finish() -> None:
    """Wait until the child process has ended, if there is one."""
    if _under_way is not None:
        _under_way.join()


def _run(command: list[str]) -> None:
    paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
    quiet = subprocess.DEVNULL
    with contextlib.suppress(OSError, subprocess.SubprocessError):  # then this process compiles
        subprocess.run(command, env=environment, stdin=quiet, stdout=quiet, stderr=quiet, timeout=_PATIENCE)
