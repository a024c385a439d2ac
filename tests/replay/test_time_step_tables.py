"""Time as it is in simulations and in tables: rounds that share a time step, and time steps between two rows."""

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from helpers import Array, full_system, with_gaps
from undertow import InvalidInputError, Trajectory, simulate
from undertow.cli import app
from undertow.policies import FullInformationOracle, KalmanGreedy, LinUCB
from undertow.replay import Table, parse_policies, read_table, replay_log, replay_table

ELAPSED = np.array([1, 0, 2, 1, 0, 0, 5, 1] * 5)


# Simulation


@pytest.mark.parametrize("context_first", [False, True], ids=["decide first", "context first"])
def test_a_simulation_is_what_is_played_by_hand(context_first: bool) -> None:
    system = full_system(3, 2, 3)
    path = system.sample(40, rng=1, elapsed=ELAPSED)
    run = simulate(KalmanGreedy(system, context_first=context_first), path, record=["forecasts"])
    player = KalmanGreedy(system, context_first=context_first)
    for t in range(40):
        how: dict[str, Any] = {"context": path.contexts[t]} if context_first and ELAPSED[t] else {}
        decision = player.decide(elapsed=int(ELAPSED[t]), **how)
        assert run.forecasts is not None
        assert decision.arm == run.arms[t]
        np.testing.assert_array_equal(decision.forecast, run.forecasts[t])
        player.learn(decision, float(path.rewards[t, decision.arm]))
        if not context_first and (t == 39 or ELAPSED[t + 1]):
            player.observe(path.contexts[t])
    assert (player.round, player.parts.time_step) == (np.maximum(ELAPSED, 1).sum(), ELAPSED.sum())


def test_where_every_round_is_a_time_step_nothing_changes() -> None:
    system = full_system(3, 2, 3)
    path, holes = system.sample(60, rng=1, runs=2), None
    holes = with_gaps(path.contexts, 0.2, 0)
    plain = Trajectory(holes, path.rewards, means=path.means)
    timed = Trajectory(holes, path.rewards, means=path.means, elapsed=np.ones(60, dtype=int))
    for policy in (KalmanGreedy(system), LinUCB(arms=3, context_dim=2, reward_lags=2, rng=0)):
        one, two = (simulate(policy, each, record=["forecasts"]) for each in (plain, timed))
        np.testing.assert_array_equal(one.arms, two.arms)
        np.testing.assert_array_equal(one.forecasts, two.forecasts)
        np.testing.assert_array_equal(one.regret, two.regret)


def test_a_sample_in_time_is_the_sample_at_its_time_steps() -> None:
    system = full_system(3, 2, 3)
    time_steps, same = np.cumsum(ELAPSED) - 1, ELAPSED == 0
    dense = system.sample(int(time_steps[-1]) + 1, rng=4, runs=3, states=True, burn_in=5)
    found = system.sample(40, rng=4, runs=3, states=True, burn_in=5, elapsed=ELAPSED)
    for name in ("contexts", "means", "states"):
        np.testing.assert_array_equal(getattr(found, name), getattr(dense, name)[:, time_steps])
    np.testing.assert_array_equal(found.rewards[:, ~same], dense.rewards[:, time_steps[~same]])
    assert found.means is not None
    noise = (found.rewards - found.means) / np.sqrt(system.reward_noise)
    assert (noise[:, same] != noise[:, np.flatnonzero(same) - 1]).all()
    assert 0.6 < noise[:, same].std() < 1.4
    alone = system.sample(40, rng=4, runs=[2], elapsed=ELAPSED, burn_in=5)
    np.testing.assert_array_equal(alone.rewards[0], found.rewards[2])
    np.testing.assert_array_equal(found.run(1).elapsed, ELAPSED)
    assert found.run(1).to_polars()["elapsed"].to_list() == ELAPSED.tolist()


def test_what_cannot_be_played_in_time() -> None:
    system = full_system(3, 2, 3)
    path = system.sample(40, rng=1, elapsed=ELAPSED)
    with pytest.raises(InvalidInputError, match="policy: expected one whose decide takes elapsed, since"):
        simulate(FullInformationOracle(system), path)

    class Plain:
        def decide(self, features: Any = None) -> Any: ...
        def learn(self, decision: Any, reward: float) -> None: ...
        def observe(self, context: Any) -> None: ...

    with pytest.raises(InvalidInputError, match="policy: expected one whose decide takes elapsed"):
        simulate(Plain(), path)
    with pytest.raises(InvalidInputError, match="elapsed: expected numbers from 0 to 10000, got -1"):
        system.sample(2, elapsed=[1, -1])
    with pytest.raises(InvalidInputError, match=r"elapsed: expected shape \(2,\), got \(3,\)"):
        Trajectory(None, [[1.0], [2.0]], elapsed=[1, 1, 1])
    with pytest.raises(
        InvalidInputError, match="contexts: expected one context in a time step, got several in that of"
    ):
        Trajectory([[1.0], [2.0]], [[1.0], [2.0]], elapsed=[1, 0])


