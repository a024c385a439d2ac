"""Thompson sampling for rewards of 0 or 1, less a known price: clicks, right or wrong answers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple

import numpy as np

from undertow.compiled import Common, Layout, Record, compile_loop, inlined, known_cost
from undertow.errors import InvalidInputError
from undertow.live import Capabilities, LivePolicy, register
from undertow.live.propensity import largest_of_laws
from undertow.support import checks
from undertow.support.checks import FloatArray

__all__ = ["BetaThompson"]

_TRIES = 4  # tries to sample a gamma number: each fails at most once in twenty times
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_BENDS = np.array([1e-9, 1e-4, 0.005, 0.05, 0.2, 0.5, 0.8, 0.95, 0.995, 1.0 - 1e-4, 1.0 - 1e-9])  # quantiles


class Settings(Record):
    """Discount γ."""

    discount: float


class ThompsonState(NamedTuple):
    """Weight of the successes and failures of each arm, its price, and the sampled probability of success."""

    common: Common
    settings: Settings
    successes: Annotated[FloatArray, "k"]
    failures: Annotated[FloatArray, "k"]
    price: Annotated[FloatArray, "k"]


@inlined
def gamma(shape: float, draws: FloatArray, first: int) -> float:
    """Return a gamma number of a shape of at least 1, by Marsaglia and Tsang's method; the last try is accepted.

    Normal numbers for the tries begin at `first`, uniform ones as far into the second half of the draws.
    """
    d = shape - 1.0 / 3.0
    v = 1.0
    for i in range(first, first + _TRIES):
        z, u = draws[i], draws[len(draws) // 2 + i]
        root = 1.0 + z / math.sqrt(9.0 * d)
        v = max(root, 1e-3) ** 3
        if root > 0.0 and math.log(u) < 0.5 * z * z + d * (1.0 - v + math.log(v)):
            break
    return d * v


@inlined
def decide(own: ThompsonState, features: FloatArray, draws: FloatArray) -> int:
    """Sample each arm's success rate from Beta(1 + successes, 1 + failures); play the largest less its price."""
    common, k = own.common, len(own.price)
    arm = -1
    for r in range(k):
        a = int(common.order[r])
        α, β = 1.0 + own.successes[a], 1.0 + own.failures[a]
        common.forecast[a] = α / (α + β) - own.price[a]
        common.width[a] = math.sqrt(α * β / (α + β + 1.0)) / (α + β)
        one = gamma(α, draws, 2 * _TRIES * a)
        drawn = one / (one + gamma(β, draws, 2 * _TRIES * a + _TRIES)) - own.price[a]
        common.value[a] = drawn - known_cost(common, a)
        if common.closed[a] == 0.0 and (arm < 0 or common.value[a] > common.value[arm]):
            arm = a
    return arm


@inlined
def played(own: ThompsonState, arm: int) -> None:
    """Let all rewards lose weight."""
    γ = own.settings.discount
    for a in range(len(own.price)):
        own.successes[a] *= γ
        own.failures[a] *= γ


@inlined
def learn(own: ThompsonState, memory: FloatArray, arm: int, rewards: FloatArray, age: int) -> None:
    """Add a reward with the weight of its age, clipped to 0 and 1."""
    weight = own.settings.discount**age
    success = min(max(rewards[arm] + own.price[arm], 0.0), 1.0)
    own.successes[arm] += weight * success
    own.failures[arm] += weight * (1.0 - success)


@register("beta-thompson", citation="Thompson, Biometrika 1933; with a discount Raj and Kalyani, arXiv 1707.09727")
@dataclass(kw_only=True, eq=False, repr=False)
class BetaThompson(LivePolicy):
    """Sample each arm's probability of success from its posterior, and play the largest less its price.

    A reward is 1 or 0, or a share between them, less the arm's price; with `minimize`, a cost is the price minus this.

    Parameters
    ----------
    discount
        γ in (0, 1], by which earlier rewards lose weight in every round.
    prices
        The known cost of playing each arm, 0 by default.

    Examples
    --------
    >>> policy = BetaThompson(arms=["small", "large"], prices=[0.0, 0.2], rng=0)
    >>> policy.learn(policy.decide(), reward=0.8)
    """

    capabilities: ClassVar[Capabilities] = Capabilities(deterministic=False, late_rewards_count_alike=True)
    loop = compile_loop(__name__, Layout(ThompsonState), decide=decide, learn=learn, played=played)

    discount: float = 1.0
    prices: Sequence[float] | None = None

    def _begin(self, own: ThompsonState) -> None:
        own.settings.discount = checks.number("discount", self.discount, above=0)
        if own.settings.discount > 1:
            raise InvalidInputError(f"discount: expected at most 1, got {self.discount:g}")
        prices = checks.array("prices", [] if self.prices is None else self.prices, ("n",))
        if len(prices) > self.arm_count:
            raise InvalidInputError(f"prices: expected one per arm, {self.arm_count}, got {len(prices)}")
        own.price[: len(prices)] = prices

    def _draw(self, rng: np.random.Generator, rounds: int) -> FloatArray:
        count = 2 * _TRIES * self.arm_count
        rows = [(rng.standard_normal(count), 1.0 - rng.random(count)) for _ in range(rounds)]  # one round after another
        return np.array(rows).reshape(rounds, 2 * count)

    def _probabilities(self, own: ThompsonState, played: int) -> FloatArray:
        """Return for every arm the probability that its sampled value is the largest of the open arms'.

        ∫ f_a(x) Π_b F_b(x) dx, b ≠ a, in panels that end where one of the factors bends, each with Gauss–Legendre
        quadrature.
        """
        from scipy.special import betainc, betaincinv, betaln, xlog1py, xlogy  # needed only here

        common = own.common
        opened, chances = common.closed == 0, np.zeros(self.arm_count)
        mean, price = (common.forecast + own.price)[opened, None], own.price + common.cost * common.head.reward_unit
        both = mean * (1.0 - mean) / common.width[opened, None] ** 2 - 1.0
        α, β, price = mean * both, (1.0 - mean) * both, price[opened, None]
        cuts = np.unique(np.hstack([betaincinv(α, β, _BENDS), np.zeros_like(α), np.ones_like(α)]) - price)
        half = np.diff(cuts)[:, None] / 2
        x = np.clip((cuts[:-1, None] + half * (1.0 + _NODES)).ravel() + price, 0.0, 1.0)
        inside = (x > 0.0) & (x < 1.0)
        density = np.where(inside, np.exp(xlogy(α - 1.0, x) + xlog1py(β - 1.0, -x) - betaln(α, β)), 0.0)
        chances[opened] = largest_of_laws(density, betainc(α, β, x), (half * _WEIGHTS).ravel())
        return chances
