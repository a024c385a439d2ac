"""Pairs of decide and learn in a store, against plain inserts of rows of the same size in the same transactions.

Threads of one process call at once, on one bandit; they share transactions in both cases. Times are of the clock, as
the disk counts. SQLite is in out/bench; PostgreSQL is measured if UNDERTOW_POSTGRES has the address of a server.
Written to out/bench/stores.json.
"""

import os
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import numpy as np

import undertow
from benchmarks.report import OUT, Report
from undertow.store import Answer, Locked, Row, Store
from undertow.store.address import store_at
from undertow.store.door import Door
from undertow.store.sqlite import SqliteStore

CALLERS = (1, 8, 64)
SECONDS = 3.0
TURNS = 3
X = [0.3, 1.0, -0.5]


class Inserts:
    """Two calls that insert what `decide` and `learn` insert, and do nothing else."""

    def __init__(self, store: Store, name: str) -> None:
        self.store, self.name, self.n = store, name, 0
        self.door = Door(self.begin, self.end, lambda: None, 30.0)
        self.rows: list[Row] = []
        self.answers: list[Answer] = []
        self.rewards: list[tuple[str, float]] = []

    def begin(self) -> None:
        """Lock, and read what others have done."""
        self.transaction: AbstractContextManager[Locked] = self.store.lock(self.name, 30.0)
        self.locked = self.transaction.__enter__()
        self.locked.read(max(self.n, 1))

    def end(self) -> None:
        """Insert the rows of the group, and commit."""
        self.locked.append(self.rows)
        self.locked.keep_answers(self.answers)
        self.locked.keep_rewards(self.rewards)
        self.rows, self.answers, self.rewards = [], [], []
        self.transaction.__exit__(None, None, None)

    def pair(self) -> None:
        """Insert what a decision and its reward insert."""
        with self.door:
            id = self.add(190)
            self.answers.append(Answer(id, self.n, bytes(480), None))
        with self.door:
            self.add(90)
            self.rewards.append((id, 1.0))

    def add(self, length: int) -> str:
        """Add the row of an event, and return an id for it."""
        self.n += 1
        self.rows.append(Row(self.n, os.urandom(8), time.time(), bytes(length)))
        return f"{self.n}-{secrets.token_hex(8)}"


def pairs(call: Callable[[], None], callers: int) -> tuple[float, list[float]]:
    """Return how many pairs per second so many threads make, and how long each took."""
    until, taken = time.perf_counter() + SECONDS, list[float]()

    def work() -> None:
        while (start := time.perf_counter()) < until:
            call()
            taken.append(time.perf_counter() - start)

    threads = [threading.Thread(target=work) for _ in range(callers)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(taken) / (time.perf_counter() - start), taken


def durable(store: Store) -> Callable[[], None]:
    """Return a pair of calls on a new bandit."""
    policy = undertow.open(store, secrets.token_hex(8), undertow.LinUCB(arms=5, feature_dim=3), timeout=30)

    def pair() -> None:
        policy.learn(policy.decide(X), 1.0)

    pair()
    return pair


def inserts(store: Store) -> Callable[[], None]:
    """Return the plain inserts of a pair, for a new bandit."""
    name = secrets.token_hex(8)
    store.create(name, b"", b"")
    return Inserts(store, name).pair


def cells(store: Store, callers: int) -> Sequence[str]:
    """Measure both by turns."""
    found: list[tuple[float, list[float]]] = []
    bare: list[float] = []
    for _ in range(TURNS):
        found.append(pairs(durable(store), callers))
        bare.append(pairs(inserts(store), callers)[0])
    rate, taken = max(found)
    p50, p99 = np.quantile(taken, [0.5, 0.99])
    ratio = float(np.median([one / other for (one, _), other in zip(found, bare, strict=True)]))
    return [f"{rate:,.0f}", f"{1e3 * p50:.1f}", f"{1e3 * p99:.1f}", f"{max(bare):,.0f}", f"{ratio:.2f} ×"]


def main() -> None:
    """Measure both stores."""
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "stores.db").unlink(missing_ok=True)
    stores: dict[str, Store] = {"SQLite": SqliteStore(OUT / "stores.db")}
    if url := os.environ.get("UNDERTOW_POSTGRES"):
        stores["PostgreSQL"] = store_at(url)
    report = Report()
    rows = {f"{name}, {n} threads": cells(store, n) for name, store in stores.items() for n in CALLERS}
    columns = ["pairs per second", "median, ms", "99 %, ms", "plain inserts per second", "ratio"]
    report.grid("LinUCB, 5 arms, 3 features: decide and learn in a store", columns, rows)
    report.target("lowest ratio to plain inserts", min(float(row[-1].split()[0]) for row in rows.values()), least=0.7)
    report.save(OUT / "stores.json")


if __name__ == "__main__":
    main()