# Tables


def times_of(hours: list[float]) -> list[datetime.datetime]:
    begin = datetime.datetime(2024, 1, 1, 0, 10)  # a Monday
    return [begin + datetime.timedelta(hours=hour) for hour in hours]


def test_rows_of_an_hour_are_a_time_step() -> None:
    hours = [0, 0.5, 0.9, 3.0, 3.0, 26, 200]
    frame = pl.DataFrame({"time": times_of(hours), "reward_a": range(7), "reward_b": range(7)})
    table = read_table(frame, time_unit="hour")
    assert table.elapsed is not None
    assert table.elapsed.tolist() == [1, 0, 1, 2, 0, 23, 174]
    assert "a time step is an hour: 2 rows belong to that of the row before, and 196 time steps pass without a row" in (
        table.notes
    )
    assert read_table(frame, time_unit="day").elapsed.tolist() == [1, 0, 0, 0, 0, 1, 7]  # type: ignore[union-attr]
    assert read_table(frame, time_unit="week").elapsed.tolist() == [1, 0, 0, 0, 0, 0, 1]  # type: ignore[union-attr]
    days = pl.DataFrame(
        {"date": [time.date() for time in times_of([0, 24, 96])], "reward_a": range(3), "reward_b": 1.0}
    )
    assert read_table(days, time_unit="day").elapsed.tolist() == [1, 1, 3]  # type: ignore[union-attr]
    numbers = pl.DataFrame({"time": [0.5, 1.0, 1.5, 9.0], "reward_a": range(4), "reward_b": range(4)})
    assert read_table(numbers, time_unit="2").elapsed.tolist() == [1, 0, 0, 4]  # type: ignore[union-attr]
    assert read_table(numbers).elapsed is None


