import contextlib
import os
import random
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
import pytest

from helpers import Array, fit_next, make_policy
from undertow import LinearGaussianSystem, UnknownDecisionError, paper_system, random_system
from undertow.compiled import Common, FloatArray, Layout, Record, best_arm, compile_loop, inlined
from undertow.compiled.views import view
from undertow.contracts import BrokenContractError, check_policy
from undertow.contracts.trial import RULES, Trial
from undertow.learning.policy import LearningPolicy
from undertow.live import Capabilities, LivePolicy, register
from undertow.policies import UCB, Decision, Health, LinUCB, Outlook, registry
from undertow.policies.ares_as_printed import PrintedARES


def learners_slow(parameter: str) -> list[Any]:
    """The policies that have this parameter ("" for all); those that learn a model are slow."""
    entries = {name: entry for name, entry in registry().items() if parameter in entry.parameters or not parameter}
    slow = [pytest.mark.slow]
    return [
        pytest.param(name, marks=slow if issubclass(entry.policy, LearningPolicy) else [])
        for name, entry in entries.items()
    ]


@pytest.mark.parametrize("name", registry())
def test_every_registered_policy_keeps_the_contract(name: str) -> None:
    tried = check_policy(lambda system, rng: make_policy(name, system, rng=rng))
    claims = registry()[name].capabilities
    assert ("better than Random" in tried) == claims.uses_contexts
    assert ("arms can be reordered" in tried) == claims.deterministic
    assert ("rewards do not matter if unused" in tried) == (not claims.uses_own_rewards)
    assert ("simulated equals by hand" in tried) == (not claims.simulates_only)


@pytest.mark.parametrize("name", learners_slow("context_first"))
def test_the_contract_with_the_context_first(name: str) -> None:
    check_policy(lambda system, rng: make_policy(name, system, rng=rng, context_first=True))


def three_arms() -> LinearGaussianSystem:
    return random_system(3, 2, 3, rng=2, spectral_radius=0.97)


@pytest.mark.parametrize("name", learners_slow(""))
def test_the_contract_with_three_arms_and_two_context_entries(name: str) -> None:
    check_policy(lambda system, rng: make_policy(name, system, rng=rng), system=three_arms())


@pytest.mark.parametrize("rows", [("A1",), ("A2",), ("A1", "A2")], ids="".join)
@pytest.mark.parametrize("system", [None, three_arms()], ids=["paper", "three arms"])
def test_ares_as_printed_keeps_every_rule_but_to_choose_well(
    system: LinearGaussianSystem | None, rows: tuple[str, ...]
) -> None:
    """That rule comes after all that any policy has to keep."""
    with pytest.raises(BrokenContractError, match=r"^better than Random: mean regret \d+ is above that of Random"):
        check_policy(
            lambda given, _: PrintedARES(arms=given.arm_count, context_dim=given.context_dim, as_printed=rows),
            system=system,
        )


@pytest.mark.parametrize(
    "more",
    [
        {"reward_lags": 3},
        {"reward_lags": 3, "window": 0},
        {"window": 4, "exploration": 0.3},
    ],
)
@pytest.mark.parametrize("name", ["linucb", "lints", "discounted-linucb", "sliding-window-linucb"])
def test_the_contract_with_reward_lags(name: str, more: dict[str, Any]) -> None:
    check_policy(lambda system, rng: make_policy(name, system, rng=rng, **more))


class Stubborn:
    """A policy in plain Python that keeps only some of the rules."""

    context_dim = 0

    def __init__(self) -> None:
        self.seen: list[float] = []

    def decide(self, features: Any = None) -> Decision:
        return Decision(str(len(self.seen)), len(self.seen), 0, "0", np.zeros(2), np.zeros(2), None)

    def learn(self, decision: Decision | str, reward: float) -> None:
        self.seen.append(reward)

    def observe(self, context: Any) -> None:
        pass


def test_a_policy_that_breaks_a_rule_is_told_which() -> None:
    wanted = "a reward can only be learned once: another reward for the same decision was accepted"
    with pytest.raises(BrokenContractError, match=wanted):
        check_policy(lambda system, rng: Stubborn())


class Clairvoyant(LinUCB):
    """Capabilities what it does not do: its choices depend on the clock of the process."""

    def decide(self, features: Any = None, **how: Any) -> Decision:
        decision = super().decide(features, **how)
        return decision._replace(forecast=decision.forecast + 1)


