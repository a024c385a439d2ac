"""Generated problems: random systems, systems that no linear Gaussian model fits, and contexts with gaps.

A seed fixes everything. Sizes, system and path each have their own branch of it, so that the same seed with another
kind changes one thing only.
"""

import math
from typing import Literal, get_args

import numpy as np

from undertow.equations.riccati import square_root
from undertow.example_systems import random_system
from undertow.support import checks
from undertow.support.checks import FloatArray
from undertow.system import LinearGaussianSystem
from undertow.trajectory import Trajectory

__all__ = ["KINDS", "Kind", "contextless", "misspecified", "random_problem", "with_missing", "without_contexts"]

#: A way in which the model is wrong.
Kind = Literal[
    "switch",
    "heavy-tails",
    "saturation",
    "outliers",
    "correlated-noise",
    "clipping",
    "slow-change",
    "state-free",
    "relu",
]
#: Every kind of wrong model.
KINDS: tuple[Kind, ...] = get_args(Kind)

# Children of a seed. Plain children are runs of a system (0 is the first), hence the large numbers.
_SIZES, _NOISE, _GAPS, _SECOND = 2**31, 2**31 + 1, 2**31 + 2, 2**31 + 3

_STATE_DIM = 4
_DEGREES = 3  # of Student's t
_SATURATION = 3.0
_OUTLIER_SHARE, _OUTLIER_SIZE = 0.02, 20.0
_CORRELATION = 0.81
_CLIP = 6.0
_SLOWING, _PERIOD = 0.3, 4000


def random_problem(seed: int, *, radius: float | None = None, drift: bool = False) -> LinearGaussianSystem:
    """Sample a system of random size: d uniform on 2…10, m on 1…3, k log-uniform on 2…20, the rest by `random_system`.

    The published set is that of seeds 0 to 19.

    Examples
    --------
    >>> random_problem(0)
    LinearGaussianSystem(state_dim=5, context_dim=3, arm_count=4, spectral_radius=0.997582)
    """
    draw = _branch(seed, _SIZES)
    d, m = int(draw.integers(2, 11)), int(draw.integers(1, 4))
    k = round(math.exp(draw.uniform(math.log(2), math.log(20))))
    return random_system(d, m, k, rng=seed, spectral_radius=radius, drift=drift)


def base_system(kind: Kind, seed: int) -> LinearGaussianSystem:
    """Return the stable random system, d = 4, m 1–2, k 2–5, in which `misspecified` changes one thing.

    Kinds share it at the same seed, except "correlated-noise": it needs two contexts, and is itself a linear Gaussian
    system, with the covariance R = [[r₁, ρ√(r₁r₂)], [·, r₂]], ρ = 0.81, which this function returns.
    """
    draw = _branch(seed, _SIZES)
    m, k = int(draw.integers(1, 3)), int(draw.integers(2, 6))
    if kind != "correlated-noise":
        return random_system(_STATE_DIM, m, k, rng=seed)
    base = random_system(_STATE_DIM, 2, k, rng=seed)
    deviations = np.sqrt(np.diag(base.context_noise))
    R = np.outer(deviations, deviations) * np.array([[1, _CORRELATION], [_CORRELATION, 1]])
    return LinearGaussianSystem.from_dict(base.to_dict() | {"context_noise": R})


