"""What an event does: the only place that changes a policy, in place, by nothing but the event and the state.

So the same events give the same policy, wherever they are applied: in a call, again after an interrupt, or in another
process (`undertow.fold`).
"""

import abc
import hashlib
import math
import threading
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from undertow._checks import FloatArray
from undertow.compiled.player import Player
from undertow.live.decision import Claims, Decision
from undertow.live.events import (
    ArmAdded,
    ArmRetired,
    Decided,
    Event,
    Installed,
    Observed,
    Recalled,
    Reseeded,
    Rewarded,
    Skipped,
    WarmStarted,
)
from undertow.live.journal import Journal
from undertow.live.rounds import Parts, Pending, Timeline, Turns
from undertow.live.streams import Streams
from undertow.live.units import Columns

__all__ = ["Applies", "request_of"]

_WHOLE = np.dtype(np.int64)  # to find it by its type takes longer than to convert a few numbers
_OFTEN = 64  # events between two checkpoints
_tuple = tuple.__new__  # makes a decision in half the time of its class, whose own __new__ is Python's


class Applies(abc.ABC):
    """A policy's parts, and what events do to them."""

    claims: ClassVar[Claims]
    has_windows: ClassVar[bool]

    names: tuple[str, ...]
    explore: float
    default_reward: float | None
    _lock: threading.RLock
    _journal: Journal
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

    # What a policy says

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
    def _widen(self, name: str) -> None:
        """Become a policy with one arm more."""

    @abc.abstractmethod
    def settle(self) -> None:
        """Have the parts be as if nothing were done ahead or put off, so that they can be looked at."""

    @abc.abstractmethod
    def _start_warm(self, rows: FloatArray) -> None:
        """Begin after the rounds of a table, as rows of a learner's log."""

    @abc.abstractmethod
    def _attend_to_kernels(self, *, decides: bool) -> None:
        """See whether kernels are there; a decision may have to wait for them."""

    # Events, one kind after the other

    def _decide(
        self, id: str, features: FloatArray | None, closed: FloatArray | None, still: bool, request: str | None
    ) -> Decision:
        """Decide a round; `closed` says which arms cannot be played in it, those that are retired by default."""
        player, columns, turns, pending, timeline = (
            self._player,
            self._columns,
            self._turns,
            self._pending,
            self._timeline,
        )
        t = int(player.begun())
        if pending.wait is not None:
            self._learn_defaults(t)
        if t >= columns.pause:
            self._rescale()
        if features is not None:
            if columns.follows:
                columns.note(features=features)
            columns.put_features(features, player)
        if not timeline.plain:
            timeline.prepare(pending.oldest(t), still=still)
        if self._draw_count:
            player.draws[...] = self._streams.row(pending.made, self._draws, self._draw_count)
        if closed is not None:
            retired = player.common.closed.copy()
            player.common.closed[:] = closed
        if still:
            player.stay(still=True)
        while not player.decide():
            timeline.attend()
        arm = int(player.chosen())
        if self._context_dim:
            turns.due = "observe"
        pending.add(id, t, arm, player.copy_memory())
        why = None
        if not timeline.plain:
            timeline.decided(t, arm)
            why = timeline.why(t)
        propensity = self._propensity(arm) if self._draw_count else 1.0
        if closed is not None:
            player.common.closed[:] = retired
        forecast, width = player.copy_forecast(), player.copy_width()
        if columns.units is not None:
            forecast, width = columns.units.outward(forecast, width)
        window = player.window.astype(_WHOLE) if self.has_windows else None
        made = (id, t, arm, self.names[arm], forecast, width, window, why, propensity, int(player.moments_begun()) - 1)
        decision = _tuple(Decision, made)
        if request is not None:
            pending.keep_answer(id, request, decision)
        return decision

    def _learn_defaults(self, t: int) -> None:
        """Learn the default reward of decisions that have waited long enough before round t."""
        for id in self._pending.overdue(t):
            self._learn(id, self.default_reward, by_default=True)  # type: ignore[arg-type]

    def _learn(self, id: str, reward: float, *, by_default: bool = False) -> None:
        """Learn the reward of an earlier decision."""
        player, columns, pending = self._player, self._columns, self._pending
        waiting = pending.entries[id]
        then, arm, memory, _ = waiting
        age = int(player.begun()) - 1 - then
        inward = reward if columns.units is None else columns.reward(reward)
        if self._timeline.plain:
            player.learn(memory, arm, inward, age)
        else:
            self._timeline.learn(waiting, inward, age)
        pending.over[id] = None
        pending.count -= 1
        pending.learned[id] = pending.rewarded, math.nan if by_default else reward
        pending.rewarded += 1

    def _observe(self, context: FloatArray | None) -> None:
        """Take in the context of a round."""
        player, columns = self._player, self._columns
        if context is None or columns.units is not None:
            columns.put_context(context, player.context)
        else:
            player.context[...] = context
        if self._timeline.plain:
            player.observe()
        else:
            self._timeline.observe()
        self._turns.due = "decide"

    def _skip(self, rounds: int, contexts: FloatArray | None) -> None:
        """Let rounds pass without a decision."""
        player, columns, pending, timeline = self._player, self._columns, self._pending, self._timeline
        first = self._turns.context_first
        for number in range(rounds):
            columns.put_context(None if contexts is None else contexts[number], player.context)
            if first:
                timeline.observe()
            t = player.rounds
            if pending.wait is not None:
                self._learn_defaults(t)
            timeline.prepare(pending.oldest(t), choice=False)
            player.skip()
            timeline.decided(t, -1)
            if self._context_dim and not first:
                timeline.observe()

    def _add_arm(self, name: str) -> None:
        """Add an arm, or bring back one that was retired."""
        if name in self.names:
            self._close(name, 0.0)
        else:
            self._widen(name)

    def _close(self, name: str, closed: float) -> None:
        """Retire an arm (1), or bring it back (0)."""
        self._timeline.catch_up()  # first: it writes into past rounds which arms are open now
        self._player.common.closed[self.names.index(name)] = closed

    def _apply(self, event: Event) -> Decision | None:
        """Do what an event that was checked says, and return the decision if it is one."""
        match event:
            case Decided():
                closed = None if event.available is None else self._closed(event.available)
                return self._decide(event.id, event.features, closed, event.still, event.request)
            case Rewarded():
                self._learn(event.id, event.reward)
            case Recalled():
                self._pending.recall(event.id, event.round, event.arm, event.memory)
            case Observed():
                self._observe(event.context)
            case Skipped():
                self._skip(event.rounds, event.contexts)
            case ArmAdded():
                self._add_arm(event.name)
            case ArmRetired():
                self._close(event.name, 1.0)
            case Installed():
                self._timeline.install(event)
            case WarmStarted():
                self._start_warm(event.rows)
            case Reseeded():
                self._streams.reseed(int(event.entropy), self._pending.made)
        return None

    def _closed(self, available: tuple[int, ...]) -> FloatArray:
        closed = np.ones(len(self.names))
        closed[list(available)] = 0.0
        return closed

    # Checkpoints, and the events since

    def _happen(self, event: Event, *, effects: bool = True) -> None:
        """Have an event happen that was checked."""
        self._journal.torn = True
        self._apply(event)
        self._commit(event, effects=effects)

    def _commit(self, event: Event, earlier: Sequence[Event] = (), *, effects: bool = True) -> None:
        """Have an event happen that has been applied, and the earlier ones of its call; their effects come after."""
        journal, timeline = self._journal, self._timeline
        events = journal.past.events  # type: ignore[union-attr]
        if earlier:
            events.extend((*earlier, event))  # now they have happened
        else:
            events.append(event)
        journal.torn = False
        if journal.hears is not None:
            journal.tell()
        if timeline.has_effects:
            if effects:
                timeline.report()
            else:
                timeline.leave_effects()
        if len(events) >= _OFTEN or timeline.costly:
            self._checkpoint_in_time()

    def _checkpoint_in_time(self) -> None:
        """Take a checkpoint unless it has to wait for kernels."""
        if not self._timeline.holds:
            self._checkpoint()
            self._timeline.costly = False

    def _checkpoint(self) -> None:
        """Take a checkpoint of parts that are whole."""
        entries = self.__dict__.copy()
        del entries["_lock"], entries["_journal"]
        player, columns, streams, turns, pending, timeline = self._parts
        parts = (player, columns, streams, turns, pending, timeline, *timeline.parts)
        self._journal.begin(entries, parts)

    def _rebuild(self, prepare: Callable[[], None] = lambda: None) -> None:
        """Go back to the last checkpoint, and apply the events since; repeated if it is interrupted."""
        with self._lock:
            journal = self._journal
            past = journal.past
            if past is None:
                self._checkpoint()
                return
            self.__dict__.update(past.checkpoint.restore())
            prepare()
            for event in past.events:
                self._timeline.forget_notices()  # only the last one may not have been reported
                decision = self._apply(event)
                if isinstance(event, Decided) and decision is not None and decision.arm != event.arm:
                    raise AssertionError(f"round {event.round}: arm {event.arm} was played, and now {decision.arm}")
            journal.torn = False

    def _get_ready(self, *, decides: bool = False) -> None:
        """Rebuild what an interrupted call has torn, and see whether kernels are there."""
        if self._journal.torn:
            self._rebuild()
        if self._awaits_kernels:
            self._attend_to_kernels(decides=decides)

    # How the parts work together

    @property
    def parts(self) -> Parts:
        """What the policy consists of, for a look inside."""
        within = self._is_called()
        parts = self._whole()
        if not within:
            self._catch_up()
        return parts

    def _is_called(self) -> bool:
        """Whether this thread is in a call of the policy, whose hooks may look inside."""
        lock: Any = self._lock
        return bool(lock._is_owned())  # noqa: SLF001 (there is no other way to ask)

    def _whole(self) -> Parts:
        """Return the parts, rebuilt if an interrupted call has torn them; within a call, as they are in it."""
        within = self._is_called()
        with self._lock:
            if self._journal.torn and not within:
                self._rebuild()
            return self._parts

    def _catch_up(self) -> None:
        """Have the state know all that has come: no event, since the next decision would do the same first."""
        with self._lock:
            if self._timeline.behind:
                self._journal.torn = True
                self._timeline.catch_up()
                self._journal.torn = False

    @property
    def _parts(self) -> Parts:
        return Parts(self._player, self._columns, self._streams, self._turns, self._pending, self._timeline)

    def _draws(self, rounds: int) -> FloatArray:
        """Return the policy's random numbers and, if it explores, two more per round."""
        own = self._draw(self._streams.own, rounds)
        return np.hstack([own, self._streams.explore.random((rounds, 2))]) if self.explore else own

    def _propensity(self, arm: int) -> float:
        """Return the probability with which the arm of the last decision was chosen."""
        chance = self._chance(self._player.own, arm)
        if not self.explore:
            return chance
        return (1 - self.explore) * chance + self.explore / int((self._player.common.closed == 0).sum())


def request_of(features: Any, context: Any, available: Any, elapsed: Any) -> str:
    """Return a digest of what was given to `decide`."""
    total = hashlib.blake2b(digest_size=8)
    for given in (features, context, available, elapsed):
        total.update(_bits(given) + b"|")
    return total.hexdigest()


def _bits(given: Any) -> bytes:
    if given is None or given is ...:
        return repr(given).encode()
    try:
        numbers = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        return repr(given).encode()
    return repr(numbers.shape).encode() + numbers.tobytes()
