"""The loop of a learner: the steps of its judge, bound to a list of models.

A step of all models is that of the first, followed by that of the rest, so the compiler sees every call.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from undertow.compiled import compile_loop, features_of_arm, spliced
from undertow.compiled.kernel import inlined
from undertow.compiled.loop import Loop, bound
from undertow.models import judge
from undertow.models.block import open_block
from undertow.models.model import Steps
from undertow.support.checks import FloatArray

__all__ = ["compile_learner"]

if TYPE_CHECKING:  # the names that every copy of a template below binds to a model's own
    from undertow.models.catch_up import begin_step, learn_step, observe_step, played_step, see_step

    def forecast_step(blocks: FloatArray, at: int, t: int, plays: FloatArray, first: int, last: int) -> None: ...
    def rest(*args: Any) -> None: ...


def _forecast_all(blocks: FloatArray, at: int, t: int, features: FloatArray, plays: FloatArray) -> None:
    """Advance and let one model forecast, all arms together or each with its own features; then the others."""
    block = open_block(blocks, at)
    begin_step(blocks, at)
    k, q = len(block.forecast), int(block.sizes.q)
    together = 1 if len(features) > q else k
    for a in range(0, k, together):
        see_step(blocks, at, t, features_of_arm(features, a, q))
        if block.head.order > 0.0:
            forecast_step(blocks, at, t, plays, a, a + together)
    rest(blocks, at + int(block.head.length), t, features, plays)


def _see_all(blocks: FloatArray, at: int, t: int, features: FloatArray, more: int) -> None:
    """Pass the features of the played arm of round t to one model, then to the others."""
    see_step(blocks, at, t, features)
    rest(blocks, at + int(open_block(blocks, at).head.length), t, features, more)


def _played_all(blocks: FloatArray, at: int, t: int, arm: int, over: bool) -> None:
    """Pass the played arm, −1 for none, and whether the round is over to one model, then to the others."""
    block = open_block(blocks, at)
    begin_step(blocks, at)
    played_step(blocks, at, t, arm)
    if over:
        block.head.over = 1.0
    rest(blocks, at + int(block.head.length), t, arm, over)


def _learn_all(blocks: FloatArray, at: int, t: int, arm: int, reward: float) -> None:
    """Let one model predict the reward of round t, score it, and let it learn; then the others."""
    learn_step(blocks, at, t, arm, reward)
    rest(blocks, at + int(open_block(blocks, at).head.length), t, arm, reward)


def _observe_all(blocks: FloatArray, at: int, t: int, context: FloatArray, first: bool) -> None:
    """Pass a context to one model, after t rounds have begun; then to the others."""
    observe_step(blocks, at, t, context, first)
    rest(blocks, at + int(open_block(blocks, at).head.length), t, context, first)


@inlined
def _nothing_more(blocks: FloatArray, at: int, t: int, given: Any, more: Any) -> None:
    """End the list of models; candidates, which come after them, take their steps in Python."""


def compile_learner(module: str, name: str, models: Sequence[Steps]) -> Loop:
    """Return the loop of a learner with these models, in their order."""
    every: dict[str, Any] = {}
    for template in (_forecast_all, _see_all, _played_all, _learn_all, _observe_all):
        link: Any = _nothing_more
        for steps in reversed(models):
            names = {f"{step}_step": function for step, function in steps._asdict().items()} | {"rest": link}
            link = spliced(bound(template, names, f"{name}{template.__name__}", module))
        every[template.__name__.removeprefix("_")] = link
    decide, see, played, learn, observe = (
        spliced(bound(step, every, f"{name}_{step.__name__}", module))
        for step in (judge.decide, judge.see, judge.played, judge.learn, judge.observe)
    )
    return compile_loop(module, judge.LEARNER, decide=decide, learn=learn, see=see, played=played, observe=observe)
