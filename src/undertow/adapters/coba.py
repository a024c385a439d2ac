"""A learner for coba: `coba.Experiment` runs undertow's policies next to coba's own.

A prediction is a round. coba's context is known before the prediction. It may have a policy's contexts (noisy
measurements of the hidden state) as well as its features, which do not depend on that state.
"""

import copy
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from undertow.adapters.translation import Arms, Columns
from undertow.errors import InvalidInputError, UnknownDecisionError
from undertow.live import LivePolicy
from undertow.support import checks

with checks.needing("this adapter", "coba"):
    from coba.primitives import Learner, is_batch
    from coba.safety import SafeLearner

__all__ = ["CobaLearner", "FromCoba"]


class CobaLearner(Learner):
    """A policy as a learner of coba.

    Predictions have the probability of their action. Rewards may come late, as in coba's batches. `score` is not
    implemented: a policy has the probability of an action only in its own rounds.

    Parameters
    ----------
    policy
        The policy; a copy of it plays. If it sees contexts, build it with `context_first=True`.
    contexts, features
        The entries of coba's context that are the policy's contexts and features, in the policy's order: positions in a
        sequence, or keys of a dictionary, in which an absent key is 0, as in coba. By default a policy that takes only
        one of them takes all of a sequence, or a number.
    actions
        coba's actions in the order of the policy's arms. By default they are the policy's names; for a policy built
        with a number, they are numbered in order of appearance.

    Examples
    --------
    >>> from undertow.policies import LinUCB
    >>> learner = CobaLearner(LinUCB(arms=3, feature_dim=2))
    >>> action, probability, decision = learner.predict((0.5, -1.0), ["a", "b", "c"])
    >>> learner.learn((0.5, -1.0), action, 1.0, probability, **decision)
    """

    def __init__(
        self,
        policy: LivePolicy,
        *,
        contexts: Sequence[Hashable] | None = None,
        features: Sequence[Hashable] | None = None,
        actions: Sequence[Any] | None = None,
    ) -> None:
        self._arms = Arms(policy, actions)
        self._columns = Columns(policy, contexts=contexts, features=features, absent=0.0)
        self._player = copy.deepcopy(policy)

    @property
    def params(self) -> Mapping[str, Any]:
        """Parameters that describe the learner in the tables of an experiment."""
        given = self._player.parts.parameters()
        plain = {name: value for name, value in given.items() if isinstance(value, str | int | float)}
        return {"family": type(self._player).__name__, **plain}

    def predict(self, context: Any, actions: Sequence[Any]) -> tuple[Any, float, dict[str, Any]]:
        """Choose an action; return it with its probability and, for `learn`, the id of the decision."""
        if is_batch(context) or is_batch(actions):
            raise InvalidInputError("actions: one interaction at a time; coba itself splits a batch")
        decision, action = self._arms.decide(self._player, actions, self._columns, context)
        return action, decision.propensity, {"decision": decision.id}

    def learn(self, context: Any, action: Any, reward: float, probability: float, decision: str | None = None) -> None:
        """Learn the reward of a prediction."""
        if is_batch(reward):
            raise InvalidInputError("reward: one interaction at a time; coba itself splits a batch")
        if decision is None:
            raise UnknownDecisionError(
                "decision: a policy learns from its own decisions, and this action is not "
                "one; evaluate with learn='on', or learn from other logs with the policy's warm_start"
            )
        self._player.learn(decision, float(reward))


class FromCoba:
    """A learner of coba in `undertow.compare` and `simulate`; every run plays its own copy.

    An action is a vector with a one in the place of its arm. coba's context has the last context of the path, zeros
    before the first, and the features of the round.

    Examples
    --------
    >>> import coba, undertow
    >>> paths = undertow.paper_system(psi=1).sample(100, rng=0, runs=2)
    >>> found = undertow.compare({"random": FromCoba(coba.RandomLearner(), arms=2)}, paths)
    >>> found.runs
    2
    """

    def __init__(self, learner: Any, arms: int, context_dim: int = 0) -> None:
        self.learner = SafeLearner(copy.deepcopy(learner))
        self.actions = [tuple(float(arm == other) for other in range(arms)) for arm in range(arms)]
        self.seen: tuple[float, ...] = (0.0,) * context_dim

    def decide(self, features: Sequence[float] = ()) -> int:
        """Return the number of the action that the learner predicts."""
        self.asked = (*self.seen, *map(float, features)) or None
        self.answer = self.learner.predict(self.asked, self.actions)
        return self.actions.index(self.answer[0])

    def learn(self, arm: int, reward: float) -> None:
        """Pass the reward on."""
        action, probability, more = self.answer
        self.learner.learn(self.asked, action, reward, probability, **more)

    def observe(self, context: Sequence[float]) -> None:
        """Keep the context for the next round."""
        self.seen = tuple(map(float, context))
