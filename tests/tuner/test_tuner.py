"""The tuner: what it calls, measures, learns, refuses, writes and says."""

import itertools
import math
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from undertow import InvalidInputError, OutOfTurnError, Tuner
from undertow.policies import ARES, UCB, Autopilot, DiscountedUCB, LinUCB, LivePolicy
from undertow.tuner.ledger import MEMORY, PER_VARIANT, SAMPLED, SHARE, Ledger
from undertow.tuner.results import inverse_propensity
from undertow.tuner.tuner import LONGEST_REST, REST


def dear(x: float = 0.0) -> float:
    return 3.0


def cheap(x: float = 0.0) -> float:
    return 1.0


def itself(result: float, seconds: float) -> float:
    return result


def tuned(policy: LivePolicy | None = None, **options: Any) -> Tuner[..., float]:
    policy = UCB(arms=["dear", "cheap"], minimize=True) if policy is None else policy
    return Tuner({"dear": dear, "cheap": cheap}, itself, policy=policy, **options)


# What it calls


@pytest.mark.parametrize("minimize", [True, False])
@pytest.mark.parametrize("log", [True, False])
def test_calls_are_those_of_the_policy_by_hand(minimize: bool, log: bool) -> None:
    costs = np.exp(np.random.default_rng(0).standard_normal((200, 3)))
    round_of = iter(range(200))
    row: list[float] = []

    def function(arm: int) -> Callable[[], tuple[int, float]]:
        return lambda: (arm, row[arm])

    def policy() -> DiscountedUCB:
        return DiscountedUCB(arms=3, discount=0.9, minimize=minimize)

    variants = {name: function(arm) for arm, name in enumerate("abc")}
    tuner = Tuner(variants, lambda result, seconds: result[1], policy=policy(), log=log)
    twin = policy()
    for t in round_of:
        row[:] = costs[t].tolist()
        decision = twin.decide()
        value = math.log(costs[t, decision.arm]) if log else costs[t, decision.arm]
        twin.learn(decision, value if minimize else -value)
        assert tuner() == (decision.arm, costs[t, decision.arm])
    report = tuner.report()
    assert [each.calls for each in report.variants] == np.bincount(report.rows[:, 2].astype(int), minlength=3).tolist()
    assert report.calls == tuner.calls == 200


def test_the_default_is_autopilot_and_features_count() -> None:
    clock = {"small": (1.0, 9.0), "large": (9.0, 1.0)}

    def run(name: str) -> Callable[[int], float]:
        return lambda size: clock[name][size]

    tuner = Tuner({name: run(name) for name in clock}, itself, features=lambda size: size)
    tuner(1)
    assert isinstance(tuner.policy, Autopilot)
    assert (tuner.policy.feature_dim, tuner.policy.minimize, tuner.policy.refit) == (1, True, "background")
    waits = Autopilot(arms=2, feature_dim=1, minimize=True, rng=0)  # calls as short as these leave no time for fits
    tuner = Tuner({name: run(name) for name in clock}, itself, lambda size: size, waits)
    assert np.mean([tuner(t % 2) for t in range(200)][100:]) < 1.5


def test_seconds_are_measured() -> None:
    ended = threading.Event()

    def wait(seconds: float) -> Callable[[], bool]:
        return lambda: ended.wait(seconds)

    tuner = Tuner({"long": wait(0.02), "short": wait(0.002)}, policy=UCB(arms=2, minimize=True))
    for _ in range(30):
        tuner()
    long, short = tuner.report().variants
    assert short.calls > long.calls
    assert 0.002 <= short.mean_cost < 0.02 <= long.mean_cost
    assert 0 < tuner.report().own_seconds < 30 * 0.02


def test_variants_by_decorator_and_while_it_runs() -> None:
    tuner: Tuner[[], float] = Tuner(cost=itself, policy=None)

    @tuner.variant
    def first() -> float:
        return 5.0

    with pytest.raises(InvalidInputError, match="at least two"):
        tuner()
    tuner.variant(lambda: 4.0, name="second")
    assert first() == 5.0
    other = Tuner({"first": first, "second": lambda: 4.0}, itself, policy=UCB(arms=["first", "second"], minimize=True))
    for _ in range(20):
        other()
    other.variant(lambda: 1.0, name="third")
    assert [other() for _ in range(40)].count(1.0) > 20
    assert other.names == ("first", "second", "third")
    assert other.policy is not None
    assert other.policy.names == other.names
    with pytest.raises(InvalidInputError, match="expected a new name, got 'third'"):
        other.variant(first, name="third")
    assert len(other.report().variants) == 3


