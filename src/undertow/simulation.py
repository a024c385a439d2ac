"""Policies on stored trajectories: the same decisions as in live play, at compiled speed."""

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from undertow.errors import InvalidInputError
from undertow.live import Decision, LivePolicy, Policy
from undertow.live.plain import as_policy
from undertow.support import checks
from undertow.support.checks import FloatArray
from undertow.support.display import Framed, Progress, columns, html_table, progress_line, shortly
from undertow.support.timesteps import with_one_context
from undertow.trajectory import Trajectory

if TYPE_CHECKING:
    from undertow.support.drawing import Sheet
from undertow.support.renamed import renamed

__all__ = ["Run", "play_in_python", "simulate"]

__getattr__ = renamed("undertow.simulation", {"play_by_hand": "play_in_python"})

_TABLES = ("forecasts", "widths", "windows")


@dataclass(frozen=True, eq=False, repr=False)
class Run(Framed):
    """Results of a policy on a trajectory; arrays have a leading axis of runs if the trajectory has one.

    Attributes
    ----------
    arms
        The chosen arms, (n,).
    rewards
        Their rewards, (n,); NaN if none came.
    regret
        Cumulative regret, (n,), with `runs=1` (1, n); None if the trajectory has no means. `final_regret` is (runs,) in
        every case.
    forecasts, widths, windows
        Of every arm in every round, (n, k), if recorded.
    errors
        Reward minus forecast of the chosen arm, (n,), if recorded.
    """

    arms: npt.NDArray[np.int64]
    rewards: FloatArray
    regret: FloatArray | None
    forecasts: FloatArray | None = None
    widths: FloatArray | None = None
    windows: FloatArray | None = None
    errors: FloatArray | None = None

    @property
    def final_regret(self) -> FloatArray:
        """Regret after the last round, one number for each run, (runs,), also of a path without runs."""
        if self.regret is None:
            raise InvalidInputError("regret: unknown, since the trajectory has no means; compare rewards")
        return np.atleast_1d(self.regret[..., -1])

    def plot(self) -> "Sheet":
        """Draw regret (or the mean reward so far), the arms that were played and, if recorded, errors of forecasts.

        A notebook shows the figure; elsewhere call its `savefig`. Needs matplotlib: `pip install 'undertow[plot]'`.
        """
        from undertow.support.drawing import draw_run

        flat = (-1, self.arms.shape[-1])
        so_far = np.cumsum(self.rewards, axis=-1) / np.arange(1, flat[1] + 1)
        y, earned = ("mean reward so far", so_far) if self.regret is None else ("regret", self.regret)
        errors = None if self.errors is None else self.errors.reshape(flat)
        tables = [part.shape[-1] for part in (self.forecasts, self.widths, self.windows) if part is not None]
        arm_count = tables[0] if tables else int(self.arms.max()) + 1
        return draw_run(self.arms.reshape(flat), earned.reshape(flat), errors, y, arm_count)

    def _frame(self) -> dict[str, npt.NDArray[Any]]:
        parts = {"arm": self.arms, "reward": self.rewards, "regret": self.regret, "error": self.errors}
        parts |= {"forecast": self.forecasts, "width": self.widths, "window": self.windows}
        return columns(self.arms.shape, parts)

    def _repr_html_(self) -> str:
        runs, rounds = self.arms.reshape(-1, self.arms.shape[-1]).shape
        counts = np.bincount(self.arms.ravel())
        rewards = np.bincount(self.arms.ravel(), weights=self.rewards.ravel())
        rows = [
            (arm, f"{count / self.arms.size:.1%}", float(total / count) if count else None)
            for arm, (count, total) in enumerate(zip(counts, rewards, strict=True))
        ]
        note = f"Mean reward {shortly(float(self.rewards.mean()))}."
        if self.regret is not None:
            note += f" Regret {shortly(float(self.regret[..., -1].mean()))}{' on average' if runs > 1 else ''}."
        title = f"Run of {rounds:,} rounds" if runs == 1 else f"{runs:,} runs of {rounds:,} rounds"
        return html_table(title, rows, ["arm", "played", "mean reward"], note)


