"""What happens in the calls of a round, each of which happens whole or not at all (`undertow.live.whole`)."""

import abc
import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from functools import partial
from types import EllipsisType
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from undertow import _checks
from undertow._checks import FloatArray
from undertow.compiled.loop import Player
from undertow.errors import InvalidInputError, OutOfTurnError, UndertowError
from undertow.live.arms import open_arms
from undertow.live.decision import Claims, Decision
from undertow.live.rounds import Parts, Pending, Timeline, Turns, Waiting
from undertow.live.streams import Streams
from undertow.live.units import Columns
from undertow.live.whole import Kept, insist

__all__ = ["Calls"]

_WHOLE = np.dtype(np.int64)  # to find it by its type takes longer than to convert a few numbers
_tuple = tuple.__new__  # makes a decision in half the time of its class, whose own __new__ is Python's


class Calls(abc.ABC):
    """The calls of a round, on the parts that a policy has."""

    claims: ClassVar[Claims]
    has_windows: ClassVar[bool]

    names: tuple[str, ...]
    explore: float
    default_reward: float | None
    _lock: threading.RLock
    _context_dim: int
    _feature_dim: int
    _draw_count: int
    _player: Player
    _columns: Columns
    _streams: Streams
    _turns: Turns
    _pending: Pending
    _timeline: Timeline
    _awaits_kernels: bool = False  # whether they may have to be compiled before the policy can go on

    @abc.abstractmethod
    def _draw(self, rng: np.random.Generator, rounds: int) -> FloatArray:
        """Return the random numbers that `decide` needs, one row per round."""

    @abc.abstractmethod
    def _chance(self, own: Any, arm: int) -> float:
        """Return the probability with which the policy itself proposed an arm."""

    @abc.abstractmethod
    def _rescale(self) -> None:
        """Change the units."""

    @abc.abstractmethod
    def _attend_to_kernels(self, *, decides: bool) -> None:
        """See whether kernels are there; a decision may have to wait for them."""

    def decide(
        self,
        features: npt.ArrayLike | None = None,
        *,
        context: npt.ArrayLike | EllipsisType | None = ...,
        available: Iterable[str | int] | None = None,
        id: str | None = None,
        elapsed: int = 1,
    ) -> Decision:
        """Choose an arm for this round.

        Parameters
        ----------
        features
            What is known before the choice and not moved by the state, for policies with a `feature_dim`: (q,) for all
            arms or, where the policy has the capability `takes_arm_features`, (k, q), a row for each arm.
        context
            The round's context, for policies with `context_first=True`: as `observe(context)` and then `decide()`, in
            one call that happens whole or not at all. None where it is missing.
        available
            Names or indices of the arms that can be played in this round, all by default.
        id
            A text of at most 64 characters that names the decision, and no other one; by default the policy makes one.
        elapsed
            How many moments have begun since the last round, 1 by default. With 0 it is another decision in the same
            moment: the hidden state stands still, and no context comes in between. With n > 1, time has passed: as
            `skip(n - 1)` and then `decide()`, in one call.
        """
        with self._lock:
            if self._awaits_kernels:
                self._attend_to_kernels(decides=True)
            if features is not None and not self._feature_dim:
                self._checked_features(features)  # which says how it is
            player, pending, turns, timeline = self._player, self._pending, self._turns, self._timeline
            still, passed, shut, given = False, 0, None, None
            if type(elapsed) is not int or elapsed != 1:
                begun, with_context = player.rounds > 0, context is not ...
                elapsed = turns.checked_elapsed(elapsed, begun=begun, with_context=with_context)
                still, passed = elapsed == 0, max(elapsed - 1, 0)
            if context is not ...:
                turns.require_context()
            elif turns.due != "decide" and not still:
                turns.require("decide")
            if available is not None:
                shut = open_arms(available, player.common.closed > 0, self.names)
            if self._feature_dim:
                given = self._checked_features(features)
            if pending.forked:
                self._part_from_parent()
            t, number = int(player.begun()) + passed, pending.made
            name = f"{pending.incarnation}-{number}" if id is None else pending.checked(id)
            overdue = {} if pending.wait is None else pending.overdue(t)
            one_step = shut is None and context is ... and not overdue and not self._columns.follows and not passed
            if one_step and not timeline.plain:
                one_step = timeline.decides_in_one_step(still=still)
            kept = None if one_step else self._keep(overdue)
            retired = None if shut is None else player.common.closed.copy()
            try:
                if not one_step:
                    self._lead_up(passed, context, t, given)
                if given is not None:
                    self._columns.put_features(given, player)
                if timeline.remembers or not one_step:
                    timeline.prepare(pending.oldest(t), still=still, one_step=one_step)
                if self._draw_count:
                    player.draws[...] = self._streams.row(number, self._draws, self._draw_count)
                if shut is not None:
                    player.common.closed[:] = shut
                if still:
                    player.stay(still=True)
                while not player.decide():
                    kept = kept or Kept.of(self.parts)
                    timeline.attend()
                arm = self._file(name, number, t, id)
                if kept is not None:
                    timeline.report()
                why = None if timeline.plain else timeline.why(t)
                propensity = self._propensity(arm) if self._draw_count else 1.0
                if retired is not None:
                    player.common.closed[:] = retired
                forecast, width, window = self._outlook()
                moment = int(player.moments_begun()) - 1
                made = (name, t, arm, self.names[arm], forecast, width, window, why, propensity, moment)
                return _tuple(Decision, made)
            except BaseException:
                insist(partial(self._mend_decision, name, number, t, id, kept, overdue, retired))
                raise

    def _lead_up(
        self,
        passed: int,
        context: npt.ArrayLike | EllipsisType | None,
        t: int,
        features: FloatArray | None,
    ) -> None:
        """Do what changes the policy before a decision: let time pass, take in what has come, change the units."""
        if passed:
            self._let_pass([None] * passed)
        if context is not ...:
            self._take_context(context)
        self._take_defaults(t)
        if t >= self._columns.pause:
            self._rescale()
        if features is not None:
            self._columns.note(features=features)

    def _part_from_parent(self) -> None:
        """Have ids, and where no seed was given random numbers, of our own in a forked process."""
        self._streams.part(self._pending.made)
        self._pending.reincarnate()

    def _file(self, name: str, number: int, t: int, given: str | None) -> int:
        """Take note of the decision that the player has made, and return its arm."""
        player, timeline = self._player, self._timeline
        arm = int(player.chosen())
        if self._context_dim:
            self._turns.due = "observe"
        self._pending.add(name, number, t, arm, player.copy_memory(), given)
        if not timeline.plain:
            timeline.decided(t, arm)
        return arm

    def _mend_decision(
        self,
        name: str,
        number: int,
        t: int,
        given: str | None,
        kept: Kept | None,
        overdue: dict[str, Waiting],
        retired: FloatArray | None,
    ) -> None:
        """File a decision that was made, or undo what was to lead to it."""
        if self._player.rounds > t:
            self._file(name, number, t, given)
        else:
            if kept is not None:
                self._put_back(kept, overdue)
            self._player.stay(still=False)
        if retired is not None:
            self._player.common.closed[:] = retired

    def _keep(self, overdue: dict[str, Waiting]) -> Kept:
        """Keep what is now, before a call in which these decisions get the default reward."""
        return Kept.of(self.parts, [waiting.round for waiting in overdue.values()])

    def _put_back(self, kept: Kept, overdue: dict[str, Waiting]) -> None:
        """Undo a call in which these decisions were to get the default reward."""
        kept.put_back()
        if overdue:
            self._pending.wait_again(overdue)

    def _take_defaults(self, t: int) -> None:
        """Learn the default reward of decisions that have waited long enough before round t is decided."""
        timeline = self._timeline
        for name, waiting in self._pending.overdue(t).items():
            assert self.default_reward is not None
            age = self._player.rounds - 1 - waiting.round
            one_step = timeline.plain or timeline.learns_in_one_step(waiting, age)
            self._player.taken.clear()
            timeline.learn(waiting, self._columns.reward(self.default_reward), age, one_step=one_step)
            del self._pending.waiting[name]

    def learn(self, decision: Decision | str, reward: float) -> None:
        """Take in the reward of an earlier decision, given as the decision or as its id."""
        with self._lock:
            if self._awaits_kernels:
                self._attend_to_kernels(decides=False)
            player, timeline, columns, pending = self._player, self._timeline, self._columns, self._pending
            try:
                value = _checks.reward(reward)
                name, waiting = pending.find(decision, self.names)
            except UndertowError as error:
                pending.refuse(error)
                raise
            then, arm, memory, _ = waiting
            age = int(player.begun()) - 1 - then
            one_step = timeline.plain or timeline.learns_in_one_step(waiting, age)
            kept = None if one_step and not columns.follows else Kept.of(self.parts, [then])
            player.taken.clear()
            try:
                inward = value if columns.units is None else columns.reward(value)
                if timeline.plain:
                    player.learn(memory, arm, inward, age)
                else:
                    timeline.learn(waiting, inward, age, one_step=one_step)
                del pending.waiting[name]
                pending.lately.append(False)
            except BaseException as error:
                insist(partial(self._mend_reward, name, waiting, value, kept))
                if isinstance(error, UndertowError):  # this timeline does not take it any more
                    pending.refuse(error)
                raise

    def learn_many(self, decisions: Sequence[Decision | str], rewards: npt.ArrayLike) -> None:
        """Take in the rewards of several earlier decisions, in this order: all or, if one is refused, none."""
        if isinstance(decisions, Decision | str) or not isinstance(decisions, Sequence | np.ndarray):
            raise InvalidInputError(f"decisions: expected a list of decisions or ids, got {decisions!r:.60}")
        with self._lock:
            if self._awaits_kernels:
                self._attend_to_kernels(decides=False)
            try:
                values = _checks.measured("rewards", rewards, (len(decisions),)).tolist()
                found = [self._pending.find(decision, self.names) for decision in decisions]
                learned = {name for name, _ in found}
                if len(learned) < len(found):
                    raise InvalidInputError("decisions: expected every decision once")
            except UndertowError as error:
                self._pending.refuse(error)
                raise
            timeline, pending, waits = self._timeline, self._pending, self._pending.waiting
            kept = Kept.of(self.parts, [waiting.round for _, waiting in found])
            try:
                for (_, waiting), value in zip(found, values, strict=True):
                    age = self._player.rounds - 1 - waiting.round
                    one_step = timeline.plain or timeline.learns_in_one_step(waiting, age)
                    timeline.learn(waiting, self._columns.reward(value), age, one_step=one_step)
                pending.waiting = OrderedDict(entry for entry in waits.items() if entry[0] not in learned)
                pending.lately.extend([False] * len(found))
            except BaseException as error:
                if pending.waiting is waits:
                    insist(kept.put_back)
                if isinstance(error, UndertowError):
                    pending.refuse(error)
                raise

    def _mend_reward(self, name: str, waiting: Waiting, value: float, kept: Kept | None) -> None:
        """Take note of a reward that the state has taken in, or undo what was to lead to it."""
        if kept is not None and name in self._pending.waiting:
            kept.put_back()
        elif kept is None and self._player.taken:
            self._timeline.learned(waiting, self._columns.reward(value))
            self._pending.waiting.pop(name, None)

    def observe(self, context: npt.ArrayLike | None) -> None:
        """Take in the round's context, (m,): NaN where an entry is missing, None where all are."""
        with self._lock:
            if self._awaits_kernels:
                self._attend_to_kernels(decides=False)
            player, timeline, columns, turns = self._player, self._timeline, self._columns, self._turns
            if turns.due != "observe":
                turns.require("observe")
            kept = Kept.of(self.parts) if columns.follows else None
            player.taken.clear()
            try:
                columns.put_context(context, player.context)
                if timeline.plain:
                    player.observe()
                else:
                    timeline.observe()
                turns.due = "decide"
            except BaseException:
                insist(self._mend_context if kept is None else kept.put_back)
                raise

    def _take_context(self, context: npt.ArrayLike | None) -> None:
        self._columns.put_context(context, self._player.context)
        self._timeline.observe()
        self._turns.observed()

    def _mend_context(self) -> None:
        """Take note of a context that the state has taken in."""
        if self._player.taken:
            self._timeline.observed()
            self._turns.observed()

    def skip(self, rounds: int = 1, contexts: npt.ArrayLike | None = None) -> None:
        """Let rounds pass in which no decision is taken; their contexts, (rounds, m), are missing unless given."""
        rounds = _checks.integer("rounds", rounds, least=1)
        m = self._context_dim
        rows = None if contexts is None else _checks.measured("contexts", contexts, (rounds, m), missing=True)
        with self._lock:
            if self._awaits_kernels:
                self._attend_to_kernels(decides=True)
            turns = self._turns
            if turns.due != turns.first:
                raise OutOfTurnError(
                    f"skip: this round has begun; {turns.due} first (observe(None) where there was no context)"
                )
            overdue = self._pending.overdue(self._player.rounds + rounds - 1)
            kept = self._keep(overdue)
            try:
                self._let_pass([None] * rounds if rows is None else rows)
            except BaseException:
                insist(partial(self._put_back, kept, overdue))
                raise
            self._timeline.report()

    def _let_pass(self, contexts: Iterable[FloatArray | None]) -> None:
        """Let a round pass for each context."""
        turns, timeline = self._turns, self._timeline
        for context in contexts:
            self._columns.put_context(context, self._player.context)
            if turns.context_first:
                timeline.observe()
            t = self._player.rounds
            self._take_defaults(t)
            timeline.prepare(self._pending.oldest(t), choice=False)
            self._player.skip()
            timeline.decided(t, -1)
            if self._context_dim and not turns.context_first:
                timeline.observe()

    # How the parts work together

    def _checked_features(self, features: npt.ArrayLike | None) -> FloatArray | None:
        return self._columns.checked_features(features, len(self.names), self.claims)

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
        player, units = self._player, self._columns.units
        forecast, width = player.copy_forecast(), player.copy_width()
        if units is not None:
            forecast, width = units.outward(forecast, width)
        return forecast, width, player.window.astype(_WHOLE) if self.has_windows else None
