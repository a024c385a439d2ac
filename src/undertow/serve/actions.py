"""The action of each call: from path, query and body to a status and an answer. The functions block."""

import json
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET

from undertow import live
from undertow.errors import InvalidInputError, OutOfTurnError
from undertow.serve import answers, bodies
from undertow.serve.bandits import Bandits, require_printable
from undertow.serve.bodies import LONGEST_ID
from undertow.serve.history import figures_of, history_of
from undertow.serve.problems import ConflictError, NotFoundError
from undertow.store import DurablePolicy

__all__ = [
    "Answer",
    "Path",
    "add_arm",
    "create",
    "decide",
    "events",
    "history",
    "look_up",
    "observe",
    "overview",
    "pin",
    "retire_arm",
    "reward",
    "set_costs",
    "skip",
    "state",
    "unpin",
]

Path = Mapping[str, Any]
Answer = tuple[int, msgspec.Struct]


# Playing


def decide(bandits: Bandits, path: Path, body: bodies.Decide) -> Answer:
    """Decide a round. A repeated call with the same id returns the same decision."""
    policy = bandits[path["name"]]
    if body.id is not None and not body.id.isprintable():
        raise InvalidInputError(f"id: expected printable characters, got {body.id!r:.80}")
    given: dict[str, Any] = {name: getattr(body, name) for name in body.__struct_fields__}
    context = given.pop("context")
    if context is not UNSET:
        given["context"] = _row(context)
    with policy.transaction() as now:
        before = now.round
        decision = policy.decide(given.pop("features"), **given)
        names = now.names
    return 201 if decision.round >= before else 200, _decision(decision, names)


def _row(context: Any) -> Any:
    """Return a context, with NaN for null."""
    return [float("nan") if entry is None else entry for entry in context] if isinstance(context, list) else context


def _decision(decision: live.Decision, names: tuple[str, ...], **more: Any) -> answers.Decision:
    """Return a decision with names for arms."""

    def by_arm(values: Any) -> dict[str, float | None]:
        return dict(zip(names, values.tolist(), strict=False))  # arms added later are missing

    why = decision.why
    return answers.Decision(
        decision.id,
        decision.round,
        decision.name,
        decision.propensity,
        by_arm(decision.forecast),
        by_arm(decision.width),
        None if decision.value is None else by_arm(decision.value),
        decision.time_step,
        why
        and answers.Why(why.model, why.lead, why.since_fit, why.look, by_arm(why.state_error), by_arm(why.arm_error)),
        **more,
    )


def reward(bandits: Bandits, path: Path, body: bodies.Reward) -> Answer:
    """Learn the reward of a decision, once, however late."""
    policy, id = bandits[path["name"]], _id(path)
    with policy.transaction():
        if body.context is not UNSET:
            _observe(policy, policy.recorded(id)[0].round, body.context)
        policy.learn(id, body.reward, at=body.at)
        return 200, answers.Rewarded(id, body.reward, policy.pending)


def _id(path: Path) -> str:
    """Return the id in a path; refuse impossible ones without a look into the store."""
    id: str = path["id"]
    if not id.isprintable() or len(id) > LONGEST_ID:
        raise NotFoundError(f"decision: this bandit has no decision {id!r:.80}")
    return id


def observe(bandits: Bandits, path: Path, body: bodies.Context) -> Answer:
    """Observe the context of a round, once."""
    policy = bandits[path["name"]]
    with policy.transaction():
        _observe(policy, path["t"], body.context)
        return 200, answers.Observed(policy.round, policy.parts.contexts_seen)


def _observe(policy: DurablePolicy, t: int, context: Any) -> None:
    """Observe the context of a round, unless it was observed before."""
    seen = policy.parts.contexts_seen
    if t > seen:
        raise OutOfTurnError(f"round: the context of round {seen} is due before that of round {t}; send it, or null")
    if t == seen:
        policy.observe(_row(context))


def skip(bandits: Bandits, path: Path, body: bodies.Skip) -> Answer:
    """Advance by some rounds without a decision, once."""
    policy = bandits[path["name"]]
    contexts = None if body.contexts is None else [_row(row) for row in body.contexts]
    with policy.transaction():
        now = policy.round
        if now == body.round:
            policy.skip(body.rounds, contexts)
        elif not now >= body.round + body.rounds:
            raise OutOfTurnError(f"round: the bandit is in round {now}, not {body.round}; skip from there")
        return 200, answers.Observed(policy.round, policy.parts.contexts_seen)


# Looking


def look_up(bandits: Bandits, path: Path, body: None) -> Answer:
    """Return any decision, with its reward."""
    policy = bandits[path["name"]]
    with policy.transaction() as now:
        decision, reward = policy.recorded(_id(path))
        return 200, _decision(decision, now.names, reward=reward)