def test_live_and_simulated_have_to_agree() -> None:
    with pytest.raises(BrokenContractError, match="simulated equals by hand: round 0: forecast"):
        check_policy(lambda system, rng: Clairvoyant(arms=2, context_dim=1))


class Numbered(UCB):
    """Counts its decisions, so that copies have the same ids."""

    def decide(self, features: Any = None, *, id: Any = None, **how: Any) -> Decision:
        return super().decide(features, id=id or f"decision {self.round}", **how)


class Deaf(LinUCB):
    """Hears neither ids nor contexts that are given with a decision."""

    def decide(self, features: Any = None, *, id: Any = None, context: Any = ..., **how: Any) -> Decision:
        if context is not ...:
            self.observe(None)
        return super().decide(features, **how)


class Credulous(UCB):
    """Takes rewards of decisions that it does not know, and says that it waits for none."""

    def learn(self, decision: Any, reward: float, **how: Any) -> None:
        with contextlib.suppress(UnknownDecisionError):
            super().learn(decision, reward, **how)

    def health(self) -> Health:
        return super().health()._replace(pending=0)


class Hasty(UCB):
    """Gives the default reward a round too early."""

    def decide(self, features: Any = None, **how: Any) -> Decision:
        for name in self.parts.pending.overdue(self.round + 1):
            self.learn(name, 0.25)
        return super().decide(features, **how)


class Timeless(LinUCB):
    """Takes no note of how much time has passed."""

    def decide(self, features: Any = None, *, elapsed: Any = 1, **how: Any) -> Decision:
        return super().decide(features, **how)


class Restless(UCB):
    """Lets the state move between two decisions of one time step, and forgets what time it is."""

    def decide(self, features: Any = None, *, elapsed: Any = 1, **how: Any) -> Decision:
        decision = super().decide(features, elapsed=elapsed, **how)
        return decision if elapsed else decision._replace(forecast=decision.forecast + 1)


class Denying(UCB):
    """Says that its choices do not depend on rewards."""

    capabilities = UCB.capabilities._replace(uses_own_rewards=False)


class Crossed(LinUCB):
    """Decides with the features of another arm than it forecasts with."""

    def decide(self, features: Any = None, **how: Any) -> Decision:
        return super().decide(features if np.ndim(features) < 2 else features[::-1], **how)


class Averaging(LinUCB):
    """Takes the mean of all rows for the features of every arm."""

    def forecast(self, features: Any = None) -> Outlook:
        return super().forecast(features if np.ndim(features) < 2 else np.mean(features, axis=0))


@pytest.mark.parametrize(
    ("rule", "kind", "message"),
    [
        ("rewards do not matter if unused", Denying, r"other rewards, other arms from round \d+ on"),
        ("time passes, or does not", Timeless, "round 0 is of time step 2, not 0 of 1"),
        ("time passes, or does not", Restless, r"round \d+: the forecast is .* in the time step of"),
        ("time does not run backwards", Timeless, "elapsed=0 before the first decision was accepted"),
        ("features of all arms, or of each", Crossed, r"a feature of arm 0 adds \S+ to its reward, and"),
        ("features of all arms, or of each", Averaging, "with other features of arm 0 alone, the forecasts change by"),
        ("an id names one decision", Numbered, "16 decisions of a policy and two copies of it have 14 ids"),
        ("an id names one decision", Credulous, "a reward of a copy.s decision was accepted"),
        ("an id can be given", Deaf, "the id 'event 0 of many' was given, and the decision has"),
        (
            "context and decision in one call",
            Deaf,
            r"round 0: .* with decide\(context=…\), .* after observe\(context\)",
        ),
        ("a reward that never comes gets the default", Hasty, r"round 3: .* with a default reward"),
        ("a reward that never comes gets the default", Credulous, "a reward that came after its default was accepted"),
        ("what is written as JSON comes back", Credulous, "ucb is ok in round 21: 0 waiting"),
    ],
)
def test_a_policy_that_does_not_keep_what_serving_needs(rule: str, kind: Any, message: str) -> None:
    def make(system: LinearGaussianSystem, rng: int) -> LivePolicy:
        contexts = {"context_dim": system.context_dim} if issubclass(kind, LinUCB) else {}
        policy: LivePolicy = kind(arms=system.arm_count, rng=rng, **contexts)
        return policy

    attempt = {name: attempt for name, _, attempt in RULES}[rule]
    with pytest.raises(BrokenContractError, match=message):
        attempt(Trial(make, paper_system(1)))