def simulate(
    policy: Policy | Any,
    trajectory: Trajectory,
    *,
    record: Collection[str] = (),
    context_first: bool | None = None,
    available: "npt.ArrayLike | None" = None,
    times: Sequence[datetime] | None = None,
    runs: Sequence[int] | None = None,
    threads: int | None = None,
    progress: bool | Progress = False,
) -> Run:
    """Play a new policy on every run of a trajectory. The policy object is not changed.

    Parameters
    ----------
    policy
        Any policy. undertow's run compiled; one in plain Python, with `decide`, `learn` and perhaps
        `observe`, runs through its methods, on a deep copy. Its `decide` may return the number of an arm.
        Run i has its own stream of the policy's seed, and run 0 makes the same decisions as in live play.
    trajectory
        Contexts, rewards and, for policies that take them, features. A NaN reward never comes, and the round teaches
        nothing. With `elapsed` (uneven time), a policy is played through its methods, which takes longer.
    record
        Results to keep besides arms, rewards and regret: any of "forecasts", "widths", "windows", "errors".
    context_first
        Whether a round's context comes before the decision; by default the policy's own setting.
    available
        Which arms can be played in each round, (n, k), in all runs; by default all. Policies are then played through
        their methods, which takes longer.
    times
        Time of each round, (n,), with time zones, for policies with a `tick`, or whose `max_wait` is a time.
        Policies are then played through their methods, with `at`. A `tick` counts, and not the trajectory's `elapsed`.
    runs
        The numbers of the trajectory's runs, by default 0, 1, …: `runs=range(10, 20)` for the result of `sample(…,
        runs=range(10, 20))`.
    threads
        How many threads share the runs, by default all cores; the results do not depend on it.
    progress
        True for a line on stderr with an estimate of the time left; or a function that is called with the number of
        rounds that were played, of all runs, and their total.

    Examples
    --------
    >>> import undertow
    >>> paths = undertow.paper_system(psi=1).sample(1000, rng=0, runs=4)
    >>> run = simulate(undertow.make("ares", arms=2, context_dim=1), paths, record=["windows"])
    >>> run.regret.shape, run.windows.shape
    ((4, 1000), (4, 1000, 2))
    """
    wanted = {checks.choice("record", name, (*_TABLES, "errors")) for name in checks.entries("record", record)}
    threads, policy = checks.thread_count(threads), as_policy(policy)
    _check_fit(policy, trajectory)
    count = trajectory.runs or 1
    given = range(count) if runs is None else checks.entries("runs", runs)
    numbers = [checks.integer("runs", number, least=0) for number in given]
    if len(numbers) != count:
        raise InvalidInputError(
            f"runs: expected {count} numbers, one for each run of the trajectory, got {len(numbers)}"
        )
    n, k = trajectory.rounds, trajectory.arm_count
    arms = np.empty((count, n), dtype=np.int64)
    records = np.empty((count, n if wanted else 0, len(_TABLES), k))
    there = None if available is None else _there(policy, available, (n, k))
    at = None if times is None else _times(policy, times, trajectory)
    runs_in_python = there is not None or at is not None or trajectory.elapsed is not None
    ours = isinstance(policy, LivePolicy) and not policy.parts.runs_in_python() and not runs_in_python
    played = _Played(count * n, progress)

    def play(row: int) -> None:
        path = trajectory if trajectory.runs is None else trajectory.run(row)
        if ours:
            assert isinstance(policy, LivePolicy)
            player = policy.parts.for_run(numbers[row], context_first=context_first)
            player.parts.play(path, arms[row], records[row], played.more)
        else:
            order = {"context_first": context_first, "elapsed": path.elapsed, "available": there, "times": at}
            _record_by_hand(policy, numbers[row], path, order, arms[row], records[row], played.more)

    if ours and threads > 1 and count > 1:
        play(0)  # compiles once, if necessary
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
    minimize = bool(getattr(policy, "minimize", False))
    regret = None if trajectory.means is None else trajectory.regret(arms, minimize=minimize)
    return Run(arms, rewards, regret, **recorded)


def play_in_python(
    player: Policy,
    contexts: FloatArray,
    features: FloatArray,
    pays: Callable[[int, int], float | None],
    *,
    context_first: bool | None,
    elapsed: npt.NDArray[np.int64] | None = None,
    available: npt.NDArray[np.bool_] | None = None,
    times: Sequence[datetime] | None = None,
) -> Iterator[Decision]:
    """Play round by round through a policy's methods, and yield its decisions.

    Contexts, (n, m), and features, (n, q) or (n, k, q), are passed if they have columns; `pays(t, arm)` is the reward,
    or None if none comes. `elapsed` is as in a trajectory, `available`, (n, k), has the arms that can be played, and
    `times` the time of each round; these three are for undertow's policies.
    """
    n, m = contexts.shape
    if times is not None:
        assert isinstance(player, LivePolicy)
        elapsed = player.parts.turns.clock.between(times)
    if elapsed is not None and not (times is not None and context_first):  # the first context of a time step counts
        contexts = with_one_context(contexts, elapsed == 0, last=not context_first)
    for t in range(n):
        how: dict[str, Any] = {} if elapsed is None or times is not None else {"elapsed": int(elapsed[t])}
        when: dict[str, Any] = {} if times is None else {"at": times[t]}
        if available is not None and not available[t].all():
            how["available"] = np.flatnonzero(available[t])
        if m and context_first and elapsed is None:
            player.observe(contexts[t])
        elif m and context_first and elapsed is not None and elapsed[t]:
            how["context"] = contexts[t]
        decision = player.decide(features[t], **how, **when) if features.shape[-1] else player.decide(**how, **when)
        if (reward := pays(t, decision.arm)) is not None:
            player.learn(decision, reward, **when)
        if m and not context_first and (elapsed is None or t + 1 == n or elapsed[t + 1]):
            player.observe(contexts[t])
        yield decision


