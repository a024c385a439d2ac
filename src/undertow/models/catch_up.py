"""Replay of a learner's history by a model: the rounds since a fit, or since a late reward."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from undertow.compiled.kernel import kernel
from undertow.compiled.loop import DECIDE, OBSERVE, bound
from undertow.compiled.views import view
from undertow.models.block import open_block
from undertow.models.log import AFTER, BEFORE
from undertow.models.model import Steps
from undertow.support.checks import FloatArray

__all__ = ["compile_catch_up"]

if TYPE_CHECKING:  # the names that every copy of the template below binds to a model's steps

    def begin_step(blocks: FloatArray, at: int) -> None: ...
    def see_step(blocks: FloatArray, at: int, t: int, features: FloatArray) -> None: ...
    def played_step(blocks: FloatArray, at: int, t: int, arm: int) -> None: ...
    def learn_step(blocks: FloatArray, at: int, t: int, arm: int, reward: float) -> None: ...
    def observe_step(blocks: FloatArray, at: int, t: int, context: FloatArray, first: bool) -> None: ...


def _catch_up(
    blocks: FloatArray, at: int, rows: FloatArray, begin: int, decided: int, fresh: int, seen: int, first: bool
) -> None:
    """Replay rows of a log, as in `Span`.

    A time step shared by several rows has one context, in the first or the last of them, and the belief advances once.
    """
    block = open_block(blocks, at)
    m, width = int(block.sizes.m), rows.shape[1]
    shared, arm, reward = width - 3, width - 2, width - 1
    shift = OBSERVE if first else DECIDE
    for step in range(3 * len(rows)):
        i, call = step // 3, (step + shift) % 3
        t = begin + i
        within, more = int(rows[i, shared]) & BEFORE > 0, int(rows[i, shared]) & AFTER > 0
        if call == OBSERVE:
            if fresh <= t < seen and not (within if first else more):
                observe_step(blocks, at, t if first else t + 1, view(rows, i * width, (m,)), first)
        elif t >= decided:
            continue
        elif call == DECIDE:
            if within:
                block.head.over = 0.0
            begin_step(blocks, at)
            if rows[i, arm] >= 0.0:
                see_step(blocks, at, t, view(rows, i * width + m, (shared - m,)))
            played_step(blocks, at, t, int(rows[i, arm]))
        else:
            if rows[i, arm] >= 0.0 and not np.isnan(rows[i, reward]):
                learn_step(blocks, at, t, int(rows[i, arm]), rows[i, reward])
            if first or m == 0:
                block.head.over = 1.0


def compile_catch_up(module: str, steps: Steps) -> Callable[..., None]:
    """Return the kernel that replays rows of a log for a model with the given steps."""
    names = {f"{name}_step": step for name, step in steps._asdict().items()}
    return kernel(bound(_catch_up, names, "catch_up", module))
