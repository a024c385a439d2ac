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
