"""Policies for river: `river.bandit.evaluate` and `river.bandit.evaluate_offline` run them like river's own.

A pull is a round, with or without a reward. river's context is known before the pull. It may have a policy's contexts
(noisy measurements of the hidden state) as well as its features, which do not depend on that state.
"""

import copy
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, SupportsFloat

from undertow.adapters.translation import Arms, Columns
from undertow.errors import InvalidInputError, UnknownDecisionError
from undertow.live import Decision, LivePolicy
from undertow.support import checks

with checks.needing("this adapter", "river"):
    import gymnasium
    from river import bandit

__all__ = ["ContextualRiverPolicy", "FromRiver", "ObservedReward", "RewardsWithContexts", "RiverPolicy"]


class RiverPolicy(bandit.base.Policy):
    """A policy that is pulled without a context, as `river.bandit.evaluate` does.

    A clone is the policy in its original state, with which every episode of `evaluate` begins.

    Parameters
    ----------
    policy
        The policy; a copy of it plays. If it sees contexts, rewards must carry them: see `RewardsWithContexts`. The
        context of a pull without a reward counts as missing.
    arms
        river's arms in the order of the policy's. By default they are the policy's names; for a policy built with a
        number, they are numbered in order of appearance.

    Examples
    --------
    >>> from undertow.policies import UCB
    >>> policy = RiverPolicy(UCB(arms=["red", "blue"]))
    >>> arm = policy.pull(["blue", "red"])
    >>> policy.update(arm, 1.0)
    >>> policy.ranking
    ['red']
    """

    def __init__(self, policy: LivePolicy, arms: Sequence[Any] | None = None) -> None:
        super().__init__()
        self.policy, self.arms = policy, arms
        self._arms = Arms(policy, arms)
        self._player = copy.deepcopy(policy)
        self._waiting: dict[Any, Decision] = {}
        self._sees_contexts = getattr(policy, "context_dim", 0) > 0
        self._context_due = self._sees_contexts and getattr(policy, "context_first", False)

    def _pull(self, arm_ids: Iterable[Any]) -> Any:
        if self._context_due:
            self._player.observe(None)
            self._context_due = False
        decision, arm = self._arms.decide(self._player, arm_ids)
        self._waiting[arm], self._context_due = decision, self._sees_contexts
        return arm

    def update(self, arm_id: Any, reward: float) -> None:
        """Learn the reward of the last pull of an arm and, for a policy that sees contexts, the context with it."""
        observation = getattr(reward, "observation", None)
        if self._sees_contexts and observation is None:
            raise InvalidInputError(
                "reward: this policy sees contexts, and the reward carries none; "
                "wrap the environment in undertow.adapters.river.RewardsWithContexts"
            )
        decision = _waiting(self._waiting, arm_id)
        self._player.learn(decision, float(reward))
        if self._context_due and decision.round == self._player.round - 1:
            self._player.observe(observation)
            self._context_due = False
        del self._waiting[arm_id]
        super().update(arm_id, reward)


class ContextualRiverPolicy(bandit.base.ContextualPolicy):
    """A policy that is pulled with a context, as `river.bandit.evaluate_offline` does.

    Parameters
    ----------
    policy
        The policy; a copy of it plays. If it sees contexts, build it with `context_first=True`.
    contexts, features
        The keys of river's context that are the policy's contexts and features, in the policy's order; others are
        ignored. An absent key is a missing entry of a context, and an error for a feature.
    arms
        river's arms in the order of the policy's. By default they are the policy's names; for a policy built with a
        number, they are numbered in order of appearance.

    Examples
    --------
    >>> from undertow.policies import Autopilot
    >>> policy = ContextualRiverPolicy(
    ...     Autopilot(arms=2, context_dim=1, context_first=True, feature_dim=1, rng=0),
    ...     contexts=["temperature"], features=["weekend"])
    >>> shown = {"temperature": 21.5, "weekend": False, "name": "ignored"}
    >>> arm = policy.pull(["A", "B"], shown)
    >>> policy.update(arm, shown, 1.0)
    """

    def __init__(
        self,
        policy: LivePolicy,
        contexts: Sequence[Hashable] | None = None,
        features: Sequence[Hashable] | None = None,
        arms: Sequence[Any] | None = None,
    ) -> None:
        super().__init__()
        self.policy, self.contexts, self.features, self.arms = policy, contexts, features, arms
        self._arms = Arms(policy, arms)
        self._columns = Columns(policy, contexts=contexts or (), features=features or (), absent=None)
        self._player = copy.deepcopy(policy)
        self._waiting: dict[Any, Decision] = {}

    def _pull(self, arm_ids: Iterable[Any], context: Mapping[Any, Any] | None) -> Any:  # type: ignore[override]
        decision, arm = self._arms.decide(self._player, arm_ids, self._columns, context)
        self._waiting[arm] = decision
        return arm

    def update(self, arm_id: Any, context: Mapping[Any, Any] | None, reward: float) -> None:
        """Learn the reward of the last pull of an arm, which came with the context."""
        self._player.learn(_waiting(self._waiting, arm_id), float(reward))
        del self._waiting[arm_id]
        super().update(arm_id, context, reward)


