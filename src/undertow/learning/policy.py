"""Base of the policies that learn a model of the system."""

import abc
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from undertow.compiled import ahead
from undertow.learning.first_rounds import StartsEarly
from undertow.learning.fits import Refit
from undertow.learning.health import Reports
from undertow.learning.learner import Learner
from undertow.learning.warm import StartsWarm
from undertow.live.clock import is_duration
from undertow.live.rounds import Timeline
from undertow.models.judge import LearnerState, start_up_chances, start_up_rounds
from undertow.models.log import require_small
from undertow.models.model import Model
from undertow.support import checks
from undertow.support.checks import FloatArray

__all__ = ["LearningPolicy"]


@dataclass(kw_only=True, eq=False, repr=False)
class LearningPolicy(StartsEarly, StartsWarm, Reports):
    """Base of the learners.

    Parameters
    ----------
    refit
        "auto": a decision waits for fits that are short, about 20 ms by a fixed formula, and a thread makes the others.
        "inline": a decision waits for every fit that is due, and a seed fixes the run. "background": a thread makes all
        fits, and a decision never waits. Within `simulate` all fits are made inline.
    max_delay
        How late a reward may be: a number of rounds (10,000 are 100 s at 100 decisions a second), or a time, such as
        "3 days", for decisions with `at`. The log keeps that many rounds more, at 8 bytes a number (`parts.nbytes`).
    looks
        Whether abandoned arms are occasionally played again (`models.looks`), because they may have changed. Turn it
        off only if you know that no model can be wrong about this.
    """

    refit: Refit = "auto"
    max_delay: int | str | timedelta = 10_000
    looks: bool = True

    @abc.abstractmethod
    def _make_models(self) -> Sequence[Model]:
        """Check the parameters and return the models, in the order of the loop's."""

    def _sizes(self) -> dict[str, int]:
        checks.choice("refit", self.refit, ("auto", "inline", "background"))
        if not is_duration(self.max_delay):
            self.max_delay = checks.integer("max_delay", self.max_delay, least=0)
        self.looks = checks.flag("looks", self.looks)
        require_small(0.0 if self.default_reward is None else self.default_reward)
        self._models = tuple(self._make_models())
        return {"n": sum(model.length for model in self._models)}

    def _begin(self, own: LearnerState) -> None:
        start = start_up_rounds(self.arm_count)
        own.learner.start, own.learner.leader = start, -1.0
        own.learner.context_first, own.learner.looks = self._turns.context_first, self.looks
        at = 0
        for model in self._models:
            block = model.block()
            running = model.open(block).model.running
            running.next_fit = max(running.next_fit, start)
            own.blocks[at : at + len(block)] = block
            at += len(block)

    def _make_timeline(self) -> Timeline:
        rounds = None if is_duration(self.max_delay) else cast("int", self.max_delay)
        parts = (self._player, self._turns, self._models)
        self._learner = self._make_learner(*parts, max_delay=rounds, refit=self.refit)
        return self._learner

    def _make_learner(self, *parts: Any, **settings: Any) -> Learner:
        return Learner(*parts, **settings)

    def _draw(self, rng: np.random.Generator, rounds: int) -> FloatArray:
        return rng.random((rounds, self.arm_count))

    def _probabilities(self, own: LearnerState, played: int) -> FloatArray:
        """Return 1 for the proposed arm, 0 for others; in initial rounds, those of the arms played least."""
        if self._learner.reasons.leader() >= 0:
            return super()._probabilities(own, played)
        return start_up_chances(own, played)

    def _propensities(self, arm: int) -> FloatArray | None:
        if not self.explore and self._learner.reasons.leader() >= 0:
            return None  # deterministic, as in most rounds
        return super()._propensities(arm)

    def _index_map(self, old_arms: int) -> dict[str, npt.NDArray[np.int64] | None]:
        return {"n": None}  # each model allocates its own space

    def _init_arm(self, own: LearnerState) -> None:
        own.learner.start = start_up_rounds(self.arm_count)

    def _run_parameters(self) -> dict[str, Any]:
        ahead.begin(self._models[0].fitted_by)
        return {"refit": "inline"}
