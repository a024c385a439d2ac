"""Systems for experiments: the paper's, and random ones."""

import math

import numpy as np

from undertow.equations import riccati
from undertow.errors import InvalidInputError
from undertow.support import checks
from undertow.system import LinearGaussianSystem

__all__ = ["paper_system", "random_system"]


def paper_system(psi: float) -> LinearGaussianSystem:
    """Return the system of the paper's evaluation (Eq. 35 LGDS_Good): d = 5, m = 1, k = 2.

    Larger ψ couples neighbouring entries of the state less, so the context, which measures the first entry, says less
    about the arms, whose rewards are the fourth and fifth. The paper takes ψ = 1, 2, 3, 4.

    Examples
    --------
    >>> system = paper_system(psi=1)
    >>> round(float(np.abs(np.linalg.eigvals(system.steady_state.closed_loop)).max()), 4)
    0.8396
    """
    psi = checks.number("psi", psi)
    i, j = np.indices((5, 5))
    with np.errstate(over="ignore"):
        T = np.where(i < j, 1.0, -1.0) * np.exp2(-psi * np.abs(i - j))
    if not np.isfinite(T).all():
        raise InvalidInputError(f"psi: expected a moderate number such as 1, 2, 3 or 4, got {psi:g}")
    return LinearGaussianSystem(
        dynamics=0.99 / riccati.spectral_radius(T) * T,
        arms=np.eye(5)[3:],
        state_noise=np.eye(5),
        reward_noise=1.0,
        context_map=np.eye(5)[:1],
        context_noise=np.eye(1),
    )


def random_system(
    state_dim: int,
    context_dim: int,
    arm_count: int,
    *,
    rng: int | np.random.SeedSequence | np.random.Generator | None = None,
    spectral_radius: float | None = None,
    drift: bool = False,
) -> LinearGaussianSystem:
    """Sample a system for experiments.

    Γ has standard normal entries, scaled to the spectral radius, by default 1 − 10^U with U uniform on (−3, −1);
    C and the arms have N(0, 1/d) entries; Q = q (½HH'/d + ½I) with H standard normal and q = 10^U, U on (−½, ½); the
    noise variance of each context and σ² are 10^U, U on (−1, 1); with `drift`, μ ~ N(0, qI). A system that is not
    stable starts at 0.

    Examples
    --------
    >>> random_system(4, 2, 3, rng=0, spectral_radius=0.95)
    LinearGaussianSystem(state_dim=4, context_dim=2, arm_count=3, spectral_radius=0.95)
    """
    d = checks.integer("state_dim", state_dim, least=1)
    m = checks.integer("context_dim", context_dim, least=0)
    k, drift = checks.integer("arm_count", arm_count, least=1), checks.flag("drift", drift)
    draw = checks.child(checks.seed_sequence(rng), checks.SYSTEM_BRANCH, 0)
    if spectral_radius is None:
        radius = 1 - 10 ** draw.uniform(-3, -1)
    else:
        radius = checks.number("spectral_radius", spectral_radius, above=0)
    Γ = draw.standard_normal((d, d))
    H = draw.standard_normal((d, d))
    q = 10 ** draw.uniform(-0.5, 0.5)
    C = draw.standard_normal((m, d)) / math.sqrt(d)
    c = draw.standard_normal((k, d)) / math.sqrt(d)
    variances = 10 ** draw.uniform(-1, 1, size=m + 1)
    μ = math.sqrt(q) * draw.standard_normal(d)
    return LinearGaussianSystem(
        dynamics=Γ * (radius / riccati.spectral_radius(Γ)),
        arms=c,
        state_noise=q * (H @ H.T / d + np.eye(d)) / 2,
        reward_noise=variances[m],
        context_map=C,
        context_noise=np.diag(variances[:m]),
        drift=μ if drift else None,
        initial_covariance=None if radius < 1 - riccati.UNIT_CIRCLE else np.zeros((d, d)),
    )
