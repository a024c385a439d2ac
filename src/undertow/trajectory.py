"""Trajectories: the contexts and the rewards of every arm along sampled or recorded paths."""

import functools
import math
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from undertow.compiled.kernel import kernel
from undertow.equations.riccati import square_root
from undertow.equations.symbols import Symbols
from undertow.errors import InvalidInputError
from undertow.support import checks
from undertow.support.checks import FloatArray
from undertow.support.display import Framed, columns, html_table
from undertow.support.timesteps import time_steps_passed, with_one_context

__all__ = ["Trajectory"]

_BLOCK = 1024  # rounds whose normal numbers are sampled together; no result depends on it


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Trajectory(Framed):
    """Contexts and rewards along one path, or along several with a leading axis of runs.

    Parameters
    ----------
    contexts
        One row per round, (n, m) or (runs, n, m); NaN if missing; None without contexts.
    rewards
        The noisy reward of every arm, (n, k) or (runs, n, k); NaN if a reward never comes.
    means
        The rewards without their noise, like `rewards`; None if unknown, as in recorded data.
    features
        Known before each round's decision and independent of the state, (n, q) or (runs, n, q); if every arm has its
        own, (n, k, q) or (runs, n, k, q); None for none.
    states
        The hidden states, (n, d) or (runs, n, d), if they were kept.
    elapsed
        Time steps that began since the round before, (n,), in all runs: 0 for another round in the same time step,
        which has the same context, or NaN. None if every round is a time step.

    Examples
    --------
    >>> path = Trajectory(contexts=[[0.5], [0.1]], rewards=[[1.0, 2.0], [3.0, 0.0]])
    >>> path.rounds, path.arm_count, path.context_dim
    (2, 2, 1)
    """

    contexts: FloatArray
    rewards: FloatArray
    means: FloatArray | None
    features: FloatArray
    states: FloatArray | None
    elapsed: npt.NDArray[np.int64] | None

    def __init__(
        self,
        contexts: "npt.ArrayLike | None" = None,
        rewards: "npt.ArrayLike" = (),
        *,
        means: "npt.ArrayLike | None" = None,
        features: "npt.ArrayLike | None" = None,
        states: "npt.ArrayLike | None" = None,
        elapsed: "npt.ArrayLike | None" = None,
    ) -> None:
        several = checks.numbers("rewards", rewards).ndim == 3
        shape = ("runs", "n", "k") if several else ("n", "k")
        checked = checks.measured("rewards", rewards, shape, missing=True)
        lead = checked.shape[:-1]
        if 0 in checked.shape:
            raise InvalidInputError(f"rewards: expected at least one round and one arm, got shape {checked.shape}")
        empty = np.empty((*lead, 0))
        passed = None if elapsed is None else time_steps_passed(elapsed, lead[-1])
        for name, value in {
            "rewards": checked,
            "contexts": checks.measured(
                "contexts", empty if contexts is None else contexts, (*lead, "m"), missing=True
            ),
            "means": None if means is None else checks.array("means", means, checked.shape),
            "features": _features(empty if features is None else features, checked.shape),
            "states": None if states is None else checks.array("states", states, (*lead, "d")),
            "elapsed": passed,
        }.items():
            object.__setattr__(self, name, value)
        if passed is not None:
            passed.setflags(write=False)
            for contexts_of_run in self.contexts.reshape(math.prod(lead[:-1]), *self.contexts.shape[-2:]):
                with_one_context(contexts_of_run, passed == 0, last=False)

    def __setstate__(self, entries: dict[str, Any]) -> None:
        checks.restore_frozen(self, entries)

    @classmethod
    def trusted(cls, *parts: npt.NDArray[Any] | None) -> "Trajectory":
        """Wrap trusted arrays, in the order of the fields, without a copy or a check."""
        trajectory = object.__new__(cls)
        for field, part in zip(fields(cls), parts, strict=True):
            if part is not None:
                part.setflags(write=False)
            object.__setattr__(trajectory, field.name, part)
        return trajectory

    def _frame(self) -> dict[str, npt.NDArray[Any]]:
        known = {"feature": self.features}
        if self.arm_features:
            k, q = self.features.shape[-2:]
            known = {f"feature_{j}@{arm}": self.features[..., arm, j] for j in range(q) for arm in range(k)}
        parts = {"context": self.contexts, **known, "reward": self.rewards, "mean": self.means}
        elapsed = None if self.elapsed is None else np.broadcast_to(self.elapsed, self.rewards.shape[:-1])
        return columns(self.rewards.shape[:-1], parts | {"state": self.states, "elapsed": elapsed})

    def _repr_html_(self) -> str:
        means = self.rewards.mean(axis=tuple(range(self.rewards.ndim - 1)))
        deviations = self.rewards.std(axis=tuple(range(self.rewards.ndim - 1)))
        rows = list(zip(range(self.arm_count), means, deviations, strict=True))
        own = " of each arm" if self.arm_features else ""
        numbers = ((self.rounds, "round"), (self.context_dim, "context"), (self.features.shape[-1], "feature"))
        size = ", ".join(f"{number:,} {word}{'s' * (number != 1)}" for number, word in numbers) + own
        title = f"Trajectory: {size}" if self.runs is None else f"Trajectory: {self.runs} runs of {size}"
        known = [] if self.means is not None else ["means are not known"]
        known += [f"{share:.1%} of the contexts are missing"] if (share := self._missing) else []
        return html_table(title, rows, ["arm", "mean reward", "deviation"], "; ".join(known))

    @property
    def _missing(self) -> float:
        return float(np.isnan(self.contexts).mean()) if self.contexts.size else 0.0

    @property
    def rounds(self) -> int:
        """Number of rounds n."""
        return int(self.rewards.shape[-2])

    @property
    def runs(self) -> int | None:
        """Number of runs; None for a single path without a leading axis."""
        return len(self.rewards) if self.rewards.ndim == 3 else None

    @property
    def arm_count(self) -> int:
        """Number of arms k."""
        return int(self.rewards.shape[-1])

    @property
    def context_dim(self) -> int:
        """Number of context entries m."""
        return int(self.contexts.shape[-1])

    @property
    def arm_features(self) -> bool:
        """Whether every arm has its own features."""
        return self.features.ndim > self.rewards.ndim

    def run(self, number: int) -> "Trajectory":
        """Return one of several runs as a single path."""
        if self.runs is None:
            raise InvalidInputError("run: this trajectory is a single path; sample it with runs=… to have several")
        if not 0 <= checks.integer("run", number, least=0) < self.runs:
            raise InvalidInputError(f"run: expected a number from 0 to {self.runs - 1}, got {number}")
        parts = (self.contexts, self.rewards, self.means, self.features, self.states)
        return Trajectory.trusted(*(None if part is None else part[number] for part in parts), self.elapsed)

    def reward(self, t: int, arm: int) -> float | None:
        """Return the reward of an arm in round t of a single path; None if it never comes."""
        value = float(self.rewards[t, arm])
        return None if math.isnan(value) else value

    def played(self, arms: "npt.ArrayLike") -> FloatArray:
        """Return the rewards that a learner playing `arms` observes: NaN for all other arms."""
        played = self._arms(arms)[..., None] == np.arange(self.arm_count)
        return np.where(played, self.rewards, np.nan)

    def regret(self, arms: "npt.ArrayLike", *, minimize: bool = False) -> FloatArray:
        """Return the cumulative regret Σ max_a⟨c_a, z_t⟩ − ⟨c_{a_t}, z_t⟩ of playing `arms`, one entry per round.

        The means are compared, not the noisy rewards of the paper's definition: same expectation, less noise. If
        rewards are costs (`minimize`), it is Σ ⟨c_{a_t}, z_t⟩ − min_a⟨c_a, z_t⟩.
        """
        if self.means is None:
            raise InvalidInputError("means: regret needs the rewards without noise; build the Trajectory with means=…")
        chosen = np.take_along_axis(self.means, self._arms(arms)[..., None], axis=-1)[..., 0]
        if checks.flag("minimize", minimize):
            return np.cumsum(chosen - self.means.min(axis=-1), axis=-1)
        return np.cumsum(self._best_means - chosen, axis=-1)

    @functools.cached_property
    def _best_means(self) -> FloatArray:
        assert self.means is not None
        return np.asarray(self.means.max(axis=-1))

    def _arms(self, arms: "npt.ArrayLike") -> npt.NDArray[np.int64]:
        lead = self.rewards.shape[:-1]
        if checks.numbers("arms", arms).ndim != len(lead):
            which = "is one path" if self.runs is None else f"has an axis of runs, here {self.runs}"
            raise InvalidInputError(f"arms: expected shape {lead}, got {np.shape(arms)}; this trajectory {which}")
        return checks.indices("arms", arms, lead, below=self.arm_count)


