"""Compilation in child processes: kernels of a policy, during its initial rounds, and kernels of fits.

numba compiles on one core, and a learner's kernels take half a minute and more, once. A child process compiles them to
disk, from which this one loads them (`Compilation`). It has a child in turn that compiles kernels of fits (`begin`), as
has a process that compiles its own kernels, for example for an episode. If anything fails there, this process compiles
missing kernels.
"""

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from undertow.compiled.cache import is_incomplete, to_be_compiled

__all__ = ["Compilation", "begin", "compilation_of", "finish"]

_KERNELS = {
    "fit": "undertow.models.shared_system.descent",
    "fit_levels": "undertow.models.levels.fit",
}  # where they are compiled
_PROGRAM = (
    "import sys; sys.path[:] = {paths!r}; from undertow import identify; "
    "identify.{name}([0, 1, 0, 1], [0.0, 1.0, 2.0, 4.0])"
)
_POLICY = (
    "import sys; sys.path[:] = {paths!r}; from undertow.precompiling import precompile_alone; "
    "precompile_alone({name!r})"
)
_FLAGS = {"isolated": "-I", "ignore_environment": "-E", "no_user_site": "-s"}  # warnings that this process ignores
_PATIENCE = 300  # seconds
_LONG_PATIENCE = 1800  # for all kernels of a policy, on a busy machine

_lock = threading.Lock()
_under_way: threading.Thread | None = None


def begin(name: str) -> None:
    """Compile a function of `identify` in a child process, if it is not on disk yet and a core is free.

    With an empty name, there is nothing to compile.
    """
    global _under_way
    with _lock:
        idle = _under_way is None or not _under_way.is_alive()
        if name and idle and to_be_compiled(_KERNELS[name]) and _core_to_spare():
            thread = threading.Thread(
                target=_run, args=(_command(_PROGRAM, name),), name="undertow-compiles", daemon=True
            )
            with contextlib.suppress(RuntimeError, MemoryError):  # no thread can be started: this process compiles
                thread.start()
                _under_way = thread


class Compilation:
    """A child process that compiles all kernels of a policy, and a thread that then loads them."""

    def __init__(self, name: str, load: Callable[[], object]) -> None:
        self._name, self._load = name, load
        self._thread = threading.Thread(target=self._go_through, name="undertow-compiles", daemon=True)
        self._thread.start()

    def _go_through(self) -> None:
        _run(_command(_POLICY, self._name), _LONG_PATIENCE)
        with contextlib.suppress(Exception):  # the first call of the kernels will raise the error
            self._load()

    @property
    def ended(self) -> bool:
        """Whether the compilation has ended."""
        return not self._thread.is_alive()

    def wait(self) -> None:
        """Wait for the end."""
        self._thread.join()


_compilations: dict[str, Compilation] = {}


def compilation_of(name: str, module: str, load: Callable[[], object]) -> Compilation | None:
    """Return the compilation of a policy in a module, begun if necessary.

    None if all of it is on disk, or if this process must compile it.
    """
    with _lock:
        if name not in _compilations and is_incomplete(module) and _core_to_spare():
            with contextlib.suppress(RuntimeError, MemoryError):  # no thread can be started
                _compilations[name] = Compilation(name, load)
        return _compilations.get(name)


def _command(program: str, name: str) -> list[str]:
    """Return a command that compiles, with the same module path as this process."""
    flags = [flag for attribute, flag in _FLAGS.items() if getattr(sys.flags, attribute)]
    paths = [str(Path(__file__).parents[2]), *filter(None, sys.path)]
    return [sys.executable, *flags, "-P", "-c", program.format(name=name, paths=paths)]  # -P: not the present folder


def _core_to_spare() -> bool:
    """Return whether a child process has a free core; a program that embeds Python cannot be started as one."""
    if getattr(sys, "frozen", False):
        return False
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores > 1 and Path(sys.executable or "").name.startswith("python")


def finish() -> None:
    """Wait until the child process has ended, if there is one."""
    if _under_way is not None:
        _under_way.join()


def _run(command: list[str], patience: float = _PATIENCE) -> None:
    quiet = subprocess.DEVNULL
    with contextlib.suppress(OSError, subprocess.SubprocessError):  # then this process compiles
        subprocess.run(command, stdin=quiet, stdout=quiet, stderr=quiet, timeout=patience)
