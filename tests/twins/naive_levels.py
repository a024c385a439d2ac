"""The slow twins of the structural model: full matrices, and one Gaussian law of all rewards written out whole."""

import math

import numpy as np
import numpy.typing as npt
from scipy.stats import multivariate_normal

from undertow.models.levels.equations import GROUPS, Hyper
from undertow.models.levels.filter import LIMIT, Belief

Array = npt.NDArray[np.float64]


def groups(k: int, q: int) -> npt.NDArray[np.int64]:
    """Group of each entry: shared level, slow levels, fast levels, intercept and weights by arm, shared weights."""
    return np.array([0] + [1] * k + [2] * k + ([3] + [4] * q) * k + [5] * q)


def matrices(hyper: Array, k: int, q: int) -> tuple[Array, Array, Array]:
    """Transition Φ, innovation covariance Q and initial covariance, all diagonal."""
    φ, V = hyper[groups(k, q)], hyper[GROUPS + groups(k, q)]
    return np.diag(φ), np.diag(V * (1 - φ**2)), np.diag(V)


def row(arm: int, features: Array, k: int) -> Array:
    """Observation row h of an arm: shared level, its two levels, [1, u] at its own weights, u at the shared ones."""
    q = len(features)
    h = np.zeros(len(groups(k, q)))
    h[[0, 1 + arm, 1 + k + arm]] = 1
    start = 1 + 2 * k + arm * (1 + q)
    h[start : start + 1 + q] = [1, *features]
    h[len(h) - q :] = features
    return h


def seen(table: Array) -> npt.NDArray[np.bool_]:
    return np.asarray((table[:, 0] >= 0) & ~np.isnan(table[:, 1]))


def places(k: int, q: int) -> tuple[npt.NDArray[np.int64], list[npt.NDArray[np.int64]]]:
    """Where the entries of what is shared stand in the state, and those of each arm's own."""
    D = len(groups(k, q))
    own = [np.r_[1 + a, 1 + k + a, 1 + 2 * k + a * (1 + q) + np.arange(1 + q)] for a in range(k)]
    return np.r_[0, np.arange(D - q, D)], own


def forget(P: Array, k: int, q: int) -> Array:
    """The covariance in which arms depend on one another through what is shared now, and in no other way."""
    shared, own = places(k, q)
    result, through = P.copy(), np.linalg.pinv(P[np.ix_(shared, shared)])
    for a in range(k):
        for b in range(k):
            if a != b:
                result[np.ix_(own[a], own[b])] = P[np.ix_(own[a], shared)] @ through @ P[np.ix_(shared, own[b])]
    return result


def written_out(belief: Belief) -> tuple[Array, Array]:
    """Mean and covariance of the whole state in a belief of parts."""
    k, q = len(belief.own), len(belief.shared) - 1
    shared, own = places(k, q)
    z, P = np.zeros(len(groups(k, q))), np.zeros((len(groups(k, q)),) * 2)
    z[shared], P[np.ix_(shared, shared)] = belief.shared, belief.P_shared
    for a in range(k):
        z[own[a]], P[np.ix_(own[a], own[a])] = belief.own[a], belief.P_own[a]
        P[np.ix_(own[a], shared)], P[np.ix_(shared, own[a])] = belief.P_cross[a], belief.P_cross[a].T
    return z, forget(P, k, q)


def run(
    table: Array, hyper: Array, k: int, limit: float = LIMIT, forgetful: bool = False
) -> tuple[float, Array, Array, Array]:
    """Log-likelihood, standardized innovations, and the belief at the end of the last round, without a step beyond.

    Forgetful, it drops after each step what `forget` does.
    """
    q = table.shape[1] - 2
    Φ, Q, P = matrices(hyper, k, q)
    z = np.zeros(len(P))
    log_likelihood, innovations = 0.0, np.full(len(table), np.nan)
    for t, there in enumerate(seen(table)):
        if t > 0:
            z, P = Φ @ z, Φ @ P @ Φ + Q
            P = forget(P, k, q) if forgetful else P
        if there:
            h = row(int(table[t, 0]), table[t, 2:], k)
            s = h @ P @ h + Hyper(hyper, 0).reward_noise
            e = table[t, 1] - h @ z
            K = P @ h / s
            most = limit * math.sqrt(s)
            z, P = z + K * min(max(e, -most), most), P - np.outer(K, h @ P)
            log_likelihood -= 0.5 * (math.log(2 * math.pi * s) + e**2 / s)
            innovations[t] = e / math.sqrt(s)
    return log_likelihood, innovations, z, P