def test_a_policy_that_is_no_policy() -> None:
    with pytest.raises(BrokenContractError, match="expected decide, learn and observe"):
        check_policy(lambda system, rng: "UCB")  # type: ignore[arg-type,return-value]


def test_claims_are_checked() -> None:
    class Careless(LinUCB):
        """Says that it learns from contexts, and does not look at them."""

        def observe(self, context: Any, **how: Any) -> None:
            super().observe(np.zeros(self.context_dim), **how)

    with pytest.raises(BrokenContractError, match=r"simulated equals by hand: round \d+: width"):
        check_policy(lambda system, rng: Careless(arms=2, context_dim=1))
    with pytest.raises(BrokenContractError, match=r"better than Random: mean regret \d+ is above that of Random"):
        check_policy(lambda system, rng: LinUCB(arms=2, context_dim=1, window=0))


PROGRAM = """
import sys, numpy as np, undertow
from helpers import make_policy
from undertow.policies import registry
from undertow.learning.policy import LearningPolicy
system = undertow.random_system(3, 2, 3, rng=2, spectral_radius=0.97)
path = system.sample(150, rng=1)
tables = {}
for name, entry in registry().items():
    if not issubclass(entry.policy, LearningPolicy):
        run = undertow.simulate(make_policy(name, system, rng=3), path, record=["forecasts", "widths", "windows"])
        tables |= {f"{name} arms": run.arms, f"{name} forecasts": run.forecasts, f"{name} widths": run.widths}
for file in sys.argv[2:]:  # learners with a model that they keep: a fit would amplify the last bit
    learner, decisions = undertow.load(file), []
    for t in range(100, 130):
        decisions.append(learner.decide())
        learner.learn(decisions[-1], float(path.rewards[t, decisions[-1].arm]))
        learner.observe(path.contexts[t])
    tables |= {f"{file} arms": np.array([d.arm for d in decisions])}
    tables |= {f"{file} forecasts": np.array([d.forecast for d in decisions])}
    tables |= {f"{file} widths": np.array([d.width for d in decisions])}
np.savez(sys.argv[1], **tables)
"""


def trained(name: str, folder: Path) -> str:
    """A learner after 100 rounds, which is not to be fitted again, in a file."""
    system = three_arms()
    path, learner = system.sample(150, rng=1), make_policy(name, system, rng=3)
    assert isinstance(learner, LearningPolicy)
    for t in range(100):
        decision = learner.decide()
        learner.learn(decision, float(path.rewards[t, decision.arm]))
        learner.observe(path.contexts[t])
    fit_next(learner, np.inf)
    file = folder / f"{name}.undertow"
    learner.save(file)
    return str(file)


def test_compiled_equals_interpreted(tmp_path: Path) -> None:
    """The same arms, and forecasts and widths to 1e-12 of their size, with and without the compiler."""

    learners = [trained(name, tmp_path) for name, e in registry().items() if issubclass(e.policy, LearningPolicy)]

    def run(**environment: str) -> dict[str, Array]:
        file = tmp_path / f"{len(environment)}.npz"
        paths = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
        subprocess.run(
            [sys.executable, "-c", PROGRAM, file, *learners],
            env=os.environ | {"PYTHONPATH": paths} | environment,
            check=True,
        )
        return dict(np.load(file))

    compiled, interpreted = run(), run(NUMBA_DISABLE_JIT="1")
    assert compiled.keys() == interpreted.keys()
    for name, values in compiled.items():
        if name.endswith("arms"):
            np.testing.assert_array_equal(values, interpreted[name], err_msg=name)
        else:
            np.testing.assert_allclose(values, interpreted[name], rtol=1e-12, atol=1e-11, err_msg=name)


def test_one_arm_is_no_test_of_choosing_well() -> None:
    check_policy(
        lambda system, seed: LinUCB(arms=system.arm_count, context_dim=1), system=random_system(2, 1, 1, rng=0)
    )


# A small policy that keeps the contract, and typical slips: each is this policy with one thing wrong.


