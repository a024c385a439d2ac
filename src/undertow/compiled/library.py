"""Machine code that is the same in every process, independent of other compiled or loaded code.

numba links a copy of every function that a kernel calls into the kernel's own machine code, where LLVM optimises it
again and may order its sums differently. The copies keep their names, and of functions with one name the linker takes
the first that a process loads: the copy that runs would depend on earlier loads. Here a kernel always uses its own
copies.
"""

from llvmlite.binding import Linkage
from numba.core.codegen import JITCodeLibrary

__all__ = ["SelfContained"]


class SelfContained(JITCodeLibrary):  # type: ignore[misc]
    """The machine code of one kernel, which never calls a copy in another one."""

    def _finalize_final_module(self) -> None:
        if self._shared_module is None:  # type: ignore[has-type]  # compiled here, not read from disk
            self._shared_module = self._final_module.clone()  # the code for callers, before names are removed from it
            _change(self._shared_module, Linkage.external, "linkonce_odr")
            _change(self._final_module, Linkage.linkonce_odr, "internal")
        super()._finalize_final_module()


def _change(module: object, old: Linkage, new: str) -> None:
    for function in module.functions:  # type: ignore[attr-defined]
        if not function.is_declaration and function.linkage == old:
            function.linkage = new
