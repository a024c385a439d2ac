"""What a policy promises to those who serve with it: ids, features, default rewards, what is written down."""

import copy
from typing import Any

import numpy as np

from undertow.contracts.trial import BrokenContractError, Trial, require, rule
from undertow.errors import InvalidInputError
from undertow.policies import Decision, Health, Outlook, from_bytes
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
            _unknown(trial, life, decision, "a reward of what a copy decided")
        life.learn(waiting[3].id, 1.0)  # as after a restart
        _unknown(trial, life, waiting[3], "a reward given twice")


@rule("an id can be given", "ours", "live")
def _given_ids(trial: Trial) -> None:
    policy = trial.make(1)
    for t in range(4):
        id = f"event {t} of many"
        decision = trial.step(policy, t, learn=t % 2 == 0, id=id)
        require(decision.id == id, f"the id {id!r} was given, and the decision has {decision.id!r}")
    policy = from_bytes(policy.to_bytes())
    if trial.sees_contexts and getattr(policy, "context_first", False):
        policy.observe(trial.path.contexts[4])
    for odd in ("event 0 of many", "event 1 of many", "", "x" * 65, "two\nlines", 7):
        trial.refuses(policy, lambda odd=odd: policy.decide(id=odd), f"the id {odd!r}")  # type: ignore[misc]
    policy.learn("event 1 of many", 1.0)


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
    if not trial.claims.takes_arm_features:
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


@rule("a reward that never comes gets the default", "ours", "live")
def _defaults(trial: Trial) -> None:
    """Learn two rewards of three; the twin is told the default by hand, right before the decision."""
    policy, twin = trial.make(1, default_reward=0.25, max_wait=3), trial.make(1)
    first = trial.sees_contexts and getattr(policy, "context_first", False)
    waiting, overdue = list[tuple[Decision, Decision]](), None
    for t in range(24):
        for each in (policy, twin) if first else ():
            each.observe(trial.path.contexts[t])
        while waiting and t - 1 - waiting[0][0].round >= 3:
            _, by_hand = waiting.pop(0)
            twin.learn(by_hand, 0.25)
        made = policy.decide(), twin.decide()
        _require_same(*made, f"round {t}: {made[0]} with a default reward, {made[1]} where it was learned by hand")
        for each, decision in zip((policy, twin), made, strict=True):
            if t % 3:
                each.learn(decision, trial.reward(t, decision))
            if trial.sees_contexts and not first:
                each.observe(trial.path.contexts[t])
        waiting += [] if t % 3 else [made]
        overdue = overdue or made[0]
    require(policy.pending == len(waiting), f"{policy.pending} decisions wait, expected {len(waiting)}")
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
        require(kind.from_json(text).to_json() == text, f"{kind.__name__}: {text} comes back as something else")
        try:
            kind.from_json(text[:-1] + ', "more": 1}')
        except ValueError:
            continue
        raise BrokenContractError(f"{kind.__name__}: JSON with a key more was read")


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
    """Require that a reward is refused since its decision is not known, as a decision and as an id."""
    for given in (decision, decision.id):

        def call(given: Decision | str = given) -> None:
            try:
                policy.learn(given, 1.0)
            except InvalidInputError as error:
                raise BrokenContractError(f"{what} is an UnknownDecisionError, and this was {error!r}") from error

        trial.refuses(policy, call, what)
