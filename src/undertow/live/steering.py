"""Control of the arms: which exist, their costs, and which one is pinned."""

from collections.abc import Mapping

from undertow.errors import InvalidInputError
from undertow.live.apply import Applies
from undertow.live.arms import arm_index, checked_costs, is_name
from undertow.live.events import ArmAdded, ArmRetired, CostsSet, Pinned, Unpinned
from undertow.support import checks

__all__ = ["Steering"]


class Steering(Applies):
    """The calls that control the arms of a policy, and their present settings."""

    @property
    def retired(self) -> tuple[str, ...]:
        """Names of the retired arms."""
        closed = self._whole().player.common.closed
        return tuple(name for name, shut in zip(self.names, closed, strict=True) if shut)

    @property
    def costs(self) -> dict[str, float]:
        """The known cost of playing each arm, by name."""
        return dict(zip(self.names, self._whole().player.common.cost.tolist(), strict=True))

    @property
    def pinned(self) -> str | None:
        """Name of the arm that is played until `unpin`; None if none."""
        pinned = int(self._whole().player.pinned())
        return None if pinned < 0 else self.names[pinned]

    def retire_arm(self, name: str) -> None:
        """Stop playing an arm. Rewards of its earlier decisions are still accepted."""
        with self._lock:
            self._get_ready()
            arm = self._check_open_arm(name)
            self._happen(ArmRetired(name=self.names[arm]))

    def add_arm(self, name: str) -> None:
        """Add an arm, or reactivate a retired one with all it has learned."""
        with self._lock:
            self._get_ready()
            if self._check_new_arm(name):
                self._settle()
            self._happen(ArmAdded(name=name))

    def set_costs(self, costs: Mapping[str, float]) -> None:
        """Set the cost of playing some arms from now on, in units of reward; other arms keep theirs.

        Known costs are subtracted when an arm is chosen: the largest forecast + width − cost is played (with
        `minimize`, the smallest forecast − width + cost). Rewards are learned as they are, so do not subtract costs
        from them. A new cost counts immediately, and forecasts stay the same.
        """
        with self._lock:
            self._get_ready()
            known = checked_costs("costs", costs, self.names)
            cost = self._player.common.cost
            if any(cost[self.names.index(name)] != value for name, value in known.items()):
                self._happen(CostsSet(costs=known))

    def pin(self, arm: str | int, *, learn: bool = True) -> None:
        """Play this arm in every decision, with propensity 1, until `unpin`.

        A decision in which the arm is not available is the policy's own. With `learn=False` the rewards of pinned
        decisions are accepted and not learned, whenever they come.
        """
        learn = checks.flag("learn", learn)
        with self._lock:
            self._get_ready()
            name, head = self.names[self._check_pinned("arm", arm)], self._player.common.head
            if head.pinned != self.names.index(name) or bool(head.unlearned) == learn:
                self._happen(Pinned(name=name, learn=learn))

    def unpin(self) -> None:
        """Let the policy choose again."""
        with self._lock:
            self._get_ready()
            if self._player.pinned() >= 0:
                self._happen(Unpinned())

    def _check_pinned(self, argument: str, arm: str | int) -> int:
        """Refuse to pin a retired arm; return its index."""
        index = arm_index(argument, arm, self.names)
        if self._player.common.closed[index]:
            name = self.names[index]
            raise InvalidInputError(f"{argument}: {name!r} was retired; add_arm({name!r}) reactivates it")
        return index

    def _check_open_arm(self, name: str) -> int:
        """Refuse to retire an arm that does not exist, is pinned, or is the last one; return its index."""
        arm, closed = arm_index("name", name, self.names), self._player.common.closed
        if arm == self._player.pinned():
            raise InvalidInputError(f"name: {name!r} is pinned; call unpin() before it is retired")
        if closed[arm]:
            raise InvalidInputError(f"name: {name!r} was retired already")
        if closed.sum() == len(self.names) - 1:
            raise InvalidInputError(f"name: {name!r} is the last arm; add another one before it is retired")
        return arm

    def _check_new_arm(self, name: str) -> bool:
        """Refuse to add an open arm; return whether it is new, not retired."""
        if isinstance(name, str) and name in self.names and self._player.common.closed[self.names.index(name)]:
            return False
        if not is_name(name) or name in self.names:
            raise InvalidInputError(f"name: expected a new name, got {name!r:.60}")
        return True
