import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
from coba.environments.filters import OpeRewards
from river import bandit, stats

from tables import Terminal, log_of, paper_table, table_of, write_csv
from undertow import InvalidInputError, make
from undertow.contenders import Contender
from undertow.replay import Log, Table, parse_policies, read_table, replay_log, replay_table
from undertow.replay.bootstrap import block_length, interval, resampled_means
from undertow.replay.contenders import DEFAULTS, build
from undertow.replay.forecaster import forecast_log
from undertow.replay.leading import Learning, Pass, acceptance, lead_through
from undertow.replay.logged import estimate
from undertow.replay.verdict import answer_on_log

SKEWED = (0.7, 0.3)


def lead(table: Table, name: str, seed: int, **parameters: object) -> Pass:
    assert table.log is not None
    policy = make(name, arms=len(table.arms), rng=seed, **parameters)
    kept = np.random.default_rng(seed).random(table.rounds) < acceptance(table.log)
    return lead_through(policy, table, kept, "accepted")


def truth(table: Table, arms: np.ndarray) -> float:
    assert table.rewards is not None
    return float(table.rewards[np.arange(table.rounds), arms].mean())


def test_estimates_by_hand() -> None:
    """Four rounds; the policy plays 0, 0, 1, 1, the log 0, 1, 1, 0."""
    log = Log(np.array([0, 1, 1, 0]), np.array([2.0, 5.0, 3.0, 7.0]), np.array([0.5, 0.5, 0.25, 0.5]))
    ways = [Pass(np.array([0, 0, 1, 1]), np.array([True, False, True, False]))]
    model = np.array([[1.0, 0.0], [1.0, 4.0], [0.0, 2.0], [6.0, 8.0]])
    found = estimate(log, ways, model, block=1)
    assert found.values["rejection"][0] == pytest.approx((2 + 3) / 2)
    assert found.values["ips"][0] == pytest.approx((2 / 0.5 + 3 / 0.25) / 4)
    assert found.values["snips"][0] == pytest.approx((2 / 0.5 + 3 / 0.25) / (1 / 0.5 + 1 / 0.25))
    robust = [1 + 2 * (2 - 1), 1, 2 + 4 * (3 - 2), 8]
    assert found.values["dr"][0] == pytest.approx(np.mean(robust))
    assert found.gain[0] == pytest.approx(np.mean(robust) - log.rewards.mean())
    assert [found.matches, found.effective, found.heaviest] == pytest.approx([2, 36 / 20, 4 / 6])
    silent = estimate(log, ways, np.zeros((4, 2)), block=1)
    assert silent.values["dr"][0] == pytest.approx(silent.values["ips"][0])


def test_estimates_are_unbiased_for_a_policy_that_learns() -> None:
    """Discounted UCB and LinUCB on 100 rounds of the paper's system, 200 logs (seeds 0 to 199), within 4 SE.

    The mean over logs of estimate − reward of the arms that the policy chose has to vanish, for the policy's history
    differs from log to log, and the system moves all the time.
    """
    table = paper_table(100)
    errors: dict[str, list[float]] = {}
    for seed in range(200):
        log = log_of(table, SKEWED, seed)
        assert log.log is not None
        model = forecast_log(log)
        for name, parameters in (("discounted-ucb", {}), ("linucb", {"context_dim": 1, "window": 2})):
            way = lead(log, name, seed, **parameters)
            found = estimate(log.log, [way], model, block=1, resamples=1)
            for estimator in ("ips", "dr", "rejection"):
                errors.setdefault(f"{name} {estimator}", []).append(found.values[estimator][0] - truth(table, way.arms))
    for name, values in errors.items():
        assert abs(np.mean(values)) < 4 * np.std(values) / np.sqrt(200), name


def test_variance_of_ips_in_closed_form() -> None:
    """A fixed arm with rewards N(μ, σ²), played with probability p: Var = ((σ² + μ²)/p − μ²)/n; 1000 logs, 5 SE."""
    n, p, μ, σ = 50, 0.3, 1.0, 0.5
    rng = np.random.default_rng(0)
    values = []
    for _ in range(1000):
        arms = (rng.random(n) < p).astype(int)
        log = Log(arms, rng.normal(μ, σ, n), np.where(arms == 1, p, 1 - p))
        ways = [Pass(np.ones(n, dtype=int), arms == 1)]
        values.append(estimate(log, ways, np.zeros((n, 2)), block=1, resamples=1).values["ips"][0])
    expected = ((σ**2 + μ**2) / p - μ**2) / n
    assert abs(np.mean(values) - μ) < 5 * np.sqrt(expected / 1000)
    assert abs(np.var(values) / expected - 1) < 5 * np.sqrt(2 / 1000) * 1.2  # the estimates are not quite normal


