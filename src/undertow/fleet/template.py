"""The initial policy of every key of a fleet, and its requirements."""

from typing import Any

from undertow.compiled import Common, Layout
from undertow.compiled.address import address_of
from undertow.compiled.common import Head
from undertow.errors import InvalidInputError
from undertow.live import LivePolicy
from undertow.support.checks import FloatArray

__all__ = ["Template"]


class Template:
    """A policy for the loops over many states: its sizes, initial state and machine code."""

    def __init__(self, policy: LivePolicy) -> None:
        _require_stackable(policy)
        self.policy: Any = policy.parts.for_run(0)  # unused, whatever the state of the original
        player, columns, _, turns, pending, timeline = self.policy.parts
        self.k, self.m, self.q, self.p = map(int, player.common.sizes)
        self.fresh: FloatArray = player.state.copy()
        self.draws = len(player.draws)
        self.units = columns.units
        self.context_first, self.due = turns.context_first, int(turns.first == "observe")
        self.most, self.wait = pending.most, -1 if pending.wait is None else pending.wait
        default = self.policy.default_reward
        self.default = 0.0 if default is None else columns.reward(default)
        self.max_delay: int | None = (
            None if timeline.plain else timeline.max_delay
        )  # of a reward that can still be learned
        self.layout: Layout[Any] = self.policy.loop.layout
        self.sizes = self.layout.sizes_of(self.fresh)
        self.rounds_at = self.layout.place("common.head", **self.sizes).start + Head.names.index("rounds")
        self.draws_arms = not self.policy.capabilities.deterministic

    def address(self) -> Any:
        """Return the address of the policy's machine code, compiled or loaded if necessary."""
        return address_of(self.policy.loop.play)

    def common(self, state: FloatArray) -> Common:
        """Open the common part of a state."""
        common: Common = self.layout.open(state).common
        return common

    def inward(self, values: FloatArray, first: int) -> FloatArray:
        """Return contexts (`first` = 0) or features (`first` = m) in the policy's units."""
        return values if self.units is None else self.units.inward(values, first)

    def check_states(self, rows: FloatArray) -> None:
        """Refuse rows with an invalid state, as in a damaged file."""
        self.layout.check_rows(rows, self.sizes, self.fresh)
        head, closed = (rows[:, self.layout.place(f"common.{name}", **self.sizes)] for name in ("head", "closed"))
        rounds, time_steps, still = (head[:, Head.names.index(name)] for name in ("rounds", "time_steps", "still"))
        if closed.all(axis=1).any() or still.any() or (time_steps > rounds).any():
            raise InvalidInputError("state: expected an open arm, and at most as many time steps as rounds")

    def describe(self) -> str:
        """Return the policy as an expression."""
        return repr(self.policy)


def _require_stackable(policy: Any) -> None:
    """Refuse a policy whose state is more than its packed numbers."""
    if not isinstance(policy, LivePolicy):
        raise InvalidInputError(f"policy: expected a policy of undertow, got {policy!r:.60}")
    name, capabilities = type(policy).__name__, policy.capabilities
    if capabilities.simulates_only:
        raise InvalidInputError(f"policy: {name} sees every arm's reward, so it only runs in `simulate`")
    if getattr(policy, "standardize", False):
        raise InvalidInputError(
            "standardize: a fleet changes no units, since each key would have its own; scale features and rewards "
            "before you pass them, with the same numbers for all keys"
        )
    if policy.pinned is not None:
        raise InvalidInputError(
            f"policy: arm {policy.pinned!r} is pinned, and would be for each key; call unpin() before"
        )
    timeline = policy.parts.timeline
    if hasattr(policy, "refit"):
        raise InvalidInputError(
            f"policy: {name} fits a model to the log of each key; use FleetKalman, which fits one to all "
            f"keys, or LinUCB or DiscountedUCB, which fit none"
        )
    if not timeline.plain and policy.capabilities.needs_system:
        raise InvalidInputError(
            f"policy: {name} filters late rewards through a log of each key; use LevelsKalman, LinUCB or UCB, or one "
            f"{name} object per key"
        )
