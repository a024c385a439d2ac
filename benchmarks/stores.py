"""The cost of a store: pairs of decide and learn, beside plain inserts of the same rows in the same transactions.

Both take turns, on the disk of out/bench, with and without waiting for it. PostgreSQL is measured if UNDERTOW_POSTGRES
has the address of a server. Then 10^6 events, of which every fifth decision never gets its reward: memory, opening the
bandit, and folding events. Written to out/bench/stores.json.
"""

import os
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil

import undertow
from benchmarks.report import OUT, Report
from undertow.live.events import Event, decode, encode
from undertow.store import Answer, Locked, Row, Store
from undertow.store.address import store_at
from undertow.store.answers import write_answer
from undertow.store.door import Door
from undertow.store.sqlite import SqliteStore

SECONDS = 2.0
TURNS = 5
EVENTS = 10**6
X = [0.3, 1.0, -0.5]
Pair = Callable[[], None]


class Load(NamedTuple):
    """The concurrent callers: threads of one process or processes, and the number of bandits."""

    callers: int
    processes: bool = False
    bandits: int = 1

    def __str__(self) -> str:
        callers = f"{self.callers} {'processes' if self.processes else 'threads'}"
        return callers if self.bandits == 1 else f"{callers}, {self.bandits:,} bandits"


LOADS = (Load(1), Load(8), Load(64), Load(64, bandits=1000), Load(8, processes=True))


def policy() -> undertow.LinUCB:
    """Return the measured policy."""
    return undertow.LinUCB(arms=5, feature_dim=3)


def _lengths() -> tuple[int, int, int]:
    """Return the lengths of a decision's event, its answer, and its reward's event."""
    plain, events = policy(), list[Event]()
    plain.events(events.append)
    decision = plain.decide(X)
    answer = write_answer("", decision, plain.parts.pending.entries[decision.id].memory)
    plain.learn(decision, 1.0)
    return len(encode(events[0])), len(answer), len(encode(events[1]))


class Inserts:
    """Two calls that only insert the rows of `decide` and `learn`."""

    def __init__(self, store: Store, name: str) -> None:
        self.store, self.name, self.n = store, name, 0
        self.door = Door(self.begin, self.end, lambda: None, 60.0)
        self.rows: list[Row] = []
        self.answers: list[Answer] = []
        self.rewards: list[tuple[str, float]] = []
        self.lengths = _lengths()

    def begin(self) -> None:
        """Lock, and read the rows of others."""
        self.transaction: AbstractContextManager[Locked] = self.store.lock(self.name, 60.0)
        self.locked = self.transaction.__enter__()
        self.n = max([self.n, *(row.n for row in self.locked.read(max(self.n, 1)))])

    def end(self) -> None:
        """Insert the rows of the group, and commit."""
        now = time.time()
        self.locked.append(self.rows)
        self.locked.keep_answers(self.answers)
        self.locked.keep_rewards(self.rewards)
        self.locked.keep_times(now if self.answers else None, now if self.rewards else None)
        self.rows, self.answers, self.rewards = [], [], []
        self.transaction.__exit__(None, None, None)

    def pair(self) -> None:
        """Insert the rows of a decision and its reward."""
        self.learn(self.decide())

    def decide(self, id: str | None = None) -> str:
        """Insert the rows of a decision, and return its id."""
        decided, answer, _ = self.lengths
        with self.door:
            made = self.add(decided)
            self.answers.append(Answer(id or made, self.n, bytes(answer), None))
        return id or made

    def learn(self, id: str) -> None:
        """Insert the rows of a reward."""
        with self.door:
            self.add(self.lengths[2])
            self.rewards.append((id, 1.0))

    def add(self, length: int) -> str:
        """Add the row of an event, and return an id for it."""
        self.n += 1
        self.rows.append(Row(self.n, os.urandom(8), time.time(), bytes(length)))
        return f"{self.n}-{secrets.token_hex(8)}"


def durable(store: Store, name: str) -> Pair:
    """Return a pair of calls on a bandit, which is created."""
    opened = undertow.open(store, name, policy(), timeout=60)

    def pair() -> None:
        opened.learn(opened.decide(X), 1.0)

    return pair


def inserts(store: Store, name: str) -> Pair:
    """Return the plain inserts of a pair, for a bandit, which is created."""
    store.create(name, b"", b"")
    return Inserts(store, name).pair