def test_intervals_cover_the_truth() -> None:
    """95 % intervals of the doubly robust estimate of a fixed arm, 60 logs of AR(0.8) rewards: at least 51 of them."""
    hits = 0
    for seed in range(60):
        noise = np.random.default_rng(seed).standard_normal((400, 2))
        X = np.empty_like(noise)
        level = np.zeros(2)
        for t, step in enumerate(noise):
            level = 0.8 * level + step
            X[t] = level
        log = log_of(table_of(X), (0.5, 0.5), seed)
        assert log.log is not None
        way = Pass(np.zeros(400, dtype=int), log.log.arms == 0)
        _, low, high = estimate(log.log, [way], forecast_log(log), resamples=300).values["dr"]
        hits += low <= 0 <= high
    assert hits >= 51


class Delegate:
    """One of our policies as river wants it."""

    def __init__(self) -> None:
        self.policy, self._n = make("discounted-ucb", arms=2), 0

    def pull(self, arms: list[int]) -> int:
        self.decision = self.policy.decide()
        return self.decision.arm

    def update(self, arm: int, reward: float) -> None:
        self.policy.learn(self.decision, reward)
        self._n += 1


def test_rejection_is_what_river_does() -> None:
    """On a uniform log without contexts, river's replay sees the same rounds and the same rewards."""
    table = table_of(np.random.default_rng(0).normal([0.0, 0.5], 1.0, (400, 2)))
    log = log_of(table, (0.5, 0.5), 1)
    assert log.log is not None
    history = [([0, 1], None, int(arm), float(x)) for arm, x in zip(log.log.arms, log.log.rewards, strict=True)]
    total, count = bandit.evaluate_offline(Delegate(), history, reward_stat=stats.Sum())  # type: ignore[arg-type]
    ours = replay_log(log, parse_policies("discounted-ucb")).summary.row(0, named=True)
    assert ours["matches"] == count
    assert ours["rejection"] * count == pytest.approx(total.get())


def test_ips_is_what_coba_does() -> None:
    table = log_of(paper_table(200), SKEWED, 0)
    log = table.log
    assert log is not None
    way = lead(table, "linucb", 0, context_dim=1)
    logged = [
        {"action": int(arm), "reward": float(x), "probability": float(p)}
        for arm, x, p in zip(log.arms, log.rewards, log.propensities, strict=True)
    ]
    estimated = [row["rewards"](int(arm)) for row, arm in zip(OpeRewards("IPS").filter(logged), way.arms, strict=True)]
    found = estimate(log, [way], np.zeros((200, 2)), block=1)
    assert found.values["ips"][0] == pytest.approx(np.mean(estimated))


def test_accepted_rounds_are_a_random_part_whatever_is_played() -> None:
    """The probability of acceptance is the smallest propensity for either arm; 20,000 rounds, 5 SE."""
    n = 20_000
    log = log_of(table_of(np.zeros((n, 2))), (0.9, 0.1), 0).log
    assert log is not None
    kept = np.random.default_rng(1).random(n) < acceptance(log)
    for arm in (0, 1):
        assert abs(((log.arms == arm) & kept).mean() - 0.1) < 5 * np.sqrt(0.1 * 0.9 / n)


