"""Wall clocks: time steps, default rewards and delays that follow from the times that are given."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import undertow
from helpers import learner_of
from undertow import InvalidInputError, UnknownDecisionError, random_system
from undertow.live.clock import duration
from undertow.live.events import Decided, Defaulted, Event, Observed, Skipped, decode, encode
from undertow.policies import KalmanUCB, LearnedKalman, LinUCB, LivePolicy, StructuralKalman

MONDAY = datetime(2026, 11, 16, tzinfo=UTC)


def after(**time: float) -> datetime:
    return MONDAY + timedelta(**time)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30 s", 30), ("1 h", 3600), ("3 days", 259_200), ("1day", 86_400), ("2 weeks", 1_209_600), ("1.5 min", 90)],
)
def test_times_are_read(text: str, seconds: float) -> None:
    assert duration("tick", text) == seconds * 10**6 == duration("tick", timedelta(seconds=seconds))


@pytest.mark.parametrize("odd", ["", "1", "h", "0 s", "-1 h", "3 moons", 7, None, timedelta(0)])
def test_what_is_no_time_is_refused(odd: Any) -> None:
    with pytest.raises(InvalidInputError, match="tick: expected a time such as"):
        duration("tick", odd)


def test_time_steps_follow_from_the_clock() -> None:
    """Decisions of one hour share a time step; an hour without one passes; going back counts as the newest time."""
    policy, log = LinUCB(arms=2, tick="1 h"), list[Event]()
    policy.events(log.append)
    hours = [9.2, 9.9, 10.1, 9.0, 14.5, 14.6]
    time_steps = [policy.decide(at=after(hours=hour)).time_step for hour in hours]
    assert time_steps == [0, 0, 1, 1, 5, 5]
    assert [event.rounds for event in log if isinstance(event, Skipped)] == [3]
    assert [event.still for event in log if isinstance(event, Decided)] == [False, True, False, True, False, True]
    assert policy.decide(at=after(days=9999)).time_step == 5 + 10_000  # as far as time steps are counted
    elsewhere = timezone(timedelta(hours=5, minutes=30))
    assert policy.decide(at=after(days=9999).astimezone(elsewhere)).time_step == 10_005


@pytest.mark.parametrize("at", [datetime(2026, 1, 1), "2026-01-01", 0.0, np.datetime64("2026-01-01")])
def test_a_time_has_a_zone(at: Any) -> None:
    policy = LinUCB(arms=2, context_dim=1, context_first=True, tick="1 h")
    for call in (lambda: policy.decide(context=None, at=at), lambda: policy.observe(None, at=at)):
        with pytest.raises(InvalidInputError, match="at: expected a datetime with a time zone"):
            call()
    with pytest.raises(InvalidInputError, match="elapsed: expected none, as it follows from at and tick, got 2"):
        policy.decide(at=MONDAY, elapsed=2)
    assert policy.round == 0


def test_contexts_begin_or_end_time_steps() -> None:
    """A context that comes first counts once in a step; one that comes last and is missing is missing."""
    policy, log = LinUCB(arms=2, context_dim=1, context_first=True, tick="1 h"), list[Event]()
    policy.events(log.append)
    for hour, context in ((1.0, 3.0), (1.5, 4.0), (2.0, 5.0)):
        policy.decide(context=[context], at=after(hours=hour))
    policy.observe([6.0], at=after(hours=5))
    policy.decide(at=after(hours=5))
    seen = [event.context for event in log if isinstance(event, Observed)]
    assert [float(context[0]) for context in seen if context is not None] == [3.0, 5.0, 6.0]
    assert policy.parts.time_step == 5
    policy, log = LinUCB(arms=2, context_dim=1, tick="1 h"), list[Event]()
    policy.events(log.append)
    for hour in (1.0, 1.5, 2.0):
        policy.decide(at=after(hours=hour))
    policy.observe([7.0])
    policy.decide(at=after(hours=4))
    seen = [event.context for event in log if isinstance(event, Observed)]
    assert seen[0] is None
    assert seen[1] is not None
    assert policy.parts.time_step == 4


SYSTEM = random_system(2, 1, 2, rng=3)
PATIENT: dict[str, Callable[..., LivePolicy]] = {
    "LinUCB": lambda **more: LinUCB(arms=2, reward_lags=2, **more),
    "KalmanUCB": lambda **more: KalmanUCB(SYSTEM, context_first=True, **more),
    "StructuralKalman": lambda **more: StructuralKalman(arms=2, refit="inline", rng=0, **more),
}


def act(policy: Any, hour: float) -> Any:
    context = {"context": [np.sin(hour)]} if policy.parts.turns.context_dim else {}
    return policy.decide(at=after(hours=hour), **context)


@pytest.mark.parametrize("name", PATIENT)
def test_nobody_can_tell_when_a_default_was_taken_in(name: str) -> None:
    """Of three rewards that nobody gives, one falls due before another is learned, and two before a decision.

    The twin is told each of them by hand, in the order in which they fall due.
    """
    one, two = PATIENT[name](default_reward=-0.5, max_wait="3 h", tick="1 h"), PATIENT[name](tick="1 h")
    log: list[Event] = []
    before = one.to_bytes()
    one.events(log.append)
    for policy in (one, two):
        kept = [act(policy, hour) for hour in (0.0, 0.4, 1.2, 1.9, 2.5)]
        policy.learn(kept[0], 1.0, at=after(hours=2.6))
        if policy is two:
            policy.learn(kept[1], -0.5)
        policy.learn(kept[4], 2.0, at=after(hours=3.5))
        for decision in kept[2:4] if policy is two else ():
            policy.learn(decision, -0.5)
        act(policy, 8.0)
    assert one.pending == two.pending == 1
    assert sum(isinstance(event, Defaulted) for event in log) == 3
    np.testing.assert_array_equal(one.forecast().forecast, two.forecast().forecast)
    again = undertow.fold(before, map(decode, map(encode, log)))
    assert again.to_bytes() == one.to_bytes()
    loaded = undertow.from_bytes(one.to_bytes())
    assert act(loaded, 8.5).time_step == act(one, 8.5).time_step


def test_a_reward_after_its_default_is_refused_by_the_clock() -> None:
    policy = LinUCB(arms=2, default_reward=0.0, max_wait="3 days")
    first, second = policy.decide(at=after(days=0)), policy.decide(at=after(days=2))
    for _ in range(50):
        policy.decide(at=after(days=2))  # growing traffic refuses nothing
    policy.learn(first, 1.0, at=after(days=2.9))
    with pytest.raises(UnknownDecisionError, match=r"default_reward has replaced.*max_wait = 259200 s") as caught:
        policy.learn(second, 1.0, at=after(days=5))
    assert caught.value.reason == "defaulted"
    assert policy.pending == 51
    policy.decide(at=after(days=5))
    assert policy.pending == 1


@pytest.mark.parametrize("name", ["KalmanUCB", "StructuralKalman"])
def test_delays_are_times(name: str) -> None:
    """A reward is two days and 60 rounds late; after three days it is refused, and the memory is free again."""
    policy: LivePolicy = PATIENT[name](max_delay="3 days")
    twin: LivePolicy = PATIENT[name](max_delay=10_000)
    rewards = np.random.default_rng(0).standard_normal(100)
    for each in (policy, twin):
        waiting = [act(each, hour) for hour in np.linspace(0, 48, 60)]
        for decision, reward in zip(waiting[1:], rewards, strict=False):
            each.learn(decision, float(reward), at=after(hours=48))
        each.learn(waiting[0], 1.0, at=after(hours=48))
        act(each, 48.0)
    np.testing.assert_allclose(policy.forecast().forecast, twin.forecast().forecast, rtol=1e-9)
    old = act(policy, 49.0)
    policy = undertow.from_bytes(policy.to_bytes())
    with pytest.raises(UnknownDecisionError, match="comes 262800 s late, and max_delay is 259200 s") as caught:
        policy.learn(old, 1.0, at=after(hours=122))
    assert caught.value.reason == "late"
    pending = policy.pending
    act(policy, 122.5)
    assert policy.pending == pending + 1 - 2  # without the one of hour 48, and the one of 49
    act(undertow.from_bytes(policy.to_bytes()), 123.0)


def test_the_memory_of_a_learner_grows_with_what_it_waits_for() -> None:
    policy = LearnedKalman(arms=2, max_delay="2 days", refit="inline", rng=0)
    lengths = []
    for day in range(6):
        for hour in range(20):
            decision = policy.decide(at=after(days=day, hours=hour))
            if hour % 2:
                policy.learn(decision, float(hour % 3), at=after(days=day, hours=hour))
        lengths.append(learner_of(policy).late.max_delay)
    assert all(39 <= length <= 41 for length in lengths[2:]), lengths
    assert lengths[0] == 19
    assert all(one <= two for one, two in pairwise(lengths[:3]))


def test_stores_take_times(tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path}/clock.db"
    one, two = (
        undertow.open(url, "a", LinUCB(arms=2, tick="1 h", default_reward=0.0, max_wait=timedelta(days=1)))
        for _ in range(2)
    )
    decision = one.decide(at=after(hours=1), id="order 1")
    assert two.decide(at=after(hours=2)).time_step == 1
    assert (
        two.decide(at=after(hours=7), id="order 1").time_step == decision.time_step
    )  # the same call, made again later
    two.learn("order 1", 1.0, at=after(hours=20))
    assert one.decide(at=after(hours=30)).time_step == 29
    assert one.pending == 1
    late = one.decide(at=after(hours=31))
    two.decide(at=after(hours=60))
    for policy in (one, two):
        with pytest.raises(UnknownDecisionError, match=r"default_reward = \S+ has replaced") as caught:
            policy.learn(late.id, 1.0)
        assert caught.value.reason == "defaulted"
    plain = LinUCB(arms=2, default_reward=0.0, max_wait="1 day")
    late = plain.decide(at=after(hours=1))
    plain.decide(at=after(hours=60))
    with pytest.raises(UnknownDecisionError, match="after max_wait = 86400 s") as caught:
        plain.learn(late, 1.0)
    assert caught.value.reason == "defaulted"


@pytest.mark.parametrize("context_first", [False, True])
def test_a_simulation_takes_times(context_first: bool) -> None:
    """It is what the calls by hand are; a reward that is missing becomes the default three hours later."""
    path = SYSTEM.sample(40, rng=0)
    rewards = np.where(np.arange(40)[:, None] % 5 == 0, np.nan, path.rewards)
    times = [after(minutes=25 * t + 60 * (t // 7)) for t in range(40)]
    steps = [int((time - MONDAY) / timedelta(hours=1)) for time in times]
    contexts = path.contexts[[steps.index(step) for step in steps]]  # one in a step
    how: dict[str, Any] = {"tick": "1 h", "default_reward": -1.0, "max_wait": "3 h", "context_first": context_first}
    policy, twin = (LinUCB(arms=2, context_dim=1, **how) for _ in range(2))
    run = undertow.simulate(policy, undertow.Trajectory(contexts, rewards), times=times)
    for t, time in enumerate(times):
        context = {"context": contexts[t]} if context_first else {}
        decision = twin.decide(at=time, **context)
        assert decision.arm == run.arms[t]
        if not np.isnan(rewards[t, decision.arm]):
            twin.learn(decision, float(rewards[t, decision.arm]), at=time)
        if not context_first and (t == 39 or steps[t + 1] > steps[t]):
            twin.observe(contexts[t])
    assert twin.parts.time_step == steps[-1] + 1
    with pytest.raises(InvalidInputError, match="times: expected 40, one for each round, got 3"):
        undertow.simulate(policy, path, times=times[:3])