class ObservedReward(float):
    """A reward together with the observation of its round."""

    observation: Any

    def __new__(cls, reward: SupportsFloat, observation: Any = None) -> "ObservedReward":
        """Attach an observation to a number."""
        result = super().__new__(cls, reward)
        result.observation = observation
        return result


class RewardsWithContexts(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment whose rewards carry its observations, for policies that see contexts.

    `river.bandit.evaluate` gives a policy the reward and drops the observation. With this wrapper around the
    environment, `RiverPolicy` finds the observation in the reward, which otherwise is the same number.

    Examples
    --------
    >>> from river import bandit
    >>> from undertow.gym import ID
    >>> from undertow.policies import ARES
    >>> env = RewardsWithContexts(gymnasium.make(ID, system=1.0, rounds=50))
    >>> trace = bandit.evaluate([RiverPolicy(ARES(arms=2, context_dim=1))], env, n_episodes=2, seed=0)
    >>> len(list(trace))
    100
    """

    def step(self, action: Any) -> tuple[Any, ObservedReward, bool, bool, dict[str, Any]]:
        """Play an arm for one round."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, ObservedReward(reward, observation), terminated, truncated, info


def _waiting(decisions: dict[Any, Decision], arm: Any) -> Decision:
    if arm not in decisions:
        raise UnknownDecisionError(f"arm_id: no pull of {arm!r} is pending; update an arm after it was pulled")
    return decisions[arm]


class FromRiver:
    """A policy of river in `undertow.compare` and `simulate`; every run plays its own clone.

    A contextual policy gets the last context of the path, zeros before the first, and the features of the round, by
    name: c0, c1, …, f0, f1, …

    Examples
    --------
    >>> import undertow
    >>> paths = undertow.paper_system(psi=1).sample(100, rng=0, runs=2)
    >>> found = undertow.compare({"river": FromRiver(bandit.EpsilonGreedy(epsilon=0.1, seed=0), arms=2)}, paths)
    >>> found.runs
    2
    """

    def __init__(self, policy: bandit.base.Policy, arms: int, context_dim: int = 0) -> None:
        self.policy: Any = policy.clone()
        self.arms = list(range(arms))
        self.contextual = isinstance(policy, bandit.base.ContextualPolicy)
        self.seen = {f"c{place}": 0.0 for place in range(context_dim)}

    def decide(self, features: Sequence[float] = ()) -> int:
        """Return the arm that the policy pulls."""
        self.asked = self.seen | {f"f{place}": float(value) for place, value in enumerate(features)}
        return int(self.policy.pull(self.arms, self.asked) if self.contextual else self.policy.pull(self.arms))

    def learn(self, arm: int, reward: float) -> None:
        """Pass the reward on."""
        self.policy.update(arm, *([self.asked] if self.contextual else []), reward)

    def observe(self, context: Sequence[float]) -> None:
        """Keep the context for the next round, without missing entries."""
        self.seen = {f"c{place}": float(value) for place, value in enumerate(context) if value == value}
