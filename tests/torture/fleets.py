"""Trials of fleets in stores: workers that are killed while they play batches over all buckets.

    PYTHONPATH=tests:. python -m torture.fleets kills --seconds 60 --seed 3    # or postgres-kills

A batch is there in all of its buckets or in none, nothing that was acknowledged is lost or there twice, and the fleet
is, bit for bit, what a fleet in memory makes of its events.
"""

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import undertow
from tools import hardships
from torture.stores import emptied, fork, lines_of, repeated, the_server
from undertow.fleet import Fleet
from undertow.live.events import ManyDecided, ManyRewarded, decode
from undertow.live.files import unarchived
from undertow.store import replica
from undertow.store.address import store_at
from undertow.store.base import bucket_name
from undertow.store.operations import verify

WORKERS, BUCKETS, KEYS, BATCH = 5, 4, 40, 12
NAME = "shops"


def shops() -> Fleet:
    """Return the fleet that the store begins with."""
    return Fleet(undertow.LinUCB(arms=["low", "high"], feature_dim=1, explore=0.2, rng=0), buckets=BUCKETS)


def prepare() -> None:
    """Load what forked workers need, and have them write checkpoints often."""
    shops().decide("warm", [0.0])
    replica._LEAST = 2000  # noqa: SLF001


def batch(worker: int, t: int) -> Any:
    """Return the keys of a batch; a repeated call has them again."""
    return np.random.default_rng([worker, t]).integers(0, KEYS, BATCH)


def work(fleet: Any, worker: int, say: Callable[[str], None]) -> None:
    """Decide and learn, and say what was acknowledged; a call that fails is repeated with its id."""
    for t in range(10**9):
        keys = batch(worker, t)
        decisions = repeated(lambda t=t, k=keys: fleet.decide_many(k, 0.1 * k[:, None], id=f"{worker} {t}"))  # type: ignore[misc]
        say("decided " + " ".join(f"{key}/{n}" for key, n in zip(keys, decisions.rounds, strict=True)))
        repeated(lambda d=decisions: fleet.learn_many(d, d.arms + 0.5))  # type: ignore[misc]
        say("learned " + " ".join(f"{key}/{n}" for key, n in zip(keys, decisions.rounds, strict=True)))


def killed(draw: random.Random, url: str, folder: Path) -> list[str]:
    """Kill workers of one fleet at random moments; return what they were told."""
    files = [folder / f"said {n}" for n in range(WORKERS)]

    def program(number: int) -> None:
        with files[number].open("w", buffering=1) as said:
            work(undertow.open(url, NAME, timeout=60), number, lambda line: print(line, file=said, flush=True))

    children = [fork(lambda number=number: program(number)) for number in range(WORKERS)]  # type: ignore[misc]
    for child in children:
        time.sleep(draw.uniform(0.0, 0.15))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status), "a worker ended by itself"
    said = [line for file in files for line in lines_of(file)]
    for file in files:
        file.unlink(missing_ok=True)
    return said


def check(url: str, acknowledged: list[str]) -> int:
    """Check a fleet against what was acknowledged; return how many batches there are."""
    store, plain = store_at(url), shops()
    fleet: Any = undertow.open(store, NAME, timeout=60)
    decided, learned, sizes = set[str](), set[str](), dict[int, int]()
    for number in range(BUCKETS):
        counts: dict[int, int] = {}
        for row in store.events(bucket_name(NAME, number), 0, 10**9):
            event = decode(row.body)
            assert isinstance(event, ManyDecided | ManyRewarded)
            keys: list[int] = np.frombuffer(event.letters, "<i8").tolist()
            if isinstance(event, ManyDecided):
                sizes[event.life] = sizes.get(event.life, 0) + len(keys)
                for key in keys:
                    decided.add(f"{key}/{counts.get(key, 0)}")
                    counts[key] = counts.get(key, 0) + 1
            else:
                named = {f"{key}/{n}" for key, n in zip(keys, np.frombuffer(event.rounds, "<i8"), strict=True)}
                assert not named & learned, "a reward is there twice"
                learned |= named
            plain.follow(event)
    assert set(sizes.values()) <= {BATCH}, "a batch is there in some of its buckets"
    for line in acknowledged:
        verb, *told = line.split()
        assert set(told) <= (decided if verb == "decided" else learned), f"acknowledged, and not there: {line}"
    (_, one), (_, other) = unarchived(fleet.to_bytes()), unarchived(plain.to_bytes())
    assert all(one[name].tobytes() == other[name].tobytes() for name in one), "the fleet is not the fold of its events"
    verify(store, NAME)
    fleet.learn_many(fleet.decide_many([1, 2], [[0.1], [0.2]]), [1.0, 1.0])  # and it goes on
    store.close()
    return len(sizes)


def kills(draw: random.Random, folder: Path) -> str:
    """Kill the workers of a fleet in a SQLite file."""
    prepare()
    url = f"sqlite:///{folder}/{draw.randrange(10**9)}.db"
    undertow.open(url, NAME, shops())
    check(url, killed(draw, url, folder))
    return f"{WORKERS} kills"


def postgres_kills(draw: random.Random, folder: Path) -> str:
    """Kill the workers of a fleet in PostgreSQL."""
    prepare()
    url = emptied(the_server())
    undertow.open(url, NAME, shops())
    check(url, killed(draw, url, folder))
    return f"{WORKERS} kills"


TRIALS: dict[str, hardships.Trial] = {"kills": kills, "postgres-kills": postgres_kills}

if __name__ == "__main__":
    raise SystemExit(hardships.main(TRIALS))
