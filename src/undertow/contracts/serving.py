"""Rules for serving: ids, features, default rewards, JSON."""

import contextlib
import copy
from functools import partial
from typing import Any

import numpy as np

from undertow.contracts.trial import BrokenContractError, Trial, content_of, require, rule
from undertow.errors import InvalidInputError, UnknownDecisionError
from undertow.live.events import Event, decode, encode
from undertow.policies import Decision, Health, Outlook, fold, from_bytes
from undertow.simulation import simulate
from undertow.trajectory import Trajectory


@rule("an id names one decision", "ours", "live")
def _ids(trial: Trial) -> None:
    policy = trial.make(1)
    waiting = [trial.step(policy, t, learn=False) for t in range(10)]
    lives = [policy, copy.deepcopy(policy), from_bytes(policy.to_bytes())]
    made = [[trial.step(life, t, learn=False) for t in (10, 11)] for life in lives]
    ids = {decision.id for decisions in (waiting, *made) for decision in decisions}
    require(len(ids) == 16, f"16 decisions of a policy and two copies of it have {len(ids)} ids")
    for number, life in enumerate(lives):
        for decision in made[number - 1]:
            _unknown(trial, life, decision, "a reward of a copy's decision")
        life.learn(waiting[3].id, 1.0)  # as after a restart
        trial.refuses(life, lambda life=life: life.learn(waiting[3], 2.0), "another reward for the same decision")  # type: ignore[misc]


@rule("an id can be given", "ours", "live")
def _given_ids(trial: Trial) -> None:
    policy, made = trial.make(1), list[Decision]()
    for t in range(4):
        id = f"event {t} of many"
        made.append(trial.step(policy, t, learn=t % 2 == 0, id=id))
        require(made[t].id == id, f"the id {id!r} was given, and the decision has {made[t].id!r}")
    for each in (policy, from_bytes(policy.to_bytes())):
        for decision in made:
            _repeats(trial, each, decision)
    policy = from_bytes(policy.to_bytes())
    if trial.sees_contexts and getattr(policy, "context_first", False):
        policy.observe(trial.path.contexts[4])
    for odd in ("", "x" * 65, "two\nlines", 7):
        trial.refuses(policy, lambda odd=odd: policy.decide(id=odd), f"the id {odd!r}")  # type: ignore[misc]
    policy.learn("event 1 of many", 1.0)


def _repeats(trial: Trial, policy: Any, decision: Decision) -> None:
    """Require that a repeated call returns the same decision, and that another call with its id is refused."""
    again: list[Decision] = []
    trial.changes_nothing(policy, lambda: again.append(policy.decide(id=decision.id)), "a call of decide made twice")
    require(again[0].to_json() == decision.to_json(), f"{again[0]} when the call was made again, {decision} before")
    other = "another call with the id of a decision"
    trial.refuses(policy, lambda: policy.decide(id=decision.id, available=[0]), other)


@rule("the same events, the same policy", "ours", "live")
def _fold(trial: Trial) -> None:
    """Play 90 rounds with all kinds of events, and replay them with a policy from a save file."""
    policy, log = trial.make(1), list[Event]()
    for t in range(10):
        trial.step(policy, t)
    before = policy.to_bytes()
    policy.events(log.append)
    play_everything(trial, policy, 10, 90)
    again = fold(before, [decode(encode(event)) for event in log])
    for name, value in content_of(again).items():
        require(value == content_of(policy)[name], f"{name} differs after the same events")


