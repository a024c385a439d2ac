"""Workers of the service that are killed at random moments, while clients go on: nothing is lost, nor counted twice."""

import collections
import random
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

import psutil

import undertow
from served import as_command
from undertow.live.events import Decided, Rewarded
from undertow.serve import Client
from undertow.store import operations, past
from undertow.store.address import store_at

WORKERS = 4
CLIENTS = 8
NAMES = ("courier", "shop")


class Counts(NamedTuple):
    """How many workers were killed, how many calls were answered meanwhile, and what was wrong."""

    kills: int
    answered: int
    wrong: tuple[str, ...]


def run(seed: int, *, seconds: float, kills: int | None = None, url: str | None = None) -> Counts:
    """Kill workers for some seconds, or so many of them; then look at what is in the store."""
    draw = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="undertow-serving-") as folder:
        url = url or f"sqlite:///{folder}/shop.db"
        answered: dict[tuple[str, str], tuple[str, float]] = {}
        stop, failed = threading.Event(), list[str]()
        with as_command(Path(folder), url, "--workers", str(WORKERS), "--no-access-log") as command:
            with Client(command.url, patience=120) as client:
                for name in NAMES:
                    client.create(name, "ucb", ["bike", "van"])
            threads = [
                threading.Thread(target=_play, args=(command.url, number, answered, failed, stop))
                for number in range(CLIENTS)
            ]
            for thread in threads:
                thread.start()
            killed = _kill(command.process.pid, draw, time.monotonic() + seconds, kills, answered)
            stop.set()
            for thread in threads:
                thread.join()
        wrong = [*failed, *_wrong(url, answered)]
    return Counts(killed, 2 * len(answered), tuple(wrong))


def _play(url: str, number: int, answered: Any, failed: list[str], stop: threading.Event) -> None:
    """Decide and reward until the end; note what was answered."""
    try:
        with Client(url, patience=120) as client:
            for turn in range(10**9):
                if stop.is_set():
                    return
                name, id, value = NAMES[turn % len(NAMES)], f"{number}-{turn}", float(turn % 7)
                decision = client.decide(name, id=id)
                client.reward(name, id, value)
                answered[name, id] = decision.arm, value
    except Exception as error:
        failed.append(f"client {number}: {error!r}")


def _kill(server: int, draw: random.Random, until: float, kills: int | None, answered: Any) -> int:
    """Kill a worker again and again, each after a few more calls were answered; return how many."""
    killed, before = 0, 0
    while time.monotonic() < until and killed != kills:
        time.sleep(draw.uniform(0.0, 0.4))
        if len(answered) < before + draw.randint(1, 4):
            continue
        before = len(answered)
        workers = [each for each in psutil.Process(server).children() if _works(each)]
        if len(workers) < 2:  # the others are being started
            continue
        draw.choice(workers).kill()
        killed += 1
    return killed


def _works(process: psutil.Process) -> bool:
    """Whether a process is a worker that has begun to serve: it has threads beside its first ones."""
    try:
        return "spawn_main" in " ".join(process.cmdline()) and process.num_threads() > 1
    except psutil.Error:
        return False


def _wrong(url: str, answered: dict[tuple[str, str], tuple[str, float]]) -> list[str]:
    """Return what is in the store and was not answered so, or twice."""
    found, store = list[str](), store_at(url)
    for name in NAMES:
        arms = undertow.open(store, name).names
        decided: collections.defaultdict[str, list[str]] = collections.defaultdict(list)
        rewarded: collections.defaultdict[str, list[float]] = collections.defaultdict(list)
        for _, event in past.history(store, name):
            if isinstance(event, Decided):
                decided[event.id].append(arms[event.arm])
            elif isinstance(event, Rewarded):
                rewarded[event.id].append(event.reward)
        for (bandit, id), (arm, value) in answered.items():
            if bandit == name and (decided[id], rewarded[id]) != ([arm], [value]):
                found.append(f"{name}, {id}: answered {arm}, {value}; stored {decided[id]}, {rewarded[id]}")
        twice = [id for counted in (decided, rewarded) for id, values in counted.items() if len(values) > 1]
        found += [f"{name}: {', '.join(twice[:9])} happened twice"] if twice else []
        operations.verify(store, name)
    return found
