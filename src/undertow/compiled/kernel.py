"""How kernels are compiled (docs/decisions/0001-kernels.md).

A kernel is a module-level function over plain arrays, marked with `@kernel`. numba compiles it on first use, and caches
the machine code on disk (folders in `undertow.compiled.cache`, files in `undertow.compiled.keeping`).
"""

import contextlib
import dis
import functools
import gc
import logging
import os
import sys
import threading
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import llvmlite.binding
import numba
from numba.core import event
from numba.core.compiler_lock import global_compiler_lock

from undertow.compiled.cache import cache_folder, cache_roots
from undertow.compiled.keeping import KernelCache, tell_once
from undertow.compiled.library import SelfContained

__all__ = ["inlined", "inlined_kernel", "kernel", "plain", "spliced", "straight_kernel"]

F = TypeVar("F", bound=Callable[..., Any])

REVOCABLE = (20,)  # LLVM version from which an option may be set again
_PATIENCE = 3.0  # seconds after which a wait is explained
_KERNELS: set[Callable[..., Any]] = set()
_STRAIGHT: set[Callable[..., Any]] = set()

# Sums may be reordered and fused, but NaN keeps its meaning: it marks missing numbers.
_OPTIONS: dict[str, Any] = {
    "nogil": True,
    "no_cfunc_wrapper": True,  # nothing calls a kernel by its address
    "error_model": "numpy",
    "fastmath": {"reassoc", "contract", "arcp", "nsz"},
}


def inlined(function: F) -> F:
    """Mark a part of larger kernels that is to be inlined into them; it is never called from Python."""
    part: F = numba.njit(forceinline=True, no_cpython_wrapper=True, **_OPTIONS)(function)
    return part


def spliced(function: F) -> F:
    """Mark a part that is written into its one or two callers before they are compiled.

    `inlined` compiles a part separately and leaves the rest to LLVM, which is faster for a part with many callers; a
    part with one would be translated, optimised and emitted twice.
    """
    part: F = numba.njit(inline="always", **_OPTIONS)(function)
    return part


@functools.cache
def plain(part: Callable[..., Any]) -> Callable[..., Any]:
    """Return the Python function behind a compiled one, and behind its callees.

    Functions that split a buffer into views are also called from Python, which must not get borrowed views.
    """
    function = getattr(part, "py_func", part)
    used = {step.argval for step in dis.get_instructions(function) if step.opname == "LOAD_GLOBAL"}
    names = {name: _plain_value(function.__globals__[name]) for name in used & function.__globals__.keys()}
    closure = tuple(types.CellType(_plain_value(cell.cell_contents)) for cell in function.__closure__ or ())
    known = function.__globals__ | names
    return types.FunctionType(function.__code__, known, function.__name__, function.__defaults__, closure)


def _plain_value(value: Any) -> Any:
    if isinstance(value, types.ModuleType) and any(hasattr(member, "py_func") for member in vars(value).values()):
        return _PlainModule(value)
    return plain(value) if hasattr(value, "py_func") else value


class _PlainModule:
    """A module whose compiled functions are plain; called from Python, one that is inlined would end the process."""

    def __init__(self, module: types.ModuleType) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return _plain_value(getattr(self._module, name))


def kernel(function: F) -> F:
    """Compile a function on first use, without the GIL, and cache it under its module's source stamp."""
    return _compiled(function)


def inlined_kernel(function: F) -> F:
    """Compile like `kernel`; in the machine code of its callers it is inlined."""
    return _compiled(function, inline=True)


def straight_kernel(function: F) -> F:
    """Compile like `kernel`, and pack straight-line arithmetic into vector instructions.

    It is off by default in numba. It makes code written out in rows of eight two to three times as fast, and some loops
    slower, so a kernel must request it. It also keeps a pass that others skip (`_Compiling`).
    """
    _STRAIGHT.add(function)
    return _compiled(function)


def _compiled(function: F, *, inline: bool = False) -> F:
    _KERNELS.add(function)
    # Else numba takes it from the first caller that is compiled, and keeps that machine code for all callers
    compiled: F = numba.njit(forceinline=inline, **_OPTIONS)(function)
    folder = cache_folder(function.__module__ or "")  # code from exec has no module
    if folder is not None and hasattr(compiled, "enable_caching"):  # not where compiling is switched off
        _keep(compiled, folder)
    return compiled


def _keep(compiled: Any, folder: Path) -> None:
    """Set the cache folder of a kernel; without one it is compiled in every process."""
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(folder)  # read by numba when the cache is made, and only then
    try:
        cache = KernelCache(compiled.py_func)
        if folder in Path(cache.cache_path).parents:  # numba looks elsewhere if it cannot write there
            compiled._cache = cache  # noqa: SLF001 (numba has no other way to say which cache)
    except (OSError, RuntimeError):  # no folder at all
        pass
    finally:
        numba.config.CACHE_DIR = before