def _record_by_hand(
    policy: Policy,
    number: int,
    path: Trajectory,
    order: dict[str, Any],
    arms: npt.NDArray[np.int64],
    records: FloatArray,
    played: Callable[[int], None],
) -> None:
    if isinstance(policy, LivePolicy):
        player: Policy = policy.parts.for_run(number, context_first=order["context_first"])
        order = order | {"context_first": bool(getattr(player, "context_first", order["context_first"]))}
    else:
        player = policy.for_run(number)  # type: ignore[attr-defined]  # set by as_policy
    contexts = path.contexts[:, : getattr(policy, "context_dim", 0 if isinstance(policy, LivePolicy) else None)]
    features = path.features[..., : getattr(policy, "feature_dim", 0)]
    decisions = play_in_python(player, contexts, features, path.reward, **order)
    for t, decision in enumerate(decisions):
        arms[t] = decision.arm
        played(1)
        if len(records):
            if not isinstance(decision, Decision):
                raise InvalidInputError("record: expected a policy whose decide returns a Decision; record nothing")
            window = np.full(path.arm_count, math.nan) if decision.window is None else decision.window
            records[t] = decision.forecast, decision.width, window


def _times(policy: Policy, times: Sequence[datetime], trajectory: Trajectory) -> Sequence[datetime]:
    """Return the checked times of the rounds."""
    if not isinstance(policy, LivePolicy) or policy.capabilities.simulates_only:
        raise InvalidInputError(f"times: expected a policy whose decide takes at, got {policy!r:.80}; leave them out")
    if trajectory.elapsed is not None and policy.parts.turns.clock.tick is None:
        raise InvalidInputError(
            f"times: expected a policy with a tick, or a trajectory without elapsed, got {policy!r:.80}"
        )
    if len(times) != trajectory.rounds:
        raise InvalidInputError(f"times: expected {trajectory.rounds}, one for each round, got {len(times)}")
    return times


def _there(policy: Policy, available: "npt.ArrayLike", shape: tuple[int, int]) -> npt.NDArray[np.bool_]:
    """Return the checked table of arms that can be played."""
    if not isinstance(policy, LivePolicy) or policy.capabilities.simulates_only:
        raise InvalidInputError(f"available: expected a policy whose decide takes it, got {policy!r:.80}; leave it out")
    there = np.asarray(available)
    if there.dtype != bool or there.shape != shape:
        raise InvalidInputError(
            f"available: expected {shape[0]} rows of {shape[1]} truth values, got {available!r:.80}"
        )
    if not there.any(axis=1).all():
        row = int((~there.any(axis=1)).argmax())
        raise InvalidInputError(f"available: expected at least one arm in every round, got none in round {row}")
    return there


class _Played:
    """Counts the rounds that all threads have played, out of the total."""

    def __init__(self, total: int, progress: bool | Progress) -> None:
        if not (isinstance(progress, bool) or callable(progress)):
            raise InvalidInputError(f"progress: expected True, False or a function, got {progress!r:.80}")
        self.done, self.total, self.lock = 0, total, Lock()
        self.tell = progress_line("simulate") if progress is True else progress
        self.more(0)

    def more(self, rounds: int) -> None:
        if self.tell:
            with self.lock:
                self.done += rounds
                self.tell(self.done, self.total)


def _check_fit(policy: Policy, trajectory: Trajectory) -> None:
    """Refuse a used policy, or one whose sizes differ from the trajectory's."""
    if not isinstance(trajectory, Trajectory):
        raise InvalidInputError(f"trajectory: expected a Trajectory, got {trajectory!r:.80}; see Trajectory(…)")
    if isinstance(policy, type) or not isinstance(policy, Policy):
        raise InvalidInputError(f"policy: expected decide, learn and observe, got {policy!r:.80}")
    if isinstance(policy, LivePolicy) and not policy.parts.unused:
        raise InvalidInputError("policy: expected an unused policy; make a new one, or load it before its first round")
    sees_all = isinstance(policy, LivePolicy) and policy.capabilities.simulates_only
    if trajectory.elapsed is not None and (sees_all or not isinstance(policy, LivePolicy)):
        raise InvalidInputError(
            f"policy: expected one whose decide takes elapsed, since the trajectory has elapsed, got "
            f"{policy!r:.80}; play it on a trajectory without elapsed"
        )
    if sees_all and np.isnan(trajectory.rewards).any():
        raise InvalidInputError("trajectory: this policy learns every arm's reward in each round, and some are missing")
    for name, has in (
        ("arm_count", trajectory.arm_count),
        ("context_dim", trajectory.context_dim),
        ("feature_dim", trajectory.features.shape[-1]),
    ):
        wants = getattr(policy, name, None)
        if wants is not None and wants != has and not (wants == 0 and name != "arm_count"):
            raise InvalidInputError(f"policy: it was built with {name} = {wants}, and the trajectory has {has}")
    takes_rows = getattr(getattr(policy, "capabilities", None), "takes_arm_features", True)
    if trajectory.arm_features and getattr(policy, "feature_dim", None) and not takes_rows:
        raise InvalidInputError(
            "policy: it takes one row of features for all arms, and the trajectory has one for each; use a policy with "
            "the capability takes_arm_features, such as LinUCB or Autopilot, or build it without feature_dim"
        )
