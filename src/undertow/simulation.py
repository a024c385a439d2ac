"""Policies on stored trajectories: the same decisions as by hand, as fast as they compile."""

import copy
import math
import os
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from undertow import _checks
from undertow._checks import FloatArray
from undertow.errors import InvalidInputError
from undertow.policies.base import LivePolicy
from undertow.policies.decision import Policy
from undertow.policies.play import DECIDE, LEARN, OBSERVE
from undertow.policies.units import Units
from undertow.trajectory import Trajectory

__all__ = ["Run", "simulate"]

_BLOCK = 1024  # rounds played between two returns from compiled code; no result depends on it
_TABLES = ("forecasts", "widths", "windows")


@dataclass(frozen=True, eq=False)
class Run:
    """What a policy did on a trajectory; arrays have a leading axis of runs where the trajectory has one.

    Attributes
    ----------
    arms
        The chosen arms, (n,).
    rewards
        The rewards they paid, (n,).
    regret
        Cumulative regret, (n,); None where the trajectory has no means.
    forecasts, widths, windows
        Of every arm in every round, (n, k), where they were recorded.
    errors
        Reward minus forecast of the chosen arm, (n,), where recorded.
    """

    arms: npt.NDArray[np.int64]
    rewards: FloatArray
    regret: FloatArray | None
    forecasts: FloatArray | None = None
    widths: FloatArray | None = None
    windows: FloatArray | None = None
    errors: FloatArray | None = None


def simulate(
    policy: Policy,
    trajectory: Trajectory,
    *,
    record: Collection[str] = (),
    context_first: bool | None = None,
    runs: Sequence[int] | None = None,
    threads: int | None = None,
) -> Run:
    """Run an unused policy on a trajectory, in every run of it; the policy itself stays as it is.

    Parameters
    ----------
    policy
        Any policy. Ours run compiled; one that was written in plain Python runs through its methods, on a deep copy.
        Run i has its own stream of the policy's seed, and run 0 does what the policy would do by hand.
    trajectory
        Contexts, rewards and, for policies that take them, features.
    record
        What to keep beside arms, rewards and regret: any of "forecasts", "widths", "windows", "errors".
    context_first
        Whether a round's context comes before the decision; by default as the policy was built.
    runs
        The numbers of the trajectory's runs, by default 0, 1, …: `runs=range(10, 20)` for what
        `sample(…, runs=range(10, 20))` gave.
    threads
        How many threads share the runs, by default all cores; the results do not depend on it.

    Examples
    --------
    >>> import undertow
    >>> paths = undertow.paper_system(psi=1).sample(1000, rng=0, runs=4)
    >>> run = simulate(undertow.make("ares", arms=2, context_dim=1), paths, record=["windows"])
    >>> run.regret.shape, run.windows.shape
    ((4, 1000), (4, 1000, 2))
    """
    wanted = {_checks.choice("record", name, (*_TABLES, "errors")) for name in _checks.entries("record", record)}
    threads = _checks.integer("threads", os.cpu_count() if threads is None else threads, least=1)
    _check_fit(policy, trajectory)
    count = trajectory.runs or 1
    given = range(count) if runs is None else _checks.entries("runs", runs)
    numbers = [_checks.integer("runs", number, least=0) for number in given]
    if len(numbers) != count:
        raise InvalidInputError(
            f"runs: expected {count} numbers, one for each run of the trajectory, got {len(numbers)}"
        )
    n, k = trajectory.rounds, trajectory.arm_count
    arms = np.empty((count, n), dtype=np.int64)
    records = np.empty((count, n if wanted else 0, len(_TABLES), k))
    ours = isinstance(policy, LivePolicy) and not policy.by_hand

    def play(row: int) -> None:
        path = trajectory if trajectory.runs is None else trajectory.run(row)
        if ours:
            assert isinstance(policy, LivePolicy)
            player = policy.for_run(numbers[row], context_first=context_first)
            _play_compiled(player, path, arms[row], records[row])
        else:
            _play_by_hand(policy, numbers[row], path, context_first, arms[row], records[row])

    if ours and threads > 1 and count > 1:
        play(0)  # compiles, if that has to be done, once
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(play, range(1, count)))
    else:
        for row in range(count):
            play(row)
    if trajectory.runs is None:
        arms, records = arms[0], records[0]
    rewards = np.take_along_axis(trajectory.rewards, arms[..., None], axis=-1)[..., 0]
    recorded = {name: records[..., place, :] for place, name in enumerate(_TABLES) if name in wanted}
    if "errors" in wanted:
        chosen = np.take_along_axis(records[..., 0, :], arms[..., None], axis=-1)
        recorded["errors"] = rewards - chosen[..., 0]
    minimise = bool(getattr(policy, "minimise", False))
    regret = None if trajectory.means is None else trajectory.regret(arms, minimise=minimise)
    return Run(arms, rewards, regret, **recorded)


