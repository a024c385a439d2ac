"""Calls in any order, late, twice or out of turn, against a plain model of the bookkeeping.

Beside the policy that is saved, loaded, copied and asked for forecasts runs a twin that is only played: both must stay
the same, bit for bit.
"""

import copy
import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

import undertow
from helpers import dims, everything, full_system, id_of, unnamed
from undertow import InvalidInputError, OutOfTurnError, UnknownDecisionError
from undertow.policies import (
    ARES,
    UCB,
    Autopilot,
    Decision,
    Health,
    KalmanGreedy,
    LearnedKalman,
    LinUCB,
    LivePolicy,
    Rexp3,
)

numbers = st.floats(-3, 3).map(lambda value: round(value, 3))
MOST_ARMS = 5


class Interleavings(RuleBasedStateMachine):
    """What is due, which rewards wait, which arms there are: all that a user has to keep in mind."""

    def __init__(self, make: Callable[[], LivePolicy]) -> None:
        super().__init__()
        self.policy, self.twin = make(), make()
        self.m, self.q, first = dims(self.policy)
        self.first = bool(self.m) and first
        self.own_rows = self.policy.capabilities.takes_arm_features
        self.grows = not self.policy.capabilities.needs_system
        self.delay = getattr(self.policy, "max_delay", math.inf)
        self.due = self.begin = "observe" if self.first else "decide"
        self.round, self.names, self.retired = 0, list(self.policy.names), set[str]()
        self.time_step = 0
        self.wait = math.inf if self.policy.max_wait is None else cast("int", self.policy.max_wait)
        self.waiting: dict[int, tuple[Decision, Decision]] = {}  # of the policy and of its twin, by number
        self.learned: list[str] = []
        self.decisions = 0

    def both(self, call: Callable[[LivePolicy], Any]) -> tuple[Any, Any]:
        """Do the same to the policy and its twin."""
        return call(self.policy), call(self.twin)

    def refused(self, error: type[Exception], call: Callable[[LivePolicy], Any]) -> None:
        before = everything(self.policy)
        with pytest.raises(error):
            call(self.policy)
        assert everything(self.policy) == before

    @property
    def open(self) -> list[str]:
        return [name for name in self.names if name not in self.retired]

    def features(self, data: Any) -> Any:
        """One row for all arms, or one for each."""
        if not self.q:
            return None
        row = st.lists(numbers, min_size=self.q, max_size=self.q)
        k = len(self.names)
        return data.draw(row | st.lists(row, min_size=k, max_size=k) if self.own_rows else row)

    # Rounds

    @precondition(lambda self: self.due == "decide")
    @rule(data=st.data())
    def decide(self, data: Any) -> None:
        features, available, id = self.features(data), None, data.draw(st.none() | st.just(self.event))
        if data.draw(st.booleans()):
            chosen = data.draw(st.lists(st.sampled_from(self.open), min_size=1, unique=True))
            available = [name if data.draw(st.booleans()) else self.names.index(name) for name in chosen]
        self.take(self.both(lambda policy: policy.decide(features, available=available, id=id)), id)
        assert self.waiting[self.decisions - 1][0].name in (self.open if available is None else chosen)

    @precondition(lambda self: self.round and (not self.m or self.due == "observe"))
    @rule(data=st.data())
    def decide_again(self, data: Any) -> None:
        """Another decision in the same time step."""
        features, id = self.features(data), data.draw(st.none() | st.just(self.event))
        self.take(self.both(lambda policy: policy.decide(features, elapsed=0, id=id)), id, elapsed=0)
        if self.first:
            self.refused(InvalidInputError, lambda policy: policy.decide(features, context=None, elapsed=0))

    @precondition(lambda self: self.due == self.begin)
    @rule(data=st.data(), elapsed=st.sampled_from([2, 3, 9]))
    def decide_later(self, data: Any, elapsed: int) -> None:
        """In one call what the twin does in two."""
        features = self.features(data)
        how: dict[str, Any] = {"context": None} if self.first else {}
        self.twin.skip(elapsed - 1)
        decisions = self.policy.decide(features, elapsed=elapsed, **how), self.twin.decide(features, **how)
        for _ in range(elapsed - 1):
            self.expire()
            self.round += 1
        self.take(decisions, elapsed=elapsed)

    @property
    def event(self) -> str:
        """An id that was not given yet."""
        return f"event {self.decisions}"

    @precondition(lambda self: self.first and self.due == "observe")
    @rule(data=st.data(), value=st.none() | numbers)
    def decide_with_context(self, data: Any, value: float | None) -> None:
        """In one call what the twin does in two."""
        features, context = self.features(data), None if value is None else [value] * self.m
        self.twin.observe(context)
        self.take((self.policy.decide(features, context=context), self.twin.decide(features)))

    def take(self, decisions: tuple[Decision, Decision], id: str | None = None, elapsed: int = 1) -> None:
        """File a decision of this round."""
        self.time_step += elapsed
        decision, other = decisions
        assert unnamed(decision) == unnamed(other)
        assert decision.name in self.open
        assert (decision.id, decision.round) == (id or id_of(self.policy, self.decisions), self.round)
        assert decision.time_step == self.time_step - 1
        assert (decision.id == other.id) == (id is not None)
        assert self.names[decision.arm] == decision.name
        assert np.isfinite(decision.forecast).all()
        assert 0 < decision.propensity <= 1 + 1e-9
        self.expire()
        self.waiting[self.decisions] = decisions
        if len(self.waiting) > self.policy.max_pending:
            del self.waiting[min(self.waiting)]
        self.decisions, self.round = self.decisions + 1, self.round + 1
        self.due = "observe" if self.m else "decide"

    def expire(self) -> None:
        """Forget the decisions that got the default reward before this round."""
        for number, (decision, _) in tuple(self.waiting.items()):
            if self.round - 1 - decision.round >= self.wait:
                self.learned.append(self.waiting.pop(number)[0].id)

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
        rows = [[value - arm] * self.q for arm in range(len(self.names))]
        features = None if not self.q else rows if self.own_rows and rounds % 2 else rows[0]
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
        for _ in range(rounds):
            self.expire()
            self.round += 1
            self.time_step += 1

    @precondition(lambda self: self.q and self.due == "decide")
    @rule(data=st.data())
    def features_that_are_none(self, data: Any) -> None:
        """A row too many or too few, a column too many, no number."""
        k, q = len(self.names), self.q
        wrong = [np.zeros((k + 1, q)), np.zeros((k, q + 1)), np.zeros(q + 1), np.full((k, q), math.nan), ["near"] * q]
        wrong += [] if k == 2 else [np.zeros((k - 1, q))]
        features = data.draw(st.sampled_from(wrong))
        self.refused(InvalidInputError, lambda policy: policy.decide(features))

    @rule()
    def out_of_turn(self) -> None:
        self.refused(InvalidInputError, lambda policy: policy.decide(elapsed=-1))
        if self.round == 0 or (self.m and self.due == "decide"):
            self.refused(OutOfTurnError, lambda policy: policy.decide([0.0] * self.q or None, elapsed=0))
        if self.due != self.begin:
            self.refused(OutOfTurnError, lambda policy: policy.decide([0.0] * self.q or None, elapsed=2))
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
        number = data.draw(st.sampled_from(sorted(self.waiting)))
        decision, other = self.waiting[number]
        given = decision.id if data.draw(st.booleans()) else Decision.from_json(decision.to_json())
        if self.round - 1 - decision.round > self.delay:
            self.refused(UnknownDecisionError, lambda policy: policy.learn(given, reward))
        else:
            self.policy.learn(given, reward)
            self.twin.learn(other, reward)
            self.learned.append(self.waiting.pop(number)[0].id)

    @precondition(lambda self: len(self.waiting) > 1)
    @rule(data=st.data(), reward=numbers)
    def learn_many(self, data: Any, reward: float) -> None:
        """Learn several rewards in one call, or none where one of them is too late."""
        numbers = data.draw(st.lists(st.sampled_from(sorted(self.waiting)), min_size=1, max_size=6, unique=True))
        rewards = [reward + number for number in range(len(numbers))]
        first, second = ([self.waiting[number][which].id for number in numbers] for which in (0, 1))
        if any(self.round - 1 - self.waiting[number][0].round > self.delay for number in numbers):
            for policy, ids in ((self.policy, first), (self.twin, second)):
                with pytest.raises(UnknownDecisionError):
                    policy.learn_many(ids, rewards)
            return
        for policy, ids in ((self.policy, first), (self.twin, second)):
            with pytest.raises(InvalidInputError):
                policy.learn_many([*ids, ids[0]], [*rewards, 0.0])
            policy.learn_many(ids, rewards)
        for number in numbers:
            self.learned.append(self.waiting.pop(number)[0].id)

    def learn_the_last(self, reward: float) -> None:
        decision, other = self.waiting.pop(max(self.waiting))
        self.policy.learn(decision, reward)
        self.twin.learn(other, reward)
        self.learned.append(decision.id)

    @rule(data=st.data())
    def learn_what_cannot_be_learned(self, data: Any) -> None:
        """Another reward for what was learned, what was not made, and what only a copy has made."""
        strange = [id_of(self.policy, self.decisions), "", "an event of somebody else's"]
        if self.due == "decide":
            strange.append(copy.deepcopy(self.policy).decide(self.features(data)).id)
        id = data.draw(st.sampled_from([*self.learned, *strange]))
        self.refused(UnknownDecisionError, lambda policy: policy.learn(id, 99.0))

    @precondition(lambda self: self.due == "decide")
    @rule(data=st.data())
    def ids_that_are_none(self, data: Any) -> None:
        features = self.features(data)
        used = [id for id in (*self.learned, *(one.id for one, _ in self.waiting.values())) if id.startswith("event")]
        id = data.draw(st.sampled_from(["", "x" * 65, "two\nlines", id_of(self.policy, 0), *used[-5:]]))
        if len(id) < 65 and id.startswith(("e", "x")) and self.policy.max_pending < self.decisions:
            return  # it may have been forgotten
        other = [self.open[0]] * 2  # which no call was made with: the same one would be answered
        self.refused(InvalidInputError, lambda policy: policy.decide(features, id=id, available=other))

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
    def go_on_from_bytes(self) -> None:
        self.policy = undertow.from_bytes(self.policy.to_bytes())

    @rule()
    def ask_for_its_health(self) -> None:
        before, health = everything(self.policy), self.policy.health()
        assert (health.round, health.pending) == (self.round, len(self.waiting))
        assert health.waited == max((self.round - 1 - one.round for one, _ in self.waiting.values()), default=0)
        assert str(Health.from_json(health.to_json())) == str(health)
        assert everything(self.policy) == before

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
        assert (policy.round, policy.parts.time_step, policy.parts.turns.due, policy.parts.pending.made) == (
            self.round,
            self.time_step,
            self.due,
            self.decisions,
        )
        assert (policy.names, set(policy.retired)) == (tuple(self.names), self.retired)
        assert list(policy.parts.pending.waiting) == [self.waiting[number][0].id for number in sorted(self.waiting)]
        assert policy.pending == len(self.waiting)
        assert everything(policy) == everything(self.twin)

    def teardown(self) -> None:
        """All rewards that are not too late come in the end."""
        for number, (decision, other) in reversed(list(self.waiting.items())):
            if self.round - 1 - decision.round <= self.delay:
                self.policy.learn(decision, 0.5)
                self.twin.learn(other, 0.5)
                del self.waiting[number]
        self.agrees()


KNOWN = full_system(2, 1, 3)


@pytest.mark.parametrize(
    ("make", "examples"),
    [
        (lambda: UCB(arms=2, max_pending=6, rng=0), 25),
        (lambda: UCB(arms=2, explore=0.3, minimize=True, rng=0), 10),
        (
            lambda: LinUCB(arms=2, context_dim=2, feature_dim=1, window=2, reward_lags=2, standardize=True, rng=0,
                           default_reward=0.5, max_wait=5),
            25,
        ),
        (lambda: ARES(arms=2, context_dim=1, max_window=2, context_first=True, max_pending=6, rng=0), 25),
        (lambda: Rexp3(arms=2, rng=0), 20),
        (lambda: KalmanGreedy(KNOWN, max_delay=4, rng=0), 20),
        (lambda: KalmanGreedy(KNOWN, max_delay=4, context_first=True, default_reward=0.5, max_wait=3, rng=0), 20),
        (lambda: LearnedKalman(arms=2, context_dim=1, max_delay=12, context_first=True, refit="inline", rng=0), 12),
        (lambda: LearnedKalman(arms=2, context_dim=1, max_delay=12, default_reward=0.5, max_wait=3, rng=0), 12),
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