@pytest.mark.parametrize("learn_from", ["accepted", "matched"])
@pytest.mark.parametrize("contender", DEFAULTS, ids=lambda contender: contender.label)
def test_a_policy_learns_from_what_it_should(contender: Contender, learn_from: Learning) -> None:
    """The twin: call by call, `learn` only where the logged arm was chosen and the round is accepted or need not be."""
    table = log_of(paper_table(150), SKEWED, 0)
    log = table.log
    assert log is not None
    kept = np.random.default_rng(1).random(150) < acceptance(log)
    policy = build(contender, table, seed=4, context_first=True)
    player = policy.parts.for_run(2)
    sees, arms, learned = hasattr(player, "context_dim"), [], 0
    for t in range(150):
        if sees:
            player.observe(table.contexts[t])
        decision = player.decide()
        arms.append(decision.arm)
        if decision.arm == log.arms[t] and (kept[t] or learn_from == "matched"):
            player.learn(decision, log.rewards[t])
            learned += 1
    way = lead_through(policy, table, kept, learn_from, 2)
    assert way.arms.tolist() == arms
    assert (way.accepted == (way.arms == log.arms) & kept).all()
    assert learned == (way.arms == log.arms).sum() if learn_from == "matched" else way.accepted.sum()


def test_the_forecast_looks_at_the_past_only() -> None:
    table = log_of(paper_table(120), SKEWED, 0)
    log = table.log
    assert log is not None
    changed = log.rewards.copy()
    changed[60:] += 100
    other = table_of(np.zeros((120, 2)), table.contexts, None, Log(log.arms, changed, log.propensities))
    before, after = forecast_log(table), forecast_log(other)
    assert (before[:61] == after[:61]).all()
    assert not np.isclose(before[61:], after[61:]).all(axis=1).any()


def test_the_forecast_is_a_regression_for_each_arm_and_rate() -> None:
    """The twin: every regression solved anew, from all rounds of its arm so far."""
    rng = np.random.default_rng(0)
    table = log_of(table_of(rng.standard_normal((80, 3)), rng.standard_normal((80, 2))), (0.5, 0.3, 0.2), 0)
    log = table.log
    assert log is not None
    log.rewards[[5, 17]] = np.nan
    last = np.vstack([np.zeros((1, 2)), table.contexts[:-1]])
    inputs = np.hstack([np.ones((80, 1)), (last - last.mean(axis=0)) / last.std(axis=0)])
    rates, level, errors = np.array([1.0, 0.995, 0.97]), 0.0, np.zeros(3)
    rows: list[list[tuple[np.ndarray, float]]] = [[], [], []]  # inputs and relative reward, for each arm

    def predicted(arm: int, t: int) -> np.ndarray:
        found = []
        for rate in rates:
            weights = rate ** np.arange(len(rows[arm]))[::-1]
            X, y = np.array([x for x, _ in rows[arm]]).reshape(-1, 3), np.array([x for _, x in rows[arm]])
            slope = np.linalg.solve(np.eye(3) + X.T * weights @ X, X.T @ (weights * y))
            found.append(level + inputs[t] @ slope)
        return np.array(found)

    for t, found in enumerate(forecast_log(table)):
        assert found == pytest.approx([predicted(arm, t)[errors.argmin()] for arm in range(3)], rel=1e-9)
        if np.isnan(log.rewards[t]):
            continue
        errors = 0.999 * errors + (log.rewards[t] - predicted(log.arms[t], t)) ** 2
        level += (log.rewards[t] - level) / (np.isfinite(log.rewards[: t + 1]).sum())
        rows[log.arms[t]].append((inputs[t], log.rewards[t] - level))


def test_the_forecast_is_worth_having() -> None:
    """It finds what features say of rewards, ±0.5 u with noise of deviation 0.1, and the estimate is nearer for it."""
    rng = np.random.default_rng(0)
    u = rng.standard_normal((500, 1))
    X = np.hstack([0.5 * u, -0.5 * u]) + 0.1 * rng.standard_normal((500, 2))
    errors = []
    for seed in range(8):
        table = log_of(table_of(X + 1, None, u), (0.5, 0.5), seed)
        assert table.log is not None
        forecast = forecast_log(table)
        assert np.square(X + 1 - forecast)[100:].mean() < 2 * 0.1**2
        found = estimate(
            table.log, [Pass(np.zeros(500, dtype=int), table.log.arms == 0)], forecast, block=1, resamples=1
        )
        errors.append([found.values[name][0] - 1 - X[:, 0].mean() for name in ("dr", "ips")])
    robust, plain = np.square(errors).mean(axis=0)
    assert robust < plain / 4


