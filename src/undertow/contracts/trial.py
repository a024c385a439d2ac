"""A policy under test: how it is made, and how rounds are played with it."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from undertow.errors import UndertowError
from undertow.live.files import snapshot
from undertow.live.registry import name_of
from undertow.live.rounds import Timeline
from undertow.policies import Capabilities, Decision, LivePolicy, Policy
from undertow.simulation import simulate
from undertow.system import LinearGaussianSystem
from undertow.trajectory import Trajectory

__all__ = ["RULES", "BrokenContractError", "Factory", "Trial", "content_of", "is_fitted", "require", "rule"]

Factory = Callable[[LinearGaussianSystem, int], Policy]
Attempt = Callable[["Trial"], None]
RULES: list[tuple[str, set[str], Attempt]] = []  # in the order of the tests


class BrokenContractError(UndertowError, AssertionError):
    """A policy broke a rule of the contract; the message says which and how."""


def require(holds: bool, message: str) -> None:
    """Raise unless the rule holds."""
    if not holds:
        raise BrokenContractError(message)


def rule(name: str, *needs: str) -> Callable[[Attempt], Attempt]:
    """Register a rule, for policies with some facts."""

    def enter(attempt: Attempt) -> Attempt:
        RULES.append((name, set(needs), attempt))
        return attempt

    return enter


class Trial:
    """A policy under test, a system, one path of it, and the facts that rules require."""

    def __init__(self, factory: Factory, system: LinearGaussianSystem) -> None:
        self.factory, self.system, self.arms = factory, system, system.arm_count
        policy: Any = factory(system, 0)
        require(isinstance(policy, Policy), f"expected decide, learn and observe, got {policy!r}")
        self.ours = isinstance(policy, LivePolicy)
        self.capabilities: Capabilities = (
            policy.parts.capabilities() if self.ours else getattr(policy, "capabilities", Capabilities())
        )
        named = not self.ours or name_of(type(policy)) is not None
        require(named, f"{type(policy).__name__} is not registered; write @register(name, citation=…) above its class")
        self.path = system.sample(300, rng=5)
        self.sees_contexts = self.capabilities.uses_contexts and system.context_dim > 0
        facts = self.capabilities._asdict() | {
            "ours": self.ours,
            "live": not self.capabilities.simulates_only,
            "context can come first": self.sees_contexts and self.ours and "context_first" in policy.parts.parameters(),
            "starts warm": hasattr(policy, "warm_start"),
            "takes new arms": not self.capabilities.needs_system,
            "draws": not self.capabilities.deterministic,
            "uses no rewards": not self.capabilities.uses_own_rewards,
            "fits": self.ours and "refit" in policy.parts.parameters(),
            "contexts tell arms apart": system.context_dim > 0 and self.arms > 1,
        }
        self.facts = {fact for fact, holds in facts.items() if holds}

    def make(self, seed: int = 0, system: LinearGaussianSystem | None = None, **changes: Any) -> Any:
        """Make a new policy, with some parameters changed; fits are inline, to be reproducible."""
        policy: Any = self.factory(system or self.system, seed)
        if "fits" in self.facts:
            changes = {"refit": "inline"} | changes
        return type(policy)(**(policy.parts.parameters() | changes)) if changes else policy

    def start(self, rounds: int) -> Trajectory:
        """Return the first rounds of the path."""
        return Trajectory(self.path.contexts[:rounds], self.path.rewards[:rounds])

    def step(
        self, policy: Any, t: int, *, learn: bool = True, ask: bool = False, twice: bool = False, **how: Any
    ) -> Decision:
        """Play one round of the path live; with `twice`, two in the same time step."""
        first = getattr(policy, "context_first", False)
        if self.sees_contexts and first:
            policy.observe(self.path.contexts[t])
        if ask:
            policy.forecast()
        decision: Decision = policy.decide(**how)
        if learn:
            policy.learn(decision, self.reward(t, decision))
        if twice:
            policy.decide(how.get("features"), elapsed=0)
        if self.sees_contexts and not first:
            policy.observe(self.path.contexts[t])
        return decision

    def reward(self, t: int, decision: Decision) -> float:
        """Return the reward of a decision in round t of the path; an added arm has the rewards of the first."""
        return float(self.path.rewards[t, decision.arm % self.arms])

    def drive(self, policy: Any, *, ask: bool = False) -> Iterator[Decision]:
        """Play the whole path live."""
        for t in range(self.path.rounds):
            yield self.step(policy, t, ask=ask)

    def begun(self, *, decided: bool = True) -> tuple[Any, Decision]:
        """Return a policy after some rounds, in the middle of one, and its last decision."""
        policy = self.make()
        for t in range(20):
            decision = self.step(policy, t)
        if getattr(policy, "context_first", False) and self.sees_contexts:
            policy.observe(self.path.contexts[20])
        return policy, policy.decide() if decided else decision

    def refuses(self, policy: Any, call: Callable[[], object], what: str) -> None:
        """Require that a call raises, and changes nothing."""
        before = content_of(policy) if self.ours else None
        try:
            call()
        except (UndertowError, ValueError, LookupError, TypeError):
            unchanged = before is None or before == content_of(policy)
            require(unchanged, f"{what} was refused, but changed the policy")
            return
        raise BrokenContractError(f"{what} was accepted")

    def changes_nothing(self, policy: Any, call: Callable[[], object], what: str) -> None:
        """Require that a call, refused or not, changes nothing; a registered policy must not refuse it."""
        before = content_of(policy) if self.ours else None
        try:
            call()
        except (UndertowError, ValueError, LookupError, TypeError) as error:
            require(not self.ours, f"{what} was refused: {error}")
        require(before is None or before == content_of(policy), f"{what} changed the policy")

    def compare(self, other: Policy, *, worse: bool, gaps: float) -> None:
        """Compare regrets on 20 shared paths of 1000 rounds (seed 9), to within 3 standard errors."""
        paths = self.system.sample(1000, rng=9, runs=20)
        if gaps:
            holes = np.random.default_rng(9).random(paths.contexts.shape) < gaps
            paths = Trajectory(np.where(holes, np.nan, paths.contexts), paths.rewards, means=paths.means)
        runs: list[Any] = [simulate(policy, paths) for policy in (self.make(7), other)]
        ours, theirs = (run.regret[:, -1] for run in runs)
        lead = theirs - ours if worse else ours - theirs
        error = lead.std(ddof=1) / math.sqrt(len(lead))
        relation = "above that of" if worse else "below that of"
        require(
            bool(lead.mean() > 3 * error if worse else lead.mean() >= -3 * error),
            f"mean regret {ours.mean():.0f} is {relation} {type(other).__name__}, {theirs.mean():.0f} (± {error:.0f})",
        )


def is_fitted(policy: LivePolicy) -> bool:
    """Return whether the policy fits models, which amplifies the last digit."""
    return type(policy.parts.timeline).attend is not Timeline.attend


def content_of(policy: LivePolicy) -> dict[str, Any]:
    """Return the contents of a save file, for comparison."""
    header, arrays = snapshot(policy)
    return header | {name: values.tobytes() for name, values in arrays.items()}
