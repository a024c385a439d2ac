"""How kernels are compiled, cached and kept fresh (docs/decisions/0001-kernels.md).

A kernel is a module-level function over plain arrays, marked with `@kernel`. numba compiles it on first use and keeps
the machine code on disk. numba's own cache looks only at the file in which a kernel is written, so an edit of a callee
in another file would go unnoticed; here the cache folder of a module carries a hash of its source and of every undertow
module that it imports, directly or not.
"""

import functools
import gc
import hashlib
import logging
import os
import re
import shutil
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import llvmlite.binding
import numba
from numba.core import event

F = TypeVar("F", bound=Callable[..., Any])

_PACKAGE = Path(__file__).parent
_IMPORT = re.compile(r"^\s*(?:from\s+(undertow[\w.]*)\s+import\s+(\([^)]*\)|[^\n]*)|import\s+(undertow[\w.]*))", re.M)

_REVOCABLE = (20,)  # LLVM from which on an option may be set again
_STRAIGHT: set[Callable[..., Any]] = set()

# Sums may be reordered and fused, but NaN keeps its meaning: it marks what is missing.
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
    """Mark a part that is written into the one or two kernels that need it before they are compiled.

    `inlined` compiles a part by itself and leaves the rest to LLVM, which is the shorter way for what stands in many
    places; what stands in one would be translated, optimised and emitted twice.
    """
    part: F = numba.njit(inline="always", **_OPTIONS)(function)
    return part


@functools.cache
def plain(part: Callable[..., Any]) -> Callable[..., Any]:
    """Return the Python function behind a compiled one, and behind what it calls.

    What splits a buffer into views does so from Python, too; views that compiled code borrowed must not get there.
    """
    function = getattr(part, "py_func", part)
    named = {name: function.__globals__.get(name) for name in function.__code__.co_names}
    compiled = {name: plain(value) for name, value in named.items() if hasattr(value, "py_func")}
    return types.FunctionType(function.__code__, function.__globals__ | compiled, function.__name__)


def kernel(function: F) -> F:
    """Compile a function on first use, without the GIL, and cache it under its module's source stamp."""
    return _compiled(function)


def straight_kernel(function: F) -> F:
    """Do as `kernel`, and let the compiler pack straight-line arithmetic into vector instructions.

    numba leaves that off unless told. It makes code that is written out in rows of eight two to three times as fast,
    and some loops slower, so that a kernel has to ask for it. It also keeps a pass that others skip (`_Compiling`).
    """
    _STRAIGHT.add(function)
    return _compiled(function)


def _compiled(function: F) -> F:
    folder = _cache_folder(function.__module__)
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(folder) if folder else before  # read by numba while it decorates, and only then
    try:
        compiled: F = numba.njit(cache=folder is not None, **_OPTIONS)(function)
    finally:
        numba.config.CACHE_DIR = before
    return compiled


def to_be_compiled(module: str) -> bool:
    """Tell whether a module's kernels are still to be compiled and can be kept."""
    folder = None if numba.config.DISABLE_JIT else _cache_folder(module)
    return folder is not None and not any(folder.rglob("*.nbi"))


def source_stamp(module: str) -> str:
    """Return a hash of a module's source and of all undertow sources that it can reach through imports."""
    reached: dict[Path, bytes] = {}
    todo = list(_source_files(module))
    while todo:
        path = todo.pop()
        if path not in reached:
            reached[path], imported = _read(path)
            todo.extend(imported)
    digest = hashlib.blake2b(digest_size=8)
    for path in sorted(reached):
        digest.update(str(path.relative_to(_PACKAGE)).encode() + b"\0" + reached[path] + b"\0")
    return digest.hexdigest()


@functools.cache
def _read(path: Path) -> tuple[bytes, list[Path]]:
    """Return a source file's content and the undertow files that it imports."""
    content = path.read_bytes()
    imported: list[Path] = []
    for package, names, plain in _IMPORT.findall(content.decode()):
        imported.extend(_source_files(package or plain))
        for name in re.findall(r"\w+", names):  # `from undertow import system` names a module too
            imported.extend(_source_files(f"{package}.{name}"))
    return content, imported


@functools.cache
def _source_files(module: str) -> tuple[Path, ...]:
    """Return the file of an undertow module; nothing for a name that is no module of ours."""
    parts = module.split(".")
    if parts[0] != "undertow" or len(parts) == 1:  # undertow/__init__.py only lists names: no kernel depends on it
        return ()
    path = _PACKAGE.joinpath(*parts[1:])
    return tuple(file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file())


@functools.cache
def _cache_folder(module: str) -> Path | None:
    """Return the folder for a module's compiled kernels, made anew (and its stale sisters removed) when it changed."""
    stamp = source_stamp(module) if module.startswith("undertow.") else "outside"
    for root in _cache_roots():
        folder = root / f"{module}-{stamp}"
        try:
            if not folder.is_dir():
                folder.mkdir(parents=True)
                for stale in root.glob(f"{module}-*"):
                    if stale != folder:
                        shutil.rmtree(stale, ignore_errors=True)
            if os.access(folder, os.W_OK):
                return folder
        except OSError:
            continue
    return None  # nowhere to write: kernels then compile once per process


def _cache_roots() -> Iterator[Path]:
    own = f"undertow-{hashlib.blake2b(str(_PACKAGE).encode(), digest_size=4).hexdigest()}"
    if numba.config.CACHE_DIR:
        yield Path(numba.config.CACHE_DIR) / own
        return
    yield _PACKAGE / "__pycache__" / "kernels"
    yield Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / own


class _Compiling(event.Listener):  # type: ignore[misc]
    """Set what a kernel asked for, and tell, once, why the first call takes seconds."""

    told = False

    def __init__(self) -> None:
        self.before: list[tuple[int, bool, bool]] = []  # numba compiles callees within their callers
        self.hurried = False

    def on_start(self, event: Any) -> None:
        function = event.data["dispatcher"].py_func
        self.before.append((numba.config.SLP_VECTORIZE, self.hurried, gc.isenabled()))
        ours = (function.__module__ or "").startswith("undertow.")  # code from exec has no module
        if ours:
            numba.config.SLP_VECTORIZE = int(function in _STRAIGHT)
            gc.disable()  # much is made and little thrown away: looking for garbage would take a tenth of the time
        self._hurry(ours and function not in _STRAIGHT)
        if ours and not self.told:
            self._tell(_cache_folder(function.__module__) is not None)

    def on_end(self, event: Any) -> None:
        numba.config.SLP_VECTORIZE, hurried, collecting = self.before.pop()
        self._hurry(hurried)
        if collecting:
            gc.enable()

    def _tell(self, kept: bool) -> None:
        self.told = True
        if not kept:  # every process waits, also one whose log is all that anybody sees
            logging.getLogger("undertow").warning(
                "undertow compiles its kernels in every process, since there is no folder to keep them in; "
                "set NUMBA_CACHE_DIR to one that can be written"
            )
        elif sys.stderr.isatty():
            print("undertow: compiling kernels for this machine (once; later runs load them)", file=sys.stderr)

    def _hurry(self, hurried: bool) -> None:
        """Skip a pass of LLVM that takes a fifth of all time to compile ours and gains nothing outside rows of eight.

        Loop strength reduction weighs ways to address the many parts of a packed buffer against one another.
        """
        if hurried != self.hurried and llvmlite.binding.llvm_version_info >= _REVOCABLE:
            llvmlite.binding.set_option("", f"--disable-lsr={str(hurried).lower()}")
            self.hurried = hurried


event.register("numba:compile", _Compiling())