def test_summary_of_a_log() -> None:
    whole = paper_table(400)
    table = log_of(whole, SKEWED, 3)
    result = replay_log(table, parse_policies("linucb(window=2), random"), runs=2, seed=1)
    rows = {row["policy"]: row for row in result.summary.iter_rows(named=True)}
    assert list(rows) == ["linucb(window=2)", "Random", "always arm 0", "always arm 1", "as logged"]
    assert table.log is not None
    assert rows["as logged"]["dr"] == pytest.approx(table.log.rewards.mean())
    played = table.log.arms == 0
    assert rows["always arm 0"]["snips"] == pytest.approx(table.log.rewards[played].mean())
    assert rows["always arm 0"]["effective"] == pytest.approx(played.sum())
    assert result.choices["linucb(window=2)"].shape == (2, 400)  # acceptance is drawn anew for each run
    best = rows["linucb(window=2)"]
    assert best["gain"] == pytest.approx(best["dr"] - table.log.rewards.mean())
    assert best["gain_low"] > 0
    again = replay_log(table, parse_policies("linucb(window=2), random"), runs=2, seed=1, threads=1)
    assert again.summary.equals(result.summary)
    # far from what the same policy earns where it sees all its rewards, but nearer to that than to nothing
    live = replay_table(whole, parse_policies("linucb(window=2)")).summary.row(0, named=True)["reward"]
    assert live / 3 < best["dr"] < 1.2 * live
    assert any("propensities differ, the smallest is 0.3" in note for note in result.notes)


def test_estimates_are_what_they_say() -> None:
    """The twin: every estimator by its formula, its interval from rounds that are drawn one by one; runs 0 and 1."""
    table = log_of(paper_table(300), SKEWED, 3)
    log = table.log
    assert log is not None
    policies = parse_policies("linucb(window=2), random")
    result, model, n = replay_log(table, policies, runs=2, seed=1, block=7, resamples=50), forecast_log(table), 300
    drawn = np.random.default_rng(np.random.SeedSequence(1, spawn_key=(1,)))
    resamples = [  # the numbers of n rounds, in blocks of seven, of which the last is cut
        np.concatenate([np.arange(start, start + 7) % n for start in drawn.integers(n, size=43)])[:n] for _ in range(50)
    ]
    for row, contender in zip(result.summary.iter_rows(named=True), policies, strict=False):
        terms = np.zeros((5, n))
        for run in range(2):
            stream = np.random.default_rng(np.random.SeedSequence(1, spawn_key=(2, run)))
            kept = stream.random(n) < acceptance(log)
            way = lead_through(build(contender, table, seed=1), table, kept, "accepted", run)
            assert (result.choices[contender.label][run] == way.arms).all()
            w = (way.arms == log.arms) / log.propensities
            forecast, logged = model[range(n), way.arms], model[range(n), log.arms]
            robust = forecast + w * (log.rewards - logged)
            terms += np.stack([way.accepted * log.rewards, way.accepted, w * log.rewards, w, robust]) / 2

        def estimates(rounds: np.ndarray, terms: np.ndarray = terms) -> list[float]:
            kept_reward, kept, ips, w, robust = terms[:, rounds].mean(axis=1)
            return [kept_reward / kept, ips, ips / w, robust, robust - log.rewards[rounds].mean()]

        names = ("rejection", "ips", "snips", "dr", "gain")
        assert [row[name] for name in names] == pytest.approx(estimates(np.arange(n)), rel=1e-12)
        low, high = np.quantile([estimates(rounds) for rounds in resamples], [0.025, 0.975], axis=0)
        assert [row[f"{name}_low"] for name in names] == pytest.approx(low, rel=1e-10)
        assert [row[f"{name}_high"] for name in names] == pytest.approx(high, rel=1e-10)


def test_a_long_log_is_gone_through_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    table = log_of(paper_table(200), SKEWED, 0)
    policies = parse_policies("discounted-ucb")
    assert len(replay_log(table, policies).choices["Discounted UCB"]) == 3
    monkeypatch.setattr("undertow.replay.contenders.MOST_ROUNDS", 400)
    usual, given = replay_log(table, policies), replay_log(table, policies, runs=3)
    assert (usual.choices["Discounted UCB"] == given.choices["Discounted UCB"][:2]).all()
    said = "200 rounds are many, so all policies played them twice, not 3 times; --runs sets how often"
    assert said in usual.notes
    assert said not in given.notes
    assert said not in replay_log(table, policies, runs=2).notes
    even = replay_log(log_of(paper_table(200), (0.5, 0.5), 0), parse_policies("discounted-ucb, random"))
    assert [len(arms) for arms in even.choices.values()] == [1, 2]
    assert said.replace("all", "randomised") in even.notes


