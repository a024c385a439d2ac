"""Base of the policies that learn a model of the system as they go."""

import abc
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from undertow import _checks
from undertow._checks import FloatArray
from undertow.compiled import ahead
from undertow.errors import InvalidInputError, OutOfTurnError
from undertow.learners.fits import Refit
from undertow.learners.judge import LearnerState, start_up_chance, start_up_rounds
from undertow.learners.learner import Learner
from undertow.learners.log import AFTER, BEFORE, arms_played
from undertow.learners.model import Model
from undertow.learners.report import ModelInUse, health_of, models_in_use
from undertow.live import ContextPolicy, Health
from undertow.live.arms import indices_of_names
from undertow.live.rounds import Timeline
from undertow.live.whole import Kept, insist
from undertow.moments import rows_in_time, with_one_context
from undertow.system import LinearGaussianSystem

if TYPE_CHECKING:
    from undertow.drawing import Sheet

__all__ = ["LearningPolicy"]

_PLOTTED = 300  # rounds whose rewards are drawn


@dataclass(kw_only=True, eq=False, repr=False)
class LearningPolicy(ContextPolicy):
    """Base of the learners.

    Parameters
    ----------
    refit
        "auto": a decision waits for fits that are short, about 20 ms by a fixed formula, and a thread makes the others.
        "inline": a decision waits for every fit that is due, and a seed fixes the run. "background": a thread makes all
        fits, and a decision never waits. Within `simulate` all fits are made inline.
    max_delay
        How many rounds a reward may be late. It counts rounds, not seconds: 10,000 are 100 s at 100 decisions a second.
        The log keeps that many rounds more, at 8 bytes a number (`nbytes`).
    """

    refit: Refit = "auto"
    max_delay: int = 10_000

    @abc.abstractmethod
    def _make_models(self) -> Sequence[Model]:
        """Check the parameters and return the models, in the order of the loop's."""

    def _sizes(self) -> dict[str, int]:
        _checks.choice("refit", self.refit, ("auto", "inline", "background"))
        self.max_delay = _checks.integer("max_delay", self.max_delay, least=0)
        self._models = tuple(self._make_models())
        return {"n": sum(model.length for model in self._models)}

    def _begin(self, own: LearnerState) -> None:
        start = start_up_rounds(self.arm_count)
        own.learner.start, own.learner.leader = start, -1.0
        own.learner.context_first = self._turns.context_first
        at = 0
        for model in self._models:
            block = model.block()
            running = model.open(block).model.running
            running.next_fit = max(running.next_fit, start)
            own.blocks[at : at + len(block)] = block
            at += len(block)

    def _make_timeline(self) -> Timeline:
        return self._make_learner()

    def _make_learner(self) -> Learner:
        parts = (self._player, self._turns, self._models)
        self._learner = Learner(*parts, max_delay=self.max_delay, refit=self.refit)
        return self._learner

    def __setstate__(self, entries: dict[str, Any]) -> None:
        super().__setstate__(entries)
        self._learner.fits.start_again()  # here, and not in what is copied on the way

    def _draw(self, rng: np.random.Generator, rounds: int) -> FloatArray:
        return rng.random((rounds, self.arm_count))

    def _chance(self, own: LearnerState, arm: int) -> float:
        """Return 1 or 0 for a proposed arm; in start-up, arms that were played least are drawn from."""
        chance = start_up_chance(own, arm)
        return float(arm == own.common.head.proposed) if chance is None else chance

    def _places(self, old_arms: int) -> dict[str, npt.NDArray[np.int64] | None]:
        return {"n": None}  # each model makes room for itself

    def _welcome(self, own: LearnerState) -> None:
        own.learner.start = start_up_rounds(self.arm_count)

    def _run_parameters(self) -> dict[str, Any]:
        ahead.begin(self._models[0].fitted_by)
        return {"refit": "inline"}

    # What users call

    @property
    def models(self) -> tuple[ModelInUse, ...]:
        """The models that have been fitted, the one that decides first."""
        with self._lock:
            return models_in_use(self._learner, minimise=self.minimise)

    @property
    def model(self) -> ModelInUse | None:
        """The model that decides; None before the first fit."""
        return next(iter(self.models), None)

    @property
    def system(self) -> LinearGaussianSystem | None:
        """The system in use, with identity state noise, where one shared system decides; None otherwise."""
        content = None if self.model is None else self.model.content
        return content if isinstance(content, LinearGaussianSystem) else None

    def plot(self, features: npt.ArrayLike | None = None) -> "Sheet":
        """Draw the forecasts, the rewards of the last rounds by arm, and which model leads by how much.

        `features` are those of the round to come, where the policy takes them; nothing changes.
        """
        from undertow.drawing import draw_arms

        with self._lock:
            outlook, models, log = self.forecast(features), self.models, self._learner.log
            first = max(log.begin, log.end - _PLOTTED)
            rows = log.rows(first, log.end).copy()
        known = np.flatnonzero(~np.isnan(rows[:, log.reward]))
        sign = -1.0 if self.minimise else 1.0
        return draw_arms(
            self.names,
            outlook.forecast,
            outlook.width,
            title=f"round {self.round}",
            past=(first + known, rows[known, log.arm].astype(np.int64), sign * rows[known, log.reward]),
            scores=[(model.name, model.score - models[0].score) for model in models],
        )

    def health(self) -> Health:
        """Return what a person on call needs: rounds, decisions that wait, innovations, alarms, fits and failures."""
        with self._lock:
            return health_of(self._learner, super().health())

    def warm_start(
        self,
        arms: npt.ArrayLike | Iterable[str | None],
        rewards: npt.ArrayLike,
        *,
        contexts: npt.ArrayLike | None = None,
        features: npt.ArrayLike | None = None,
        elapsed: npt.ArrayLike | None = None,
    ) -> None:
        """Take in a table of past rounds, one row each; the first decision then begins with a fit.

        `arms` (n,) are names, None where none was played, or indices, −1 where none was; `rewards` (n,) are NaN where
        none came; `contexts` (n, m) are NaN where an entry is missing. `features` are needed where the policy takes
        them: (n, q), those of the arm that was played, or (n, k, q), those of every arm. `elapsed` (n,) is how many
        moments began since the row before, 1 by default; rows of the same moment, with 0, have the same context, or
        NaN.
        """
        with self._lock:
            if not self.unused:
                raise OutOfTurnError("warm_start: this policy has begun; call it before the first decision")
            m, q = self._context_dim, self._feature_dim
            n = len(played := arms_played(indices_of_names(arms, self.names), self.arm_count))
            x = _checks.measured("rewards", rewards, (n,), missing=True)
            given = np.full((n, m), math.nan) if contexts is None else contexts
            θ = _checks.measured("contexts", given, (n, m), missing=True)
            if features is None and q:
                raise InvalidInputError(f"features: expected shape ({n}, {q}), got None")
            u = self._past_features(np.empty((n, 0)) if features is None else features, played)
            if not n:
                return
            x = x if self._columns.units is None else self._columns.units.rewards(x)
            places, same = rows_in_time(elapsed, n)
            θ = with_one_context(θ, same, last=not self._turns.context_first)
            shared = BEFORE * same + AFTER * np.append(same[1:], False)
            rows = self._learner.log.blank(int(places[-1]) + 1)
            rows[places] = np.column_stack([θ, u, shared, played, np.where(played < 0, math.nan, x)])
            seed = math.floor(self._streams.aside().random() * 2.0**53)  # the first fit comes before the first draw
            kept = Kept.of(self.parts)
            try:
                self._learner.warm_start(rows, len(rows), seed)
                self._note_past()
            except BaseException:
                insist(kept.put_back)
                raise

    def _past_features(self, features: npt.ArrayLike, played: npt.NDArray[np.int64]) -> FloatArray:
        """Return the features of the arms that were played, (n, q)."""
        n, k, q = len(played), self.arm_count, self._feature_dim
        given = _checks.numbers("features", features)
        if given.ndim != 3 or not self.claims.takes_arm_features:
            return _checks.measured("features", given, (n, q))
        return _checks.measured("features", given, (n, k, q))[np.arange(n), played]

    def _note_past(self) -> None:
        """Take note of the rounds of a warm start, which are in the log."""
