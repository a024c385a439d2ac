"""The hidden linear Gaussian dynamical system behind contexts and rewards.

    z_{t+1} = Γ z_t + μ + N(0, Q),   θ_t = C z_t + θ₀ + N(0, R),   X_t = ⟨c_a, z_t⟩ + x₀_a + N(0, σ²_a)

(Eq. 1 Linear_System of the paper, with constant offsets θ₀ and x₀ that are zero there.)
"""

import functools
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from undertow.equations import continuous, riccati
from undertow.equations.continuous import Rates, Step
from undertow.equations.riccati import SteadyState
from undertow.equations.symbols import Symbols
from undertow.errors import InvalidInputError
from undertow.support import checks
from undertow.support.checks import FloatArray
from undertow.support.writing import replacing, require_file
from undertow.trajectory import Trajectory, sample_in_time, sample_paths

__all__ = ["LinearGaussianSystem"]

_FORMAT = "undertow.system"
_VERSION = 1


@dataclass(frozen=True, init=False, eq=False, repr=False)
class LinearGaussianSystem:
    """A linear Gaussian dynamical system with k arms, checked once and immutable.

    Parameters
    ----------
    dynamics
        Γ, (d, d).
    arms
        The vectors c_a, one row per arm, (k, d).
    state_noise
        Q, the covariance of the state's noise, positive semi-definite, (d, d), or the variance of every entry.
    reward_noise
        σ², the variance of the rewards' noise: one positive number, or one per arm, (k,).
    context_map
        C, (m, d); None for a system without contexts.
    context_noise
        R, the covariance of the contexts' noise, positive definite, (m, m), or the variance of every entry.
    drift
        μ, the mean of the state's noise, (d,); zero by default.
    initial_mean, initial_covariance
        Law of the first state, (d,) and (d, d). By default the stationary law; if there is none, the mean defaults to
        zero and the covariance is required.
    context_offset, reward_offset
        θ₀, (m,), and x₀, (k,), added to every context and reward; zero by default.

    Examples
    --------
    >>> system = LinearGaussianSystem(
    ...     dynamics=[[0.9, 0.1], [0.0, 0.8]], arms=[[1, 0], [0, 1], [1, 1]],
    ...     state_noise=np.eye(2), reward_noise=0.5, context_map=[[1, 0]], context_noise=[[1]])
    >>> system
    LinearGaussianSystem(state_dim=2, context_dim=1, arm_count=3, spectral_radius=0.9)
    >>> system.stability, system.is_observable, system.is_controllable
    ('stable', True, True)
    >>> system.sample(100, rng=0).rewards.shape
    (100, 3)
    """

    dynamics: FloatArray
    arms: FloatArray
    state_noise: FloatArray
    reward_noise: FloatArray
    context_map: FloatArray
    context_noise: FloatArray
    drift: FloatArray
    initial_mean: FloatArray
    initial_covariance: FloatArray
    context_offset: FloatArray
    reward_offset: FloatArray

    def __init__(
        self,
        *,
        dynamics: "npt.ArrayLike",
        arms: "npt.ArrayLike",
        state_noise: "npt.ArrayLike",
        reward_noise: "npt.ArrayLike",
        context_map: "npt.ArrayLike | None" = None,
        context_noise: "npt.ArrayLike | None" = None,
        drift: "npt.ArrayLike | None" = None,
        initial_mean: "npt.ArrayLike | None" = None,
        initial_covariance: "npt.ArrayLike | None" = None,
        context_offset: "npt.ArrayLike | None" = None,
        reward_offset: "npt.ArrayLike | None" = None,
    ) -> None:
        Γ = checks.measured("dynamics", dynamics, ("d", "d"))
        d = len(Γ)
        if d == 0 or Γ.shape != (d, d):
            raise InvalidInputError(f"dynamics: expected a square matrix with at least one row, got shape {Γ.shape}")
        c = checks.measured("arms", arms, ("k", d))
        k = len(c)
        if k == 0:
            raise InvalidInputError("arms: expected at least one row, one for each arm, got none")
        C = checks.measured("context_map", _rows("context_map", context_map, d), ("m", d))
        m = len(C)
        if m and context_noise is None:
            raise InvalidInputError(f"context_noise: expected a {m} × {m} covariance to go with context_map, got None")
        R = _covariance("context_noise", _rows("context_noise", context_noise, 0), m, definite=True)
        σ2 = checks.numbers("reward_noise", reward_noise)
        σ2 = np.full(k, σ2) if σ2.ndim == 0 else σ2
        σ2 = checks.measured("reward_noise", σ2, (k,), below=checks.LARGEST**2)
        if (σ2 <= 0).any():
            raise InvalidInputError(f"reward_noise: expected variances above 0, got {σ2.min():g}")
        Q = _covariance("state_noise", state_noise, d)
        μ = checks.measured("drift", np.zeros(d) if drift is None else drift, (d,))
        mean, covariance = _initial_law(Γ, μ, Q, initial_mean, initial_covariance)
        θ0 = checks.measured("context_offset", np.zeros(m) if context_offset is None else context_offset, (m,))
        x0 = checks.measured("reward_offset", np.zeros(k) if reward_offset is None else reward_offset, (k,))
        for field, value in zip(fields(self), (Γ, c, Q, σ2, C, R, μ, mean, covariance, θ0, x0), strict=True):
            object.__setattr__(self, field.name, value)

    def __repr__(self) -> str:
        return (
            f"LinearGaussianSystem(state_dim={self.state_dim}, context_dim={self.context_dim}, "
            f"arm_count={self.arm_count}, spectral_radius={self.spectral_radius:.6g})"
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LinearGaussianSystem):
            return NotImplemented
        return all(np.array_equal(getattr(self, f.name), getattr(other, f.name)) for f in fields(self))

    def __hash__(self) -> int:
        return hash(tuple(getattr(self, f.name).tobytes() for f in fields(self)))

    # Sizes

    @property
    def state_dim(self) -> int:
        """Dimension d of the state."""
        return len(self.dynamics)

    @property
    def context_dim(self) -> int:
        """Number m of context entries; 0 for a system without contexts."""
        return len(self.context_map)

    @property
    def arm_count(self) -> int:
        """Number k of arms."""
        return len(self.arms)

    def __setstate__(self, entries: dict[str, Any]) -> None:
        checks.restore_frozen(self, entries)

    @functools.cached_property
    def symbols(self) -> Symbols:
        """The arrays under the symbols of the equations, for code that implements one."""
        contexts = {"C": self.context_map, "θ0": self.context_offset, "R": self.context_noise}
        rewards = {"c": self.arms, "x0": self.reward_offset, "σ2": self.reward_noise}
        return Symbols(Γ=self.dynamics, μ=self.drift, Q=self.state_noise, **contexts, **rewards)

    # Time

    @classmethod
    def from_rates(
        cls,
        *,
        generator: "npt.ArrayLike",
        diffusion: "npt.ArrayLike",
        drift: "npt.ArrayLike | None" = None,
        **parts: Any,
    ) -> "LinearGaussianSystem":
        """Build a system in continuous time, dz = (A z + u) dt + dW with cov(dW) = D dt; a time step is one unit.

        Parameters
        ----------
        generator, diffusion, drift
            A, (d, d), D, (d, d), and u, (d,), zero by default.
        **parts
            All other parts of a system: arms, reward_noise, context_map, …

        Examples
        --------
        >>> reverting = LinearGaussianSystem.from_rates(
        ...     generator=[[-0.1]], diffusion=[[0.2]], arms=[[1.0]], reward_noise=0.5
        ... )
        >>> round(float(reverting.dynamics[0, 0]), 4), round(float(reverting.stationary_covariance[0, 0]), 4)
        (0.9048, 1.0)
        """
        A = checks.array("generator", generator, ("d", "d"))
        d = len(A)
        if d == 0 or A.shape != (d, d):
            raise InvalidInputError(f"generator: expected a square matrix with at least one row, got shape {A.shape}")
        if np.abs(np.linalg.eigvals(A).imag).max() >= math.pi:
            raise InvalidInputError(
                "generator: expected swings slower than half a turn per unit of time, since "
                "faster ones look like slower ones; count time in a smaller unit"
            )
        D = checks.covariance("diffusion", diffusion, d)
        u = checks.array("drift", np.zeros(d) if drift is None else drift, (d,))
        Γ, μ, Q = continuous.over(Rates(A, u, D), 1.0)
        return cls(dynamics=Γ, drift=μ, state_noise=Q, **parts)

    @functools.cached_property
    def rates(self) -> Rates:
        """Generator, drift and diffusion whose samples are this system's steps; an error if there are none."""
        return continuous.rates_of(Step(self.dynamics, self.drift, self.state_noise))

    def over(self, time: float) -> Step:
        """Return dynamics, drift and noise over a time of any length, in time steps.

        Examples
        --------
        >>> calm = LinearGaussianSystem(dynamics=[[0.25]], state_noise=[[1.0]], arms=[[1.0]], reward_noise=1.0)
        >>> calm.over(0.5).dynamics.round(6)
        array([[0.5]])
        """
        time = checks.number("time", time, least=0)
        if time.is_integer():
            return continuous.times(Step(self.dynamics, self.drift, self.state_noise), int(time))
        return continuous.over(self.rates, time)

    # Properties

    @functools.cached_property
    def spectral_radius(self) -> float:
        """Largest modulus of an eigenvalue of the dynamics."""
        return riccati.spectral_radius(self.dynamics)

    @property
    def stability(self) -> Literal["stable", "marginally stable", "unstable"]:
        """Whether all eigenvalues lie inside the unit circle, some on it, or some outside it (as in Assumption 2)."""
        excess = self.spectral_radius - 1
        if abs(excess) <= riccati.UNIT_CIRCLE:
            return "marginally stable"
        return "stable" if excess < 0 else "unstable"

    @functools.cached_property
    def is_observable(self) -> bool:
        """Whether the contexts alone reveal every mode of the state: (Γ, C) is observable."""
        return riccati.unobserved_modes(self.dynamics, self.context_map).size == 0

    @functools.cached_property
    def is_controllable(self) -> bool:
        """Whether the state's noise drives every mode: (Γ, Q^½) is controllable."""
        return riccati.unobserved_modes(self.dynamics.T, self.state_noise).size == 0

    @functools.cached_property
    def stationary_mean(self) -> FloatArray:
        """Mean of the state in the long run, (I − Γ)⁻¹ μ; an error if there is no stationary law."""
        return riccati.stationary_mean(self.dynamics, self.drift)

    @functools.cached_property
    def stationary_covariance(self) -> FloatArray:
        """Covariance Z of the state in the long run, Z = ΓZΓ' + Q; an error if there is no stationary law."""
        return riccati.stationary_covariance(self.dynamics, self.state_noise)

    @functools.cached_property
    def steady_state(self) -> SteadyState:
        """Covariances and gains to which the Kalman filter on the contexts converges (Eq. 5 ss_Kalman_Filter).

        `undertow.kalman.steady_state` gives the same for a filter that sees rewards too.
        """
        return riccati.steady_state(self.dynamics, self.context_map, self.state_noise, self.context_noise)

    # Sampling

    def sample(
        self,
        rounds: int,
        *,
        rng: int | np.random.SeedSequence | np.random.Generator | None = None,
        burn_in: int = 0,
        runs: int | Sequence[int] | None = None,
        states: bool = False,
        elapsed: "npt.ArrayLike | None" = None,
        threads: int | None = None,
    ) -> Trajectory:
        """Sample one path, or several independent ones.

        Parameters
        ----------
        rounds
            Number of rounds to record.
        rng
            A seed, a SeedSequence or a Generator. A seed gives the same paths every time; a Generator, new ones.
        burn_in
            Rounds that pass before the first recorded one: `sample(n, burn_in=b)` is the end of `sample(b + n)`.
        runs
            Number of paths, or their numbers: run i always uses child i of the seed sequence, so `runs=range(50, 100)`
            continues what `runs=50` began. None gives run 0 without a leading axis.
        states
            Whether to keep the hidden states.
        elapsed
            Time steps that begin between two rounds, (rounds,): 1 by default, 0 for the same state with new noise.
        threads
            Number of threads, by default all cores; the paths do not depend on it.

        Examples
        --------
        >>> from undertow import paper_system
        >>> paths = paper_system(psi=1).sample(1000, rng=7, runs=3)
        >>> paths.contexts.shape, paths.rewards.shape
        ((3, 1000, 1), (3, 1000, 2))
        >>> alone = paper_system(psi=1).sample(1000, rng=7, runs=[2])
        >>> bool((alone.rewards[0] == paths.rewards[2]).all())
        True
        """
        given: dict[str, Any] = {"burn_in": burn_in, "rng": rng, "runs": runs, "states": states, "threads": threads}
        law = (self.symbols, self.initial_mean, self.initial_covariance, rounds)
        return sample_paths(*law, **given) if elapsed is None else sample_in_time(*law, elapsed, **given)

    # To and from files

    def to_dict(self) -> dict[str, Any]:
        """Return the system as plain lists and numbers, ready for JSON."""
        content = {field.name: getattr(self, field.name).tolist() for field in fields(self)}
        return {"format": _FORMAT, "version": _VERSION, **content}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "LinearGaussianSystem":
        """Build a system from the output of `to_dict`, or from a dictionary of the constructor's arguments."""
        if not isinstance(content, Mapping):
            raise InvalidInputError(f"system: expected a dictionary of arrays, got {type(content).__name__}")
        content = dict(content)
        form, version = content.pop("format", _FORMAT), content.pop("version", _VERSION)
        if form != _FORMAT or version != _VERSION:
            raise InvalidInputError(
                f"system: expected format {_FORMAT!r} version {_VERSION}, got {form!r} version {version!r}"
            )
        known = {field.name for field in fields(cls)}
        required = {"dynamics", "arms", "state_noise", "reward_noise"}
        if unknown := sorted(map(str, content.keys() - known)):
            raise InvalidInputError(
                f"system: unknown entries {', '.join(unknown)}; known are {', '.join(sorted(known))}"
            )
        if absent := sorted(required - content.keys()):
            raise InvalidInputError(f"system: entries {', '.join(absent)} are missing")
        return cls(**content)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the system to a JSON file; every number survives the round trip exactly."""
        text = json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n"
        with replacing(path) as part:
            part.write_text(text, encoding="utf-8")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "LinearGaussianSystem":
        """Read a system from a JSON file, written by `save` or by hand."""
        require_file(path)
        try:
            content = checks.strict_json(Path(path).read_text(encoding="utf-8"))
        except ValueError as error:  # not UTF-8, or not JSON
            raise InvalidInputError(f"{path!s}: not a JSON file ({error}); expected one from save()") from error
        try:
            return cls.from_dict(content)
        except InvalidInputError as error:
            raise InvalidInputError(f"{os.fspath(path)}: {error}") from error


def _initial_law(
    Γ: FloatArray, μ: FloatArray, Q: FloatArray, mean: "npt.ArrayLike | None", covariance: "npt.ArrayLike | None"
) -> tuple[FloatArray, FloatArray]:
    d, radius = len(Γ), riccati.spectral_radius(Γ)
    stable = radius < 1 - riccati.UNIT_CIRCLE
    if covariance is None and not stable:
        raise InvalidInputError(
            f"initial_covariance: expected a {d} × {d} covariance, since at spectral radius {radius:.6g} there is no "
            f"stationary law to start from; zeros start the state at initial_mean"
        )
    if mean is None:
        mean = riccati.stationary_mean(Γ, μ) if stable else np.zeros(d)
    if covariance is None:
        covariance = riccati.stationary_covariance(Γ, Q)
    return checks.measured("initial_mean", mean, (d,)), checks.covariance("initial_covariance", covariance, d)


def _covariance(name: str, value: "npt.ArrayLike", size: int, *, definite: bool = False) -> FloatArray:
    """Return a covariance; a single number means independent entries of that variance."""
    given = checks.numbers(name, value)
    return checks.covariance(name, given * np.eye(size) if given.ndim == 0 else given, size, definite=definite)


def _rows(name: str, value: "npt.ArrayLike | None", columns: int) -> FloatArray:
    """Return the given rows, or no rows for None."""
    given = np.empty(0) if value is None else checks.numbers(name, value)
    return given if given.size else np.empty((0, columns))
