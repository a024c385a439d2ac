"""Machine code that is the same in every process, whatever else the process has compiled or loaded.

numba links a copy of every function that a kernel calls into the kernel's own machine code, where LLVM optimises it
once more and may order its sums differently. The copies keep their names, and of functions with one name the linker
takes the first that a process loads: which copy ran would depend on what came before. Here a kernel keeps the copies
that it was compiled with to itself. So nobody runs a part by itself, and it need not be machine code.
"""

from typing import Any

from llvmlite.binding import Linkage
from numba.core.codegen import JITCodeLibrary
from numba.core.environment import lookup_environment

__all__ = ["Linked", "LinkedAsWritten", "SelfContained"]

_ENVIRONMENT = "_ZN08NumbaEnv"  # how numba begins the names of what functions may read of Python


class SelfContained(JITCodeLibrary):  # type: ignore[misc]
    """The machine code of one kernel, whose calls never leave it for a copy in another one."""

    def _finalize_final_module(self) -> None:
        compiled = self._shared_module is None  # type: ignore[has-type]  # here, and not read from disk
        if compiled:
            self._shared_module = self._final_module.clone()  # what callers link, before names are taken from it
            _change(self._shared_module, Linkage.external, "linkonce_odr")
            _change(self._final_module, Linkage.linkonce_odr, "internal")
        super()._finalize_final_module()
        if compiled:  # numba does this for kernels that it loads
            names = [variable.name for variable in self._final_module.global_variables]
            for name in filter(lambda name: name.startswith(_ENVIRONMENT), names):
                if (environment := lookup_environment(name)) is not None:
                    self.codegen.set_env(name, environment)


class Linked(JITCodeLibrary):  # type: ignore[misc]
    """A part that only kernels call: it is optimised and linked into them, and has no address."""

    @property
    def codegen(self) -> Any:
        """What numba asks to tell the machine code where to find Python; here there is none."""
        return _WithoutAddresses(self._codegen)

    def _finalize_final_module(self) -> None:
        _change(self._final_module, Linkage.external, "linkonce_odr")
        self._shared_module = self._final_module
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """Say that there is no machine code, as numba does where a name is not known."""
        self._ensure_finalized()
        return 0


class LinkedAsWritten(Linked):
    """A part that is optimised only in the kernels that it is linked into."""

    def _optimize_final_module(self) -> None:
        pass


class _WithoutAddresses:
    def __init__(self, codegen: Any) -> None:
        self._codegen = codegen

    def __getattr__(self, name: str) -> Any:
        return getattr(self._codegen, name)

    def set_env(self, name: str, environment: object) -> None:
        """Do nothing: the kernels into which the part is linked do."""


def _change(module: object, old: Linkage, new: str) -> None:
    for function in module.functions:  # type: ignore[attr-defined]
        if not function.is_declaration and function.linkage == old:
            function.linkage = new
