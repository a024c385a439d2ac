"""Parameters, state and steps of registered policies, tested before compiled code runs: wrong indices are fatal."""

import dataclasses
import traceback
from collections.abc import Iterator
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np

from undertow import compiled
from undertow.compiled.kernel import plain
from undertow.compiled.loop import Loop
from undertow.contracts.trial import BrokenContractError, Trial, is_fitted, require, rule
from undertow.errors import UndertowError
from undertow.live import Decision, LivePolicy
from undertow.simulation import simulate

_MACHINERY = str(Path(compiled.__file__).parent)


@rule("parameters survive construction", "ours")
def _parameters(trial: Trial) -> None:
    policy = trial.make(2)
    known = {field.name for field in dataclasses.fields(policy)}
    require(known == policy.parts.parameters().keys(), "parameters are not the constructor's arguments")
    again = type(policy)(**policy.parts.parameters())
    kept = [(name, value, again.parts.parameters()[name]) for name, value in policy.parts.parameters().items()]
    kept += [(name, value, other.parts.parameters()[name]) for name, value, other in _varied(policy)]
    for name, given, has in kept:
        same = bool(np.all(has == given))
        require(same, f"{name}={given!r} became {has!r}; keep it, and compute derived numbers in `_begin`")


@rule("numbers named after a parameter hold it", "ours")
def _named_numbers(trial: Trial) -> None:
    for name, value, policy in _varied(trial.make(2)):
        own, layout = policy.parts.player.own, policy.loop.layout
        for leaf in layout.leaves:
            if leaf.record and name in leaf.record.names:
                has = getattr(reduce(getattr, leaf.path.split("."), own), name)
                remedy = "set it in `_begin`, or rename the number"
                require(has == value, f"{leaf.path}.{name} is {has:g} where {name}={value:g}; {remedy}")


@rule("steps stay within their state", "ours")
def _within_state(trial: Trial) -> None:
    """Play 30 rounds through the steps as Python code, in which NumPy checks every index; compiled code does not."""
    features: dict[str, Any] = {"feature_dim": 1} if trial.capabilities.takes_arm_features else {}
    policy = trial.make(**features)
    play, skip, layout = policy.loop
    interpreted = {"loop": Loop(plain(play), plain(skip), layout)}
    twin = type(type(policy).__name__, (type(policy),), interpreted)(**policy.parts.parameters())
    with np.errstate(all="ignore"):
        try:
            decisions = _play_rounds(trial, twin)
        except Exception as error:
            more = ", with one more arm," if twin.arm_count > trial.arms else ""
            raise BrokenContractError(_report(error, more)) from error
    again = [] if is_fitted(policy) else _play_rounds(trial, policy)
    for t, (slow, fast) in enumerate(zip(decisions, again, strict=False)):
        if slow.arm != fast.arm:
            break  # rounding may decide between equal arms
        same = np.allclose(slow.forecast, fast.forecast, rtol=1e-6, atol=1e-9)
        require(same, f"round {t}: forecast {fast.forecast} compiled, {slow.forecast} as Python code")


def _play_rounds(trial: Trial, policy: LivePolicy) -> list[Decision]:
    """Play with late rewards, rounds without a decision, two in a time step, perhaps features and a new arm."""
    if trial.capabilities.simulates_only:
        simulate(policy, trial.start(30))
        return []
    decisions, waiting = list[Decision](), list[tuple[Decision, float]]()
    for t in range(30):
        if t == 10:
            policy.skip(2)
        if t == 20 and not trial.capabilities.needs_system:
            policy.add_arm("one more arm")
        rows = np.arange(policy.arm_count)[:, None] - t % 5 if trial.capabilities.takes_arm_features else None
        decisions.append(trial.step(policy, t, learn=False, twice=t % 5 == 0, features=rows))
        waiting.append((decisions[-1], trial.reward(t, decisions[-1])))
        if t % 3:
            policy.learn(*waiting.pop(0))
    return decisions


def _report(error: Exception, more: str) -> str:
    """Name the step and the line of an error."""
    frames = [(frame.f_code, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    ours = [code.co_filename.startswith(_MACHINERY) for code, _ in frames]
    loops = [at for at, (code, _) in enumerate(frames) if ours[at] and code.co_name in ("_play", "_skip")]
    steps = [frames[at] for at in range(max(loops, default=len(frames)), len(frames)) if not ours[at]]
    what = f"{type(error).__name__}: {error}"
    if not steps:
        return f"{what}{more} around a step; does `decide` return an open arm?"
    step, (place, line) = steps[0][0].co_name, steps[-1]
    remedy = "it would read or write beyond a part of the state; check the axes of its arrays"
    if isinstance(error, ArithmeticError) or str(error).startswith("math "):
        remedy = "it would continue with NaN or infinity; test for it first"
    return f"{step}{more} ({place.co_filename}:{line}): {what}. Compiled, {remedy}"


def _varied(policy: Any) -> Iterator[tuple[str, float, Any]]:
    """Yield the name of every numeric parameter, another value for it, and a policy with that value."""
    for name, value in policy.parts.parameters().items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            for other in (value + 1 if isinstance(value, int) else 0.9 * value, value):
                try:
                    varied = type(policy)(**(policy.parts.parameters() | {name: other}))
                except (UndertowError, ValueError):
                    continue  # no value for it
                yield name, other, varied
