"""The slow twins: what the kernels compute, written for the eye and checked against each other in the tests."""

import math

import numpy as np
import numpy.typing as npt

from undertow import LinearGaussianSystem
from undertow.equations.riccati import square_root

Array = npt.NDArray[np.float64]


def sample(system: LinearGaussianSystem, rounds: int, rng: np.random.Generator) -> tuple[Array, Array, Array, Array]:
    """Contexts, rewards, means and states of one path, drawn in the documented order from one generator."""
    Γ, μ, Q, C, θ0, R, c, x0, σ2 = system.symbols
    d, m, k = len(Γ), len(C), len(c)
    Q_root, R_root, σ = square_root(Q), square_root(R), np.sqrt(σ2)
    z = system.initial_mean + square_root(system.initial_covariance) @ rng.standard_normal(d)
    contexts, rewards, means, states = [], [], [], []
    for _ in range(rounds):
        contexts.append(C @ z + θ0 + R_root @ rng.standard_normal(m))
        means.append(c @ z + x0)
        rewards.append(means[-1] + σ * rng.standard_normal(k))
        states.append(z)
        z = Γ @ z + μ + Q_root @ rng.standard_normal(d)
    return np.array(contexts), np.array(rewards), np.array(means), np.array(states)


def condition(
    system: LinearGaussianSystem, mean: Array, covariance: Array, context: Array, rewards: Array
) -> tuple[Array, Array, float]:
    """Belief given the entries that are not NaN, all at once in textbook form, and their log density."""
    _, _, _, C, θ0, R, c, x0, σ2 = system.symbols
    m = len(C)
    H = np.vstack([C, c])
    noise = np.zeros((len(H), len(H)))
    noise[:m, :m] = R
    noise[m:, m:] = np.diag(σ2)
    y = np.concatenate([context - θ0, rewards - x0])
    seen = ~np.isnan(y)
    if not seen.any():
        return mean, covariance, 0.0
    H, y, noise = H[seen], y[seen], noise[np.ix_(seen, seen)]
    S = H @ covariance @ H.T + noise
    K = covariance @ H.T @ np.linalg.inv(S)
    e = y - H @ mean
    log_density = -0.5 * (e @ np.linalg.solve(S, e) + np.linalg.slogdet(S)[1] + len(e) * math.log(2 * math.pi))
    return mean + K @ e, covariance - K @ H @ covariance, float(log_density)


def joint_law(system: LinearGaussianSystem, rounds: int) -> tuple[Array, Array, Array, Array, Array]:
    """Law of a short series written out whole: all states ~ N(mean, covariance), observations = H states + N(h, noise).

    A round's observations are its context entries, then its rewards.
    """
    Γ, μ, Q, C, θ0, R, c, x0, σ2 = system.symbols
    d, m, k = len(Γ), len(C), len(c)
    mean = np.zeros((rounds, d))
    covariance = np.zeros((rounds, rounds, d, d))
    z, P = system.initial_mean, system.initial_covariance
    for t in range(rounds):
        mean[t], covariance[t, t] = z, P
        for later in range(t + 1, rounds):
            covariance[later, t] = Γ @ covariance[later - 1, t]
            covariance[t, later] = covariance[later, t].T
        z, P = Γ @ z + μ, Γ @ P @ Γ.T + Q
    noise = np.zeros((m + k, m + k))
    noise[:m, :m] = R
    noise[m:, m:] = np.diag(σ2)
    eye = np.eye(rounds)
    return (
        mean.ravel(),
        covariance.transpose(0, 2, 1, 3).reshape(rounds * d, rounds * d),
        np.asarray(np.kron(eye, np.vstack([C, c])), dtype=np.float64),
        np.tile(np.concatenate([θ0, x0]), rounds),
        np.asarray(np.kron(eye, noise), dtype=np.float64),
    )


def posterior(system: LinearGaussianSystem, contexts: Array, rewards: Array) -> tuple[Array, Array, float]:
    """Means (n, d) and covariances (n, d, d) of all states given all observations, and the log density, at one blow."""
    n, d = len(contexts), system.state_dim
    mean, covariance, H, h, noise = joint_law(system, n)
    y = np.hstack([contexts, rewards]).ravel()
    seen = ~np.isnan(y)
    H, y, noise = H[seen], (y - h)[seen], noise[np.ix_(seen, seen)]
    S = H @ covariance @ H.T + noise
    e = y - H @ mean
    gain = np.linalg.solve(S, H @ covariance).T
    log_density = -0.5 * (e @ np.linalg.solve(S, e) + np.linalg.slogdet(S)[1] + len(e) * math.log(2 * math.pi))
    after = covariance - gain @ H @ covariance
    blocks = np.array([after[t * d : t * d + d, t * d : t * d + d] for t in range(n)])
    return (mean + gain @ e).reshape(n, d), blocks, float(log_density)
