"""What the learners share: a log, models that are fitted to it now and then, and rewards that come late.

A learner holds one model or several (`Member`), each in a block of its own in the packed state. When a fit is due, the
kernel that was asked to decide says so. Inline, the fit is made there and then; in the background, a thread makes it
from a copy, and the model is swapped in before a later decision, after it has caught up with the rounds in between.
"""

import abc
import math
import warnings
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from undertow import _checks
from undertow._checks import FloatArray
from undertow.errors import InvalidInputError, OutOfTurnError, UnknownDecisionError
from undertow.policies import beside
from undertow.policies.background import begin_anew, ready, start
from undertow.policies.base import LivePolicy
from undertow.policies.contextual import ContextPolicy
from undertow.policies.decision import Why
from undertow.policies.explain import explain, health_of, models_of
from undertow.policies.health import FitRecord, Health, ModelInUse
from undertow.policies.hindsight import filter_again, take_learner
from undertow.policies.learner_files import learner_arrays, restore_learner
from undertow.policies.learner_state import HEAD, LEADER, SEED
from undertow.policies.log import RoundLog, arms_played
from undertow.policies.member import (
    ALARMED,
    ALARMS,
    BEGIN,
    BUSY,
    FITS,
    FITTED,
    LEVEL,
    NEXT,
    READY,
    SCORE,
    SCORES,
    TRIED,
    Fit,
    Member,
    Span,
    Task,
    attempt,
)
from undertow.policies.state import ROUNDS, new_state
from undertow.policies.worker import Worker
from undertow.policies.workings import locked
from undertow.system import LinearGaussianSystem

__all__ = ["LearningPolicy"]

LONGEST = 20_000  # rounds that a fit looks at
_START = 6  # rounds before the first fit, in which the arms take turns; up to twice as many where there are many
_SPACING = 64  # rounds between two states that late rewards can go back to, unless states are large
_MOST_BYTES = 256e6  # that these states may take
_OWN = [*SCORES, ALARMS, FITS, NEXT]  # what a fit leaves to the model that runs


