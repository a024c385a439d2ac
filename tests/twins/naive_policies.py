"""The other policies in plain NumPy, written from their definitions: what the compiled ones are checked against."""

import math

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Rows = list[tuple[int, int, Array, float]]  # round, arm, inputs, reward


def lagged_inputs(
    contexts: list[Array], features: Array, rewards: list[tuple[int, float]], *, k: int, m: int, s: int, lags: int
) -> Array:
    """Θ_t from all contexts, this round's features and all own rewards so far, oldest first."""
    Θ = [1.0]
    for i in range(1, s + 1):
        Θ.extend(contexts[-i] if i <= len(contexts) else np.zeros(m))
    Θ.extend(features)
    for lag in range(1, lags + 1):
        for a in range(k):
            here = lag <= len(rewards) and rewards[-lag][0] == a
            Θ.extend((rewards[-lag][1], 1.0) if here else (0.0, 0.0))
    return np.array(Θ)


def weighted_index(rows: Rows, a: int, Θ: Array, weights: Array, λ: float, factor: float) -> tuple[float, float]:
    """Forecast and width of a ridge regression whose rows are weighted; width factor √(Θ'V⁻¹ṼV⁻¹Θ), Ṽ with w²."""
    p = len(Θ)
    V, V2, b = λ * np.eye(p), λ * np.eye(p), np.zeros(p)
    for (_, arm, x, reward), w in zip(rows, weights, strict=True):
        if arm == a:
            V += w * np.outer(x, x)
            V2 += w**2 * np.outer(x, x)
            b += w * reward * x
    inverse = np.linalg.inv(V)
    return float(Θ @ inverse @ b), factor * math.sqrt(Θ @ inverse @ V2 @ inverse @ Θ)


def ucb_index(history: list[tuple[int, float]], k: int, weights: Array, factor: float) -> tuple[Array, Array]:
    """Weighted mean of every arm and its width factor · sd · √(log Σ N / N_a), infinite where there is no reward."""
    rewards = np.array([x for _, x in history])
    scale = float(rewards.std()) if len(rewards) else 1.0
    counts = np.array([weights[[arm == a for arm, _ in history]].sum() for a in range(k)])
    sums = np.array([(weights * rewards)[[arm == a for arm, _ in history]].sum() for a in range(k)])
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.where(counts > 0, sums / counts, 0.0)
        width = np.where(counts > 0, factor * scale * np.sqrt(np.log(max(counts.sum(), 1.0)) / counts), np.inf)
    return mean, width


def filled(contexts: Array, window: int) -> Array:
    """Contexts whose gaps are filled by a regression of every entry on the last contexts, begun with the first gap.

    Values count as deviations from the mean so far, in standard deviations, three at the most, and once an entry has
    varied; the ridge is 1; about ten inputs, whole contexts only.
    """
    n, m = contexts.shape
    lags = min(window, max(1, 10 // m))
    result, begun = np.zeros((n, m)), False
    rows: list[tuple[list[Array], list[float]]] = [([], []) for _ in range(m)]
    for t, context in enumerate(contexts):
        seen = [contexts[:t, j][~np.isnan(contexts[:t, j])] for j in range(m)]
        mean = np.array([values.mean() if len(values) else 0.0 for values in seen])
        spread = np.array([values.std() if len(values) and np.ptp(values) > 0 else 0.0 for values in seen])
        scale = np.where(spread > 0, spread, math.inf)
        begun = begun or bool(np.isnan(context).any())
        x = np.zeros((lags, m))
        for lag in range(1, min(lags, t) + 1):
            x[lag - 1] = np.clip((result[t - lag] - mean) / scale, -3, 3)
        for j in range(m):
            X, y = rows[j]
            if not math.isnan(context[j]):
                result[t, j] = context[j]
                if begun and spread[j] > 0:
                    X.append(x.ravel())
                    y.append(float(np.clip((context[j] - mean[j]) / spread[j], -3, 3)))
            else:
                past = np.array(X).reshape(len(X), x.size)
                weights = np.linalg.solve(past.T @ past + np.eye(x.size), past.T @ np.array(y))
                result[t, j] = mean[j] + spread[j] * np.clip(x.ravel() @ weights, -3, 3)
    return result


def ubss_index(
    history: list[tuple[int, float]], a: int, *, s: int, δ: float, λ: float, B_c: float, B_G: float, B_R: float
) -> tuple[float, float]:
    """Forecast and width of arm a from the rounds of the past that had the same s arms before them, and then a."""
    arms, rewards = [arm for arm, _ in history], np.array([x for _, x in history])
    t = len(history)
    alike = [i for i in range(s, t) if arms[i - s : i] == arms[t - s :] and arms[i] == a]
    inputs = np.array([rewards[i - s : i] for i in alike]).reshape(len(alike), s)
    V = λ * np.eye(s) + inputs.T @ inputs
    x, inverse, N = rewards[t - s :], np.linalg.inv(V), len(alike)
    e = math.sqrt(2 * B_R**2 * (math.log(1 / δ) + (np.linalg.slogdet(V)[1] - s * math.log(λ)) / 2))
    β = λ * B_G * math.sqrt(np.trace(inverse))
    if N:
        β += math.sqrt(N) * math.sqrt(B_c * B_R**2 * math.log(N / δ)) * math.sqrt(np.trace(np.eye(s) - λ * inverse))
    return float(x @ inverse @ inputs.T @ rewards[alike]), (e + β) * math.sqrt(x @ inverse @ x)


def larl_order(rows: Rows, k: int, most: int, λ: float) -> int:
    """Return the s with the least BIC: every arm fitted by itself on the first 2sk + 1 of its inputs."""
    scores = []
    for s in range(1, most + 1):
        p, squares = 2 * s * k + 1, 0.0
        for a in range(k):
            Φ = np.array([x[:p] for _, arm, x, _ in rows if arm == a]).reshape(-1, p)
            X = np.array([reward for _, arm, _, reward in rows if arm == a])
            squares += float(((X - Φ @ np.linalg.solve(λ * np.eye(p) + Φ.T @ Φ, Φ.T @ X)) ** 2).sum())
        scores.append(len(rows) * math.log(squares / len(rows)) + p * math.log(len(rows)))
    return 1 + int(np.argmin(scores))
