"""The slow twin of looks: arm by arm, from what a learner says of its decisions and the rewards that come."""

import math
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


@dataclass
class Look:
    """A look at an arm: the odds at which it began, and of each play forecast, best forecast and reward (NaN yet)."""

    odds: float
    plays: list[list[float]] = field(default_factory=list)

    @property
    def waits(self) -> bool:
        return math.isnan(self.plays[-1][2])

    def log_ratio(self, scale: float, noise: float) -> float:
        """Better than the best by the likeliest margin from s/2 to 2 s, against as forecast."""
        forecast, best, reward = np.array(self.plays).T
        margin = np.clip(np.mean(reward - best), scale / 2, 2 * scale)
        return float(np.sum((reward - forecast) ** 2 - (reward - best - margin) ** 2) / (2 * noise))


def noise_and_scale(
    spread: float, squares: Array, scored: Array, returns: list[tuple[float, float]]
) -> tuple[Array, float]:
    """σ² of each arm, shrunk by four rewards, and s; `returns` are errors at plays of arms that had been left."""
    pooled = squares[scored > 0].mean()
    weights = 0.99 ** np.arange(len(returns))[::-1]
    errors, moves = weights @ np.array(returns).reshape(-1, 2) ** 2
    unseen = min(1.0, (10 * pooled + errors) / (10 * pooled + moves))
    return (scored * squares + 4 * pooled) / (scored + 4), math.sqrt(unseen * (pooled + spread))


def interval(gap: float, noise: float, scale: float, arms: int, t: int) -> float:
    """Rounds between two looks, √(2 n Δ / (h G))."""
    gain = (math.sqrt(gap**2 + 2 * scale**2) - gap) / 2
    plays = 1 + 2 * math.log(4) * noise / (gap + scale) ** 2
    return math.sqrt(2 * plays * gap / (gain / (2 * arms * (t + 300))))


class Looks:
    """The looks of a learner with k arms, none of them closed."""

    def __init__(self, arms: int) -> None:
        self.last, self.looks = np.zeros(arms), dict[int, Look]()
        self.now, self.forecast, self.left = -1, np.zeros(arms), dict[int, float]()
        self.returns, self.behind, self.begun = list[tuple[float, float]](), np.zeros(arms), False

    def choose(self, t: int, best: int, forecast: Array, squares: Array, scored: Array) -> tuple[int, float]:
        """Return the arm to play and the odds of a change, 0 where it is no look."""
        k = len(forecast)
        noise, scale = noise_and_scale(float(np.median(self.behind)) ** 2, squares, scored, self.returns)
        odds = np.zeros(k)
        for a in range(k):
            look = self.looks.get(a)
            if look is not None and not look.waits:
                ratio, n = look.log_ratio(scale, noise[a]), len(look.plays)
                if ratio <= 0 or n >= 40 or (a == best and n >= 3):
                    del self.looks[a]
                else:
                    odds[a] = look.odds * math.exp(ratio)
                    continue
            gap, waited = max(forecast.max() - forecast[a], scale / 10), t - self.last[a]
            if a != best and waited >= interval(gap, noise[a], scale, k, t):
                self.looks.pop(a, None)
                odds[a] = waited / (2 * k * (t + 300))
        odds[best] = 0.0
        chosen = int(odds.argmax()) if odds.any() else best
        return chosen, float(odds.max())

    def played(self, t: int, arm: int, odds: float, forecast: Array, *, start: bool) -> None:
        """Take note of the arm that is played."""
        if arm == self.now:
            self.left.pop(arm, None)
        elif not start:
            self.left[self.now] = float(forecast[self.now])
        if not start:
            now = [self.now] if self.begun else [*range(len(forecast))]
            self.behind[now], self.begun = forecast.max() - forecast[now], True
        self.now, self.forecast = arm, forecast
        self.last[arm] = t + 1
        if odds > 0 and arm not in self.looks:
            self.looks[arm] = Look(odds)
        look = self.looks.get(arm)
        if look is not None and not (look.plays and look.waits):
            look.plays.append([float(forecast[arm]), float(forecast.max()), math.nan])

    def learned(self, arm: int, reward: float) -> None:
        """Take in the reward of the last play."""
        if arm in self.left:
            self.returns.append((reward - self.forecast[arm], reward - self.left.pop(arm)))
        look = self.looks.get(arm)
        if look is not None and look.waits:
            look.plays[-1][2] = reward