def test_times_that_make_no_time_steps() -> None:
    rewards = {"reward_a": range(3), "reward_b": range(3)}
    frame = pl.DataFrame({"time": times_of([0, 1, 20_000]), **rewards})
    for unit, message in (
        (
            "hour",
            "table: row 3, column 'time': 19999 time steps have passed since the row before, at most 10000 may; ",
        ),
        ("hours", r"time_unit: expected 'second' or .* got 'hours' \(did you mean 'hour'\?\)"),
        ("1", "time_unit: expected 'second' or"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            read_table(frame, time_unit=unit)
    numbers = pl.DataFrame({"time": [1, 2, 3], **rewards})
    for unit, message in (
        ("hour", "expected a number above 0, since the time is a column of"),
        ("0", "got .0."),
    ):
        with pytest.raises(InvalidInputError, match=f"time_unit: .*{message}"):
            read_table(numbers, time_unit=unit)
    with pytest.raises(InvalidInputError, match="time_unit: there is no column of times; name it with time"):
        read_table(pl.DataFrame(rewards), time_unit="hour")
    several = frame[:2].with_columns(pl.Series("context_x", [1.0, 2.0]))
    with pytest.raises(InvalidInputError, match="table: contexts: expected one context in a time step, got several"):
        read_table(several, time_unit="day")
    assert read_table(several, time_unit="hour").elapsed is not None


def logged_frame(n: int = 60) -> pl.DataFrame:
    rng = np.random.default_rng(0)
    hours = np.floor(np.cumsum(ELAPSED[rng.integers(0, 40, n)]))
    context = np.round(np.sin(hours / 5), 3)
    return pl.DataFrame({
        "time": times_of(hours.tolist()), "context_x": context,
        "reward_a": context + rng.standard_normal(n), "reward_b": rng.standard_normal(n),
        "arm": rng.choice(["a", "b"], n), "reward": rng.standard_normal(n),
    })  # fmt: skip


@pytest.mark.parametrize("context_first", [False, True], ids=["decide first", "context first"])
def test_replays_follow_the_clock(context_first: bool) -> None:
    frame = logged_frame()
    full = read_table(frame.drop("arm", "reward"), time_unit="hour")
    log = read_table(frame.drop("reward_a", "reward_b"), time_unit="hour", propensity="uniform")
    (contender,) = parse_policies("linucb(window=2, reward_lags=2)")
    result = replay_table(full, [contender], context_first=context_first)
    assert result.choices[contender.label].shape == (1, 60)
    assert replay_log(log, [contender], context_first=context_first).summary.height > 2
    assert full.rewards is not None
    path = Trajectory(full.contexts, full.rewards, elapsed=full.elapsed)
    policy = LinUCB(
        arms=["a", "b"], context_dim=1, window=2, reward_lags=2, standardize=True, context_first=context_first, rng=0
    )
    np.testing.assert_array_equal(simulate(policy, path).arms, result.choices[contender.label][0])


def test_the_command_line_takes_a_unit(tmp_path: Path) -> None:
    logged_frame().drop("arm", "reward").write_csv(tmp_path / "data.csv")
    given = ["replay", str(tmp_path / "data.csv"), "--time-unit", "hour", "--policies", "linucb(window=2)"]
    result = CliRunner().invoke(app, [*given, "--out", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    assert "a time step is an hour" in " ".join(result.output.split())


WAITING = (
    'linucb(window=2, tick="1 h", default_reward=-0.5, max_wait="3 days")',
    'structural-kalman(tick="1 h", max_delay="3 days", refit="inline")',
    'structural-kalman(default_reward=-0.5, max_wait="3 days", refit="inline")',
)


def live(text: str, table: Table, rewards: Array, *, context_first: bool) -> Array:
    """Decide with `at` as a program would, and return the arms; rewards (n, k) are NaN where none comes."""
    (contender,) = parse_policies(text)
    sizes: dict[str, Any] = {"arms": list(table.arms), "context_dim": 1, "context_first": context_first}
    policy = contender.build(**sizes, standardize=True, rng=0, tick=table.tick)
    begin = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    assert table.times is not None
    stamps = [begin + datetime.timedelta(microseconds=us) for us in table.times.cast(pl.Int64)]
    hours = [int((at - begin) / datetime.timedelta(hours=1)) for at in stamps]
    arms = []
    for t, at in enumerate(stamps):
        context = {"context": table.contexts[t]} if context_first else {}
        decision = policy.decide(at=at, **context)
        arms.append(decision.arm)
        if not np.isnan(reward := rewards[t, decision.arm]):
            policy.learn(decision, float(reward), at=at)
        ends = t + 1 == len(stamps) or policy.parts.turns.clock.tick is None or hours[t + 1] > hours[t]
        if not context_first and ends:
            policy.observe(table.contexts[t])
    return np.array(arms)


@pytest.mark.parametrize("unit", ["hour", None])
@pytest.mark.parametrize("context_first", [False, True], ids=["decide first", "context first"])
def test_replays_are_what_live_policies_with_a_clock_do(context_first: bool, unit: str | None) -> None:
    frame = logged_frame(150)
    if unit is None:  # rows of a full table then differ in time
        frame = frame.with_columns(pl.col("time") + pl.duration(seconds=pl.int_range(pl.len())))
    full = read_table(frame.drop("arm", "reward"), time_unit=unit)
    log = read_table(frame.drop("reward_a", "reward_b"), time_unit=unit, propensity="uniform")
    assert full.rewards is not None
    assert log.log is not None
    heard = np.full((150, 2), np.nan)
    heard[np.arange(150), log.log.arms] = log.log.rewards
    policies = parse_policies(", ".join(WAITING))
    played = replay_table(full, policies, context_first=context_first)
    led = replay_log(log, policies, context_first=context_first)
    assert any("count as default_reward for" in note for note in led.notes)
    for text in WAITING:
        given: dict[str, Any] = {"context_first": context_first}
        np.testing.assert_array_equal(played.choices[text][0], live(text, full, full.rewards, **given), text)
        np.testing.assert_array_equal(led.choices[text][0], live(text, log, heard, **given), text)
    plain = parse_policies("linucb(window=2)")
    without = replay_log(log, plain, context_first=context_first).choices["linucb(window=2)"]
    assert (without != led.choices[WAITING[0]]).any()  # default rewards were learned


@pytest.mark.parametrize("runs", [None, 2])
def test_time_passes_without_contexts_too(runs: int | None) -> None:
    rewards = np.arange(16.0).reshape(*(() if runs is None else (2,)), -1, 2)
    rounds = rewards.shape[-2]
    path = Trajectory(None, rewards, elapsed=[1, 0, 3, *[1] * (rounds - 3)])
    assert path.contexts.shape == (*rewards.shape[:-1], 0)
    assert simulate(LinUCB(arms=2, rng=0), path).arms.shape == rewards.shape[:-1]
    frame = logged_frame().drop("arm", "reward", "context_x")
    (contender,) = parse_policies("ucb")
    assert replay_table(read_table(frame, time_unit="hour"), [contender]).choices["ucb"].shape == (1, 60)


def test_a_clock_needs_timestamps() -> None:
    rewards = {"reward_a": range(30), "reward_b": range(30)}
    for frame in (pl.DataFrame(rewards), pl.DataFrame({"time": range(30), **rewards})):
        for text in ('ucb(tick="1 h")', 'ucb(default_reward=0, max_wait="3 days")'):
            with pytest.raises(InvalidInputError, match=r"ucb.* has a tick, or waits for a time, and the table has no"):
                replay_table(read_table(frame), parse_policies(text))