def test_a_variant_that_cannot_be_added_leaves_everything_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    tuner = tuned()
    tuner()
    with monkeypatch.context() as patch:
        patch.setattr(UCB, "add_arm", lambda self, name: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            tuner.variant(cheap, name="third")
    assert tuner.names == ("dear", "cheap")
    assert len(tuner.report().variants) == 2
    assert tuner.report().calls == 1
    assert {tuner() for _ in range(20)} <= {1.0, 3.0}


# Failures


def test_a_failing_variant_is_dear_and_rests() -> None:
    broken = True

    def fragile() -> float:
        if broken:
            raise RuntimeError("broken")
        return 0.5

    policy = DiscountedUCB(arms=2, discount=0.99, minimize=True)
    tuner = Tuner({"sound": cheap, "fragile": fragile}, itself, policy=policy, penalty=20)
    failed = []
    for t in range(200):
        try:
            tuner()
        except RuntimeError:
            failed.append(t)
    assert failed
    assert all(later - earlier > REST for earlier, later in itertools.pairwise(failed))
    rows = tuner.report().rows
    assert rows[failed[-1], 3] == 20 * 1.0
    assert tuner.report().variants[1].failures == len(failed)
    broken = False
    assert [tuner() for _ in range(2 * LONGEST_REST)].count(0.5) > REST


def test_where_everything_fails_calls_go_on_failing() -> None:
    def fail() -> float:
        raise OSError("no")

    tuner = Tuner({"a": fail, "b": fail}, policy=UCB(arms=2, minimize=True))
    for _ in range(10):
        with pytest.raises(OSError, match="no"):
            tuner()
    assert tuner.report().calls == 10
    assert "10 calls" in str(tuner.report())
    own = Tuner({"a": fail, "b": fail}, itself, policy=UCB(arms=2, minimize=True))
    for _ in range(5):  # what a failure costs cannot be said before something has succeeded
        with pytest.raises(OSError, match="no"):
            own()
    assert [each.failures for each in own.report().variants] == [3, 2]


def test_an_interrupt_is_no_failure() -> None:
    def interrupted() -> float:
        raise KeyboardInterrupt

    tuner = Tuner({"a": interrupted, "b": cheap}, itself, policy=UCB(arms=2, minimize=True))
    with pytest.raises(KeyboardInterrupt):
        tuner()
    assert tuner.calls == 0
    assert tuner() == 1.0


@pytest.mark.parametrize("step", ["decide", "learn"])
def test_an_interrupt_within_the_policy_leaves_the_ledger_as_it_was(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tuner = tuned()
    for _ in range(5):
        tuner()
    before = tuner.report()

    def interrupt(*args: Any, **kwargs: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(UCB, step, interrupt)
        with pytest.raises(KeyboardInterrupt):
            tuner()
    assert str(tuner.report()) == str(before)
    assert tuner() in (1.0, 3.0)
    assert tuner.calls == 6


# Its own time


def test_it_sticks_with_the_best_where_a_choice_costs_more_than_it_saves() -> None:
    tuner = Tuner({"slower": lambda: sum(range(200)), "faster": lambda: 0}, policy=UCB(arms=2, minimize=True))
    for _ in range(5000):
        tuner()
    report = tuner.report()
    slower, faster = report.variants
    assert report.reused > 4500
    assert faster.calls > 4500 > slower.calls
    assert f"In {report.reused} calls it reused with the best variant" in str(report)
    assert report.choice_seconds > report.mean_cost


def test_it_goes_on_choosing_where_nobody_says_what_a_second_costs_and_where_choosing_pays() -> None:
    def turns(place: int) -> Callable[[int], float]:
        return lambda t: 1.0 + 9.0 * (t % 2 != place)

    policy = LinUCB(arms=2, feature_dim=1, minimize=True)
    for second_costs, sticks in ((None, False), (1e-6, False), (1e6, True)):
        variants = {"even": turns(0), "odd": turns(1)}
        twin = policy.parts.for_run(0)
        tuner = Tuner(variants, itself, lambda t: t % 2, twin, second_costs=second_costs)
        for t in range(300):
            tuner(t)
        assert (tuner.report().reused > 200) == sticks
        assert sticks or tuner.report().reused == 0


def test_a_stretch_is_as_long_as_its_cost_allows() -> None:
    ledger = Ledger(2)
    for _ in range(2 * PER_VARIANT):
        if ledger.note_choice(0, 1.0, 1.0, 9.0, ran=True):
            ledger.sample([9.0, 9.0])
    assert math.isnan(ledger.saving)
    ledger.note_choice(0, 1.0, 1.0, 0.1, ran=True)
    ledger.sample([1.0, 2.0])
    samples, choices = 1, 0
    while samples < 2 * PER_VARIANT:
        assert ledger.room(10.0) == 0
        choices += 1
        if ledger.note_choice(0, 1.0, 1.0, 0.1, ran=True):
            samples += 1
            ledger.sample([1.0, 2.0] if samples % 2 else [3.0, 2.0])
    assert choices == pytest.approx(samples / SAMPLED, rel=0.2)
    assert ledger.saving == pytest.approx(2.0 - 1.5)  # either costs 2 on average, the better one 1.5
    assert 0.1 < ledger.seconds < 1.6  # the first of twenty samples has seen choices that took nine seconds
    assert ledger.room(0.1) == 0
    assert ledger.room(10.0) == pytest.approx(ledger.seconds * 10 / SHARE)
    assert ledger.room(math.nan) == 0
    assert samples < MEMORY  # so these are plain averages


# Threads


def test_calls_from_many_threads_are_all_counted() -> None:
    tuner = tuned(DiscountedUCB(arms=["dear", "cheap"], discount=0.99, minimize=True))

    def work() -> None:
        for _ in range(200):
            tuner()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    report = tuner.report()
    assert report.calls == len(report.rows) == sum(each.calls for each in report.variants) == 1600
    assert tuner.policy is not None
    assert tuner.policy.pending == 0


def test_variants_run_side_by_side_and_late_ones_are_learned() -> None:
    both = threading.Barrier(2, timeout=20)

    def meet() -> float:
        both.wait()
        return 1.0

    tuner = Tuner({"a": meet, "b": meet}, itself, policy=UCB(arms=2, minimize=True))
    threads = [threading.Thread(target=tuner) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert tuner.calls == 2


def test_a_call_that_the_policy_has_forgotten_is_only_counted() -> None:
    tuner: Tuner[[int], float]

    def nested(depth: int) -> float:
        return tuner(depth - 1) if depth else 1.0

    policy = UCB(arms=2, minimize=True, max_pending=2)
    tuner = Tuner({"a": nested, "b": nested}, itself, policy=policy)
    assert tuner(5) == 1.0
    assert tuner.calls == 6


# Files


def test_a_saved_tuner_goes_on(tmp_path: Path) -> None:
    variants = {"dear": dear, "cheap": cheap}
    policy = DiscountedUCB(arms=["dear", "cheap"], discount=0.9, minimize=True, explore=0.3, rng=0)
    tuner = Tuner(variants, itself, policy=policy)
    for _ in range(50):
        tuner()
    file = tmp_path / "tuner.undertow"
    tuner.save(file)
    again = Tuner.load(file, variants, cost=itself)
    assert str(again.report().variants) == str(tuner.report().variants)
    np.testing.assert_array_equal(again.report().rows, tuner.report().rows)
    assert [again() for _ in range(30)] == [tuner() for _ in range(30)]
    wider = Tuner.load(file, {"new": cheap, **variants}, cost=itself)
    assert wider.names == ("dear", "cheap", "new")
    with pytest.raises(InvalidInputError, match="has 'cheap', and no such function"):
        Tuner.load(file, {"dear": dear})


def test_a_dear_tuner_can_be_loaded(tmp_path: Path) -> None:
    variants = {"dear": dear, "cheap": cheap}
    tuner = Tuner(variants, lambda result, seconds: 1e151 * result, policy=UCB(arms=["dear", "cheap"], minimize=True))
    for _ in range(4):
        tuner()
    tuner.save(tmp_path / "tuner")
    again = Tuner.load(tmp_path / "tuner", variants, cost=itself)
    assert again.report().variants[0].mean_cost == 3e151


def test_files_that_are_not_a_tuners(tmp_path: Path) -> None:
    file = tmp_path / "file"
    with pytest.raises(OutOfTurnError, match="not been called yet"):
        Tuner({"dear": dear, "cheap": cheap}).save(file)
    UCB(arms=2).save(file)
    with pytest.raises(InvalidInputError, match=r"expected undertow\.tuner version 1, got 'undertow.policy'"):
        Tuner.load(file, {"dear": dear})
    tuner = tuned()
    tuner()
    tuner.save(file)
    content = file.read_bytes()
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(60):
        damaged = bytearray(content)
        damaged[int(rng.integers(len(content)))] ^= int(rng.integers(1, 256))
        file.write_bytes(damaged)
        try:
            Tuner.load(file, {"dear": dear, "cheap": cheap}, cost=itself)()
        except InvalidInputError:
            refused += 1
    assert refused > 30


# The report


def test_inverse_propensities_recover_what_a_variant_would_have_cost() -> None:
    rng = np.random.default_rng(0)
    level = rng.standard_normal(20_000)
    costs = np.stack([2 + level, 2 - level], axis=1)
    best = costs.argmin(axis=1)
    drawn = rng.random(20_000) < 0.2
    arms = np.where(drawn, rng.integers(2, size=20_000), best)
    propensity = np.where(arms == best, 0.9, 0.1)
    cost = costs[np.arange(20_000), arms]
    choices = np.column_stack([np.arange(20_000), np.ones(20_000), arms, cost, propensity, np.zeros(20_000)])
    for arm in range(2):
        mean, error = inverse_propensity(choices, arm)
        assert abs(mean - costs[:, arm].mean()) < 4 * error < 0.4
        assert cost[arms == arm].mean() < mean - 4 * error
    assert math.isnan(inverse_propensity(choices[:20], 0)[0])


def test_the_report_has_a_table_and_a_figure(tmp_path: Path) -> None:
    tuner = tuned(UCB(arms=["dear", "cheap"], minimize=True, explore=0.2, rng=0))
    for _ in range(600):
        tuner()
    text = str(tuner.report())
    assert "| cheap | " in text
    assert "always cheap, the best by inverse propensities, 1 ± 0" in text
    tuner.report().draw(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 10_000
    assert "use a policy that explores" in str(tuned().report())
    tuned().report().draw(tmp_path / "empty.png")


# What is refused

refused: Any = Tuner  # types are wrong here on purpose


@pytest.mark.parametrize(
    ("attempt", "message"),
    [
        (lambda: refused({"a": dear}, cost="bytes"), "cost: expected 'seconds', got 'bytes'"),
        (lambda: refused({"a": 3}), "variants: expected a function for 'a'"),
        (lambda: refused([dear, cheap]), "variants: expected a dictionary"),
        (lambda: refused({"": dear}), "name: expected a new name"),
        (lambda: refused({"a": dear}, features=[1.0]), "features: expected a function"),
        (lambda: Tuner({"a": dear}, penalty=0.5), "penalty: expected a number of at least 1"),
        (lambda: Tuner({"a": dear}, second_costs=2.0), "second_costs: omit it if the cost is in seconds"),
        (lambda: tuned(second_costs=0.0), "second_costs: expected a number above 0"),
        (lambda: tuned(log=1), "log: expected True or False"),
        (lambda: refused({"a": dear}, policy="ucb"), "policy: expected a policy of undertow"),
        (lambda: tuned(UCB(arms=3)), "policy: expected the variants as its arms"),
        (lambda: tuned(UCB(arms=["cheap", "dear"])), "policy: expected the variants as its arms"),
        (lambda: tuned(ARES(arms=2, context_dim=1)), "policy: a tuner has features but no contexts"),
    ],
)
def test_what_cannot_be_is_refused_by_name(attempt: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        attempt()


def test_coroutines_are_refused() -> None:
    async def later() -> float:
        return 1.0

    with pytest.raises(InvalidInputError, match="'later' is a coroutine"):
        refused({"later": later})


@pytest.mark.parametrize(
    ("cost", "message"),
    [(-1.0, "above 0, got -1"), (0.0, "log=False"), (math.nan, "finite"), (1e152, "cost: expected numbers below 1e")],
)
def test_costs_that_are_none(cost: float, message: str) -> None:
    tuner = Tuner({"a": dear, "b": cheap}, lambda result, seconds: cost, policy=UCB(arms=2, minimize=True))
    with pytest.raises(InvalidInputError, match=message):
        tuner()
    assert tuner.calls == 0
    if cost == 0:
        plain = Tuner({"a": dear, "b": cheap}, lambda r, s: cost, policy=UCB(arms=2, minimize=True), log=False)
        assert plain() in (1.0, 3.0)


def test_features_that_do_not_fit_change_nothing() -> None:
    rows: list[Any] = [[[1.0, 2.0]], ["x"], [math.nan, 1.0]]
    tuner: Any = refused({"a": dear, "b": cheap}, itself, features=lambda x: rows[x])
    for place in range(3):
        with pytest.raises(InvalidInputError, match="features"):
            tuner(place)
    assert tuner.policy is None
    linear: Any = refused({"a": dear, "b": cheap}, itself, lambda x: x, LinUCB(arms=2, feature_dim=2, minimize=True))
    with pytest.raises(InvalidInputError, match=r"features: expected shape \(2,\)"):
        linear([1.0, 2.0, 3.0])
    assert linear([1.0, 2.0]) in (1.0, 3.0)
