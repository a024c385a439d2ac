"""The structure of rounds: the call that is due, and how data reach the state."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal

from undertow.compiled.loop import OBSERVE, order_of
from undertow.compiled.player import Player
from undertow.errors import InvalidInputError, OutOfTurnError
from undertow.live.clock import Clock
from undertow.live.decision import Why
from undertow.live.events import Installed
from undertow.live.fields import Entry, Field
from undertow.live.pending import Pending, Waiting
from undertow.support import checks
from undertow.support.checks import FloatArray

__all__ = ["Pending", "Timeline", "Turns", "Waiting"]


class Turns:
    """The call that is due: with contexts, `decide` and `observe` alternate; without, every `decide` is a round."""

    remembers: ClassVar[tuple[Field, ...]] = (Entry("due", "due", lambda turns, value: turns.checked_due(value)),)

    def __init__(self, context_dim: int, *, context_first: bool, tick: int | None = None) -> None:
        self.context_dim, self.context_first = context_dim, context_first and context_dim > 0
        order = order_of(self.context_first)
        self.order = order if context_dim else tuple(step for step in order if step != OBSERVE)
        self.clock = Clock(tick)
        self.due = self.first

    @property
    def first(self) -> Literal["decide", "observe"]:
        """The call with which a round begins."""
        return "observe" if self.order[0] == OBSERVE else "decide"

    def checked_due(self, due: Any) -> str:
        """Return the call that a file says is due."""
        return checks.choice("due", due, ("decide", "observe") if self.context_dim else ("decide",))

    def require(self, call: Literal["decide", "observe"]) -> None:
        """Refuse a call that is not due."""
        if self.due != call:
            raise self._out_of_turn(call)

    def require_context(self) -> None:
        """Refuse a context with the decision if that is impossible."""
        if not self.context_dim:
            raise InvalidInputError(
                "context: this policy was built without contexts; give context_dim and context_first=True at "
                "construction. Inputs independent of the hidden state are features: feature_dim, and decide(features)"
            )
        if not self.context_first:
            raise InvalidInputError(
                "context: this policy decides before it sees the context of a round: call decide(), and then "
                "observe(context); or build it with context_first=True"
            )
        if self.due == "decide":
            raise OutOfTurnError("decide: the context of this round was observed already; call decide() without it")

    def checked_elapsed(self, elapsed: Any, *, begun: bool, with_context: bool) -> int:
        """Return the number of time steps before a decision; refuse impossible ones."""
        count = checks.elapsed(elapsed)
        if count > 1:
            self._require_passing(count, with_context=with_context)
        elif count == 0:
            self._require_still(begun=begun, with_context=with_context)
        return count

    def _require_passing(self, elapsed: int, *, with_context: bool) -> None:
        """Refuse elapsed time before a decision whose time step has begun, or begins with a context."""
        if self.context_first and not (with_context and self.due == "observe"):
            raise OutOfTurnError(
                f"decide: with elapsed={elapsed} time passes before the context of this time step; pass both, "
                f"decide(context=…, elapsed={elapsed}), or call skip({elapsed - 1}) before observe(context)"
            )

    def _require_still(self, *, begun: bool, with_context: bool) -> None:
        """Refuse another decision in the same time step if there is none, or if a context has begun or ended it."""
        if with_context:
            raise InvalidInputError(
                "context: elapsed=0 continues the current time step, which already had its context; omit it, or pass "
                "elapsed of 1 or more"
            )
        over = self.context_dim and self.due == "decide"
        if over or not begun:
            why = "its context was observed, so it is over" if over else "there was none yet"
            if over and self.context_first:
                why = "a context was observed since, which began the next one"
            raise OutOfTurnError(
                f"decide: elapsed=0 is another decision in the time step of the last round, and {why}; call decide()"
            )

    def by_clock(self, now: int) -> tuple[int, bool]:
        """Return the number of time steps before a decision by the clock, and whether the last one had no context.

        If the context of a time step comes before a decision, that decision belongs to that step; if it
        comes after the decisions, it ends the step.
        """
        passed = self.clock.passed(now)
        if self.due == "decide" and self.context_dim:
            return 1 if self.context_first else max(passed, 1), False
        return passed, passed > 0 and self.context_dim > 0 and not self.context_first

    def contexts_seen(self, rounds: int) -> int:
        """Return the number of observed contexts, given the number of rounds that have begun."""
        if not self.context_dim:
            return 0
        return rounds + (self.due == "decide") if self.context_first else rounds - (self.due == "observe")

    def _out_of_turn(self, call: str) -> OutOfTurnError:
        if not self.context_dim:
            return OutOfTurnError("observe: this policy was built without contexts; give context_dim at construction")
        if call == "decide":
            return OutOfTurnError(
                "decide: the context of this round is due first; call observe(context), or observe(None) if there "
                "was none" + (", or pass it with the decision: decide(context=…)" if self.context_first else "")
            )
        return OutOfTurnError(
            "observe: the decision of this round is due first; call decide(), "
            "or skip(rounds, contexts) if no decision was taken for a while"
        )


class Timeline:
    """How rewards and contexts reach a policy's state; here, immediately."""

    plain = True  # whether a step of the player is enough; a flag, since calls take time
    has_effects = False  # whether it has background fits, or something to report
    holds = False  # whether no checkpoint may be taken, as events have yet to reach the state
    behind: bool = False  # whether observations are not applied yet, and `catch_up` has work to do
    costly: bool = False  # whether the last event took long to apply, so that a checkpoint pays
    remembers: ClassVar[tuple[Field, ...]] = ()

    def __init__(self, player: Player) -> None:
        self.player = player
        # Read in every call: the interpreter finds an attribute of an object faster than one of its class
        self.plain, self.has_effects = self.plain, self.has_effects

    @property
    def parts(self) -> tuple[Any, ...]:
        """The timeline's other parts with a state."""
        return ()

    def arrived(self) -> Sequence[Installed]:
        """Return finished background fits that are not events yet."""
        return ()

    def share_fits(self, claim: Callable[[str, int, float], bool]) -> None:
        """Ask `claim` before a background fit, with its model, the round of its request, and its expected duration."""

    def install(self, event: Installed) -> None:
        """Swap in a background fit."""
        raise InvalidInputError("event: this policy fits no models")

    def prepare(self, oldest: int, *, choice: bool = True, still: bool = False) -> None:
        """Prepare a round, in which a choice is made or not; rewards from round `oldest` on may still come.

        If it is `still`, the round is in the same time step as the last one.
        """

    def attend(self) -> None:
        """Do the work that the policy requested by −1 instead of an arm, so that it can decide."""
        raise NotImplementedError("a policy of this kind always decides")

    def decided(self, t: int, arm: int) -> Why | None:
        """Record the choice of round t, the last one, −1 if it was skipped; return its explanation, if any."""
        return None

    def catch_up(self) -> None:
        """Bring the state up to date."""

    def forget_notices(self) -> None:
        """Drop reports on events that were applied again, since they were reported before."""

    def report(self) -> None:
        """Run the effects of committed events: start fits, log, warn."""

    def check_reward(self, waiting: Waiting, reward: float, age: int) -> None:
        """Refuse a reward that comes too late, `age` rounds after its decision, or cannot be learned."""

    def learn(self, waiting: Waiting, reward: float, age: int) -> None:
        """Learn a reward that comes `age` rounds after its decision."""
        self.player.learn(waiting.memory, waiting.arm, reward, age)

    def observe(self) -> None:
        """Observe the context in the player's row."""
        self.player.observe()

    def recorded(self, data: FloatArray, arms: FloatArray, begun: int, step: int) -> None:
        """Record steps played together: context, rewards and features of each round, and the arms chosen."""

    def scratch(self) -> FloatArray:
        """Return a copy of the state for a forecast without side effects."""
        return self.player.state.copy()

    def take_over(self, old: Any) -> None:
        """Continue the timeline of a policy with one arm less, whose state has been carried over."""

    def check(self, state: Any) -> None:
        """Refuse an invalid state of this policy."""
        layout = self.player.loop.layout
        layout.check(state, layout.sizes_of(self.player.state), self.player.state)
        common = layout.open(state).common
        if common.closed.all():
            raise InvalidInputError("state: closed: expected an arm that can be played")
        if common.head.still or common.head.time_steps > common.head.rounds:
            raise InvalidInputError("state: time_steps: expected at most as many as rounds, none being shared")