def test_progress_is_told_in_rounds() -> None:
    told: list[tuple[int, int]] = []
    table = log_of(paper_table(3000), SKEWED, 0)
    policies = parse_policies("discounted-ucb, random")
    replay_log(table, policies, resamples=1, progress=lambda done, total: told.append((done, total)))
    assert [told[0], told[-1]] == [(0, 18_000), (18_000, 18_000)]
    assert told == sorted(set(told))
    assert len(told) == 1 + 2 * 3 * 3  # blocks of 1024 rounds, none of them less than a hundredth of all


def test_small_samples_are_warned_of() -> None:
    few = log_of(paper_table(120), (0.5, 0.5), 0)
    result = replay_log(few, parse_policies("random"))
    (warning,) = result.warnings  # one for all that need it
    assert "the effective sample size is" in warning
    assert "Random" in warning
    n = 1000
    arms, chances = np.tile([0, 1], n // 2), np.full(n, 0.5)
    chances[0] = 0.001
    heavy = table_of(np.zeros((n, 2)), log=Log(arms, np.zeros(n), chances))
    row = replay_log(heavy, parse_policies("random")).summary.row(
        by_predicate=pl.col("policy") == "always arm 0", named=True
    )
    assert row["effective"] == pytest.approx((1000 + 2 * 499) ** 2 / (1000**2 + 4 * 499))
    assert "effective sample size is 4 rounds" in row["warning"]


def test_a_table_with_every_reward_is_not_a_log() -> None:
    with pytest.raises(InvalidInputError, match="table: this is a log, with one reward per round; use replay_log"):
        replay_table(log_of(paper_table(50), SKEWED, 0))
    with pytest.raises(InvalidInputError, match="learn_from: expected 'accepted' or 'matched', got 'all'"):
        replay_log(log_of(paper_table(50), SKEWED, 0), learn_from="all")  # type: ignore[arg-type]


def test_the_command(tmp_path: Path, command: Terminal) -> None:
    file = write_csv(tmp_path, log_of(paper_table(150), SKEWED, 0))
    words = (
        "replay",
        str(file),
        "--policies",
        "linucb(window=2), random",
        "--runs",
        "1",
        "--out",
        str(tmp_path / "out"),
    )
    done = command(*words)
    assert done.status == 0, done.err
    assert "log: arm in arm, reward in reward, propensity in propensity" in done.err
    assert "doubly robust" in done.out
    assert "warning: always arm 1: the effective sample size is" in done.out
    folder = tmp_path / "out" / "replay" / "data"
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert page.count("<figure") == 1
    assert "the effective sample size is" in page
    assert pl.read_csv(folder / "summary.csv").height == 5
    machine = json.loads(command(*words, "--json", "--learn-from", "matched").out.splitlines()[-1])
    assert machine["warnings"]
    assert [row["kind"] for row in machine["summary"]] == ["policy", "policy", "fixed arm", "fixed arm", "log"]
    about = json.loads((folder / "replay.json").read_text(encoding="utf-8"))
    assert about["settings"]["learn_from"] == "matched"


def test_the_mean_of_the_log_has_the_interval_of_its_blocks() -> None:
    table = log_of(paper_table(300), (0.5, 0.5), 0)
    assert table.log is not None
    result = replay_log(table, parse_policies("random"), runs=1)
    row = result.summary.row(by_predicate=pl.col("policy") == "as logged", named=True)
    means = resampled_means(table.log.rewards[:, None], block=result.block)
    assert (row["dr_low"], row["dr_high"]) == interval(means, lambda m: m[:, 0])
    assert result.block >= block_length(table.log.rewards)


def test_an_estimate_from_one_round_has_no_interval_and_resamples_without_it_are_counted() -> None:
    """Sums of deviations leave 1e-17 where no round matched, which is not to be divided by.

    A resample of n single rounds misses one of them with probability (1 − 1/n)^n, 1/e; 2,000 resamples, 5 SE.
    """
    n = 17_283
    rng = np.random.default_rng(0)
    log = Log(np.zeros(n, dtype=np.int64), rng.normal(size=n), np.full(n, 0.5))
    arms = np.ones(n, dtype=np.int64)
    arms[500] = 0
    one = estimate(log, [Pass(arms, arms == 0)], np.zeros((n, 2)), block=1)
    for name in ("rejection", "snips"):
        value, low, high = one.values[name]
        assert value == pytest.approx(log.rewards[500])
        assert np.isnan([low, high]).all()
    assert abs(one.empty / 2000 - np.exp(-1)) < 5 * np.sqrt(np.exp(-1) * (1 - np.exp(-1)) / 2000)
    arms[[900, 7000]] = 0
    few = estimate(log, [Pass(arms, arms == 0), Pass(np.ones_like(arms), arms == 1)], np.zeros((n, 2)), block=1)
    rewards = log.rewards[arms == 0]
    for name in ("rejection", "snips"):
        value, low, high = few.values[name]
        assert rewards.min() - 1e-9 <= low <= value <= high <= rewards.max() + 1e-9
    assert 0 < few.empty < one.empty


def test_the_verdict_is_what_is_best_by_its_interval() -> None:
    """Fixed arms included, and nothing where no gain is above zero, or where an estimate comes with a warning."""

    def rows(*given: tuple[str, str, float, float, float, str | None]) -> Any:
        names = ("policy", "kind", "gain", "gain_low", "gain_high", "warning")
        return SimpleNamespace(
            summary=pl.DataFrame([dict(zip(names, row, strict=True)) | {"effective": 2000.0} for row in given]),
            table=SimpleNamespace(minimize=False, estimated=False, keys=None),
            notes=[],
        )

    policy = ("Autopilot", "policy", 4.47, -2.87, 8.85, None)
    arm = ("always a", "fixed arm", 3.5, 1.4, 5.6, None)
    odd = ("lucky", "policy", 9.0, 8.0, 10.0, "the effective sample size is 1 round")
    best, words = answer_on_log(rows(policy, arm, odd))
    assert best == "always a"
    assert words == (
        "Always a would have earned 3.50 (1.40 to 5.60) more per round than was logged, by the doubly robust estimate. "
        "Trust it: 2,000 effective rounds stand behind it. Play that arm; a policy is not needed. The best policy, "
        "Autopilot, gains 4.47 (−2.87 to 8.85)."
    )
    best, words = answer_on_log(rows(policy, ("always a", "fixed arm", 3.5, -0.1, 5.6, None), odd))
    assert best == ""
    assert words.startswith("Keep the present policy: no policy and no fixed arm earns more beyond chance. The largest")
    best, words = answer_on_log(rows(odd))
    assert best == "lucky"
    assert "Do not trust it" in words
    doubtful = rows(policy, arm)
    doubtful.notes = ["the propensities of arm a do not fit how often it was played"]
    assert "Do not trust it: the propensities do not fit the log" in answer_on_log(doubtful)[1]


def test_propensities_are_estimated_from_what_the_choices_followed() -> None:
    """Estimated ones come close to those that chose; without the feature they do not, and a warning says so."""
    rng = np.random.default_rng(0)
    feature = rng.standard_normal(3000)
    chance = 1 / (1 + np.exp(-1.5 * feature))
    arms = (rng.random(3000) < chance).astype(int)
    rewards = np.where(arms == 1, feature, 0.2) + 0.3 * rng.standard_normal(3000)
    frame = pl.DataFrame({"arm": arms, "reward": rewards, "feature_x": feature})
    table = read_table(frame, propensity="estimate")
    assert table.log is not None
    truth = np.where(arms == 1, chance, 1 - chance)
    assert np.abs(table.log.propensities - truth).mean() < 0.02
    assert any("propensities are estimated" in note for note in table.notes)
    assert not any("do not fit" in note for note in table.notes)
    rows = {row["policy"]: row for row in replay_log(table, parse_policies("random")).summary.to_dicts()}
    blind = read_table(frame.drop("feature_x"), propensity="estimate")
    wrong = {row["policy"]: row for row in replay_log(blind, parse_policies("random")).summary.to_dicts()}
    assert rows["always 1"]["ips_low"] < feature.mean() < rows["always 1"]["ips_high"]
    assert wrong["always 1"]["ips"] > 0.3  # frequencies alone credit the arm with when it was chosen