def _play_compiled(
    policy: LivePolicy,
    path: Trajectory,
    arms: npt.NDArray[np.int64],
    records: FloatArray,
) -> None:
    m, q = policy._context_dim, policy._feature_dim
    columns = (path.contexts[:, :m], path.features[:, :q], path.rewards)
    shift = OBSERVE if policy._context_first else DECIDE
    first = (LEARN - shift) % 3  # the step in which the first reward is learned
    kept = int(len(records) > 0)
    for start in range(0, path.rounds, _BLOCK):
        block = slice(start, min(start + _BLOCK, path.rounds))
        length = block.stop - block.start
        raw = np.hstack([column[block] for column in columns])
        data = np.hstack([raw, policy._all_draws(length)])
        out = np.zeros((length, 1 + 3 * path.arm_count))
        flat, step = data.ravel(), 0
        policy._begin_columns(context=raw[:, :m], features=raw[:, m : m + q])
        data[:, : raw.shape[1]] = _reckoned(policy._units, raw, m + q)
        while step < 3 * length:
            begun = step
            pause = 3 * (policy._pause - start) + (DECIDE - shift) % 3  # the units change before that decision
            stop = 3 * length if start or step or policy._units is None else first
            step = policy.kernels.play(
                policy._state,
                flat,
                data.shape[1],
                step,
                int(min(pause, stop)),
                shift,
                policy._memory,
                0,
                out,
                kept,
            )
            policy._note_played(data, out[:, 0], begun, step)
            _take_note(policy, raw, out, kept, begun, step, shift)
            if step == pause:
                policy._rescale_if_due()
                data[step // 3 :, : raw.shape[1]] = _reckoned(policy._units, raw[step // 3 :], m + q)
            elif step == stop < 3 * length:
                policy._begin_columns(reward=raw[:1, m + q + int(out[0, 0]), None])
                data[:, : raw.shape[1]] = _reckoned(policy._units, raw, m + q)
            elif step < 3 * length:
                policy._attend()
        arms[block] = out[:, 0]
        if kept:
            records[block] = out[:, 1:].reshape(length, len(_TABLES), -1)
    if kept and not policy._has_windows():
        records[:, _TABLES.index("windows")] = math.nan


def _calls(call: int, step: int, shift: int) -> int:
    """Return how many of the first steps are of one kind."""
    return (step + 2 - (call - shift) % 3) // 3


def _reckoned(units: Units | None, raw: FloatArray, rewards: int) -> FloatArray:
    """Return contexts, features and, from column `rewards` on, rewards in the units of a policy."""
    if units is None:
        return raw
    return np.hstack([units.inward(raw[:, :rewards], 0), units.rewards(raw[:, rewards:])])


def _take_note(
    policy: LivePolicy, raw: FloatArray, out: FloatArray, kept: int, begun: int, step: int, shift: int
) -> None:
    """Tell a policy what it has seen, in its own units, and bring its forecasts into those of the rewards."""
    units = policy._units
    if units is None:
        return
    k, m, q = policy.arm_count, policy._context_dim, policy._feature_dim
    decided, learned, observed = (
        range(_calls(call, begun, shift), _calls(call, step, shift)) for call in (DECIDE, LEARN, OBSERVE)
    )
    paid = raw[learned, m + q + out[learned, 0].astype(np.int64)]
    policy._note_seen(context=raw[observed, :m], features=raw[decided, m : m + q], reward=paid[:, None])
    rows, forecasts, widths = slice(decided.start, decided.stop), slice(1, 1 + k), slice(1 + k, 1 + 2 * k)
    if kept:
        out[rows, forecasts], out[rows, widths] = units.outward(out[rows, forecasts], out[rows, widths])


def _play_by_hand(
    policy: Policy,
    number: int,
    path: Trajectory,
    context_first: bool | None,
    arms: npt.NDArray[np.int64],
    records: FloatArray,
) -> None:
    if isinstance(policy, LivePolicy):
        player: Policy = policy.for_run(number, context_first=context_first)
        context_first = bool(getattr(player, "context_first", context_first))
    else:
        for_run = getattr(policy, "for_run", None)
        player = for_run(number) if for_run else copy.deepcopy(policy)
    sees = path.context_dim > 0 and getattr(policy, "context_dim", path.context_dim) > 0
    takes = path.features.shape[1] > 0 and getattr(policy, "feature_dim", 0) > 0
    for t in range(path.rounds):
        if sees and context_first:
            player.observe(path.contexts[t])
        decision = player.decide(path.features[t]) if takes else player.decide()
        player.learn(decision, float(path.rewards[t, decision.arm]))
        if sees and not context_first:
            player.observe(path.contexts[t])
        arms[t] = decision.arm
        if len(records):
            window = np.full(path.arm_count, math.nan) if decision.window is None else decision.window
            records[t] = decision.forecast, decision.width, window


def _check_fit(policy: Policy, trajectory: Trajectory) -> None:
    """Refuse a policy that was used, or that expects something else than the trajectory has."""
    if not isinstance(trajectory, Trajectory):
        raise InvalidInputError(f"trajectory: expected a Trajectory, got {trajectory!r:.80}; see Trajectory(…)")
    if isinstance(policy, type) or not isinstance(policy, Policy):
        raise InvalidInputError(f"policy: expected decide, learn and observe, got {policy!r:.80}")
    if not getattr(policy, "unused", True):
        raise InvalidInputError(
            "policy: expected one that was not used yet; make a new one, or load it before its first round"
        )
    for name, has in (
        ("arm_count", trajectory.arm_count),
        ("context_dim", trajectory.context_dim),
        ("feature_dim", trajectory.features.shape[-1]),
    ):
        wants = getattr(policy, name, None)
        if wants is not None and wants != has and not (wants == 0 and name != "arm_count"):
            raise InvalidInputError(f"policy: it was built with {name} = {wants}, and the trajectory has {has}")