def measured(pairs: Sequence[Pair], load: Load) -> tuple[float, list[float]]:
    """Return the pairs per second of the callers, and the duration of each."""
    if load.processes:
        return _of_processes(pairs[0], load.callers)
    until, taken, turn = time.perf_counter() + SECONDS, list[float](), count()

    def work() -> None:
        start = 0.0
        while start < until:
            start = time.perf_counter()
            pairs[next(turn) * 7919 % len(pairs)]()
            taken.append(time.perf_counter() - start)

    threads = [threading.Thread(target=work) for _ in range(load.callers)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(taken) / (time.perf_counter() - start), taken


def _of_processes(pair: Pair, callers: int) -> tuple[float, list[float]]:
    begin, pipes, taken = time.time() + 1.0, list[int](), list[float]()
    for _ in range(callers):
        reads, writes = os.pipe()
        if not os.fork():
            _call_in_child(pair, begin, writes)
        os.close(writes)
        pipes.append(reads)
    for reads in pipes:
        with os.fdopen(reads, "rb") as file:
            content = file.read()
        taken += np.frombuffer(content).tolist()
        assert os.wait()[1] == 0, "a process failed"
    return len(taken) / SECONDS, taken


def _call_in_child(pair: Pair, begin: float, writes: int) -> None:
    """Make pairs from a time on, write how long each took to a pipe, and end this process."""
    status = 1
    try:
        pair()  # a forked process reads the policy again
        time.sleep(max(begin - time.time(), 0.0))
        taken, until, start = list[float](), time.perf_counter() + SECONDS, 0.0
        while start < until:
            start = time.perf_counter()
            pair()
            taken.append(time.perf_counter() - start)
        with os.fdopen(writes, "wb") as file:
            file.write(np.array(taken).tobytes())
        status = 0
    finally:
        os._exit(status)


def cells(store: Store, load: Load) -> tuple[Sequence[str], float, float]:
    """Measure both by turns; return a row, the ratio and the longest call."""
    sides = [[make(store, secrets.token_hex(8)) for _ in range(load.bandits)] for make in (durable, inserts)]
    found: list[list[tuple[float, list[float]]]] = [[], []]
    for turn in range(TURNS):
        for side in (0, 1) if turn % 2 else (1, 0):
            found[side].append(measured(sides[side], load))
    rate, bare = (float(np.median([each for each, _ in side])) for side in found)
    taken = np.concatenate([times for _, times in found[0]])
    ratio = float(np.median([one / other for (one, _), (other, _) in zip(*found, strict=True)]))
    p50, p99, longest = (1e3 * float(np.quantile(taken, share)) for share in (0.5, 0.99, 1.0))
    times = (f"{each:.1f}" for each in (p50, p99, longest))
    return [f"{rate:,.0f}", *times, f"{bare:,.0f}", f"{ratio:.2f} ×"], ratio, longest


class Hasty(SqliteStore):
    """Does not wait for the disk."""

    def _connect(self) -> Any:
        connection = super()._connect()
        connection.execute("PRAGMA synchronous = OFF")
        return connection


def stores() -> dict[str, Store]:
    """Return the stores to measure, each of them with and without waiting for the disk."""
    found: dict[str, Store] = {
        "SQLite": SqliteStore(OUT / "stores.db"),
        "SQLite, no sync": Hasty(OUT / "stores_hasty.db"),
    }
    if url := os.environ.get("UNDERTOW_POSTGRES"):
        found["PostgreSQL"] = store_at(url)
        found["PostgreSQL, no sync"] = store_at(f"{url}?options=-csynchronous_commit%3Doff")
    return found


def a_million(report: Report) -> None:
    """Measure a bandit of 10^6 events."""
    store, n, decided, memory = Hasty(OUT / "stores_million.db"), 0, 0, list[int]()
    opened = undertow.open(store, "long", undertow.LinUCB(arms=5, feature_dim=3, max_pending=10_000))
    start = time.perf_counter()
    while n < EVENTS:
        with opened.transaction():
            for _ in range(100):
                id = f"order {decided}"
                opened.decide(X, id=id)
                decided += 1
                if decided % 5:
                    opened.learn(id, 1.0)
        if n // (EVENTS // 4) < (n := opened.newest) // (EVENTS // 4):
            memory.append(psutil.Process().memory_info().rss // 2**20)
    seconds = time.perf_counter() - start
    times = []
    for _ in range(5):
        start = time.perf_counter()
        again = undertow.open(store, "long")
        assert again.round == decided
        times.append(time.perf_counter() - start)
    bodies = [row.body for row in store.events("long", 0, 100_000)]
    follower = policy()
    for body in bodies[:200]:
        follower.follow(decode(body))
    start = time.perf_counter()
    for body in bodies[200:]:
        follower.follow(decode(body))
    folded = (len(bodies) - 200) / (time.perf_counter() - start)
    report.table("A bandit of 10^6 events, 100 pairs to a transaction")
    report.note(f"written at {n / seconds:,.0f} events per second; memory after each quarter {memory} MB")
    report.target("growth of memory from the first quarter, MB", memory[-1] - memory[0], most=20)
    report.target("opening it, warm, s", max(times), most=0.5, timed=True)
    report.target("events folded per second", folded, least=50_000, timed=False)


def main() -> None:
    """Measure both stores."""
    OUT.mkdir(parents=True, exist_ok=True)
    for file in Path(OUT).glob("stores*.db*"):
        file.unlink()
    report, rows, ratios, longest = Report(), dict[str, Sequence[str]](), list[float](), list[float]()
    for name, store in stores().items():
        for load in LOADS:
            rows[f"{name}, {load}"], ratio, most = cells(store, load)
            ratios += [] if "no sync" in name else [ratio]
            longest += [most] if load.processes else []
            store.close()
    columns = ["pairs per second", "median, ms", "99 %, ms", "longest, ms", "plain inserts per second", "ratio"]
    report.grid("LinUCB, 5 arms, 3 features: decide and learn in a store", columns, rows)
    report.target("lowest ratio to plain inserts", min(ratios), least=0.7)
    report.target("longest pair of 8 processes, ms", max(longest), most=2000)
    a_million(report)
    report.save(OUT / "stores.json")


if __name__ == "__main__":
    main()
