"""A table with keys, such as shops: one policy for all, one per key, and a fleet whose keys learn from one another.

Each plays the rows in their order, and learns from its own rounds. A fleet decides the rows of neighbouring, different
keys together, at most 64: it fits its numbers between such batches, and a key alone never waits for its reward.

All are given the same units: rewards, contexts and features less their means, divided by their standard deviations over
the table.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from undertow.contenders import Contender, load_policies
from undertow.errors import InvalidInputError
from undertow.fleet import Fleet, FleetKalman
from undertow.replay.contenders import check_labels, play_all
from undertow.replay.table import Table
from undertow.simulation import simulate
from undertow.support import checks
from undertow.support.checks import FloatArray
from undertow.support.cluster import on_cluster
from undertow.support.pool import Progress
from undertow.trajectory import Trajectory

__all__ = ["ALL", "FLEET", "PER_KEY", "KeyedContender", "keyed_contenders", "play_keys", "require_keys"]

FLEET, PER_KEY, ALL = "fleet", "one per key", "one for all keys"
_BATCH = 64  # rows of different keys that are decided together
Played = tuple[npt.NDArray[np.int64], float]  # arms, and microseconds per round


@dataclass(frozen=True)
class KeyedContender(Contender):
    """A policy and how it plays a table with keys: `FLEET`, `PER_KEY` or `ALL`."""

    how: str = ALL


class Rows(NamedTuple):
    """The inputs: keys, rewards, NaN if none is learned, contexts, features, and available arms."""

    keys: npt.NDArray[np.str_]
    rewards: FloatArray
    contexts: FloatArray
    features: FloatArray
    available: npt.NDArray[np.bool_] | None


def require_keys(table: Table, cluster: str | None) -> None:
    """Refuse a cluster without keys."""
    if cluster is not None and table.keys is None:
        raise InvalidInputError("cluster: for tables with keys only; name the column of keys with key, or leave it out")


def keyed_contenders(table: Table, chosen: Sequence[Contender]) -> tuple[list[Contender], list[str]]:
    """Return how a table with keys is played: by a fleet, and by each policy per key and for all keys; and remarks.

    By default that is LinUCB with features or contexts, otherwise UCB, and discounted UCB.
    """
    keys = table.keys
    assert keys is not None
    if len(counts := np.unique(keys, return_counts=True)[1]) < 2:
        raise InvalidInputError(f"key: column {table.columns.key!r:.80} names one key alone; leave it out")
    first = Contender("LinUCB", "linucb") if table.known.size or table.contexts.size else Contender("UCB", "ucb")
    check_labels(chosen)
    rows = _rows(table, np.empty((0, 0)))
    playing: list[Contender] = [KeyedContender("FleetKalman", "levels-kalman", how=FLEET)]
    for one in chosen or (first, Contender("Discounted UCB", "discounted-ucb")):
        for how in (PER_KEY, ALL):
            given = KeyedContender(f"{one.label}, {how}", one.policy, one.parameters, how=how)
            try:
                _template(given, table.arms, rows, 0, context_first=False)
            except (InvalidInputError, TypeError) as error:
                raise InvalidInputError(f"policies: {one.label}: {str(error).removeprefix('policy: ')}") from error
            playing.append(given)
    notes = [
        f"{len(counts):,} keys, with {np.median(counts):,.0f} rows in the median, {counts.min():,} at least and "
        f"{counts.max():,} at most",
        "for all policies, rewards and inputs are divided by their spread over the table",
    ]
    if table.contexts.shape[1]:
        notes.append("FleetKalman does not use contexts")
    return playing, notes


def play_keys(
    contenders: Sequence[Contender],
    table: Table,
    rewards: Callable[[int], FloatArray],
    *,
    seed: int,
    context_first: bool,
    runs: int,
    random: bool,
    threads: int | None,
    progress: Progress | None,
    cluster: str | None = None,
    module: str | os.PathLike[str] | None = None,
) -> dict[str, list[Played]]:
    """Play a table with keys, each contender `runs` times if anything is random; return arms and times by label.

    `rewards(run)` are what can be learned, (n, k). Workers of a cluster run the `module` first.
    """
    how: dict[str, Any] = {"seed": seed, "context_first": context_first}
    if cluster is None:

        def play(contender: Contender, run: int, progress: Progress) -> Played:
            return _play(contender, table.arms, _rows(table, rewards(run)), run, **how, progress=progress)

        both: dict[str, Any] = {"threads": threads, "progress": progress}
        return play_all(contenders, play, rounds=table.rounds, runs=runs, random=random, **both)
    runs = checks.integer("runs", runs, least=1)
    tasks = [(one, run) for one in contenders for run in range(runs if random or one.randomised else 1)]
    code = os.path.abspath(module) if module else None
    work = partial(_play_there, code, table.arms, how)
    sent = [(one, _rows(table, rewards(run)), run) for one, run in tasks]
    found: list[Any] = [None] * len(tasks)
    tell, total = progress or (lambda done, total: None), table.rounds * len(tasks)
    tell(0, total)
    for done, (number, result) in enumerate(on_cluster(work, sent, cluster, checks.thread_count(threads)), start=1):
        found[number] = result
        tell(table.rounds * done, total)
    played: dict[str, list[Played]] = {}
    for (one, _), result in zip(tasks, found, strict=True):
        played.setdefault(one.label, []).append(result)
    return played


def _play_there(
    code: str | None, arms: Sequence[str], how: dict[str, Any], contender: Contender, rows: Rows, run: int
) -> Played:
    """Play on a worker."""
    if code:
        load_policies(code)
    return _play(contender, arms, rows, run, **how)


def _rows(table: Table, rewards: FloatArray) -> Rows:
    """Return a table in units of its spread."""
    assert table.keys is not None
    known = table.rewards if table.log is None else table.log.rewards
    units = float(np.nanmean(known)), float(np.nanstd(known)) or 1.0  # type: ignore[arg-type]
    available = table.available if table.log is None else None
    inside = (rewards - units[0]) / units[1]
    return Rows(table.keys, inside, _scaled(table.contexts), _scaled(table.features), available)


def _scaled(values: FloatArray) -> FloatArray:
    """Return columns less their means, in units of their standard deviations."""
    if not values.size:
        return values
    over = tuple(range(values.ndim - 1))
    spread = np.nanstd(values, axis=over)
    return np.asarray((values - np.nanmean(values, axis=over)) / np.where(spread > 0, spread, 1.0))


def _template(
    contender: KeyedContender, arms: Sequence[str], rows: Rows, run: int, *, seed: int = 0, context_first: bool
) -> Any:
    """Return the policy or the fleet that plays the rows."""
    if contender.capabilities.needs_system or contender.capabilities.simulates_only:
        raise InvalidInputError(f"{contender.policy} needs the true system, and a table does not contain it")
    fleet, blind = contender.how == FLEET, rows.features.ndim == 3 and not contender.capabilities.takes_arm_features
    policy = contender.build(
        arms=list(arms),
        context_dim=0 if fleet else rows.contexts.shape[1],
        feature_dim=0 if blind else rows.features.shape[-1],
        context_first=context_first,
        rng=int(np.random.SeedSequence(seed, spawn_key=(3, run)).generate_state(1)[0]),
    )
    if contender.how == ALL:
        return policy
    return FleetKalman(policy) if fleet else Fleet(policy)


def _play(
    contender: Contender,
    arms: Sequence[str],
    rows: Rows,
    run: int,
    *,
    seed: int,
    context_first: bool,
    progress: Progress | None = None,
) -> Played:
    assert isinstance(contender, KeyedContender)
    policy, start = _template(contender, arms, rows, run, seed=seed, context_first=context_first), time.perf_counter()
    n = len(rows.keys)
    if isinstance(policy, Fleet):
        chosen = _play_fleet(policy, rows, progress or (lambda done, total: None))
    else:
        contexts, rewards, features = (
            checks.readonly(each[None]) for each in (rows.contexts, rows.rewards, rows.features)
        )
        path = Trajectory.trusted(contexts, rewards, None, features, None, None)
        shown = progress or False
        chosen = simulate(policy, path, available=rows.available, runs=[0], threads=1, progress=shown).arms[0]
    return chosen, 1e6 * (time.perf_counter() - start) / n


def _play_fleet(fleet: Fleet, rows: Rows, progress: Progress) -> npt.NDArray[np.int64]:
    """Play rows with a fleet, batch by batch."""
    template, chosen = fleet.policy, np.empty(len(rows.keys), dtype=np.int64)
    width, m = int(getattr(template, "feature_dim", 0)), int(getattr(template, "context_dim", 0))
    first = m and bool(getattr(template, "context_first", False))
    for batch in _batches(rows.keys):
        given: dict[str, Any] = {"contexts": rows.contexts[batch]} if first else {}
        given |= {} if rows.available is None else {"available": rows.available[batch]}
        decisions = fleet.decide_many(rows.keys[batch], rows.features[batch] if width else None, **given)
        chosen[batch] = decisions.arms
        earned = np.take_along_axis(rows.rewards[batch], decisions.arms[:, None], axis=1)[:, 0]
        if (paid := ~np.isnan(earned)).any():
            fleet.learn_many(decisions.take(paid), earned[paid])
        if m and not first:
            fleet.observe_many(rows.keys[batch], rows.contexts[batch])
        progress(batch.stop, len(rows.keys))
    return chosen


def _batches(keys: npt.NDArray[np.str_]) -> Iterator[slice]:
    """Yield runs of neighbouring rows of different keys."""
    start, seen = 0, set[str]()
    for row, key in enumerate(keys.tolist()):
        if key in seen or row - start == _BATCH:
            yield slice(start, row)
            start, seen = row, set()
        seen.add(key)
    yield slice(start, len(keys))
