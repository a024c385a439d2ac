"""ARES as the paper prints it, step by step, one matrix per window and arm, with the corrections as options.

The start is the kernel's: every window learns from every round, with zeros where there were no contexts yet, and only
windows that have been filled may be chosen.
"""

import math
from collections.abc import Collection

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


class NaiveARES:
    """Parameters as in the paper's Table 1; `as_printed` names rows of docs/paper.md."""

    def __init__(
        self,
        k: int,
        m: int,
        *,
        noise_bound: float,
        δ: float = 0.1,
        λ: float = 1.0,
        α: float = 0.99,
        s_N: int = 10,
        ν: float = 0.1,
        B_G: float = 100.0,
        B_β: float = 0.0,
        as_printed: Collection[str] = (),
    ) -> None:
        self.k, self.m, self.s_N, self.δ, self.λ, self.α, self.B_G, self.B_β = k, m, s_N, δ, λ, α, B_G, B_β
        self.B_R = noise_bound**2 if "A3" in as_printed else noise_bound
        self.ν = 1.0 if "A4" in as_printed else ν
        self.as_printed = as_printed
        self.V = [[λ * np.eye(m * s + 1) for s in range(s_N + 1)] for _ in range(k)]
        self.G = [[np.zeros(m * s + 1) for s in range(s_N + 1)] for _ in range(k)]
        self.ζ = np.zeros((k, s_N + 1))
        self.J = np.zeros((k, s_N + 1))
        self.N = np.zeros(k, dtype=int)
        self.contexts: list[Array] = []

    def Θ(self, s: int) -> Array:
        past = self.contexts[::-1][:s] + [np.zeros(self.m)] * max(0, s - len(self.contexts))
        return np.concatenate([[1.0], *past])

    def e(self, a: int, s: int) -> float:
        V = self.V[a][s]
        ratio = np.linalg.slogdet(V)[1] / 2 - len(V) * math.log(self.λ) / 2
        noise = math.sqrt(2 * self.B_R**2 * (math.log(1 / self.δ) + ratio))
        inverse = np.linalg.inv(V)
        weights = self.λ * self.B_G * math.sqrt(np.trace(inverse))
        bias = self.B_β * math.sqrt(self.N[a]) * math.sqrt(np.trace(np.eye(len(V)) - self.λ * inverse))
        return noise + bias + weights

    def decide(self) -> tuple[int, Array, Array, Array]:
        usable = min(len(self.contexts), self.s_N)
        windows = self.J[:, : usable + 1].argmin(axis=1)
        largest = int(windows.max())
        forecast, width = np.zeros(self.k), np.full(self.k, np.inf)
        for a in range(self.k):
            forecast[a] = self.G[a][windows[a]] @ self.Θ(int(windows[a]))
            if self.N[a]:
                Θ = self.Θ(largest)
                width[a] = self.e(a, largest) * math.sqrt(Θ @ np.linalg.inv(self.V[a][largest]) @ Θ)
        arm = int(np.argmin(self.N > 0)) if (self.N == 0).any() else int(np.argmax(forecast + width))
        return arm, forecast, width, windows.astype(float)

    def learn(self, a: int, X: float) -> None:
        self.N[a] += 1
        for s in range(self.s_N + 1):
            Θ, G = self.Θ(s), self.G[a][s]
            self.ζ[a, s] = self.α * self.ζ[a, s] + (1 - self.α) * abs(X - G @ Θ)
            if "A2" in self.as_printed:
                self.G[a][s] = G + X * np.linalg.inv(self.V[a][s]) @ Θ
            self.V[a][s] = self.V[a][s] + np.outer(Θ, Θ)
            inverse = np.linalg.inv(self.V[a][s])
            if "A2" not in self.as_printed:
                self.G[a][s] = G + inverse @ Θ * (X - Θ @ G)
            form = self.V[a][s] if "A1" in self.as_printed else inverse
            self.J[a, s] = self.ζ[a, s] + self.ν * self.e(a, s) * math.sqrt(Θ @ form @ Θ)

    def observe(self, context: Array) -> None:
        self.contexts.append(np.asarray(context))
