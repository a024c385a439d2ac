"""The events of a policy: their listener, and how another policy follows them."""

from collections.abc import Callable

import msgspec

from undertow.errors import InvalidInputError
from undertow.live.arms import checked_costs, open_arms
from undertow.live.calls import Calls
from undertow.live.events import (
    ArmAdded,
    ArmRetired,
    CostsSet,
    Decided,
    Defaulted,
    Event,
    Installed,
    Keyed,
    Observed,
    Pinned,
    Recalled,
    Reseeded,
    Rewarded,
    Skipped,
    Unpinned,
    WarmStarted,
)
from undertow.support import checks

__all__ = ["Follows"]

_DIGITS = 40  # of 128 bits


class Follows(Calls):
    """A policy that reports its events, and follows those of another one."""

    def events(self, listener: Callable[[Event], object] | None) -> None:
        """Call `listener` with every event from now on, in order, after it has happened. None removes it.

        `undertow.fold` makes the same policy from the present output of `to_bytes` and these events. An exception of
        the listener is logged. Copies and save files do not keep it.
        """
        if listener is not None and not callable(listener):
            raise InvalidInputError(f"listener: expected a function, or None, got {listener!r:.60}")
        with self._lock:
            self._get_ready()
            self._journal.hears, self._journal.told = listener, self._journal.count

    def follow(self, event: Event) -> None:
        """Apply an event of another policy that had this one's state.

        A decision plays the arm of the event, whatever this policy would have chosen.
        """
        with self._lock:
            self._get_ready(decides=True)
            match event:
                case Decided():
                    self._follow_decision(event)
                    return
                case Rewarded():
                    _, waiting = self._pending.find(event.id, checks.reward(event.reward), self.names)
                    if waiting is None:
                        return
                    self._check_reward(waiting, event.reward)
                case Defaulted():
                    if self.default_reward is None or not self._pending.waits(event.id):
                        raise InvalidInputError(f"event: expected a decision due for its default, got {event!r:.60}")
                case Recalled():
                    self._check_recalled(event)
                case Observed():
                    self._turns.require("observe")
                    self._checked_context(event.context)
                case Skipped():
                    self._require_begin()
                    rounds, m = checks.integer("rounds", event.rounds, least=1), self._context_dim
                    if event.contexts is not None:
                        checks.measured("contexts", event.contexts, (rounds, m), missing=True)
                case ArmAdded():
                    self._check_new_arm(event.name)
                case ArmRetired():
                    self._check_open_arm(event.name)
                case CostsSet():
                    checked_costs("costs", event.costs, self.names)
                case Pinned():
                    self._check_pinned("name", event.name)
                case Unpinned() | Keyed():
                    pass  # it checks the key
                case Installed() | WarmStarted():
                    self._settle()  # a learner that starts without kernels fits no models yet; it checks the rest
                case Reseeded():
                    if not event.entropy.isdecimal() or len(event.entropy) > _DIGITS:
                        raise InvalidInputError(f"entropy: expected an integer, got {event.entropy!r:.60}")
                case _:
                    raise InvalidInputError(f"event: expected one of undertow.live.events, got {event!r:.60}")
            self._happen(event, effects=False)

    def _check_recalled(self, event: Recalled) -> None:
        """Refuse a decision that is already pending, or that this policy cannot have made."""
        player = self._player
        if self._pending.waits(event.id):
            raise InvalidInputError(f"id: {event.id!r} is already pending")
        if not 0 <= event.round < player.rounds or not 0 <= event.arm < len(self.names):
            raise InvalidInputError(f"event: expected a decision of this policy, got {event!r:.80}")
        checks.array("memory", event.memory, (len(player.common.memory),), missing=True)

    def _follow_decision(self, event: Decided) -> None:
        """Play the arm of an event; if the policy chooses another one, as if no other had been available."""
        turns, pending, k = self._turns, self._pending, len(self.names)
        turns.checked_elapsed(0 if event.still else 1, begun=self._player.rounds > 0, with_context=False)
        if not event.still:
            turns.require("decide")
        retired = self._player.common.closed > 0
        if not 0 <= checks.integer("arm", event.arm, least=0) < k or retired[event.arm]:
            raise InvalidInputError(f"arm: expected one that can be played, got {event.arm}")
        known = self._checked_features(event.features)
        closed = None if event.available is None else open_arms(event.available, retired, self.names)
        pending.require_new(event.id)
        if pending.is_stale(event.id) and not self._timeline.holds:
            self._checkpoint()
        now = turns.clock.reached(event.at)
        self._journal.torn = True
        decision, _ = self._decide(event.id, known, closed, event.still, event.request, now, event.subject)
        if decision.arm != event.arm:
            self._rebuild()
            self._journal.torn = True
            alone = (event.arm,)
            event = msgspec.structs.replace(event, available=alone)
            self._decide(event.id, known, self._closed(alone), event.still, event.request, now, event.subject)
        self._commit(event, effects=False)