def state(bandits: Bandits, path: Path, body: None) -> Answer:
    """Return a bandit: arms, rounds, health, models and forecast."""
    name = path["name"]
    policy, spec = bandits[name], bandits.spec(name)
    with policy.transaction() as now:
        ((_, _, decided, rewarded),) = bandits.store.overview(name)
        health = _health(now.health())
        models = [answers.Model(*model[:4]) for model in getattr(now, "models", ())]
        try:
            outlook = now.forecast()
        except InvalidInputError:  # it depends on features
            outlook = None
        return 200, answers.Bandit(
            name,
            spec["policy"],
            spec["parameters"],
            _arms(now),
            now.round,
            now.parts.contexts_seen,
            now.pending,
            policy.newest,
            decided,
            rewarded,
            now.pinned,
            now.costs,
            figures_of(bandits.store, name, policy),
            health,
            models,
            outlook and dict(zip(now.names, outlook.forecast.tolist(), strict=True)),
            outlook and dict(zip(now.names, outlook.width.tolist(), strict=True)),
        )


def _health(health: live.Health) -> answers.Health:
    """Return a health summary; as in decisions, every number that JSON lacks is null."""
    told: dict[str, Any] = {name: getattr(health, name) for name in answers.Health.__struct_fields__}
    told["innovations"] = {name: values.tolist() for name, values in health.innovations.items()}
    told["fits"] = [record._asdict() for record in health.fits]
    return answers.Health(**told)


def _arms(policy: Any) -> list[answers.Arm]:
    retired = set(policy.retired)
    return [answers.Arm(name, name in retired) for name in policy.names]


def overview(bandits: Bandits, path: Path, body: None) -> Answer:
    """Return bandits in the order of their names."""
    most = path["most"]
    found = bandits.store.page(path["after"], most)
    rows = []
    for name, spec in found:
        for _, n, decided, rewarded in bandits.store.overview(name) if bandits.serves(name) else ():
            figures = figures_of(bandits.store, name, bandits[name]) if path["figures"] else None
            rows.append(answers.Overview(name, json.loads(spec)["policy"], n, decided, rewarded, figures))
    return 200, answers.BanditPage(rows, found[-1][0] if len(found) == most else None)


def events(bandits: Bandits, path: Path, body: None) -> Answer:
    """Return committed events in order."""
    name, after = path["name"], path["after"]
    rows = bandits.store.events(name, after, path["most"])
    if not rows:
        bandits.spec(name)
    found = [answers.EventRow(row.n, row.at, msgspec.Raw(row.body)) for row in rows]
    return 200, answers.EventPage(found, rows[-1].n if rows else after)


def history(bandits: Bandits, path: Path, body: None) -> Answer:
    """Return past decisions as columns: forecasts, rewards and mean rewards."""
    name = path["name"]
    policy = bandits[name]
    after = max(policy.newest - path["events"], 0)
    return 200, history_of(bandits.store, name, policy.names, after, path["points"])


# Changing


def create(bandits: Bandits, path: Path, body: bodies.Create) -> Answer:
    """Create a bandit; a repeated call changes nothing."""
    new = bandits.create(path["name"], body.policy, body.arms, body.parameters)
    return 201 if new else 200, answers.Created(path["name"], body.policy, list(bandits[path["name"]].names))


def add_arm(bandits: Bandits, path: Path, body: None) -> Answer:
    """Add an arm, or reactivate a retired one with all it has learned."""
    policy, arm = bandits[path["name"]], path["arm"]
    require_printable([arm])
    with policy.transaction() as now:
        new = arm not in now.names or arm in now.retired
        if new:
            if len(now.names) >= 1000:
                raise ConflictError("arm: a bandit has at most 1000 arms, retired ones included")
            policy.add_arm(arm)
        return 201 if new else 200, answers.Arms(_arms(policy))


def _require_arm(policy: Any, arm: str) -> None:
    if arm not in policy.names:
        raise NotFoundError(f"arm: there is no arm {arm!r:.100}; expected one of {', '.join(policy.names):.300}")


def retire_arm(bandits: Bandits, path: Path, body: None) -> Answer:
    """Stop playing an arm. Rewards of its earlier decisions are still learned."""
    policy, arm = bandits[path["name"]], path["arm"]
    with policy.transaction() as now:
        _require_arm(now, arm)
        if arm not in now.retired:
            try:
                policy.retire_arm(arm)
            except InvalidInputError as error:
                raise ConflictError(str(error)) from error
        return 200, answers.Arms(_arms(policy))


def pin(bandits: Bandits, path: Path, body: bodies.Pin) -> Answer:
    """Play this arm until further notice: the first switch in an emergency."""
    policy, arm = bandits[path["name"]], path["arm"]
    with policy.transaction() as now:
        _require_arm(now, arm)
        try:
            policy.pin(arm, learn=body.learn)
        except InvalidInputError as error:
            raise ConflictError(str(error)) from error
        return 200, answers.Pinned(policy.pinned)


def unpin(bandits: Bandits, path: Path, body: None) -> Answer:
    """Let the policy choose again."""
    policy, arm = bandits[path["name"]], path["arm"]
    with policy.transaction() as now:
        _require_arm(now, arm)
        if now.pinned not in (None, arm):
            raise ConflictError(f"arm: {now.pinned!r} is pinned, not {arm!r}; DELETE …/pin/{now.pinned} unpins it")
        policy.unpin()
        return 200, answers.Pinned(policy.pinned)


def set_costs(bandits: Bandits, path: Path, body: bodies.Costs) -> Answer:
    """Set the cost of playing some arms, from the next decision on."""
    policy = bandits[path["name"]]
    with policy.transaction():
        policy.set_costs(body.costs)
        return 200, answers.Costed(policy.costs)