class Settings(Record):
    discount: float
    rate: float


class FadingState(NamedTuple):
    common: Common
    settings: Settings
    counts: Annotated[FloatArray, "k"]
    sums: Annotated[FloatArray, "k"]


@inlined
def decide(own: FadingState, features: FloatArray, draws: FloatArray) -> int:
    """Play the largest discounted mean or, at a rate, an arm that is drawn."""
    best, drawn = look(own, draws)
    return drawn if draws[0] < own.settings.rate else best


@inlined
def look(own: FadingState, draws: FloatArray) -> tuple[int, int]:
    forecast, drawn = own.common.forecast, -1
    for a in range(len(forecast)):
        forecast[a] = own.sums[a] / own.counts[a] if own.counts[a] > 0.0 else 0.0
        if own.common.closed[a] == 0.0 and (drawn < 0 or draws[1 + a] > draws[1 + drawn]):
            drawn = a
    return best_arm(own.common), drawn


@inlined
def played(own: FadingState, arm: int) -> None:
    for a in range(len(own.counts)):
        own.counts[a] *= own.settings.discount
        own.sums[a] *= own.settings.discount


@inlined
def learn(own: FadingState, memory: FloatArray, arm: int, rewards: FloatArray, age: int) -> None:
    weight = own.settings.discount**age
    own.counts[arm] += weight
    own.sums[arm] += weight * rewards[arm]


@dataclass(kw_only=True, eq=False, repr=False)
class Fading(LivePolicy):
    capabilities: ClassVar[Capabilities] = Capabilities(deterministic=False, late_rewards_count_alike=True)
    loop = compile_loop(__name__, Layout(FadingState), decide=decide, learn=learn, played=played)

    discount: float = 0.9
    rate: float = 0.2

    def _begin(self, own: FadingState) -> None:
        own.settings.discount, own.settings.rate = self.discount, self.rate

    def _draw(self, rng: np.random.Generator, rounds: int) -> FloatArray:
        return rng.random((rounds, 1 + self.arm_count))

    def _probability(self, own: FadingState, arm: int) -> float:
        opened = own.common.closed == 0
        best = int(np.argmax(np.where(opened, own.common.value, -np.inf)))
        return (1 - self.rate) * (arm == best) + self.rate / int(opened.sum())


class ShortState(NamedTuple):
    common: Common
    settings: Settings
    counts: Annotated[FloatArray, "k"]
    sums: Annotated[FloatArray, "k-1"]


class Short(Fading):
    """An array that is too short by a number."""

    loop = compile_loop(__name__, Layout(ShortState), decide=decide, learn=learn, played=played)


class FixedState(NamedTuple):
    common: Common
    settings: Settings
    counts: Annotated[FloatArray, "k"]
    sums: Annotated[FloatArray, "2"]


class Fixed(Fading):
    """An array that is not counted by arms, and long enough until one is added."""

    loop = compile_loop(__name__, Layout(FixedState), decide=decide, learn=learn, played=played)


@inlined
def learn_in_one(own: FadingState, memory: FloatArray, arm: int, rewards: FloatArray, age: int) -> None:
    k, weight = len(own.counts), own.settings.discount**age
    both = view(own.counts, 0, (2 * k,))
    both[arm] += weight
    both[k + arm] += weight * rewards[arm]


class Overlapping(Fading):
    """A view that goes on into the next array, as if it belonged to the first."""

    loop = compile_loop(__name__, Layout(FadingState), decide=decide, learn=learn_in_one, played=played)


class Swapped(Fading):
    """Two settings that are swapped."""

    def _begin(self, own: FadingState) -> None:
        own.settings.discount, own.settings.rate = self.rate, self.discount


class Certain(Fading):
    """A propensity that is always 1."""

    def _probability(self, own: FadingState, arm: int) -> float:
        return 1.0


class Unaware(Fading):
    """A propensity that is 1 for what was drawn: `_probability` was forgotten."""

    _probability = LivePolicy._probability  # noqa: SLF001


@inlined
def learn_as_if_new(own: FadingState, memory: FloatArray, arm: int, rewards: FloatArray, age: int) -> None:
    own.counts[arm] += 1.0
    own.sums[arm] += rewards[arm]


