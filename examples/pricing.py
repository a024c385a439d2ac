"""Dynamic pricing: today's price while demand drifts and customers remember what they paid.

Simulated. The number of visitors and their willingness to pay follow autoregressions. Visitors also compare with a
remembered price, an average of past prices, so today's price moves tomorrow's sales and no table of rewards exists: the
policies play live. An arm is a price, its reward the day's revenue; in the evening the number of visitors and a
competitor's price are observed, the context.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.signal import lfilter
from scipy.special import expit

from lineup import (
    BEST_FIXED,
    CLAIRVOYANT,
    DECAY,
    FULL_AVERAGE,
    RANDOM,
    Earned,
    FloatArray,
    draw,
    line_up,
    options,
    play_seeds,
    print_table,
)
from undertow.policies import LivePolicy, Random

PRICES = np.array([6.0, 8.0, 10.0, 12.0, 14.0, 16.0])
MEMORY = 0.9  # how slowly customers forget a price
LOYALTY = 0.5  # gain in the willingness to pay for a price below the remembered one
SPREAD = 2.0  # of the willingness to pay among visitors


def wander(rng: np.random.Generator, days: int, φ: float, deviation: float) -> FloatArray:
    """Return an autoregression that begins in its stationary law."""
    noise = deviation * rng.standard_normal(days)
    noise[1:] *= np.sqrt(1 - φ**2)
    return np.asarray(lfilter([1], [1, -φ], noise))


@dataclass
class Market:
    """The demand of every day, at any price; revenue is in hundreds."""

    visitors: FloatArray
    willing: FloatArray
    luck: FloatArray
    contexts: FloatArray
    remembered: float = 11.0

    @classmethod
    def draw(cls, days: int, seed: int) -> "Market":
        """Sample a market."""
        rng = np.random.default_rng(seed)
        log_visitors, willing = wander(rng, days, 0.97, 0.3), 11 + wander(rng, days, 0.99, 3.0)
        competitor = willing + 1.5 * rng.standard_normal(days)
        contexts = np.stack([log_visitors, competitor], axis=1)
        return cls(100 * np.exp(log_visitors), willing, rng.standard_normal(days), contexts)

    def buyers(self, day: int, remembered: float | FloatArray, price: float | FloatArray) -> FloatArray:
        """Return the expected number of buyers."""
        worth = self.willing[day] + LOYALTY * (remembered - price)
        return np.asarray(self.visitors[day] * expit((worth - price) / SPREAD))

    def revenues(self, day: int) -> FloatArray:
        """Return the revenue of each price today: integer numbers of buyers, with the same random numbers for all."""
        mean = self.buyers(day, self.remembered, PRICES)
        return np.asarray(PRICES * np.maximum(0, np.round(mean + np.sqrt(mean) * self.luck[day])) / 100)

    def sell(self, day: int, arm: int) -> float:
        """Set a price, return the revenue, and update the remembered price."""
        revenue = self.revenues(day)[arm]
        self.remembered = MEMORY * self.remembered + (1 - MEMORY) * PRICES[arm]
        return float(revenue)


def play(policy: LivePolicy, market: Market) -> FloatArray:
    """Let a policy set the prices, day by day."""
    earned = np.empty(len(market.contexts))
    for day, context in enumerate(market.contexts):
        decision = policy.decide()
        earned[day] = market.sell(day, decision.arm)
        policy.learn(decision, earned[day])
        if getattr(policy, "context_dim", 0):
            policy.observe(context)
    return earned


def play_fixed(arm: int, market: Market) -> FloatArray:
    return np.array([market.sell(day, arm) for day in range(len(market.contexts))])


def play_average(market: Market) -> FloatArray:
    """Play the largest exponential average of every price's revenue, as if all were observed."""
    averages, earned = np.zeros(len(PRICES)), []
    for day in range(len(market.contexts)):
        arm = int(averages.argmax())
        averages += (1 - DECAY) * (market.revenues(day) - averages)
        earned.append(market.sell(day, arm))
    return np.array(earned)


def play_clairvoyant(market: Market) -> FloatArray:
    """Play the best plan for known future demand, found backwards over a grid of remembered prices."""
    days, grid = len(market.contexts), np.linspace(PRICES[0], PRICES[-1], 41)
    after = MEMORY * grid[:, None] + (1 - MEMORY) * PRICES
    ahead = np.zeros((days + 1, len(grid)))
    for day in reversed(range(days)):
        today = PRICES * market.buyers(day, grid[:, None], PRICES) / 100
        ahead[day] = (today + np.interp(after, grid, ahead[day + 1])).max(axis=1)
    earned = []
    for day in range(days):
        today = PRICES * market.buyers(day, market.remembered, PRICES) / 100
        later = np.interp(MEMORY * market.remembered + (1 - MEMORY) * PRICES, grid, ahead[day + 1])
        earned.append(market.sell(day, int((today + later).argmax())))
    return np.array(earned)


def play_seed(seed: int, days: int) -> Earned:
    """Let all players play the same market."""
    policies = line_up(arms=len(PRICES), context_dim=2, seed=seed)
    earned = {label: play(policy, Market.draw(days, seed)) for label, policy in policies.items()}
    fixed = [play_fixed(arm, Market.draw(days, seed)) for arm in range(len(PRICES))]
    return earned | {
        BEST_FIXED: max(fixed, key=np.sum),
        FULL_AVERAGE: play_average(Market.draw(days, seed)),
        CLAIRVOYANT: play_clairvoyant(Market.draw(days, seed)),
        RANDOM: play(Random(arms=len(PRICES), rng=seed), Market.draw(days, seed)),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    chosen = options(__doc__, rounds=1000, out="pricing.png", arguments=arguments)
    earned = play_seeds(partial(play_seed, days=chosen.rounds), chosen.seeds)
    print_table(f"Six prices: {chosen.rounds} days, {chosen.seeds} seeds; revenue in hundreds", earned)
    draw({"Six prices, drifting demand": earned}, chosen.out)


if __name__ == "__main__":
    main()
