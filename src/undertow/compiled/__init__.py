"""The compiled parts of policies: the layout of their state, and the loop around their steps."""

from undertow.compiled.common import Common, best_arm, count_open, features_of_arm, known_cost, present_moment
from undertow.compiled.kernel import inlined, kernel, spliced
from undertow.compiled.layout import Fixed, Index, Layout, Within
from undertow.compiled.loop import compile_loop
from undertow.compiled.views import Record
from undertow.support.checks import FloatArray

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
    "kernel",
    "known_cost",
    "present_moment",
    "spliced",
]
