"""Channel selection: which radio channel to use while all of them fade.

Simulated. Each of six channels has a complex gain h that follows an autoregression, h' = φ h + √(1 − φ²) · noise, which
is Rayleigh fading. An arm is a channel, its reward the rate log₂(1 + SNR |h|²) that the slot carried, in bits. After
each slot two receivers report the power, in decibels, that they heard on three of the channels together: the context.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.signal import lfilter

from lineup import draw, options, play_table, print_table
from undertow import Trajectory

PERSISTENCE = np.array([0.999, 0.998, 0.995, 0.99, 0.98, 0.95])  # φ: slow channels first
SNR = 10.0
REPORT_NOISE = 1.0  # decibels


def fading(rounds: int, seed: int) -> Trajectory:
    """Return one path: the rates of every channel and the reports, slot by slot."""
    rng = np.random.default_rng(seed)
    gains = np.stack([fade(φ, rounds, rng) for φ in PERSISTENCE], axis=1)
    power = np.abs(gains) ** 2
    heard = power.reshape(rounds, 2, 3).sum(axis=2)
    reports = 10 * np.log10(heard) + REPORT_NOISE * rng.standard_normal(heard.shape)
    return Trajectory(reports, np.log2(1 + SNR * power))


def fade(φ: float, rounds: int, rng: np.random.Generator) -> npt.NDArray[np.complex128]:
    """Return a complex autoregression of variance 1 that begins in its stationary law."""
    noise = (rng.standard_normal(rounds) + 1j * rng.standard_normal(rounds)) / np.sqrt(2)
    noise[1:] *= np.sqrt(1 - φ**2)
    return np.asarray(lfilter([1], [1, -φ], noise))


def main(arguments: Sequence[str] | None = None) -> None:
    chosen = options(__doc__, rounds=2000, out="channels.png", arguments=arguments)
    paths = [fading(chosen.rounds, seed) for seed in range(chosen.seeds)]
    slots = Trajectory(np.stack([path.contexts for path in paths]), np.stack([path.rewards for path in paths]))
    earned = play_table(slots)
    print_table(f"Six fading channels: {slots.rounds} slots, {chosen.seeds} seeds", earned)
    draw({"Six fading channels": earned}, chosen.out)


if __name__ == "__main__":
    main()