def _features(features: "npt.ArrayLike", rewards: tuple[int, ...]) -> FloatArray:
    """Return checked features, shared or of each arm, for rewards of this shape."""
    given = checks.numbers("features", features)
    lead = rewards if given.ndim > len(rewards) else rewards[:-1]
    return checks.measured("features", given, (*lead, "q"))


def sample_paths(
    symbols: Symbols,
    mean: FloatArray,
    covariance: FloatArray,
    rounds: int,
    *,
    burn_in: int,
    rng: int | np.random.SeedSequence | np.random.Generator | None,
    runs: int | Sequence[int] | None,
    states: bool,
    threads: int | None,
) -> Trajectory:
    """Sample paths from a law of the first state; `LinearGaussianSystem.sample` documents the other arguments.

    Run i uses child i of the seed sequence: first the d numbers of z₁, then for each round m numbers for the
    context, k for the rewards and d for the step to the next state.
    """
    rounds = checks.integer("rounds", rounds, least=1)
    burn_in = checks.integer("burn_in", burn_in, least=0)
    threads = checks.thread_count(threads)
    numbers = _run_numbers(runs)
    seeds, states = checks.seed_sequence(rng), checks.flag("states", states)
    d, m, k = len(symbols.Γ), len(symbols.C), len(symbols.c)
    _require_memory(len(numbers) * rounds * (m + 2 * k + (d if states else 0)))
    contexts = np.empty((len(numbers), rounds, m))
    rewards = np.empty((len(numbers), rounds, k))
    means = np.empty((len(numbers), rounds, k))
    kept = np.empty((len(numbers), rounds if states else 0, d))
    Q_root, R_root, Σ0_root = (square_root(Σ) for Σ in (symbols.Q, symbols.R, covariance))

    def sample_run(row: int) -> None:
        draw = checks.child(seeds, numbers[row])
        z = mean + Σ0_root @ draw.standard_normal(d)
        normals = np.empty((min(_BLOCK, burn_in + rounds), m + k + d))
        for first in range(-burn_in, rounds, len(normals)):
            block = normals[: rounds - first]
            draw.standard_normal(out=block)
            advance(symbols, Q_root, R_root, z, block, first, contexts[row], rewards[row], means[row], kept[row])
        if not np.isfinite(z).all():
            raise InvalidInputError(
                f"rounds: within {burn_in} + {rounds} rounds the state of this unstable system overflowed; "
                f"ask for fewer"
            )

    with ThreadPoolExecutor(min(threads, len(numbers))) as pool:
        list(pool.map(sample_run, range(len(numbers))))
    features = np.empty((len(numbers), rounds, 0))
    paths = Trajectory.trusted(contexts, rewards, means, features, kept if states else None, None)
    return paths.run(0) if runs is None else paths


