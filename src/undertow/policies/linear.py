"""Linear bandits over lagged contexts, features and own rewards: LinUCB, LinTS, and the paper's predecessor PIES."""

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple

import numpy as np

from undertow.compiled import (
    Common,
    Fixed,
    Layout,
    Record,
    compile_loop,
    features_of_arm,
    inlined,
    known_cost,
    present_time_step,
)
from undertow.errors import InvalidInputError
from undertow.live import Capabilities, LaggedPolicy, RidgePolicy, register
from undertow.live.inputs import (
    Inputs,
    begin_inputs,
    build_inputs,
    inputs_sizes,
    note_reward,
    note_round,
    push_context,
    put_features,
)
from undertow.live.propensity import chances_of_largest, has_laws
from undertow.live.standardize import Change, change_inputs, change_regression
from undertow.ridge import ridge_project, ridge_update
from undertow.support import checks
from undertow.support.checks import FloatArray

__all__ = ["PIES", "LinTS", "LinUCB"]


class Settings(Record):
    """Factor of the width, whether it is sampled, initial rounds per arm, whether learning ends with them."""

    factor: float
    drawn: Annotated[float, Fixed()]
    start_up: float
    frozen: float


class LinearState(NamedTuple):
    """One regression on p inputs for each arm."""

    common: Common
    inputs: Inputs
    settings: Settings
    chosen: Annotated[FloatArray, "k"]
    learned: Annotated[FloatArray, "k"]  # rewards of each arm
    u: Annotated[FloatArray, "k p"]
    W: Annotated[FloatArray, "k p p"]
    scratch: Annotated[FloatArray, "3 p"]


@inlined
def decide(own: LinearState, features: FloatArray, draws: FloatArray) -> int:
    """Play the largest forecast + width, or the largest sampled forecast."""
    common, settings = own.common, own.settings
    forecast, width, value, closed, Θ = common.forecast, common.width, common.value, common.closed, common.memory
    k, p, t = len(forecast), len(Θ), present_time_step(common.head)
    factor, drawn, start_up = settings.factor, settings.drawn, settings.start_up
    q = int(common.sizes.q)
    build_inputs(own.inputs, k, t, features_of_arm(features, 0, q), Θ)
    y = own.scratch[0]
    arm = -1
    untried = -1
    for r in range(k):
        a = int(common.order[r])
        if len(features) > q:
            put_features(own.inputs, features_of_arm(features, a, q), Θ)
        ridge_project(own.W[a], Θ, y, p)
        mean = 0.0
        uncertainty = 0.0
        deviation = 0.0
        for i in range(p):
            mean += own.u[a, i] * y[i]
            uncertainty += y[i] * y[i]
        if drawn > 0.0:  # Θ'(Ĝ + factor W'ξ) = mean + factor y'ξ
            for i in range(p):
                deviation += y[i] * draws[a * p + i]
        forecast[a] = mean
        width[a] = factor * math.sqrt(uncertainty)
        value[a] = mean + (factor * deviation if drawn > 0.0 else width[a]) - known_cost(common, a)
        if closed[a] == 0.0:
            if arm < 0 or value[a] > value[arm]:
                arm = a
            if untried < 0 and own.chosen[a] < start_up:
                untried = a
    return untried if untried >= 0 else arm


@inlined
def see(own: LinearState, features: FloatArray) -> None:
    """Remember the inputs of the played arm."""
    put_features(own.inputs, features, own.common.memory)


@inlined
def played(own: LinearState, arm: int) -> None:
    """Count the arm of this round."""
    head = own.common.head
    note_round(own.inputs, present_time_step(head), int(head.rounds), arm)
    if arm >= 0:
        own.chosen[arm] += 1.0


@inlined
def learn(own: LinearState, memory: FloatArray, arm: int, rewards: FloatArray, age: int) -> None:
    """Add a row to the played arm's regression."""
    reward = rewards[arm]
    note_reward(own.inputs, int(own.common.head.rounds) - 1 - age, reward)
    if own.settings.frozen > 0.0 and own.learned[arm] >= own.settings.start_up:
        return
    own.learned[arm] += 1.0
    y = own.scratch[0]
    ridge_project(own.W[arm], memory, y, len(y))
    ridge_update(own.W[arm], own.u[arm], y, reward, own.scratch[1], own.scratch[2])


@inlined
def observe(own: LinearState, context: FloatArray) -> None:
    """Store a context."""
    push_context(own.inputs, context)


LOOP = compile_loop(__name__, Layout(LinearState), decide=decide, learn=learn, see=see, played=played, observe=observe)


def _begin(own: LinearState, ridge: float) -> None:
    begin_inputs(own.inputs)
    own.W[:] = np.eye(own.W.shape[-1]) / math.sqrt(ridge)


