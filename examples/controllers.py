"""Controller selection: which gain should hold a crane with an unknown load.

Simulated; it is the application that the ARES paper names. A slewing crane has a drive that lags behind its command,
and wind turns it. Its inertia is that of the load times the square of how far out it hangs, and drifts. Five LQR gains
were computed for five inertias: five linearisations of one plant. In every round of five seconds one of them holds the
crane in place; its cost is the mean of LQR's objective. The state carries over from round to round, whichever gain
holds it. After a round the pressure in the hoist is read, a noisy hint at the inertia: the context.
"""

import math
from collections.abc import Callable, Sequence

import numba
import numpy as np
from scipy.linalg import expm, solve_discrete_are
from scipy.signal import lfilter

from costs import FloatArray, draw, options, play_all, print_table

STEP, STEPS = 0.02, 250  # seconds, and how many of them a round has
INERTIAS = np.array([0.5, 1.0, 2.0, 4.0, 8.0])  # for which there are gains, in units of the empty hook, half way out
MEAN, SPREAD, PERSISTENCE = 1.0, 1.5, 0.99  # of the logarithm of the inertia to base 2, an autoregression in limits
FRICTION, LAG, WIND = (
    0.5,
    0.05,
    0.05,
)  # of the joint; of the drive, in seconds; standard deviation of the wind per step
ANGLE, EFFORT = 1.0, 0.01  # weights of LQR
PRESSURE_NOISE = 1.0  # in the units of the logarithm
KNOWS = "rule that knows the plant"


def linearise(inertia: float) -> tuple[FloatArray, FloatArray]:
    """Return A and B of one step: angle, its rate and the torque of the drive; and the commanded torque."""
    motion = np.array([[0, 1, 0], [0, -FRICTION / inertia, 1 / inertia], [0, 0, -1 / LAG]])
    command = np.array([[0], [0], [1 / LAG]])
    both = expm(STEP * np.block([[motion, command], [np.zeros((1, 4))]]))
    return np.ascontiguousarray(both[:3, :3]), both[:3, 3].copy()


def lqr(inertia: float) -> FloatArray:
    """Return the gain that is best for an inertia, (3,)."""
    A, b = linearise(inertia)
    B = b[:, None]
    P = solve_discrete_are(A, B, np.diag([ANGLE, 0, 0]), [[EFFORT]])
    return np.asarray(np.linalg.solve(EFFORT + B.T @ P @ B, B.T @ P @ A)[0])


@numba.njit  # type: ignore[untyped-decorator]
def turn(x: FloatArray, A: FloatArray, B: FloatArray, before: FloatArray, gain: FloatArray, push: FloatArray) -> float:
    """Hold the crane for a round, updating x, and return the mean cost. The first step still has the gain before."""
    cost = 0.0
    for step in range(len(push)):
        k = before if step == 0 else gain
        u = -(k[0] * x[0] + k[1] * x[1] + k[2] * x[2])
        cost += ANGLE * x[0] ** 2 + EFFORT * u**2
        angle, rate, torque = x
        for row in range(3):
            x[row] = A[row, 0] * angle + A[row, 1] * rate + A[row, 2] * torque + B[row] * u
        x[1] += push[step]
    return cost / len(push)


class Crane:
    """A crane with its load and its wind, fixed by a seed."""

    names = tuple(f"gain for {inertia:g}" for inertia in INERTIAS)
    context_dim = 1

    def __init__(self, rounds: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        noise = rng.standard_normal(rounds)
        noise[1:] *= math.sqrt(1 - PERSISTENCE**2)
        drifting = MEAN + SPREAD * lfilter([1], [1, -PERSISTENCE], noise)
        self.load = np.clip(drifting, *np.log2(INERTIAS[[0, -1]]))  # an empty hook half way out, a full one far out
        self.pressure = self.load + PRESSURE_NOISE * rng.standard_normal(rounds)
        self.push = WIND * rng.standard_normal((rounds, STEPS)) / 2 ** self.load[:, None]
        self.plants = [linearise(inertia) for inertia in 2**self.load]
        self.gains = [lqr(inertia) for inertia in INERTIAS]
        self.features = np.empty((rounds, 0))
        self.begin()

    def begin(self) -> "Crane":
        """Start the crane at rest, held by the middle gain."""
        self._state, self._gain = np.zeros(3), self.gains[len(INERTIAS) // 2]
        return self

    def play(self, t: int, arm: int) -> float:
        """Hold the crane by one of the gains in round t; return the cost."""
        before, self._gain = self._gain, self.gains[arm]
        return float(turn(self._state, *self.plants[t], before, self._gain, self.push[t]))

    def context(self, t: int) -> FloatArray:
        """Return the pressure read in round t."""
        return np.array([self.pressure[t]])


def nearest(crane: Crane, t: int) -> int:
    """Return the gain whose inertia is nearest to the true one: a rule that knows the plant."""
    return int(np.abs(np.log2(INERTIAS) - crane.load[t]).argmin())


def cranes(worlds: int, rounds: int, first: int = 2000) -> list[Callable[[], Crane]]:
    """Return the worlds."""
    return [Crane(rounds, seed).begin for seed in range(first, first + worlds)]


def main(arguments: Sequence[str] | None = None) -> None:
    chosen = options(__doc__, out="controllers.png", arguments=arguments, record=False)
    played = play_all(cranes(chosen.worlds, chosen.rounds), {KNOWS: nearest})
    print_table(f"Five gains: {chosen.rounds} rounds of five seconds, {chosen.worlds} worlds", played, own=False)
    slow = np.mean([run.own > STEP for run in played["Autopilot"]])
    print(f"Autopilot took longer than a step of the plant, {1000 * STEP:g} ms, in {100 * slow:.2f} % of the rounds.\n")
    draw("Five gains for one crane", played, chosen.out, own=False)


if __name__ == "__main__":
    main()