def sample_in_time(
    symbols: Symbols,
    mean: FloatArray,
    covariance: FloatArray,
    rounds: int,
    elapsed: "npt.ArrayLike",
    *,
    rng: int | np.random.SeedSequence | np.random.Generator | None,
    runs: int | Sequence[int] | None,
    **given: Any,
) -> Trajectory:
    """Sample paths as `sample_paths` does, and record rounds with the given numbers of time steps between them.

    The noise of a further round in the same time step comes from child 1 of a run's child.
    """
    passed = time_steps_passed(elapsed, checks.integer("rounds", rounds, least=1))
    time_steps, same = np.cumsum(passed) - 1, passed == 0
    seeds, numbers = checks.seed_sequence(rng), _run_numbers(runs)
    paths = sample_paths(symbols, mean, covariance, int(time_steps[-1]) + 1, rng=seeds, runs=numbers, **given)
    parts = (paths.contexts, paths.rewards, paths.means, paths.features, paths.states)
    contexts, rewards, means, features, states = (None if part is None else part[:, time_steps] for part in parts)
    assert rewards is not None
    assert means is not None
    for row, number in enumerate(numbers):
        noise = checks.child(seeds, number, 1).standard_normal((int(same.sum()), rewards.shape[-1]))
        rewards[row, same] = means[row, same] + np.sqrt(symbols.σ2) * noise
    found = Trajectory.trusted(contexts, rewards, means, features, states, passed)
    return found.run(0) if runs is None else found


