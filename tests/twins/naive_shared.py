"""The slow twin of a shared system between two fits: a Kalman filter and recursive least squares, in plain NumPy."""

import math

import numpy as np

from helpers import Array
from undertow.models.shared_system.model import SharedState
from undertow.models.shared_system.vector import split_vector


class SharedTwin:
    """A learned shared system with plain matrices, in its own units; arms have a law [C; D] ~ N(·, V) each."""

    def __init__(self, own: SharedState) -> None:
        d, self.k, self.m = int(own.model.head.order), len(own.V), len(own.mean) - 1
        system = split_vector(own.vector, self.m, self.k)
        self.A, self.b = system.A[:d, :d].copy(), system.b[0, :d].copy()
        self.C, self.D, self.r = system.C[:, :d].copy(), system.D.copy(), own.noise.copy()
        self.z, self.P = own.z[0, :d].copy(), own.P[:d, :d].copy()
        self.V = [own.V[a, : d + 1, : d + 1].copy() for a in range(self.k)]
        self.mean, self.scale, self.most = own.mean.copy(), own.scale.copy(), own.model.head.bonus

    def begin(self) -> None:
        self.z, self.P = self.A @ self.z + self.b, self.A @ self.P @ self.A.T + np.eye(len(self.z))

    def forecast(self, t: int) -> tuple[Array, Array, Array, Array]:
        """Forecast, width, standard error from the state, from the arm, after t rounds."""
        factor = min(self.most, max(1.0, math.sqrt(max(0.0, math.log((t + 1) / math.sqrt(self.k))))))
        c, known = self.C[self.m :], np.append(self.z, 1.0)
        mean = self.mean[-1] + self.scale[-1] * (c @ self.z + self.D[self.m :])
        state = self.scale[-1] * np.sqrt(np.einsum("ai,ij,aj->a", c, self.P, c))
        arm = self.scale[-1] * np.sqrt([known @ V @ known for V in self.V])
        return mean, factor * arm, state, arm

    def condition(self, output: int, value: float, noise: float) -> tuple[float, float]:
        """The Kalman step; return innovation and its variance."""
        h = self.C[output]
        e, F = value - self.D[output] - h @ self.z, h @ self.P @ h + noise
        gain = self.P @ h / F
        self.z, self.P = self.z + gain * e, self.P - np.outer(gain, h @ self.P)
        return float(e), float(F)

    def learn(self, arm: int, reward: float) -> None:
        """Condition the state, with the arm's own law as further noise, and the arm, with the state as noise."""
        known, V, output = np.append(self.z, 1.0), self.V[arm], self.m + arm
        e, F = self.condition(output, (reward - self.mean[-1]) / self.scale[-1], self.r[-1] + known @ V @ known)
        gain = V @ known / F
        self.V[arm] = V - np.outer(gain, known @ V)
        self.C[output] += gain[:-1] * e
        self.D[output] += gain[-1] * e

    def observe(self, context: Array) -> None:
        for i in np.flatnonzero(~np.isnan(context)):
            self.condition(int(i), (context[i] - self.mean[i]) / self.scale[i], self.r[i])

    def agrees_with(self, own: SharedState) -> None:
        system, d = split_vector(own.vector, self.m, self.k), len(self.z)
        np.testing.assert_allclose(own.z[0, :d], self.z, atol=1e-9)
        np.testing.assert_allclose(own.P[:d, :d], self.P, atol=1e-9)
        np.testing.assert_allclose(own.V[:, : d + 1, : d + 1], self.V, atol=1e-9)
        np.testing.assert_allclose(system.C[:, :d], self.C, atol=1e-9)
        np.testing.assert_allclose(system.D, self.D, atol=1e-9)