def misspecified(kind: Kind, seed: int, rounds: int) -> Trajectory:
    """Sample a path of a stable random system (d = 4, m 1–2, k 2–5) that violates a model's assumptions in one way.

    Parameters
    ----------
    kind
        "switch": after half the rounds another system takes over, in its own stationary law.
        "heavy-tails": all noises are Student's t with 3 degrees of freedom, scaled to the same variance.
        "saturation": a context is 3 tanh(c / 3) of its mean c, plus noise.
        "outliers": 2 % of the contexts have 20 · N(0, 1) added to each entry.
        "correlated-noise": the noises of the two entries of a context have correlation 0.81 (between entries, not in
        time; a model with independent noises is wrong, one with a full covariance is right).
        "clipping": after every step the state is clipped to ±6, entry by entry.
        "slow-change": Γ is multiplied by 1 − 0.3 (½ − ½ cos(2πt / 4000)).
        "state-free": the arms' means are constants, sampled from N(0, 1).
        "relu": an arm's mean is max(0, ⟨c_a, z⟩).
    seed
        Seed of sizes, system and path.
    rounds
        Number of rounds.

    Examples
    --------
    >>> path = misspecified("relu", 0, 1000)
    >>> path.rounds, float(path.means.min())
    (1000, 0.0)
    """
    kind = checks.choice("kind", kind, KINDS)
    rounds = checks.integer("rounds", rounds, least=1)
    system = base_system(kind, seed)
    if kind == "switch":
        return _switched(system, seed, rounds)
    Γ, μ, Q, C, θ0, R, c, x0, σ2 = system.symbols
    φ, η, ξ, ζ = _noises(kind, system, rounds, _branch(seed, _NOISE))
    z = system.initial_mean + square_root(system.initial_covariance) @ ζ
    kicks = μ + ξ @ square_root(Q).T
    factor = 1 - (_SLOWING / 2) * (1 - np.cos(2 * np.pi * np.arange(rounds) / _PERIOD))
    states = np.empty((rounds, len(Γ)))
    for t in range(rounds):
        states[t] = z = np.clip(z, -_CLIP, _CLIP) if kind == "clipping" else z
        z = (factor[t] * Γ if kind == "slow-change" else Γ) @ z + kicks[t]
    contexts = states @ C.T + θ0
    if kind == "saturation":
        contexts = _SATURATION * np.tanh(contexts / _SATURATION)
    contexts = contexts + φ @ square_root(R).T
    means = states @ c.T + x0
    if kind == "outliers":
        draw = _branch(seed, _GAPS)
        hit = draw.random((rounds, 1)) < _OUTLIER_SHARE
        contexts += np.where(hit, _OUTLIER_SIZE * draw.standard_normal(contexts.shape), 0.0)
    elif kind == "state-free":
        means = np.tile(_branch(seed, _SECOND).standard_normal(len(c)), (rounds, 1))
    elif kind == "relu":
        means = np.maximum(means, 0.0)
    return Trajectory(contexts, means + η * np.sqrt(σ2), means=means, states=states)


def with_missing(trajectory: Trajectory, share: float, seed: int) -> Trajectory:
    """Return the trajectory with a share of its context entries missing, independently of each other."""
    share = checks.number("share", share, least=0)
    holes = _branch(seed, _GAPS).random(trajectory.contexts.shape) < share
    return _with_contexts(trajectory, np.where(holes, np.nan, trajectory.contexts))


def without_contexts(trajectory: Trajectory) -> Trajectory:
    """Return the trajectory without its contexts."""
    return _with_contexts(trajectory, None)


def contextless(system: LinearGaussianSystem) -> LinearGaussianSystem:
    """Return the system behind a trajectory without contexts: the same state and rewards."""
    entries = {name: value for name, value in system.to_dict().items() if not name.startswith("context_")}
    return LinearGaussianSystem.from_dict(entries)


def _with_contexts(trajectory: Trajectory, contexts: FloatArray | None) -> Trajectory:
    rest = {"means": trajectory.means, "features": trajectory.features, "states": trajectory.states}
    return Trajectory(contexts, trajectory.rewards, **rest)


def _switched(system: LinearGaussianSystem, seed: int, rounds: int) -> Trajectory:
    """Follow one system for half the rounds and another for the rest."""
    seeds = np.random.SeedSequence(seed, spawn_key=(_SECOND,))
    other = random_system(_STATE_DIM, system.context_dim, system.arm_count, rng=seeds)
    before = rounds // 2
    second = other.sample(rounds - before, rng=seeds, states=True, threads=1)
    if before == 0:
        return second
    first = system.sample(before, rng=seed, states=True, threads=1)
    parts = {
        name: np.concatenate([getattr(first, name), getattr(second, name)])
        for name in ("contexts", "rewards", "means", "states")
    }
    return Trajectory(**parts)


def _noises(kind: Kind, system: LinearGaussianSystem, rounds: int, draw: np.random.Generator) -> list[FloatArray]:
    """Return standard noises of contexts, rewards and state, one row per round, and of the first state."""
    ζ = draw.standard_normal(system.state_dim)

    def noise(size: int) -> FloatArray:
        if kind == "heavy-tails":
            return math.sqrt((_DEGREES - 2) / _DEGREES) * draw.standard_t(_DEGREES, (rounds, size))
        return draw.standard_normal((rounds, size))

    return [*map(noise, (system.context_dim, system.arm_count, system.state_dim)), ζ]


def _branch(seed: int, number: int) -> np.random.Generator:
    return checks.child(checks.seed_sequence(checks.integer("seed", seed, least=0)), number)