def _require_memory(numbers: int) -> None:
    """Refuse paths that exceed this machine's memory."""
    held = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else None
    if held is not None and 8 * numbers > held:
        raise InvalidInputError(
            f"rounds: these paths need {8 * numbers / 2**30:.0f} GiB, and the machine has {held / 2**30:.0f}; ask "
            f"for fewer rounds, or for fewer runs at a time with runs=range(…)"
        )


def _run_numbers(runs: int | Sequence[int] | None) -> Sequence[int]:
    if runs is None:
        return [0]
    if isinstance(runs, int | np.integer):
        return range(checks.integer("runs", runs, least=1))
    numbers = [checks.integer("runs", number, least=0) for number in checks.entries("runs", runs)]
    if not numbers:
        raise InvalidInputError("runs: expected at least one run number, got none")
    return numbers


@kernel
def advance(
    symbols: Symbols,
    Q_root: FloatArray,
    R_root: FloatArray,
    z: FloatArray,
    normals: FloatArray,
    first: int,
    contexts: FloatArray,
    rewards: FloatArray,
    means: FloatArray,
    states: FloatArray,
) -> None:
    """Move z through one block of rounds (Eq. 1 Linear_System) and record the rounds that are not burn-in (t ≥ 0)."""
    Γ, μ, _, C, θ0, _, c, x0, σ2 = symbols
    d, m, k = len(Γ), len(C), len(c)
    σ = np.sqrt(σ2)
    ahead = np.empty(d)
    for step in range(len(normals)):
        t = first + step
        φ, η, ξ = normals[step, :m], normals[step, m : m + k], normals[step, m + k :]
        if t >= 0:
            for i in range(m):
                total = θ0[i]
                for j in range(d):
                    total += C[i, j] * z[j]
                for j in range(m):
                    total += R_root[i, j] * φ[j]
                contexts[t, i] = total
            for a in range(k):
                total = x0[a]
                for j in range(d):
                    total += c[a, j] * z[j]
                means[t, a] = total
                rewards[t, a] = total + σ[a] * η[a]
            if len(states) > 0:
                for i in range(d):  # one by one: numba's check of two shapes takes seconds to compile
                    states[t, i] = z[i]
        for i in range(d):
            total = μ[i]
            for j in range(d):
                total += Γ[i, j] * z[j] + Q_root[i, j] * ξ[j]
            ahead[i] = total
        for i in range(d):
            z[i] = ahead[i]
