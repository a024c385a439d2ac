"""Rules for time: several decisions in one time step, and time steps without one."""

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from undertow.contracts.trial import Trial, is_fitted, require, rule
from undertow.live.events import Event, decode, encode
from undertow.policies import Decision, fold, from_bytes

_BEGIN = datetime(2026, 11, 16, tzinfo=UTC)


@rule("time passes, or does not", "ours", "live")
def _time(trial: Trial) -> None:
    """Play 30 rounds, every third after two skipped time steps, each with a second decision in the same time step.

    The twin skips the time steps. No reward comes before the second decision, so without a fit its forecast equals the
    first, to a hundredth of the rewards' standard deviation: policies that forget by rounds go on forgetting.
    """
    policy, twin, little = trial.make(1), trial.make(1), 0.01 * float(trial.path.rewards.std())
    time_steps = 0
    for t in range(30):
        elapsed = 1 if t % 3 else 3
        first, second = _decide(trial, policy, t, elapsed), _decide(trial, twin, t, elapsed, apart=True)
        time_steps += elapsed
        same = first.arm == second.arm and np.array_equal(first.forecast, second.forecast)
        require(same, f"round {t}: {first} with elapsed={elapsed}, {second} after skip({elapsed - 1})")
        require(
            first.time_step == time_steps - 1 == policy.parts.time_step - 1,
            f"round {t} is of time step {time_steps - 1}, not {first.time_step} of {policy.parts.time_step}",
        )
        again, other = policy.decide(elapsed=0), twin.decide(elapsed=0)
        require(
            (again.time_step, policy.parts.time_step) == (first.time_step, time_steps),
            f"round {again.round}: with elapsed=0, time step {first.time_step} became {again.time_step}",
        )
        stays = is_fitted(policy) or np.allclose(again.forecast, first.forecast, rtol=1e-2, atol=little)
        require(stays, f"round {again.round}: the forecast is {again.forecast} in the time step of {first.forecast}")
        for each, decisions in ((policy, (first, again)), (twin, (second, other))):
            for decision in decisions:
                each.learn(decision, trial.reward(t, decision))
            if trial.sees_contexts and not _context_first(each):
                each.observe(trial.path.contexts[t])


@rule("time does not run backwards", "ours", "live")
def _refused(trial: Trial) -> None:
    fresh = trial.make()
    trial.refuses(fresh, lambda: fresh.decide(elapsed=0), "elapsed=0 before the first decision")
    policy, _ = trial.begun()
    for odd in (-1, 0.5, math.nan, True, "1", None, 10**9):
        trial.refuses(policy, lambda odd=odd: policy.decide(elapsed=odd), f"elapsed={odd!r}")  # type: ignore[misc]
    if trial.sees_contexts:
        context = trial.path.contexts[21]
        trial.refuses(policy, lambda: policy.decide(context=context, elapsed=0), "a second context of a time step")
        policy.observe(context)
        trial.refuses(policy, lambda: policy.decide(elapsed=0), "elapsed=0 after the context of another time step")


@rule("a clock counts time steps, and gives defaults when they fall due", "ours", "live")
def _clock(trial: Trial) -> None:
    """Play 40 rounds at times, some in an hour, some hours apart; the twin gets time steps and defaults explicitly.

    A default falls due between two calls, 150 minutes after its decision, and is learned before the next one.
    """
    policy = trial.make(1, tick="1 h", default_reward=0.25, max_wait="150 min")
    twin, log, before = trial.make(1), list[Event](), policy.to_bytes()
    policy.events(log.append)
    first, waiting, last, minute = _context_first(policy) and trial.sees_contexts, list[tuple[int, Decision]](), -1, 0
    for t in range(40):
        minute += (24, 24, 198 if t % 4 else 18)[t % 3]
        at, step = _BEGIN + timedelta(minutes=minute), minute // 60
        while waiting and waiting[0][0] + 150 <= minute:
            twin.learn(waiting.pop(0)[1], 0.25)
        passed, last = step - last if last >= 0 else 1, step
        how: dict[str, Any] = {"context": trial.path.contexts[t]} if first else {}
        if passed and t and trial.sees_contexts and not first:
            twin.observe(None)  # which never came
        one, two = policy.decide(at=at, **how), twin.decide(elapsed=passed, **(how if passed else {}))
        same = one.arm == two.arm and one.time_step == two.time_step and np.array_equal(one.forecast, two.forecast)
        require(same, f"round {t}: {one} by the clock, {two} by hand")
        if t % 3:
            policy.learn(one, trial.reward(t, one), at=at)
            twin.learn(two, trial.reward(t, two))
        else:
            waiting.append((minute, two))
        if t == 20:
            policy = from_bytes(policy.to_bytes())
            policy.events(log.append)
    require(policy.pending == len(waiting), f"{policy.pending} decisions are pending, expected {len(waiting)}")
    same = fold(before, [decode(encode(event)) for event in log]).to_bytes() == policy.to_bytes()
    require(same, "replaying the events gives another policy if they have times")


def _context_first(policy: Any) -> bool:
    return bool(getattr(policy, "context_first", False))


def _decide(trial: Trial, policy: Any, t: int, elapsed: int, *, apart: bool = False) -> Decision:
    """Decide after some time steps, which pass in a separate call or with the decision."""
    how: dict[str, Any] = {"elapsed": elapsed}
    if apart and elapsed > 1:
        policy.skip(elapsed - 1)
        how = {}
    if trial.sees_contexts and _context_first(policy):
        how["context"] = trial.path.contexts[t]
    decision: Decision = policy.decide(**how)
    return decision
