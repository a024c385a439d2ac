"""The live object around a policy's compiled steps.

    decision = policy.decide()            # which arm, and why
    policy.learn(decision, reward)        # may come late, out of order, or never
    policy.observe(context)               # one row of context; None where it is missing

With contexts, `decide` and `observe` alternate: decide first is the paper's order and the default, observe first
(`context_first=True`) the everyday one. Without contexts, every `decide` is a round.

Every method may be called from any thread; calls on one policy wait for one another.
"""

import abc
import copy
import math
import os
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from undertow import _checks
from undertow._checks import FloatArray
from undertow.compiled.loop import Loop, Player
from undertow.errors import InvalidInputError, OutOfTurnError
from undertow.live.arms import arm_index, arm_names, open_arms
from undertow.live.decision import Claims, Decision, Outlook
from undertow.live.episode import play_episode
from undertow.live.rounds import Parts, Pending, Timeline, Turns
from undertow.live.streams import Seed, Streams
from undertow.live.units import Columns
from undertow.trajectory import Trajectory

__all__ = ["LivePolicy"]


@dataclass(kw_only=True, eq=False, repr=False)
class LivePolicy(abc.ABC):
    """Base of our policies: it has parts, and a policy gives it data and steps.

    A policy adds its parameters as dataclass fields, declares its claims, describes its state and names its steps
    (`loop`), says how large the state is (`_sizes`) and how it begins (`_begin`); see docs/own_policy.md.

    Parameters
    ----------
    arms
        How many arms, or their names.
    explore
        ε in [0, 1]: with this probability the arm is drawn from all open arms instead.
    minimise
        Whether rewards are costs: the policy prefers the smallest, and its forecasts are costs.
    max_pending
        How many decisions may wait for their reward; the oldest are forgotten first.
    rng
        Seed or Generator for policies that randomise. Each run of `simulate` has a stream of its own, and run 0 that of
        the live policy; none of them is a stream that `sample` uses, whatever the seed.
    """

    claims: ClassVar[Claims]
    loop: ClassVar[Loop]
    has_windows: ClassVar[bool] = False  # whether the forecast of an arm uses a window of its own
    registered_name: ClassVar[str]
    citation: ClassVar[str]

    arms: int | Sequence[str]
    explore: float = 0.0
    minimise: bool = False
    max_pending: int = 100_000
    rng: Seed = None

    def __post_init__(self) -> None:
        self._lock = threading.RLock()
        self.names = arm_names(self.arms)
        self.explore = _checks.number("explore", self.explore, least=0)
        if self.explore > 1:
            raise InvalidInputError(f"explore: expected a probability, at most 1, got {self.explore:g}")
        self.minimise = _checks.flag("minimise", self.minimise)
        self.max_pending = _checks.integer("max_pending", self.max_pending, least=1)
        self._context_dim = _checks.integer("context_dim", getattr(self, "context_dim", 0), least=0)
        self._feature_dim = _checks.integer("feature_dim", getattr(self, "feature_dim", 0), least=0)
        context_first = _checks.flag("context_first", getattr(self, "context_first", False))
        self._streams = Streams(self.rng)
        self._turns = Turns(self._context_dim, context_first=context_first)
        self._pending = Pending(self.max_pending)
        self._columns = self._make_columns()
        state = self._new_state()
        self._draw_count = self._draw(np.random.default_rng(0), 1).shape[1] + (2 if self.explore else 0)
        self._player = Player(type(self), state, self._draw_count)
        self._timeline = self._make_timeline()

    def _new_state(self) -> FloatArray:
        """Return the state before the first round."""
        layout = self.loop.layout
        sizes = {"k": self.arm_count, "m": self._context_dim, "q": self._feature_dim, "p": 0}
        state = layout.new(**(sizes | self._sizes()))
        own = layout.open(state)
        own.common.order[:] = np.arange(self.arm_count)
        own.common.head.explore = self.explore
        self._begin(own)
        return state

    # What a policy says, and what it may say differently

    def _sizes(self) -> dict[str, int]:
        """Check the parameters and return the sizes of the state beyond the numbers of arms, contexts and features."""
        return {}

    def _begin(self, own: Any) -> None:  # noqa: B027
        """Write what the state holds before the first round; everything but sizes and order is zero."""

    def _draw(self, rng: np.random.Generator, rounds: int) -> FloatArray:
        """Return the random numbers that `decide` needs, one row per round."""
        return np.empty((rounds, 0))

    def _chance(self, own: Any, arm: int) -> float:
        """Return the probability with which the policy itself proposed an arm; 1 or 0 where it does not randomise."""
        return float(arm == self._player.proposed)  # faster than through `own`, in every decision

    def claims_as_built(self) -> Claims:
        """Return what the policy claims with the parameters that it has."""
        return self.claims

    def _places(self, old_arms: int) -> dict[str, npt.NDArray[np.int64] | None]:
        """Return where entries of a state with fewer arms go, for axes along which they do not just stay in front.

        None is for parts that are not carried over.
        """
        return {}

    def _welcome(self, own: Any) -> None:  # noqa: B027
        """Set what one more arm changes, after everything known of the others was taken over."""

    def _run_parameters(self) -> dict[str, Any]:
        """Return the parameters that differ in a run of `simulate`."""
        return {}

    def _make_columns(self) -> Columns:
        """Return the units in which the policy computes."""
        return Columns(self._context_dim, self._feature_dim, minimise=self.minimise)

    def _make_timeline(self) -> Timeline:
        """Return how rewards and contexts reach the state."""
        return Timeline(self._player)

    def _rescale(self) -> None:
        """Change the units, for policies whose columns ask for it."""
        raise NotImplementedError

    # What users call

    @property
    def arm_count(self) -> int:
        """Number of arms k."""
        return len(self.names)

    @property
    def round(self) -> int:
        """Number of rounds begun so far."""
        return self._player.rounds

    @property
    def pending(self) -> int:
        """Number of decisions that wait for their reward."""
        return len(self._pending.waiting)

    @property
    def parameters(self) -> dict[str, Any]:
        """Return what the policy was constructed with."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def __repr__(self) -> str:
        given = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "rng"}
        defaults = {field.name: field.default for field in fields(self)}
        shown = ", ".join(f"{name}={value!r}" for name, value in given.items() if value != defaults[name])
        return f"{type(self).__name__}({shown})"

    @property
    def retired(self) -> tuple[str, ...]:
        """Names of the arms that are not played any more."""
        with self._lock:
            closed = self._player.common.closed
            return tuple(name for name, shut in zip(self.names, closed, strict=True) if shut)

    def decide(
        self, features: npt.ArrayLike | None = None, *, available: Iterable[str | int] | None = None
    ) -> Decision:
        """Choose an arm for this round.

        `features` are what is known before the choice and not moved by the state, for policies with a `feature_dim`;
        `available` are the names or indices of the arms that can be played in this round, all by default.
        """
        with self._lock:
            self._turns.require("decide")
            closed = self._player.common.closed
            shut = None if available is None else open_arms(available, closed > 0, self.names)
            given = None
            if features is not None or self._feature_dim:
                given = self._columns.checked_features(features, can_take=self.claims.takes_features)
            if self._player.rounds >= self._columns.pause:
                self._rescale()
            if given is not None:
                self._columns.note(features=given)
                self._columns.put_features(given, self._player.features)
            self._timeline.prepare(self._pending.oldest(self._player.rounds))
            if shut is None:
                return self._decide()
            retired, closed[:] = closed.copy(), shut
            try:
                return self._decide()
            finally:
                closed[:] = retired

    def _decide(self) -> Decision:
        player, timeline = self._player, self._timeline
        t = player.rounds
        if self._draw_count:
            player.draws[:] = self._draws(1)[0]
        while not player.decide():
            timeline.attend()
        arm = int(player.arm.item())
        self._turns.decided()
        number = self._pending.add(t, arm, player.common.memory.copy())
        timeline.decided(arm)
        return Decision(number, t, arm, self.names[arm], *self._outlook(), timeline.why(), self._propensity(arm))

    def learn(self, decision: Decision | int, reward: float) -> None:
        """Take in the reward of an earlier decision, given as the decision or as its id."""
        with self._lock:
            value = _checks.reward(reward)
            number, waiting = self._pending.find(decision, self.names)
            self._timeline.learn(waiting, self._columns.reward(value), self._player.rounds - 1 - waiting.round)
            del self._pending.waiting[number]

    def observe(self, context: npt.ArrayLike | None) -> None:
        """Take in the round's context, (m,): NaN where an entry is missing, None where all are."""
        with self._lock:
            self._turns.require("observe")
            self._columns.put_context(context, self._player.context)
            self._timeline.observe()
            self._turns.observed()

    def skip(self, rounds: int = 1, contexts: npt.ArrayLike | None = None) -> None:
        """Let rounds pass in which no decision is taken; their contexts, (rounds, m), are missing unless given."""
        rounds = _checks.integer("rounds", rounds, least=1)
        m = self._context_dim
        rows = None if contexts is None else _checks.measured("contexts", contexts, (rounds, m), missing=True)
        with self._lock:
            turns, timeline = self._turns, self._timeline
            if turns.due != turns.first:
                raise OutOfTurnError(
                    f"skip: this round has begun; {turns.due} first (observe(None) where there was no context)"
                )
            for row in [None] * rounds if rows is None else rows:
                self._columns.put_context(row, self._player.context)
                if turns.context_first:
                    timeline.observe()
                timeline.prepare(self._pending.oldest(self._player.rounds), choice=False)
                self._player.skip()
                if m and not turns.context_first:
                    timeline.observe()

    def forecast(self, features: npt.ArrayLike | None = None) -> Outlook:
        """Return what the policy would predict now, before its own draws, and change nothing."""
        with self._lock:
            given = self._columns.checked_features(features, can_take=self.claims.takes_features)
            begins = self._columns.follows and self._pending.made == 0
            if begins or self.round >= self._columns.pause:
                return copy.deepcopy(self).forecast_in_new_units(given)
            return self._forecast(given)

    def forecast_in_new_units(self, features: FloatArray | None) -> Outlook:
        """Return a forecast after the units have changed, or begun, as they would before a decision; for a copy."""
        if self.round >= self._columns.pause:
            self._rescale()
        self._columns.begin(**({} if features is None else {"features": features}))
        return self._forecast(features)

    def _forecast(self, features: FloatArray | None) -> Outlook:
        self._columns.put_features(features, self._player.features)
        self._player.draws[:] = 0.0
        self._player.decide(self._timeline.scratch())
        return Outlook(*self._outlook())

    def retire_arm(self, name: str) -> None:
        """Play an arm no more; rewards of earlier decisions for it may still be learned."""
        with self._lock:
            arm, closed = arm_index("name", name, self.names), self._player.common.closed
            if closed[arm]:
                raise InvalidInputError(f"name: {name!r} was retired already")
            if closed.sum() == self.arm_count - 1:
                raise InvalidInputError(f"name: {name!r} is the last arm; add another one before it is retired")
            closed[arm] = 1.0

    def add_arm(self, name: str) -> None:
        """Add an arm, or bring back one that was retired, with what was learned of it."""
        with self._lock:
            if isinstance(name, str) and name in self.retired:
                self._player.common.closed[self.names.index(name)] = 0.0
                return
            if not isinstance(name, str) or name in self.names:
                raise InvalidInputError(f"name: expected a name that no arm has yet, got {name!r:.60}")
            wider = type(self)(**(self.parameters | {"arms": (*self.names, name), "rng": self._streams.seeds}))
            wider.take_over(self.parts)
            self.__dict__.update({key: value for key, value in vars(wider).items() if key != "_lock"})

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything needed to continue bit for bit; `undertow.load` reads it. The format is open, not pickle."""
        from undertow.live.files import write_policy

        with self._lock:
            write_policy(self, path)

    # What `simulate`, `load` and copies call

    @property
    def by_hand(self) -> bool:
        """Whether `simulate` has to play through the methods, which no policy of ours needs by itself."""
        return False

    @property
    def unused(self) -> bool:
        """Whether nothing has happened to the policy yet."""
        return self._pending.made == 0 and self.round == 0 and self._turns.due == self._turns.first

    def for_run(self, number: int, *, context_first: bool | None = None, order: Sequence[int] | None = None) -> Any:
        """Return an unused copy with the stream of run `number`; that of run 0 is the policy's own.

        `order` is that of start-up and of ties, by default the policy's own.
        """
        changes: dict[str, Any] = {"rng": self._streams.seeds} | self._run_parameters()
        if context_first is not None and hasattr(self, "context_first"):
            changes["context_first"] = context_first
        twin = type(self)(**(self.parameters | changes))
        ours, theirs = self._player.common, twin.parts.player.common
        theirs.order[:], theirs.closed[:] = ours.order if order is None else order, ours.closed
        twin.parts.streams.begin(number)
        return twin

    def play(self, path: Trajectory, arms: npt.NDArray[np.int64], records: FloatArray) -> None:
        """Play through a path; write the chosen arms and, where there is room, forecasts, widths and windows."""
        play_episode(self.parts, self._draws, self._rescale, path, arms, records)
        if len(records) and not self.has_windows:
            records[:, -1] = math.nan

    def take_over(self, old: Parts) -> None:
        """Become what a policy with one arm less is made of; nothing is known of the new arm."""
        own, before = self._player.own, len(old.player.common.order)
        places = self._places(before)
        self.loop.layout.carry(old.player.state, self._player.state, places)
        own.common.order[before:] = np.arange(before, self.arm_count)
        self._pending, self._columns, self._streams = old.pending, old.columns, old.streams
        self._turns.due = old.turns.due
        self._pending.widen_memories(len(own.common.memory), places.get("p"))
        self._welcome(own)
        self._timeline.take_over(old.timeline)

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            return copy.deepcopy({name: value for name, value in self.__dict__.items() if name != "_lock"})

    def __setstate__(self, entries: dict[str, Any]) -> None:
        self.__dict__.update(entries)
        self._lock = threading.RLock()

    # How the parts work together

    @property
    def parts(self) -> Parts:
        """What the policy consists of, for a look inside."""
        return Parts(self._player, self._columns, self._streams, self._turns, self._pending, self._timeline)

    def _draws(self, rounds: int) -> FloatArray:
        """Return the policy's random numbers and, where it explores, two more per round."""
        own = self._draw(self._streams.own, rounds)
        return np.hstack([own, self._streams.explore.random((rounds, 2))]) if self.explore else own

    def _propensity(self, arm: int) -> float:
        """Return the probability with which the arm of the last decision was chosen."""
        chance = self._chance(self._player.own, arm)
        if not self.explore:
            return chance
        return (1 - self.explore) * chance + self.explore / int((self._player.common.closed == 0).sum())

    def _outlook(self) -> tuple[FloatArray, FloatArray, npt.NDArray[np.int64] | None]:
        forecast, width, window = self._player.record.copy()
        if self._columns.units is not None:
            forecast, width = self._columns.units.outward(forecast, width)
        return forecast, width, window.astype(np.int64) if self.has_windows else None
