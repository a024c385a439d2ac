"""Base of the policies that learn a model of the system."""

import abc
import logging
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from undertow.compiled import ahead
from undertow.compiled.loop import Loop
from undertow.errors import InvalidInputError, OutOfTurnError
from undertow.learning.first_rounds import Starting
from undertow.learning.fits import Refit
from undertow.learning.health import ModelInUse, health_of, models_in_use
from undertow.learning.learner import Learner
from undertow.live import ContextPolicy, Health
from undertow.live.arms import indices_of_names
from undertow.live.clock import is_duration
from undertow.live.events import WarmStarted
from undertow.live.metrics import Measure
from undertow.live.names import Inputs, Rows
from undertow.live.registry import name_of
from undertow.live.rehearsal import rehearse
from undertow.live.rounds import Timeline
from undertow.models.judge import LearnerState, start_up_chances, start_up_rounds
from undertow.models.log import AFTER, BEFORE, arms_played, require_small
from undertow.models.model import Model
from undertow.support import checks
from undertow.support.checks import FloatArray
from undertow.support.timesteps import rows_in_time, with_one_context
from undertow.system import LinearGaussianSystem

if TYPE_CHECKING:
    from undertow.support.drawing import Sheet

__all__ = ["LearningPolicy"]

_PLOTTED = 300  # rounds with rewards in a figure
_MOST_KEPT = 10_000  # rounds that may pass without kernels
_LOG = logging.getLogger("undertow.kernels")


