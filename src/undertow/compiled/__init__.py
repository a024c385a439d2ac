"""The compiled parts of policies: the layout of their state, and the loop around their steps."""

from undertow.compiled.common import Common, best_arm, count_open, features_of_arm, known_cost, present_time_step
from undertow.compiled.kernel import inlined, inlined_kernel, kernel, spliced
from undertow.compiled.layout import Fixed, Index, Layout, Within
from undertow.compiled.loop import compile_loop
from undertow.compiled.views import Record
from undertow.support.checks import FloatArray
from undertow.support.renamed import renamed

__all__ = [
    "Common",
    "Fixed",
    "FloatArray",
    "Index",
    "Layout",
    "Record",
    "Within",
    "best_arm",
    "compile_loop",
    "count_open",
    "features_of_arm",
    "inlined",
    "inlined_kernel",
    "kernel",
    "known_cost",
    "present_time_step",
    "spliced",
]

__getattr__ = renamed("undertow.compiled", {"present_moment": "present_time_step"})
