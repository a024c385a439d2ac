"""Calls in any order, late, twice or out of turn, against a plain model of the bookkeeping.

Beside the policy that is saved, loaded, copied and asked for forecasts runs a twin that is only played: both must stay
the same, bit for bit.
"""

import copy
import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

import undertow
from helpers import dims, everything, full_system
from undertow import InvalidInputError, OutOfTurnError, UnknownDecisionError
from undertow.policies import ARES, UCB, Autopilot, Decision, KalmanGreedy, LearnedKalman, LinUCB, LivePolicy, Rexp3

numbers = st.floats(-3, 3).map(lambda value: round(value, 3))
MOST_ARMS = 5


class Interleavings(RuleBasedStateMachine):
    """What is due, which rewards wait, which arms there are: all that a user has to keep in mind."""

    def __init__(self, make: Callable[[], LivePolicy]) -> None:
        super().__init__()
        self.policy, self.twin = make(), make()
        self.m, self.q, first = dims(self.policy)
        self.first = bool(self.m) and first
        self.grows = not self.policy.claims.needs_system
        self.delay = getattr(self.policy, "max_delay", math.inf)
        self.due = self.begin = "observe" if self.first else "decide"
        self.round, self.names, self.retired = 0, list(self.policy.names), set[str]()
        self.waiting: dict[int, Decision] = {}
        self.learned: list[int] = []
        self.decisions = 0

    def both(self, call: Callable[[LivePolicy], Any]) -> Any:
        """Do the same to the policy and its twin."""
        call(self.twin)
        return call(self.policy)

    def refused(self, error: type[Exception], call: Callable[[LivePolicy], Any]) -> None:
        before = everything(self.policy)
        with pytest.raises(error):
            call(self.policy)
        assert everything(self.policy) == before

    @property
    def open(self) -> list[str]:
        return [name for name in self.names if name not in self.retired]

    def features(self, data: Any) -> list[float] | None:
        return data.draw(st.lists(numbers, min_size=self.q, max_size=self.q)) if self.q else None

    # Rounds

    @precondition(lambda self: self.due == "decide")
    @rule(data=st.data())
    def decide(self, data: Any) -> None:
        features, available = self.features(data), None
        if data.draw(st.booleans()):
            chosen = data.draw(st.lists(st.sampled_from(self.open), min_size=1, unique=True))
            available = [name if data.draw(st.booleans()) else self.names.index(name) for name in chosen]
        self.take(self.both(lambda policy: policy.decide(features, available=available)))
        assert self.waiting[self.decisions - 1].name in (self.open if available is None else chosen)

    def take(self, decision: Decision) -> None:
        """File a decision of this round."""
        assert decision.name in self.open
        assert (decision.id, decision.round) == (self.decisions, self.round)
        assert self.names[decision.arm] == decision.name
        assert np.isfinite(decision.forecast).all()
        assert 0 < decision.propensity <= 1 + 1e-9
        self.waiting[decision.id] = decision
        if len(self.waiting) > self.policy.max_pending:
            del self.waiting[min(self.waiting)]
        self.decisions, self.round = self.decisions + 1, self.round + 1
        self.due = "observe" if self.m else "decide"

    @precondition(lambda self: self.due == "observe")
    @rule(data=st.data())
    def observe(self, data: Any) -> None:
        entries = st.lists(numbers | st.just(math.nan), min_size=self.m, max_size=self.m)
        context = data.draw(st.none() | entries)
        self.both(lambda policy: policy.observe(context))
        self.due = "decide"

    @precondition(lambda self: self.due == self.begin)
    @rule(rounds=st.integers(1, 8), value=numbers)
    def play(self, rounds: int, value: float) -> None:
        """Play whole rounds, and learn most rewards in time."""
        features = [value] * self.q if self.q else None
        for t in range(rounds):
            if self.first:
                self.both(lambda policy: policy.observe([value] * self.m))
            self.take(self.both(lambda policy: policy.decide(features)))
            if t % 3 < 2:
                self.learn_the_last(value + t)
            if self.m and not self.first:
                self.both(lambda policy: policy.observe([value] * self.m))
        self.due = self.begin

    @precondition(lambda self: self.due == self.begin)
    @rule(rounds=st.sampled_from([1, 2, 9]), value=st.none() | numbers)
    def skip(self, rounds: int, value: float | None) -> None:
        contexts = None if value is None else np.full((rounds, self.m), value)
        self.both(lambda policy: policy.skip(rounds, contexts))
        self.round += rounds

    @rule()
    def out_of_turn(self) -> None:
        if self.due == "observe":
            self.refused(OutOfTurnError, lambda policy: policy.decide())
        elif self.m:
            self.refused(OutOfTurnError, lambda policy: policy.observe(None))
        if self.due != self.begin:
            self.refused(OutOfTurnError, lambda policy: policy.skip())

    # Rewards

    @precondition(lambda self: self.waiting)
    @rule(data=st.data(), reward=numbers)
    def learn(self, data: Any, reward: float) -> None:
        decision = self.waiting[data.draw(st.sampled_from(sorted(self.waiting)))]
        given = decision.id if data.draw(st.booleans()) else Decision.from_json(decision.to_json())
        if self.round - 1 - decision.round > self.delay:
            self.refused(UnknownDecisionError, lambda policy: policy.learn(given, reward))
        else:
            self.both(lambda policy: policy.learn(given, reward))
            del self.waiting[decision.id]
            self.learned.append(decision.id)

    @precondition(lambda self: len(self.waiting) > 1)
    @rule(data=st.data(), reward=numbers)
    def learn_many(self, data: Any, reward: float) -> None:
        """Learn several rewards in one call, or none where one of them is too late."""
        chosen = data.draw(st.lists(st.sampled_from(sorted(self.waiting)), min_size=1, max_size=6, unique=True))
        rewards = [reward + number for number in range(len(chosen))]
        if any(self.round - 1 - self.waiting[number].round > self.delay for number in chosen):
            self.refused(UnknownDecisionError, lambda policy: policy.learn_many(chosen, rewards))
            return
        self.refused(InvalidInputError, lambda policy: policy.learn_many([*chosen, chosen[0]], [*rewards, 0.0]))
        self.both(lambda policy: policy.learn_many(chosen, rewards))
        for number in chosen:
            del self.waiting[number]
        self.learned += chosen

    def learn_the_last(self, reward: float) -> None:
        last = max(self.waiting)
        self.both(lambda policy: policy.learn(last, reward))
        del self.waiting[last]
        self.learned.append(last)

    @rule(data=st.data())
    def learn_what_cannot_be_learned(self, data: Any) -> None:
        number = data.draw(st.sampled_from([*self.learned, self.decisions, self.decisions + 7]))
        self.refused(UnknownDecisionError, lambda policy: policy.learn(number, 1.0))

    # Arms

    @precondition(lambda self: self.grows and len(self.names) < MOST_ARMS)
    @rule()
    def add_arm(self) -> None:
        name = f"arm {len(self.names)}"
        self.both(lambda policy: policy.add_arm(name))
        self.names.append(name)

    @precondition(lambda self: len(self.open) > 1)
    @rule(data=st.data())
    def retire_arm(self, data: Any) -> None:
        name = data.draw(st.sampled_from(self.open))
        self.both(lambda policy: policy.retire_arm(name))
        self.retired.add(name)
        self.refused(InvalidInputError, lambda policy: policy.retire_arm(name))
        if self.due == "decide" and not self.q:
            self.refused(InvalidInputError, lambda policy: policy.decide(available=[name]))

    @precondition(lambda self: self.retired)
    @rule(data=st.data())
    def bring_back(self, data: Any) -> None:
        name = data.draw(st.sampled_from(sorted(self.retired)))
        self.both(lambda policy: policy.add_arm(name))
        self.retired.remove(name)
        self.refused(InvalidInputError, lambda policy: policy.add_arm(name))

    # What may happen at any time

    @rule()
    def save_and_load(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            self.policy.save(Path(folder) / "policy")
            self.policy = undertow.load(Path(folder) / "policy")

    @rule()
    def go_on_with_a_copy(self) -> None:
        self.policy = copy.deepcopy(self.policy)

    @rule(data=st.data())
    def forecast(self, data: Any) -> None:
        features, before = self.features(data), everything(self.policy)
        outlook = self.policy.forecast(features)
        assert outlook.forecast.shape == (len(self.names),)
        assert np.isfinite(outlook.forecast).all()
        assert everything(self.policy) == before

    @invariant()
    def agrees(self) -> None:
        policy = self.policy
        assert (policy.round, policy.parts.turns.due, policy.parts.pending.made) == (
            self.round,
            self.due,
            self.decisions,
        )
        assert (policy.names, set(policy.retired)) == (tuple(self.names), self.retired)
        assert list(policy.parts.pending.waiting) == sorted(self.waiting)
        assert policy.pending == len(self.waiting)
        assert everything(policy) == everything(self.twin)

    def teardown(self) -> None:
        """All rewards that are not too late come in the end."""
        for decision in reversed(list(self.waiting.values())):
            if self.round - 1 - decision.round <= self.delay:
                for policy in (self.policy, self.twin):
                    policy.learn(decision, 0.5)
                del self.waiting[decision.id]
        self.agrees()


KNOWN = full_system(2, 1, 3)


@pytest.mark.parametrize(
    ("make", "examples"),
    [
        (lambda: UCB(arms=2, max_pending=6, rng=0), 25),
        (lambda: UCB(arms=2, explore=0.3, minimise=True, rng=0), 10),
        (
            lambda: LinUCB(arms=2, context_dim=2, feature_dim=1, window=2, reward_lags=2, standardise=True, rng=0),
            25,
        ),
        (lambda: ARES(arms=2, context_dim=1, max_window=2, context_first=True, max_pending=6, rng=0), 25),
        (lambda: Rexp3(arms=2, rng=0), 20),
        (lambda: KalmanGreedy(KNOWN, max_delay=4, rng=0), 20),
        (lambda: KalmanGreedy(KNOWN, max_delay=4, context_first=True, rng=0), 20),
        (lambda: LearnedKalman(arms=2, context_dim=1, max_delay=12, context_first=True, refit="inline", rng=0), 12),
        (lambda: LearnedKalman(arms=2, context_dim=1, max_delay=12, refit="inline", rng=0), 12),
        (lambda: Autopilot(arms=2, feature_dim=1, max_delay=12, refit="inline", rng=0), 10),
        (lambda: Autopilot(arms=2, context_dim=2, refit="inline", rng=0), 10),
    ],
    ids=["UCB", "explore", "LinUCB", "ARES", "Rexp3", "KalmanGreedy", "context first", "LearnedKalman", "decide first",
         "Autopilot", "Autopilot with contexts"],
)  # fmt: skip
def test_interleavings(make: Callable[[], LivePolicy], examples: int) -> None:
    run_state_machine_as_test(
        lambda: Interleavings(make),  # type: ignore[arg-type]
        settings=settings(
            max_examples=examples,
            stateful_step_count=40,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