def play_everything(trial: Trial, policy: Any, begin: int, end: int) -> None:
    """Play rounds with rewards late, missing and repeated, gaps, skipped rounds, and changing arms."""
    waiting, first = list[Decision](), bool(getattr(policy, "context_first", False)) and trial.sees_contexts
    for t in range(begin, end):
        how: dict[str, Any] = {"id": f"event {t}"} if t % 2 else {}
        if t % 7 == 3:
            how["available"] = [name for name in policy.names if name not in policy.retired][:2]
        if t % 11 == 5:
            policy.skip(2)
        if trial.arms > 1 and t % 40 in (20, 30):
            (policy.retire_arm if t % 40 == 20 else policy.add_arm)(policy.names[0])
        if t == 50 and not trial.capabilities.needs_system:
            policy.add_arm("one more arm")
        if t % 40 in (2, 33):
            policy.set_costs({policy.names[0]: 0.1 * t, policy.names[-1]: -0.05 * t})
        if t % 40 == 13:
            policy.pin(policy.names[-1], learn=t > 40)
        if t % 40 == 18:
            policy.unpin()
        if first:
            policy.observe(trial.path.contexts[t] if t % 5 else None)
        waiting.append(policy.decide(**how))
        if t % 9 == 4:
            waiting.append(policy.decide(elapsed=0))
        if trial.sees_contexts and not first:
            policy.observe(trial.path.contexts[t] if t % 5 else None)
        for _ in range(len(waiting) - t % 6):
            decision = waiting.pop(t % len(waiting))
            if t % 8:
                with contextlib.suppress(UnknownDecisionError):  # forgotten, or replaced by the default
                    policy.learn(decision, trial.reward(t, decision))
                    policy.learn(decision.id, trial.reward(t, decision))


@rule("a known cost counts immediately, and teaches nothing", "ours", "live")
def _known_costs(trial: Trial) -> None:
    """Play 80 rounds, all arms in turn, with and without costs; then the last arm costs more than any reward."""
    policy, twin, dear = trial.make(1, cost={trial.make().names[-1]: 0.5}), trial.make(1), trial.arms - 1
    spread = float(np.ptp(trial.path.rewards))
    for t in range(80):
        if t == 40:
            policy.set_costs({policy.names[0]: -3.0 * spread})
        for each in (policy, twin):
            trial.step(each, t, available=[t % trial.arms])
    mine, theirs = policy.forecast().forecast, twin.forecast().forecast
    require(np.array_equal(mine, theirs), f"the forecast is {mine} with costs, {theirs} without")
    policy.set_costs(dict.fromkeys(policy.names, 0.0) | {policy.names[dear]: 1000.0 * spread})
    policy = from_bytes(policy.to_bytes())
    require(policy.costs[policy.names[dear]] == 1000.0 * spread, f"after loading, costs are {policy.costs}")
    chooses = trial.capabilities.uses_own_rewards or trial.capabilities.deterministic
    played = [trial.step(policy, t).arm for t in range(80, 120)]
    require(
        played.count(dear) < 0.45 * len(played) or not chooses or trial.arms == 1,
        f"an arm that costs more than it can earn was played {played.count(dear)} times in {len(played)} rounds; the "
        f"step `decide` must choose by `best_arm`, or subtract `known_cost`",
    )
    for odd in ({"no such arm": 1.0}, {policy.names[0]: np.inf}, [1.0], {policy.names[0]: None}):
        trial.refuses(policy, lambda odd=odd: policy.set_costs(odd), f"the costs {odd!r}")  # type: ignore[misc]


@rule("a pinned arm is every decision", "ours", "live")
def _pinned(trial: Trial) -> None:
    """Pin an arm for 10 rounds without learning their rewards; the twin gets none of them."""
    policy, twin, t = trial.make(1), trial.make(1), 40
    for each in (policy, twin):
        for t in range(40):
            trial.step(each, t)
        each.pin(each.names[-1], learn=False)
    for t in range(40, 50):
        if t == 45:
            policy = from_bytes(policy.to_bytes())
        one, two = trial.step(policy, t), trial.step(twin, t, learn=False)
        require(one.name == policy.pinned and one.propensity == 1, f"{one.name} was played, and {policy.pinned} pinned")
        _require_same(one, two, f"round {t}: rewards of pinned decisions were learned")
    require(policy.pending == 0, f"{policy.pending} rewards of pinned decisions were not accepted")
    if trial.arms > 1:
        trial.refuses(policy, lambda: policy.retire_arm(policy.pinned), "retiring an arm that is pinned")
        other = trial.step(policy, 50, available=[0])
        require(other.arm == 0, "an arm that was not available was played, since it is pinned")
    policy.unpin()
    require(policy.pinned is None, f"{policy.pinned} is pinned after unpin")
    trial.refuses(policy, lambda: policy.pin("no such arm"), "pinning no arm")