def forecast(z: Array, P: Array, hyper: Array, k: int, features: Array) -> Array:
    """Mean; variances of s + f + ⟨w, [1, u]⟩, of s + ⟨w, [1, u]⟩, of s + f, of ⟨w, [1, u]⟩, of the reward: (6, k)."""
    result, part = np.empty((6, k)), groups(k, len(features))
    for a in range(k):
        h = row(a, features, k)
        result[0, a], result[5, a] = h @ z, h @ P @ h + Hyper(hyper, 0).reward_noise
        for i, which in enumerate([(1, 2, 3, 4), (1, 3, 4), (1, 2), (3, 4)]):
            some = h * np.isin(part, which)
            result[1 + i, a] = some @ P @ some
    return result


def dense_log_likelihood(table: Array, hyper: Array, k: int, time_steps: Array | None = None) -> float:
    """The same likelihood from the covariance of all rewards: Cov(z_j at t, z_j at t') = V φ^|t − t'|.

    t counts rounds, or is the time step of each.
    """
    q = table.shape[1] - 2
    φ, V = hyper[groups(k, q)], hyper[GROUPS + groups(k, q)]
    rounds = np.flatnonzero(seen(table))
    H = np.array([row(int(table[t, 0]), table[t, 2:], k) for t in rounds])
    times = rounds if time_steps is None else time_steps[rounds]
    apart = np.abs(times[:, None] - times[None, :])
    covariance = np.diag(np.full(len(rounds), Hyper(hyper, 0).reward_noise))
    for j in range(len(φ)):
        covariance += np.outer(H[:, j], H[:, j]) * V[j] * φ[j] ** apart
    return float(multivariate_normal(np.zeros(len(rounds)), covariance).logpdf(table[rounds, 1]))


def score(table: Array, hyper: Array, k: int) -> Array:
    """Score in atanh φ, log V and log σ² by Fisher's identity, from the law of all states given all rewards."""
    q, n = table.shape[1] - 2, len(table)
    Φ, Q, P0 = matrices(hyper, k, q)
    D = len(Φ)
    prior = np.zeros((n, n, D, D))
    P = P0
    for t in range(n):
        prior[t, t] = P
        for later in range(t + 1, n):
            prior[later, t] = Φ @ prior[later - 1, t]
            prior[t, later] = prior[later, t].T
        P = Φ @ P @ Φ + Q
    covariance = prior.transpose(0, 2, 1, 3).reshape(n * D, n * D)
    there = np.flatnonzero(seen(table))
    H = np.zeros((len(there), n * D))
    for i, t in enumerate(there.tolist()):
        H[i, t * D : (t + 1) * D] = row(int(table[t, 0]), table[t, 2:], k)
    gain = covariance @ H.T @ np.linalg.inv(H @ covariance @ H.T + Hyper(hyper, 0).reward_noise * np.eye(len(there)))
    mean = gain @ table[there, 1]
    second = covariance - gain @ H @ covariance + np.outer(mean, mean)  # E zz' given all rewards
    moments = second.reshape(n, D, n, D)
    φ, V = np.diag(Φ), np.diag(P0)
    result = np.zeros(len(hyper))
    for j, group in enumerate(groups(k, q).tolist()):
        entry = moments[:, j, :, j]
        start = entry[0, 0]
        by_V = (start / V[j] - 1) / 2
        if φ[j] < 1:
            noise = V[j] * (1 - φ[j] ** 2)
            squares = math.fsum(
                entry[t, t] - 2 * φ[j] * entry[t, t - 1] + φ[j] ** 2 * entry[t - 1, t - 1] for t in range(1, n)
            )
            slope = math.fsum(entry[t, t - 1] - φ[j] * entry[t - 1, t - 1] for t in range(1, n)) / noise
            by_noise = (squares / noise - (n - 1)) / (2 * noise)
            by_V += V[j] * (1 - φ[j] ** 2) * by_noise
            result[group] += (1 - φ[j] ** 2) * (slope - 2 * φ[j] * V[j] * by_noise)
        result[GROUPS + group] += by_V
    smoothed = second - np.outer(mean, mean)
    residuals = np.sum((table[there, 1] - H @ mean) ** 2 + np.einsum("ij,jk,ik->i", H, smoothed, H))
    Hyper(result, 0).reward_noise = (residuals / Hyper(hyper, 0).reward_noise - len(there)) / 2
    return result