def _change_units(own: LinearState, ridge: float, change: Change) -> None:
    change_inputs(own.inputs, change)
    for W, u in zip(own.W, own.u, strict=True):
        change_regression(W, u, ridge, change)


@register("linucb", citation="Li, Chu, Langford and Schapire, WWW 2010")
@dataclass(kw_only=True, eq=False, repr=False)
class LinUCB(LaggedPolicy):
    """Ridge regression for each arm, and a width of `exploration` · √(Θ'V⁻¹Θ).

    Examples
    --------
    >>> policy = LinUCB(arms=2, context_dim=1, feature_dim=2, reward_lags=5)
    >>> policy.learn(policy.decide(features=[0.1, 0.7]), reward=0.3)
    >>> policy.observe([1.2])
    """

    capabilities: ClassVar[Capabilities] = Capabilities(
        uses_contexts=True,
        handles_missing_contexts=True,
        takes_features=True,
        late_rewards_count_alike=True,
        takes_arm_features=True,
    )
    loop = LOOP

    def _sizes(self) -> dict[str, int]:
        return self._input_sizes()

    def _begin(self, own: LinearState) -> None:
        _begin(own, self.ridge)
        own.settings.factor = self.exploration

    def _change_units(self, own: LinearState, change: Change) -> None:
        _change_units(own, self.ridge, change)


@register("lints", citation="Agrawal and Goyal, ICML 2013")
@dataclass(kw_only=True, eq=False, repr=False)
class LinTS(LaggedPolicy):
    """Linear Thompson sampling: all weights of an arm are sampled jointly from N(Ĝ, `exploration`² V⁻¹).

    The width is the standard deviation of the sampled forecast.

    Examples
    --------
    >>> policy = LinTS(arms=2, context_dim=1, rng=0)
    >>> policy.learn(policy.decide(), reward=0.3)
    """

    capabilities: ClassVar[Capabilities] = LinUCB.capabilities._replace(deterministic=False)
    loop = LOOP

    def _sizes(self) -> dict[str, int]:
        return self._input_sizes()

    def _begin(self, own: LinearState) -> None:
        _begin(own, self.ridge)
        own.settings.factor, own.settings.drawn = self.exploration, 1.0

    def _draw(self, rng: np.random.Generator, rounds: int) -> FloatArray:
        return rng.standard_normal((rounds, self.arm_count * self._input_sizes()["p"]))

    def _change_units(self, own: LinearState, change: Change) -> None:
        _change_units(own, self.ridge, change)

    def _probabilities(self, own: LinearState, played: int) -> FloatArray:
        """Return for every open arm the probability that its sampled forecast less its cost is the largest.

        Forecasts that have overflowed have no law, and comparisons of them no chance: the proposed arm has 1.
        """
        common = own.common
        opened, chances = common.closed == 0, np.zeros(self.arm_count)
        worth, width = (common.forecast - common.cost * common.head.reward_unit)[opened], common.width[opened]
        if self.exploration == 0 or not has_laws(worth, width):
            return super()._probabilities(own, played)
        chances[opened] = chances_of_largest(worth, width)
        return chances


@register("pies", citation="Gornet, Hosseinzadeh and Sinopoli, CDC 2022 (doi 10.1109/CDC51059.2022.9993316)")
@dataclass(kw_only=True, eq=False, repr=False)
class PIES(RidgePolicy):
    """Phased Initial Exploration of the System: each arm for s rounds in turn, then always the largest forecast.

    Parameters
    ----------
    window
        s ≥ 1, the number of contexts in the forecast and of initial rounds per arm.
    ridge
        λ > 0.
    frozen
        Whether learning stops after the first phase. The paper does not say. Its results fit only a policy that keeps
        learning (A10), which is the default.

    Examples
    --------
    >>> policy = PIES(arms=2, context_dim=1, window=3)
    >>> policy.decide().arm
    0
    """

    capabilities: ClassVar[Capabilities] = LinUCB.capabilities._replace(takes_features=False, takes_arm_features=False)
    loop = LOOP

    window: int = 10
    ridge: float = 1.0
    frozen: bool = False

    def _sizes(self) -> dict[str, int]:
        if self._context_dim == 0:
            raise InvalidInputError("context_dim: expected at least 1, since PIES forecasts from contexts, got 0")
        self.window = checks.integer("window", self.window, least=1)
        self.ridge = checks.number("ridge", self.ridge, above=0)
        return inputs_sizes(self.arm_count, self._context_dim, 0, self.window, 0)

    def _begin(self, own: LinearState) -> None:
        _begin(own, self.ridge)
        own.settings.start_up, own.settings.frozen = self.window, checks.flag("frozen", self.frozen)

    def _change_units(self, own: LinearState, change: Change) -> None:
        _change_units(own, self.ridge, change)