@rule("context and decision in one call", "ours", "live", "context can come first")
def _one_call(trial: Trial) -> None:
    one, two = (trial.make(1, context_first=True) for _ in range(2))
    for t in range(30):
        context = None if t == 7 else trial.path.contexts[t]
        first = one.decide(context=context)
        two.observe(context)
        second = two.decide()
        _require_same(first, second, f"round {t}: {first} with decide(context=…), {second} after observe(context)")
        for policy, decision in ((one, first), (two, second)):
            policy.learn(decision, trial.reward(t, decision))
    for context in (np.full(trial.system.context_dim, np.inf), np.zeros(trial.system.context_dim + 1), "warm"):
        trial.refuses(one, lambda context=context: one.decide(context=context), f"the context {context!r}")  # type: ignore[misc]
    one.observe(None)
    trial.refuses(one, lambda: one.decide(context=None), "a second context")
    late = trial.make(1, context_first=False)
    trial.refuses(late, lambda: late.decide(context=trial.path.contexts[0]), "a context that comes after the decision")


@rule("features of all arms, or of each", "ours", "live", "takes_features")
def _features(trial: Trial) -> None:
    """Play 90 rounds, every arm in turn, with two features, (2,) or (k, 2), of which the first adds to the reward."""
    k, policy, spread = trial.arms, trial.make(1, feature_dim=2), float(trial.path.rewards.std())
    rows = np.random.default_rng(0).standard_normal((90, k, 2))
    if not trial.capabilities.takes_arm_features:
        trial.refuses(policy, lambda: policy.forecast(rows[0]), "a row of features for each arm")
        return
    for t in range(90):
        features = rows[t] if t % 4 else rows[t, 0]
        decision = trial.step(policy, t, learn=False, features=features, available=[t % k])
        own = features[decision.arm] if t % 4 else features
        policy.learn(decision, trial.reward(t, decision) + 5 * spread * own[0])
    shared, each = (policy.forecast(features).forecast for features in (rows[0, 0], np.tile(rows[0, 0], (k, 1))))
    same = np.allclose(each, shared, rtol=1e-9, atol=1e-9)
    require(same, f"the forecast is {shared} with a row for all arms, {each} with the same row for each")
    for arm in range(k):
        low, high = rows[0].copy(), rows[0].copy()
        low[arm, 0], high[arm, 0] = -1.0, 1.0
        gain = policy.forecast(high).forecast - policy.forecast(low).forecast
        others = bool((np.delete(gain, arm) == 0).all())
        require(others, f"with other features of arm {arm} alone, the forecasts change by {gain}")
        adds = 10 * spread
        learned = bool(0.5 < gain[arm] / adds < 1.5)
        require(learned, f"a feature of arm {arm} adds {adds:.3g} to its reward, and {gain[arm]:.3g} to its forecast")
    path = Trajectory(trial.path.contexts[:40], trial.path.rewards[:40], features=rows[:40])
    run, again = simulate(trial.make(2, feature_dim=2), path), trial.make(2, feature_dim=2)
    for t, arm in enumerate(run.arms):
        decision = trial.step(again, t, features=rows[t])
        require(decision.arm == arm, f"round {t} with a row for each arm: {decision.arm} by hand, {arm} simulated")
    if trial.sees_contexts and getattr(policy, "context_first", False):
        policy.observe(trial.path.contexts[40])
    for odd in (np.zeros((k + 1, 2)), np.zeros((k, 3)), np.zeros(3), np.full((k, 2), np.nan), "near"):
        trial.refuses(policy, lambda odd=odd: policy.decide(odd), f"the features {odd!r}")  # type: ignore[misc]