class _Compiling(event.Listener):  # type: ignore[misc]
    """Set the options of a kernel, and explain a long wait once."""

    told = False

    def __init__(self) -> None:
        self.spent, self.since = 0.0, 0.0  # seconds, and the start of the current compilation
        self.timer: threading.Timer | None = None
        self.before: list[tuple[int, bool, bool, type]] = []  # numba compiles callees within their callers
        self.hurried = False

    def on_start(self, event: Any) -> None:
        function, codegen = event.data["dispatcher"].py_func, event.data["dispatcher"].targetctx.codegen()
        before = (numba.config.SLP_VECTORIZE, self.hurried, gc.isenabled(), codegen._library_class)  # noqa: SLF001
        self.before.append(before)
        if function in _KERNELS:
            codegen._library_class = SelfContained  # noqa: SLF001 (numba has no other way to say what is linked)
        ours = (function.__module__ or "").startswith("undertow.")  # code from exec has no module
        if ours:
            numba.config.SLP_VECTORIZE = int(function in _STRAIGHT)
            gc.disable()  # many objects, little garbage: collecting it would take a tenth of the time
        self._hurry(ours and function not in _STRAIGHT)
        if ours and not self.told:
            self._tell(cache_folder(function.__module__) is not None)
        if ours and len(self.before) == 1:
            self._watch(function.__module__)

    def on_end(self, event: Any) -> None:
        codegen = event.data["dispatcher"].targetctx.codegen()
        numba.config.SLP_VECTORIZE, hurried, collecting, codegen._library_class = self.before.pop()  # noqa: SLF001
        self._hurry(hurried)
        if collecting:
            gc.enable()
        if not self.before:
            self._stop_watching()

    def _watch(self, module: str) -> None:
        """Report the compilation on stderr, after some seconds."""
        if self.spent < _PATIENCE:
            self.since, self.timer = time.monotonic(), threading.Timer(_PATIENCE - self.spent, _say, [_line(module)])
            self.timer.daemon = True
            with contextlib.suppress(RuntimeError):  # no thread can be started
                self.timer.start()

    def _stop_watching(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer, self.spent = None, self.spent + time.monotonic() - self.since

    def _tell(self, kept: bool) -> None:
        self.told = True
        logging.getLogger("undertow.kernels").info(
            "compiling kernels for this machine: seconds for most policies, up to two minutes for a learner; "
            + ("once, later processes load them" if kept else "in every process")
        )
        if not kept:  # every process waits, also one with nothing but a log
            tell_once(
                "unwritable",
                "undertow compiles its kernels in every process, since there is no folder to keep them in; "
                f"set NUMBA_CACHE_DIR to one that can be written (tried: {', '.join(map(str, cache_roots()))})",
            )

    def _hurry(self, hurried: bool) -> None:
        """Skip a pass of LLVM that takes a fifth of all time to compile ours and gains nothing outside rows of eight.

        Loop strength reduction weighs ways to address the many parts of a packed buffer against one another.
        """
        if hurried != self.hurried and llvmlite.binding.llvm_version_info >= REVOCABLE:
            llvmlite.binding.set_option("", f"--disable-lsr={str(hurried).lower()}")
            self.hurried = hurried


def _line(module: str) -> str:
    """Return the message on a long compilation."""
    often = "in every process" if cache_folder(module) is None else "once, later processes load them"
    return (
        f"undertow: compiling kernels of {module} for this machine ({often}); seconds for most policies, up to two and "
        "a half minutes for a learner. `undertow precompile` does this beforehand"
    )


def _say(line: str) -> None:
    with contextlib.suppress(AttributeError, OSError, ValueError):  # stderr may be None, closed or a broken pipe
        print(line, file=sys.stderr, flush=True)


def _hold_compiler() -> None:
    """Wait until no thread compiles or loads: a forked process would never get the lock that the thread holds."""
    lock = global_compiler_lock._lock  # noqa: SLF001 (its own `acquire` cannot say that it waits)
    if not lock.acquire(timeout=_PATIENCE):
        _say("undertow: a fork waits until a thread has compiled its kernels; load them before you fork")
        lock.acquire()


event.register("numba:compile", _Compiling())
if hasattr(os, "register_at_fork"):
    release = global_compiler_lock._lock.release  # noqa: SLF001 (as above)
    os.register_at_fork(before=_hold_compiler, after_in_parent=release, after_in_child=release)