class Ageless(Fading):
    """The age of late rewards is ignored."""

    loop = compile_loop(__name__, Layout(FadingState), decide=decide, learn=learn_as_if_new, played=played)


@inlined
def decide_anyhow(own: FadingState, features: FloatArray, draws: FloatArray) -> int:
    best, drawn = look(own, draws)
    return drawn if random.random() < own.settings.rate else best


class Gambling(Fading):
    """A draw from elsewhere than the policy's stream."""

    loop = compile_loop(__name__, Layout(FadingState), decide=decide_anyhow, learn=learn, played=played)


class Clipping(Fading):
    """A parameter that the constructor changes."""

    def __post_init__(self) -> None:
        self.discount = max(self.discount, 0.85)
        super().__post_init__()


class Forgetful(Fading):
    """What was learned is lost when an arm is added."""

    def _index_map(self, old_arms: int) -> dict[str, Any]:
        return {"k": None}


@inlined
def decide_out_of_range(own: FadingState, features: FloatArray, draws: FloatArray) -> int:
    return len(own.counts)


class OutOfRange(Fading):
    """An arm that does not exist."""

    loop = compile_loop(__name__, Layout(FadingState), decide=decide_out_of_range, learn=learn, played=played)


@inlined
def learn_without_care(own: FadingState, memory: FloatArray, arm: int, rewards: FloatArray, age: int) -> None:
    own.sums[arm] += rewards[arm] * (own.settings.rate / (own.settings.rate - own.settings.rate))


class Reckless(Fading):
    """A division by zero, which compiled code does not notice."""

    loop = compile_loop(__name__, Layout(FadingState), decide=decide, learn=learn_without_care, played=played)


@pytest.fixture
def enter(same_registry: None) -> None:
    register("fading", citation="a test")(Fading)


@pytest.mark.usefixtures("enter")
def test_the_small_policy_keeps_the_contract() -> None:
    tried = check_policy(lambda system, rng: Fading(arms=system.arm_count, rng=rng))
    assert "a late reward counts as an early one" in tried
    assert tried[:3] == [
        "parameters survive construction",
        "numbers named after a parameter hold it",
        "steps stay within their state",
    ]


WITHIN = "steps stay within their state: "
SLIPS: dict[type[Fading], str] = {
    Short: WITHIN
    + r"played \(.*test_contracts.py:\d+\): IndexError: index 1 .* size 1. Compiled, it would read or write",
    Fixed: WITHIN
    + r"played, with one more arm, \(.*\): IndexError: index 2 .* size 2. .* check the axes of its arrays",
    Overlapping: WITHIN + r"learn_in_one \(.*test_contracts.py:\d+\): ValueError: cannot reshape array of size 2",
    Swapped: r"numbers named after a parameter hold it: settings.discount is 0.2 where discount=0.81; set it",
    Certain: r"propensities are those of the draws: with explore=0.5, arm \d was played 0.\d+ times as often",
    Unaware: r"propensities are those of the policy itself: in the first round, arm 0 was played 0.\d+ times as often",
    Ageless: r"a late reward counts as an early one: .* `learn` gets the age of a reward",
    Gambling: r"same seed, same arms: .* use random numbers of the policy's own stream",
    Clipping: r"parameters survive construction: discount=0.81\d* became 0.85; keep it",
    Forgetful: r"a new arm leaves the others alone: .* to \[0. 0.\]; arrays with an axis k are carried over",
    OutOfRange: WITHIN + r"IndexError: .* around a step; does `decide` return an open arm",
    Reckless: WITHIN + r"learn_without_care \(.*\): ZeroDivisionError: .* it would continue with NaN or infinity",
}


@pytest.mark.usefixtures("enter")
@pytest.mark.parametrize("policy", SLIPS, ids=lambda policy: policy.__name__)
def test_a_slip_is_caught(policy: type[Fading]) -> None:
    with pytest.raises(BrokenContractError, match=SLIPS[policy]):
        check_policy(lambda system, rng: policy(arms=system.arm_count, rng=rng))


def test_a_policy_that_is_not_registered_is_told_so() -> None:
    class Nameless(LivePolicy):
        capabilities: ClassVar[Capabilities] = Capabilities()
        loop = Fading.loop

    with pytest.raises(BrokenContractError, match="Nameless is not registered; write @register"):
        check_policy(lambda system, rng: Nameless(arms=2))