@rule("a subject gets its decision again", "ours", "live")
def _subjects(trial: Trial) -> None:
    policy, log = trial.make(1), list[Event]()
    before = policy.to_bytes()
    policy.events(log.append)
    made = [trial.step(policy, t, learn=t % 2 > 0, subject=f"visitor {t % 4}", sticky=8) for t in range(4)]
    first = trial.sees_contexts and getattr(policy, "context_first", False)
    for each in (policy, from_bytes(policy.to_bytes()), fold(before, [decode(encode(event)) for event in log])):
        for t, decision in enumerate(made):
            again = list[Decision]()
            ask = partial(each.decide, subject=f"visitor {t}")
            trial.changes_nothing(each, lambda ask=ask, again=again: again.append(ask()), "a subject")  # type: ignore[misc]
            same = (again[0].id, again[0].arm, again[0].propensity) == (decision.id, decision.arm, decision.propensity)
            require(again[0].again and same, f"{again[0]} for the same subject, {decision} before")
    for t in range(4, 14):
        trial.step(policy, t)
    if first:
        policy.observe(trial.path.contexts[14])
    late = policy.decide(subject="visitor 0", sticky=8)
    require(not late.again and late.id != made[0].id, f"{late} after 8 rounds is the decision of round 0 again")
    for odd in (7, "", "x" * 1001):
        trial.refuses(policy, lambda odd=odd: policy.decide(subject=odd), f"the subject {odd!r}")  # type: ignore[misc]


@rule("several arms of a round differ", "ours", "live")
def _several(trial: Trial) -> None:
    """Play 30 rounds of all arms in an order; the twin decides each of them separately."""
    policy, twin, k = trial.make(1), trial.make(1), trial.arms
    first = trial.sees_contexts and getattr(policy, "context_first", False)
    for t in range(30):
        how: dict[str, Any] = {"context": trial.path.contexts[t]} if first else {}
        made = policy.decide_several(k, id=f"page {t}", **how)
        again = policy.decide_several(k, id=f"page {t}", **how)
        require([one.id for one in made] == [one.id for one in again], "a repeated call has other ids")
        require(sorted(one.arm for one in made) == list(range(k)), f"{made} are not all arms, each once")
        require(len({one.time_step for one in made}) == 1, f"{made} are of several time steps")
        names = list(policy.names)
        for place, one in enumerate(made):
            other = twin.decide(available=names, **(how if not place else {"elapsed": 0}))
            _require_same(one, other, f"round {t}, place {place}: {one} in a list, {other} by hand")
            names.remove(other.name)
        for each, last in ((policy, one), (twin, other)):
            each.learn(last, trial.reward(t, last))
            if trial.sees_contexts and not first:
                each.observe(trial.path.contexts[t])
    if first:
        policy.observe(None)
    trial.refuses(policy, lambda: policy.decide_several(k + 1), "a list of more arms than there are")


@rule("a named row is its array", "ours", "live")
def _named(trial: Trial) -> None:
    """Play 40 rounds with names and with arrays of the same numbers; policies without features ignore the names."""
    kinds = {"weight": "number", "country": ["DE", "FR"], "tag": "hash:3"}
    takes, sees = trial.capabilities.takes_features, trial.sees_contexts
    names = [f"entry {i}" for i in range(trial.system.context_dim)] or ["unseen"]
    one = trial.make(1, feature_names=kinds, context_names=names)
    two = trial.make(1, feature_dim=7) if takes else trial.make(1)
    first, log = bool(getattr(one, "context_first", False)), list[Event]()
    before = one.to_bytes()
    one.events(log.append)
    for t in range(40):
        if t == 20:
            content = one.to_bytes()
            same = fold(before, [decode(encode(event)) for event in log]).to_bytes() == content
            require(same, "replaying the events gives another policy if features have names")
            one = from_bytes(content)
        row = {"weight": t % 7 - 3.0, "country": ("DE", "FR", "UK")[t % 3], "tag": f"word {t % 5}"}
        if one.parts.columns.features is not None and takes:
            array = one.parts.columns.features.encode(row)
        context = trial.path.contexts[t] if sees else np.zeros(len(names))
        seen = dict(zip(names, context.tolist(), strict=False)) if sees else {"unseen": 1.0}
        made = []
        for each, features, θ in ((one, row, seen), (two, array if takes else None, context)):
            if sees and first:
                each.observe(θ)
            made.append(each.decide(features))
            each.learn(made[-1], trial.reward(t, made[-1]))
            if sees and not first:
                each.observe(θ)
        _require_same(made[0], made[1], f"round {t}: {made[0]} with names, {made[1]} with the array")
    if sees and first:
        one.observe(seen)
    for odd in ({"weight": 1.0}, {**row, "hour": 3}, {**row, "weight": "heavy"}, {**row, "weight": None}):
        trial.refuses(one, lambda odd=odd: one.decide(odd), f"the features {odd!r}")  # type: ignore[misc]