def are_loaded(loop: Loop) -> bool:
    """Return whether this process has the kernels of a loop, or needs none."""
    return bool(getattr(loop.play, "overloads", True))


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
        How late a reward may be: a number of rounds (10,000 are 100 s at 100 decisions a second), or a time, such as
        "3 days", for decisions with `at`. The log keeps that many rounds more, at 8 bytes a number (`parts.nbytes`).
    looks
        Whether abandoned arms are occasionally played again (`learners.looks`), because they may have changed. Turn it
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
        return self._make_learner()

    def _make_learner(self) -> Learner:
        parts = (self._player, self._turns, self._models)
        self._learner = Learner(*parts, max_delay=self._delay_in_rounds(), refit=self.refit)
        return self._learner

    def _delay_in_rounds(self) -> int | None:
        return None if is_duration(self.max_delay) else cast("int", self.max_delay)

    # Missing kernels

    def __post_init__(self) -> None:
        super().__post_init__()
        self._awaits_kernels = True

    def _check_kernels(self, *, decides: bool) -> None:
        starting = self._timeline
        if not isinstance(starting, Starting):
            self._awaits_kernels = self._begin_without_kernels()
            return
        due = decides and starting.over and (self.refit != "background" or self.round >= _MOST_KEPT)
        if self._compilation.ended or due:
            self._settle()

    def _begin_without_kernels(self) -> bool:
        """Return whether another process compiles the kernels, while initial rounds run without."""
        kind = type(self)
        ours = kind.__module__.startswith("undertow.policies.")  # kernels that another process can find
        if are_loaded(kind.loop) or not ours or not self._whole().unused or self._timeline is not self._learner:
            return False

        def load() -> None:
            twin = kind(arms=["a", "b"], context_dim=1, refit="inline", rng=0)
            twin.parts.compile_here()
            rehearse(twin)

        compilation = ahead.compilation_of(name_of(kind) or "", kind.__module__, load)
        if compilation is None or compilation.ended:
            return False
        self._compilation, self._timeline = compilation, Starting(self._learner)
        self._awaits_kernels = True
        self._checkpoint()
        _LOG.info("another process compiles the kernels of %s; until then, arms take turns", kind.__name__)
        return True

    def _settle(self) -> None:
        """Discard numbers sampled ahead; wait for kernels after rounds without them, and rebuild the policy."""
        super()._settle()
        if not isinstance(self._timeline, Starting):
            return
        if not self._compilation.ended:
            _LOG.info("round %d waits for the kernels of %s", self.round, type(self).__name__)
            self._compilation.wait()
        self._journal.torn = True
        self._rebuild(self._have_kernels)
        self._checkpoint()
        _LOG.info("the kernels of %s are ready; %d rounds were replayed", type(self).__name__, self.round)
        self._timeline.report()

    def _have_kernels(self) -> None:
        """Continue with kernels; an unused policy needs them before its events are applied."""
        self._timeline, self._awaits_kernels = self._learner, False
        self._player.loop = type(self).loop
        del self._compilation  # which has a thread, and cannot be copied

    def _compile_here(self) -> None:
        """Compile missing kernels in this process, without notice, and not in another one."""
        super()._compile_here()
        self._learner.notices.quiet = True

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

    # Public calls

    @property
    def models(self) -> tuple[ModelInUse, ...]:
        """The models that have been fitted, the one that decides first."""
        self._whole()
        with self._lock:
            return models_in_use(self._learner, minimize=self.minimize)

    @property
    def model(self) -> ModelInUse | None:
        """The model that decides; None before the first fit."""
        return next(iter(self.models), None)

    @property
    def system(self) -> LinearGaussianSystem | None:
        """The system in use, with identity state noise, if a shared system decides; else None."""
        content = None if self.model is None else self.model.content
        return content if isinstance(content, LinearGaussianSystem) else None

    def plot(self, features: "Inputs | None" = None) -> "Sheet":
        """Draw the forecasts, the rewards of the last rounds by arm, and the leads of models.

        `features` are those of the next round, if the policy takes them, without side effects.
        """
        from undertow.support.drawing import draw_arms

        with self._lock:
            outlook, models, log = self.forecast(features), self.models, self._learner.log
            first = max(log.begin, log.end - _PLOTTED)
            rows = log.rows(first, log.end).copy()
        known = np.flatnonzero(~np.isnan(rows[:, log.reward]))
        sign = -1.0 if self.minimize else 1.0
        return draw_arms(
            self.names,
            outlook.forecast,
            outlook.width,
            title=f"round {self.round}",
            past=(first + known, rows[known, log.arm].astype(np.int64), sign * rows[known, log.reward]),
            scores=[(model.name, model.score - models[0].score) for model in models],
        )

    def health(self) -> Health:
        """Return a status summary: rounds, pending decisions, innovations, alarms, fits and failures."""
        with self._lock:
            health = super().health()
            return health_of(self._learner, health)

    def _measures(self, **labels: str) -> list[Measure]:
        """Return the numbers of `metrics`, with more labels, to combine with those of other policies."""
        with self._lock:
            found, models = super()._measures(**labels), self.models
        for model in models:
            mine = found[0].labels | {"model": model.name}
            found.append(Measure("model_order", model.order, mine))
            found.append(Measure("model_deciding", model is models[0], mine))
            found.append(Measure("model_fitted_round", model.fitted, mine))
        return found

    def warm_start(
        self,
        arms: "npt.ArrayLike | Iterable[str | None]",
        rewards: "npt.ArrayLike",
        *,
        contexts: "Rows | None" = None,
        features: "Rows | None" = None,
        elapsed: "npt.ArrayLike | None" = None,
    ) -> None:
        """Learn from past rounds, one row each, and fit the models to them.

        `arms` (n,) are names, None if none was played, or indices, −1 if none was; `rewards` (n,) are NaN if none came;
        `contexts` (n, m) are NaN if missing. `features` are needed if the policy takes them: (n, q), those of the
        played arm, or (n, k, q), those of every arm. Both may be given by name: as a list of mappings, or a frame of
        pandas or polars. `elapsed` (n,) is the number of time steps since the row before, 1 by default; rows of the
        same time step, with 0, have the same context, or NaN. With refit="inline", the first decision makes the fits.
        """
        with self._lock:
            if not self._whole().unused:
                raise OutOfTurnError("warm_start: this policy has begun; call it before the first decision")
            self._get_ready()
            self._settle()
            m, q = self._context_dim, self._feature_dim
            n = len(played := arms_played(indices_of_names(arms, self.names), self.arm_count))
            x = checks.measured("rewards", rewards, (n,), missing=True)
            contexts = self._columns.past_contexts(contexts, n)
            features = self._columns.past_features(features, self.names, self._player.common.closed, played)
            given = np.full((n, m), math.nan) if contexts is None else contexts
            θ = checks.measured("contexts", given, (n, m), missing=True)
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
            started = WarmStarted(rows=rows)
            self._journal.torn = True
            self._apply(started)
            events = [started, *self._learner.fits.made(len(rows))]
            for fit in events[1:]:
                self._apply(fit)
            self._commit(events[-1], events[:-1])

    def _start_warm(self, rows: FloatArray) -> None:
        if not self._whole().unused:
            raise OutOfTurnError("warm_start: this policy has begun; call it before the first decision")
        blank = self._learner.log.blank(0)
        if rows.ndim != 2 or rows.shape[1] != blank.shape[1]:
            raise InvalidInputError(f"rows: expected {blank.shape[1]} columns, got shape {rows.shape}")
        self._learner.log.check(rows, self.arm_count)
        seed = math.floor(self._streams.extra_stream().random() * 2.0**53)  # the first fit comes first
        self._learner.warm_start(rows, len(rows), seed)
        if self._columns.fills:
            for row in rows[rows[:, self._learner.log.arm] >= 0]:
                self._columns.note_row(row[self._context_dim : self._learner.log.shared])
        self._note_past()
        if self.refit != "inline":
            self._learner.attend(inline=False)
        self._learner.costly = True

    def _past_features(self, features: "npt.ArrayLike", played: npt.NDArray[np.int64]) -> FloatArray:
        """Return the features of the played arms, (n, q)."""
        n, k, q = len(played), self.arm_count, self._feature_dim
        given = checks.numbers("features", features)
        if given.ndim != 3 or not self.capabilities.takes_arm_features:
            return checks.measured("features", given, (n, q))
        return checks.measured("features", given, (n, k, q))[np.arange(n), played]

    def _note_past(self) -> None:
        """Count the rounds of a warm start, which are in the history."""
