"""Plan choice: which index SQLite should use while people look elsewhere on the map.

Measured. 200,000 places, most of them in forty cities, lie in an SQLite table with an index on x and one on y. A query
adds up what a rectangle of the map holds. Three plans answer it: either index, or a scan of the table. The cost of an
index depends on the number of places in its strip of the map, and so on where people look. This drifts, and the
policies do not know it; they know the width and the height of the rectangle. The table has no statistics of where
places lie (they need a build option of SQLite), and so SQLite's own planner always takes the same index.
"""

import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from scipy.signal import lfilter
from scipy.special import expit

from costs import FOLDER, FloatArray, Recording, draw, here, options, play_all, print_table
from undertow import Tuner

PLANS = {"index on x": "INDEXED BY by_x", "index on y": "INDEXED BY by_y", "scan": "NOT INDEXED"}
QUERY = "SELECT count(*), total(value) FROM places {} WHERE x BETWEEN ? AND ? AND y BETWEEN ? AND ?"
PLACES, CITIES, COUNTRYSIDE = 200_000, 40, 0.2
ATTENTION, ZOOM = 0.995, 0.95  # persistence of where people look, and of what they look at
SIZE, SPREAD = np.log(0.03), 1.0  # of the rectangles' sides: mean and standard deviation of the logarithm


def fill(rng: np.random.Generator, places: int = PLACES) -> sqlite3.Connection:
    """Return a database with the map."""
    cities, sizes, radius = rng.random((CITIES, 2)), rng.lognormal(0, 1, CITIES), 0.01 * rng.lognormal(0, 0.5, CITIES)
    town = rng.choice(CITIES, places, p=sizes / sizes.sum())
    points = np.clip(cities[town] + radius[town, None] * rng.standard_normal((places, 2)), 0, 1)
    outside = rng.random(places) < COUNTRYSIDE
    points[outside] = rng.random((outside.sum(), 2))
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE places (x REAL, y REAL, value REAL)")
    rows = np.column_stack([points, rng.random(places)]).tolist()
    database.executemany("INSERT INTO places VALUES (?, ?, ?)", rows)
    for command in ("CREATE INDEX by_x ON places (x)", "CREATE INDEX by_y ON places (y)", "ANALYZE"):
        database.execute(command)
    return database


def rectangles(rng: np.random.Generator, rounds: int) -> tuple[FloatArray, FloatArray]:
    """Return the rectangles of the queries, (rounds, 4): x from and to, y from and to; and the logs of their sides.

    Where people look is an autoregression, squeezed into the map; so are the logarithms of the sides.
    """
    centre = expit(1.5 * autoregression(rng, rounds, ATTENTION))
    sides = SIZE + SPREAD * autoregression(rng, rounds, ZOOM)
    half = np.exp(sides) / 2
    low, high = np.clip(centre - half, 0, 1), np.clip(centre + half, 0, 1)
    return np.stack([low[:, 0], high[:, 0], low[:, 1], high[:, 1]], axis=1), sides


def autoregression(rng: np.random.Generator, rounds: int, persistence: float) -> FloatArray:
    """Return two independent autoregressions of variance 1, (rounds, 2)."""
    noise = rng.standard_normal((rounds, 2))
    noise[1:] *= np.sqrt(1 - persistence**2)
    return np.asarray(lfilter([1], [1, -persistence], noise, axis=0))


def measure(database: sqlite3.Connection, asked: FloatArray) -> FloatArray:
    """Answer every query by every plan; return the processor seconds of each, (rounds, k)."""
    seconds = np.empty((len(asked), len(PLANS)))
    for t, bounds in enumerate(asked.tolist()):
        for place, plan in enumerate(PLANS.values()):
            begun = time.thread_time()
            database.execute(QUERY.format(plan), bounds).fetchone()
            seconds[t, place] = time.thread_time() - begun
    return seconds


def planned(database: sqlite3.Connection) -> int:
    """Return the plan of SQLite's own planner."""
    (*_, detail) = database.execute(f"EXPLAIN QUERY PLAN {QUERY.format('')}", [0.1, 0.2, 0.1, 0.2]).fetchone()
    return next((place for place, index in enumerate(("by_x", "by_y")) if index in detail), 2)


def record(worlds: int, rounds: int, first: int, *, places: int = PLACES) -> Recording:
    """Measure worlds; a seed fixes the map and the queries, and each world has its own."""
    costs, features, planner = [], [], []
    for seed in range(first, first + worlds):
        rng = np.random.default_rng(seed)
        database = fill(rng, places)
        asked, sides = rectangles(rng, rounds)
        costs.append(measure(database, asked))
        features.append(sides)
        planner.append(planned(database))
        database.close()
        print(f"world {seed}: {costs[-1].sum():.0f} seconds in queries", flush=True)
    about = here(sqlite=f"SQLite {sqlite3.sqlite_version}") | {"planner": planner}
    return Recording(list(PLANS), np.stack(costs), np.stack(features), about)


def live(rounds: int, seed: int, file: Path, *, places: int = PLACES) -> None:
    """Let a tuner answer queries as they come, and print its report."""
    rng = np.random.default_rng(seed)
    database = fill(rng, places)
    asked, _ = rectangles(rng, rounds)

    def by(plan: str) -> Callable[[float, float, float, float], tuple[int, float]]:
        return lambda *bounds: database.execute(QUERY.format(plan), bounds).fetchone()

    def sides(left: float, right: float, low: float, high: float) -> FloatArray:
        return np.log([right - left, high - low])

    answer = Tuner({name: by(plan) for name, plan in PLANS.items()}, features=sides)
    for bounds in asked.tolist():
        answer(*bounds)
    print(f"{', '.join(here(sqlite=f'SQLite {sqlite3.sqlite_version}').values())}\n\n{answer.report()}\n")
    file.parent.mkdir(parents=True, exist_ok=True)
    answer.report().draw(file)
    print(f"Figure: {file}")


def main(arguments: Sequence[str] | None = None) -> None:
    chosen = options(__doc__, out="queries.png", arguments=arguments, live=True)
    if chosen.live:
        live(chosen.rounds, chosen.first_seed, chosen.out)
        return
    if chosen.record:
        record(chosen.worlds, chosen.rounds, chosen.first_seed).save(chosen.record)
        return
    recording = Recording.load(chosen.recording or FOLDER / "queries.npz")
    planner = recording.about.pop("planner")
    worlds = recording.worlds(chosen.rounds)[: chosen.worlds]
    played = play_all(worlds)
    own = [played[f"always {recording.names[plan]}"][number] for number, plan in enumerate(planner[: len(worlds)])]
    played["SQLite's own planner"] = own
    rounds = len(own[0].costs)
    print_table(f"Three plans: {rounds} queries, {len(worlds)} worlds; measured {recording.machine}", played, own=True)
    draw("Three plans of SQLite", played, chosen.out, own=True)


if __name__ == "__main__":
    main()