@rule("a reward that never comes gets the default", "ours", "live")
def _defaults(trial: Trial) -> None:
    """Learn two rewards of three; the twin learns the default explicitly, right before the decision."""
    policy, twin = trial.make(1, default_reward=0.25, max_wait=3), trial.make(1)
    first = trial.sees_contexts and getattr(policy, "context_first", False)
    waiting, overdue = list[tuple[Decision, Decision]](), None
    for t in range(24):
        for each in (policy, twin) if first else ():
            each.observe(trial.path.contexts[t])
        while waiting and t - 1 - waiting[0][0].round >= 3:
            _, runs_in_python = waiting.pop(0)
            twin.learn(runs_in_python, 0.25)
        made = policy.decide(), twin.decide()
        _require_same(*made, f"round {t}: {made[0]} with a default reward, {made[1]} after learning it explicitly")
        for each, decision in zip((policy, twin), made, strict=True):
            if t % 3:
                each.learn(decision, trial.reward(t, decision))
            if trial.sees_contexts and not first:
                each.observe(trial.path.contexts[t])
        waiting += [] if t % 3 else [made]
        overdue = overdue or made[0]
    require(policy.pending == len(waiting), f"{policy.pending} decisions are pending, expected {len(waiting)}")
    assert overdue is not None
    _unknown(trial, policy, overdue, "a reward that came after its default")


@rule("what is written as JSON comes back", "ours", "live")
def _json(trial: Trial) -> None:
    policy, decision = trial.begun()
    health = policy.health()
    require(health.round == policy.round and health.pending == policy.pending, f"{health} of {policy!r}")
    require(isinstance(health.ok, bool) and "\n" not in str(health), "health: ok is a flag, and its text one line")
    kinds: tuple[tuple[Any, Any], ...] = ((Decision, decision), (Outlook, policy.forecast()), (Health, health))
    for kind, said in kinds:
        text = said.to_json()
        require(kind.from_json(text).to_json() == text, f"{kind.__name__}: {text} changes in the round trip")
        try:
            kind.from_json(text[:-1] + ', "more": 1}')
        except ValueError:
            continue
        raise BrokenContractError(f"{kind.__name__}: JSON with an additional key was accepted")


@rule("names of arms start warm", "ours", "live", "starts warm")
def _warm(trial: Trial) -> None:
    one, two = trial.make(1), trial.make(1)
    arms = np.arange(12) % (trial.arms + 1) - 1
    past = {"contexts": trial.path.contexts[:12]} if trial.sees_contexts else {}
    one.warm_start(arms, trial.path.rewards[:12, 0], **past)
    two.warm_start([None if arm < 0 else two.names[arm] for arm in arms], trial.path.rewards[:12, 0], **past)
    same = one.to_bytes() == two.to_bytes()
    require(same, "a warm start with the names of the arms is not the one with their indices")
    fresh = trial.make(1)
    trial.refuses(fresh, lambda: fresh.warm_start(["no such arm"], [1.0]), "a warm start with an unknown arm")


def _require_same(one: Decision, two: Decision, message: str) -> None:
    same = one.arm == two.arm and one.propensity == two.propensity
    require(same and np.array_equal(one.forecast, two.forecast) and np.array_equal(one.width, two.width), message)


def _unknown(trial: Trial, policy: Any, decision: Decision, what: str) -> None:
    """Require that a reward of an unknown decision is refused, for a decision and for an id."""
    for given in (decision, decision.id):

        def call(given: Decision | str = given) -> None:
            try:
                policy.learn(given, 1.0)
            except InvalidInputError as error:
                raise BrokenContractError(f"{what} is an UnknownDecisionError, and this was {error!r}") from error

        trial.refuses(policy, call, what)
