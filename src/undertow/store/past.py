"""The past of a bandit: its rounds as a table, and learning from them by another policy before its first round."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from undertow.errors import InvalidInputError
from undertow.live import LivePolicy
from undertow.live.events import Decided, Event, Observed, Rewarded, Skipped, decode
from undertow.store.base import Store
from undertow.store.checkpoints import newest_policy

__all__ = ["PastRound", "context_names", "events_of_past", "feature_names", "history", "log_of", "past_rounds"]

_PAGE = 2000  # events read at a time

TimeStep = tuple[Any, list[tuple[Decided, float]]]  # a context, and the decisions with their rewards


@dataclass(slots=True)
class PastRound:
    """A round: its time, its decision if any, its context and its reward if they came."""

    at: float
    decided: Decided | None = None
    context: Any = None
    reward: float | None = None


def history(store: Store, name: str) -> Iterator[tuple[float, Event]]:
    """Yield the kept events of a bandit, each with its time."""
    n = 0
    while rows := store.events(name, n, _PAGE):
        for row in rows:
            yield row.at, decode(row.body)
        n = rows[-1].n


def past_rounds(store: Store, name: str, *, timeout: float = 5.0) -> tuple[LivePolicy, list[PastRound]]:
    """Return the policy of a bandit, as of some event, and its kept rounds."""
    with store.lock(name, timeout) as locked:
        policy = newest_policy(store, name, locked)[1]
    first = bool(getattr(policy, "context_first", False))
    rounds: list[PastRound] = []
    decided: dict[str, PastRound] = {}
    context = None
    for at, event in history(store, name):
        match event:
            case Decided():
                decided[event.id] = made = PastRound(at, event, context if first else None)
                rounds.append(made)
            case Observed() if first:
                context = event.context
            case Observed() if rounds:
                rounds[-1].context = event.context
            case Skipped():
                contexts = [None] * event.rounds if event.contexts is None else event.contexts
                rounds += [PastRound(at, context=each) for each in contexts]
            case Rewarded() if event.id in decided:
                decided[event.id].reward = event.reward
            case _:
                pass
    return policy, rounds


def log_of(store: Store, name: str, *, timeout: float = 5.0) -> dict[str, list[Any]]:
    """Return the rewarded decisions as columns for `undertow replay`."""
    policy, rounds = past_rounds(store, name, timeout=timeout)
    rows = [(each.at, each.decided, each.context, each.reward) for each in rounds if each.reward is not None]
    made = [(at, event, seen, reward) for at, event, seen, reward in rows if event is not None]
    columns: dict[str, list[Any]] = {"time": [at for at, *_ in made]}
    columns["arm"] = [policy.names[event.arm] for _, event, _, _ in made]
    columns["reward"] = [reward for *_, reward in made]
    columns["propensity"] = [event.propensity for _, event, _, _ in made]
    for i, column in enumerate(feature_names(policy)):
        columns[column] = [_entry(event.features, event.arm, i) for _, event, _, _ in made]
    for i, column in enumerate(context_names(policy)):
        columns[column] = [None if seen is None else float(seen[i]) for _, _, seen, _ in made]
    return columns


def feature_names(policy: LivePolicy) -> Sequence[str]:
    """Return the columns of features of a log."""
    return policy.parts.feature_columns or [f"feature_{i}" for i in range(_size(policy, "feature_dim"))]


def context_names(policy: LivePolicy) -> Sequence[str]:
    """Return the columns of contexts of a log."""
    return policy.parts.context_columns or [f"context_{i}" for i in range(_size(policy, "context_dim"))]


def _size(policy: LivePolicy, name: str) -> int:
    return int(getattr(policy, name, 0))


def _entry(features: Any, arm: int, i: int) -> float | None:
    if features is None:
        return None
    return float(features[i] if np.ndim(features) == 1 else features[arm, i])


def events_of_past(store: Store, name: str, policy: LivePolicy, *, timeout: float = 5.0) -> list[Event]:
    """Let a new policy learn from the log of a bandit, and return the events of this.

    A learner learns from a table of past rounds. Every other policy plays the arms of the log, and learns their
    rewards. Rounds without a reward, or with an arm that the policy does not have, are skipped.
    """
    old, rounds = past_rounds(store, name, timeout=timeout)
    for size in ("context_dim", "feature_dim"):
        if _size(policy, size) not in (0, _size(old, size)):
            raise InvalidInputError(
                f"warm_start: {size} of bandit {name!r} is {_size(old, size)}, and that of this policy "
                f"{_size(policy, size)}, so it cannot learn from that log; omit warm_start"
            )
    if getattr(policy, "context_first", False) != getattr(old, "context_first", False) and _size(policy, "context_dim"):
        raise InvalidInputError(f"warm_start: bandit {name!r} has its contexts in another order: context_first differs")
    time_steps = list(_time_steps(rounds, set(old.names) & set(policy.names), old.names))
    events: list[Event] = []
    policy.events(events.append)
    begin = getattr(policy, "warm_start", None)
    if begin is None:
        _play(policy, old.names, time_steps)
    else:
        begin(**_table(policy, old.names, time_steps))
    policy.events(None)
    return events


def _time_steps(rounds: list[PastRound], arms: Collection[str], names: Sequence[str]) -> Iterator[TimeStep]:
    """Yield the context of each time step, and its decisions with a reward and a known arm."""
    context, usable, begun = None, list[tuple[Decided, float]](), False
    for each in rounds:
        made = each.decided
        if begun and (made is None or not made.still):
            yield context, usable
            context, usable = None, []
        begun, context = True, context if each.context is None else each.context
        if made is not None and each.reward is not None and names[made.arm] in arms:
            usable.append((made, each.reward))
    if begun:
        yield context, usable


def _table(policy: LivePolicy, names: Sequence[str], time_steps: list[TimeStep]) -> dict[str, Any]:
    """Return the arguments of `warm_start`."""
    m, q = _size(policy, "context_dim"), _size(policy, "feature_dim")
    table: dict[str, Any] = {"arms": [], "rewards": [], "contexts": [], "elapsed": []}
    features = []
    for context, usable in time_steps:
        for number, (made, reward) in enumerate(usable or [(None, np.nan)]):
            table["arms"].append(None if made is None else names[made.arm])
            table["rewards"].append(reward)
            table["contexts"].append(np.full(m, np.nan) if context is None else context[:m])
            table["elapsed"].append(0 if number else 1)
            features.append([0.0 if made is None else _entry(made.features, made.arm, i) for i in range(q)])
    return table | ({"features": features} if q else {})


def _play(policy: LivePolicy, names: Sequence[str], time_steps: list[TimeStep]) -> None:
    """Let a policy play the arms of a log, and learn their rewards."""
    m, q = _size(policy, "context_dim"), _size(policy, "feature_dim")
    first = bool(m and getattr(policy, "context_first", False))
    for context, usable in time_steps:
        if not usable:
            policy.skip(1, None if context is None or not m else [context])
            continue
        for number, (made, reward) in enumerate(usable):
            time: dict[str, Any] = {"elapsed": 0} if number else {"context": context} if first else {}
            features = made.features if q else None
            policy.learn(policy.decide(features, available=[names[made.arm]], **time), reward)
        if m and not first:
            policy.observe(context)