@dataclass(kw_only=True, eq=False, repr=False)
class LearningPolicy(ContextPolicy):
    """Base of the learners.

    Parameters
    ----------
    refit
        "inline": fits are made when they are due, and a seed fixes the run. "background": a thread makes them, and a
        decision never waits for one.
    max_delay
        How many rounds a reward may be late: it is applied at its own round, and what came since is filtered again.
    """

    refit: Literal["inline", "background"] = "inline"
    max_delay: int = 1000

    def __post_init__(self) -> None:
        _checks.choice("refit", self.refit, ("inline", "background"))
        self.max_delay = _checks.integer("max_delay", self.max_delay, least=0)
        LivePolicy.__post_init__(self)
        self._log = RoundLog(self._context_dim, self._feature_dim, LONGEST + self.max_delay)
        self._checkpoints: deque[tuple[int, FloatArray]] = deque()
        self._spacing = max(_SPACING, math.ceil(self.max_delay * self._state.nbytes / _MOST_BYTES))
        self._records: deque[FitRecord] = deque(maxlen=50)
        self._under_way: dict[int, tuple[Task, list[Fit | Exception]]] = {}
        self._waiting: dict[int, tuple[int, FloatArray]] = {}  # fitted blocks, and the round they have come to
        self._outdated: set[int] = set()  # fits under way that do not know of a reward which has come since
        self._latest = 0  # how many rounds late rewards have been lately
        self._worker: Worker | None = None

    @abc.abstractmethod
    def _make_members(self) -> Sequence[tuple[Member, FloatArray]]:
        """Return the models with their first blocks."""

    # What users call

    @property
    @locked
    def models(self) -> tuple[ModelInUse, ...]:
        """The models that have been fitted, the one that decides first."""
        return models_of(self)

    @property
    def model(self) -> ModelInUse | None:
        """The model that decides; None before the first fit."""
        return next(iter(self.models), None)

    @property
    def system(self) -> LinearGaussianSystem | None:
        """The system in use, with identity state noise, where one shared system decides; None otherwise."""
        content = None if self.model is None else self.model.content
        return content if isinstance(content, LinearGaussianSystem) else None

    @locked
    def health(self) -> Health:
        """Return what a person on call would ask for: innovations, alarms, fits and their failures."""
        return health_of(self)

    @locked
    def warm_start(
        self,
        arms: npt.ArrayLike,
        rewards: npt.ArrayLike,
        *,
        contexts: npt.ArrayLike | None = None,
        features: npt.ArrayLike | None = None,
    ) -> None:
        """Take in a table of past rounds, one row each, before the first decision, which then begins with a fit.

        `arms` (n,) are indices, −1 where none was played; `rewards` (n,) are NaN where none came; `contexts` (n, m) are
        NaN where an entry is missing, and `features` (n, q) are needed where the policy takes them.
        """
        if not self.unused:
            raise OutOfTurnError("warm_start: this policy has begun; call it before the first decision")
        m, q, k = self._context_dim, self._feature_dim, self.arm_count
        n = len(played := arms_played(arms, k))
        x = _checks.measured("rewards", rewards, (n,), missing=True)
        θ = _checks.measured(
            "contexts", np.full((n, m), math.nan) if contexts is None else contexts, (n, m), missing=True
        )
        if features is None and q:
            raise InvalidInputError(f"features: expected shape ({n}, {q}), got None")
        u = _checks.measured("features", np.empty((n, 0)) if features is None else features, (n, q))
        if not n:
            return
        self._log.open(n - 1)
        first = self._log.begin  # what is older than the log's memory is gone
        x = x if self._units is None else self._units.rewards(x)
        self._log.rows(first, n)[:] = np.column_stack([θ, u, played, np.where(played < 0, math.nan, x)])[first:]
        self._state[ROUNDS] = n
        seeds = _checks.child(self._seeds, _checks.POLICY_BRANCH, 0, 1)  # the first fit comes before the first draw
        self._state[self._head + SEED] = math.floor(seeds.random() * 2.0**53)
        plays = self._state[self._head + HEAD : self._head + HEAD + k]
        plays[:] = np.bincount(played[played >= 0], minlength=k)
        for number in range(len(self._members)):
            if self._block(number)[NEXT] < math.inf:  # a candidate fits itself
                self._block(number)[NEXT] = min(self._block(number)[NEXT], max(n, self._state[self._head]))
        if self._context_first and m:
            self._due = "observe"
        self._note_past()

    def _note_past(self) -> None:
        """Take note of the rounds of a warm start, which are in the log."""

    def _take_parts(self, old: Self) -> None:
        take_learner(self, old)

    def __setstate__(self, entries: dict[str, Any]) -> None:
        LivePolicy.__setstate__(self, entries)
        begin_anew(self)

    def _chance(self, arm: int) -> float:
        """Return 1 or 0 for a proposed arm; in start-up, arms that were played least are drawn from."""
        if self._state.item(self._head + LEADER) >= 0.0:
            return LivePolicy._chance(self, arm)
        first = self._head + HEAD
        plays = self._state[first : first + self.arm_count].copy()
        plays[arm] -= 1.0
        least = (self._closed == 0) & (plays == plays[self._closed == 0].min())
        return float(least[arm] / least.sum())

    def _why(self) -> Why:
        return explain(self)

    def _new_state(self) -> FloatArray:
        k = self.arm_count
        made = self._make_members()
        self._members = [member for member, _ in made]
        blocks = [block for _, block in made]
        start = max(_START, min(k, 2 * _START))
        for block in blocks:
            block[NEXT] = max(block[NEXT], start)
        head = np.array([start, self._context_first, 0.0, -1.0, 0.0])
        state = new_state(k, self._context_dim, 0, head, np.zeros(k), *blocks)
        self._sizes = [len(block) for block in blocks]
        self._places = [len(state) - sum(self._sizes[number:]) for number in range(len(blocks))]
        self._head = self._places[0] - k - HEAD
        return state

    def _draw(self, rng: np.random.Generator, rounds: int) -> FloatArray:
        return rng.random((rounds, self.arm_count))

    def _block(self, number: int, state: FloatArray | None = None) -> FloatArray:
        state = self._state if state is None else state
        return state[self._places[number] : self._places[number] + self._sizes[number]]

    def _scratch_state(self) -> FloatArray:
        state = self._state.copy()
        for number in range(len(self._members)):
            block = self._block(number, state)
            block[NEXT], block[ALARMED] = math.inf, 0.0
        return state

    def for_run(self, number: int, *, context_first: bool | None = None) -> LivePolicy:
        """Return an unused copy with the stream of run `number` that makes its fits inline."""
        twin = LivePolicy.for_run(self, number, context_first=context_first)
        assert isinstance(twin, LearningPolicy)
        twin.refit = "inline"
        beside.begin(self._members[0].fitted_by)
        return twin

    # Fits

    def _attend(self) -> None:
        for number, member in enumerate(self._members):
            block, t = self._block(number), self.round
            if block[BUSY] or (t < block[NEXT] and not block[ALARMED]):
                continue
            self._log.open(t - 1)
            begin = max(int(block[BEGIN]), t - LONGEST, self._log.begin)
            seed = (int(self._state[self._head + SEED]), number, int(block[FITS]))
            task = Task(t, begin, self._log.rows(begin, t).copy(), block.copy(), seed)
            block[NEXT] = min(math.ceil(t * member.growth(t)), t + LONGEST // 2)
            block[ALARMS] += block[ALARMED]
            if np.isnan(task.rows[:, -1]).all():  # nothing to learn from yet
                block[ALARMED] = 0.0
                continue
            block[FITS] += 1
            if self.refit == "inline":
                self._install(number, task, attempt(partial(member.fit, task)))
            else:
                start(self, number, task)

    def _install(self, number: int, task: Task, answer: Fit | Exception) -> None:
        """Swap a fitted model in and have it catch up with the rounds since; a fit that failed changes nothing."""
        member, block = self._members[number], self._block(number)
        block[BUSY] = block[ALARMED] = 0.0
        block[TRIED] = task.round
        if isinstance(answer, Exception):
            block[LEVEL] = 1.0  # to raise the alarm at once would bring the same fit again
            self._records.append(FitRecord(member.name, task.round, int(block[READY]), math.nan, 0, repr(answer)))
            message = f"the fit of the {member.name} at round {task.round} failed ({answer!r}); the old model goes on"
            warnings.warn(message, RuntimeWarning, stacklevel=4)
            return
        found = (answer.order, answer.log_likelihood, len(answer.tried))
        self._records.append(FitRecord(member.name, task.round, *found, None))
        kept, scored = block[_OWN].copy(), block[READY] > 0.0 and math.isfinite(block[SCORE])
        begin, block[:] = self._waiting.pop(number, (task.round, answer.block))
        block[FITTED] = block[TRIED] = task.round
        self._catch_up(number, begin, begin, self.round + self._context_first)
        scores = block[SCORES].copy()
        block[_OWN] = kept  # the rounds since were scored when they were played
        if not scored:  # a newcomer among the models begins level with the last of them
            block[SCORES] = scores
            others = (self._block(other) for other in range(len(self._members)) if other != number)
            theirs = [float(other[SCORE]) for other in others if other[READY] and math.isfinite(other[SCORE])]
            block[SCORE] = min(theirs, default=0.0)
        self._checkpoints.clear()
        self._checkpoints.append((self.round, self._state.copy()))

    def _catch_up(self, number: int, begin: int, fresh: int, seen: int) -> None:
        self._log.open(max(self.round, seen) - 1)
        rows, span = self._log.rows(begin, max(self.round, seen)), Span(begin, self.round, fresh, seen)
        if len(rows):  # none after a fit inline, so that its kernel need not be compiled
            self._members[number].catch_up(self._state, self._places[number], rows, span)

    def _before_decision(self) -> None:
        t = self.round
        if self._under_way:
            for number, task, answer in ready(self):
                self._install(number, task, answer)
        if not self._checkpoints:  # the first decision
            beside.begin(self._members[0].fitted_by)
        if not self._checkpoints or t - self._checkpoints[-1][0] >= self._spacing:
            while len(self._checkpoints) > 1 and self._checkpoints[1][0] <= t - self.max_delay:
                self._checkpoints.popleft()
            self._checkpoints.append((t, self._state.copy()))

    # The log, and rewards that come late

    def _after_decision(self, t: int, arm: int) -> None:
        row = self._log.row(t)
        m, q = self._context_dim, self._feature_dim
        row[m + q] = arm
        if q:
            row[m : m + q] = self._stage.features

    def _apply_context(self) -> None:
        self._log.row(self.round - (not self._context_first))[: self._context_dim] = self._stage.context
        LivePolicy._apply_context(self)

    def _apply_reward(self, memory: FloatArray, arm: int, reward: float, age: int) -> None:
        then = self._round_of(age)
        self._log.row(then)[-1] = reward
        self._latest = max(self._latest - 1, age)
        if self._under_way:
            self._outdated |= {number for number, (task, _) in self._under_way.items() if then < task.round}
            self._waiting = {number: waiting for number, waiting in self._waiting.items() if waiting[0] <= then}
        if age == 0 and self._seen <= self.round:  # no context of the next round has come
            LivePolicy._apply_reward(self, memory, arm, reward, 0)
        else:
            filter_again(self, then)

    def _round_of(self, age: int) -> int:
        """Return the round of a reward that is `age` rounds late, unless that is too long ago."""
        then = self.round - 1 - age
        if age > self.max_delay or then < self._log.begin:
            raise UnknownDecisionError(
                f"decision: its reward comes {age} rounds late, and only max_delay = {self.max_delay} are remembered"
            )
        return then

    @property
    def _seen(self) -> int:
        """Number of rounds whose context has been taken in."""
        if not self._context_dim:
            return 0
        if self._context_first:
            return self.round + (self._due == "decide")
        return self.round - (self._due == "observe")

    def _note_played(self, data: FloatArray, arms: FloatArray, begun: int, step: int) -> None:
        m, q = self._context_dim, self._feature_dim
        first, last = begun // 3, step // 3
        base = self.round - last
        if step % 3:  # the context of the next round has been seen
            self._log.row(base + last)[:m] = data[last, :m]
        if last > first:
            self._log.open(base + last - 1)
            rows = self._log.rows(base + first, base + last)
            played = arms[first:last].astype(np.int64)
            rows[:, : m + q] = data[first:last, : m + q]
            rows[:, m + q] = played
            rows[:, -1] = data[np.arange(first, last), m + q + played]

    # Save files

    def _fits(self, state: FloatArray) -> bool:
        sizes = [place + i for place, member in zip(self._places, self._members, strict=True) for i in member.sizes]
        return LivePolicy._fits(self, state) and np.array_equal(state[sizes], self._state[sizes])

    def _extra_arrays(self) -> dict[str, FloatArray]:
        return learner_arrays(self)

    def _restore_extra(self, arrays: dict[str, FloatArray]) -> None:
        restore_learner(self, arrays)
