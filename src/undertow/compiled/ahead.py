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
_PROGRAM = (
    "import sys; sys.path[:] = {paths!r}; from undertow import identify; "
    "identify.{name}([0, 1, 0, 1], [0.0, 1.0, 2.0, 4.0])"
)
_FLAGS = {"isolated": "-I", "ignore_environment": "-E", "no_user_site": "-s"}  # what this process was told to ignore
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
            thread = threading.Thread(target=_run, args=(_command(name),), name="undertow-compiles", daemon=True)
            with contextlib.suppress(RuntimeError, MemoryError):  # no thread to be had: this process compiles
                thread.start()
                _under_way = thread


def _command(name: str) -> list[str]:
    """Return a command that compiles a function of `identify`, with the modules that this process would find."""
    flags = [flag for attribute, flag in _FLAGS.items() if getattr(sys.flags, attribute)]
    paths = [str(Path(__file__).parents[2]), *filter(None, sys.path)]
    return [sys.executable, *flags, "-P", "-c", _PROGRAM.format(name=name, paths=paths)]  # -P: not the present folder


def _core_to_spare() -> bool:
    """Return whether a child process has a core to run on; a program that holds Python cannot be started as one."""
    if getattr(sys, "frozen", False):
        return False
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores > 1 and Path(sys.executable or "").name.startswith("python")


def finish() -> None:
    """Wait until the child process has ended, if there is one."""
    if _under_way is not None:
        _under_way.join()


def _run(command: list[str]) -> None:
    quiet = subprocess.DEVNULL
    with contextlib.suppress(OSError, subprocess.SubprocessError):  # then this process compiles
        subprocess.run(command, stdin=quiet, stdout=quiet, stderr=quiet, timeout=_PATIENCE)
