import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers import Array, make_policy
from undertow import LinearGaussianSystem, random_system
from undertow.contracts import BrokenContractError, check_policy
from undertow.policies import Decision, LinUCB, registry
from undertow.policies.learning import LearningPolicy
from undertow.policies.member import NEXT


@pytest.mark.parametrize("name", registry())
def test_every_registered_policy_keeps_the_contract(name: str) -> None:
    tried = check_policy(lambda system, rng: make_policy(name, system, rng=rng))
    claims = registry()[name].claims
    assert ("better than Random" in tried) == claims.uses_contexts
    assert ("arms can be reordered" in tried) == claims.deterministic
    assert ("simulated equals by hand" in tried) == (not claims.simulates_only)


@pytest.mark.parametrize("name", [name for name, entry in registry().items() if "context_first" in entry.parameters])
def test_the_contract_with_the_context_first(name: str) -> None:
    check_policy(lambda system, rng: make_policy(name, system, rng=rng, context_first=True))


def three_arms() -> LinearGaussianSystem:
    return random_system(3, 2, 3, rng=2, spectral_radius=0.97)


@pytest.mark.parametrize("name", registry())
def test_the_contract_with_three_arms_and_two_context_entries(name: str) -> None:
    check_policy(lambda system, rng: make_policy(name, system, rng=rng), system=three_arms())


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
        return Decision(len(self.seen), len(self.seen), 0, "0", np.zeros(2), np.zeros(2), None)

    def learn(self, decision: Decision | int, reward: float) -> None:
        self.seen.append(reward)

    def observe(self, context: Any) -> None:
        pass


def test_a_policy_that_breaks_a_rule_is_told_which() -> None:
    with pytest.raises(BrokenContractError, match="a reward can only be learned once: a reward given twice was taken"):
        check_policy(lambda system, rng: Stubborn())


class Clairvoyant(LinUCB):
    """Claims what it does not do: its choices depend on the clock of the process."""

    def decide(self, features: Any = None, *, available: Any = None) -> Decision:
        decision = super().decide(features, available=available)
        return decision._replace(forecast=decision.forecast + 1)


def test_live_and_simulated_have_to_agree() -> None:
    with pytest.raises(BrokenContractError, match="simulated equals by hand: round 0: forecast"):
        check_policy(lambda system, rng: Clairvoyant(arms=2, context_dim=1))


def test_a_policy_that_is_no_policy() -> None:
    with pytest.raises(BrokenContractError, match="expected decide, learn and observe"):
        check_policy(lambda system, rng: "UCB")  # type: ignore[arg-type,return-value]


def test_claims_are_checked() -> None:
    class Careless(LinUCB):
        """Says that it learns from contexts, and does not look at them."""

        def _set_context(self, context: Any) -> None:
            self._stage.context[:] = 0.0

    with pytest.raises(BrokenContractError, match=r"simulated equals by hand: round \d+: width"):
        check_policy(lambda system, rng: Careless(arms=2, context_dim=1))
    with pytest.raises(BrokenContractError, match=r"better than Random: mean regret \d+ is above that of Random"):
        check_policy(lambda system, rng: LinUCB(arms=2, context_dim=1, window=0))


PROGRAM = """
import sys, numpy as np, undertow
from helpers import make_policy
from undertow.policies import registry
from undertow.policies.learning import LearningPolicy
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
    for number in range(len(learner._members)):
        learner._block(number)[NEXT] = np.inf
    file = folder / f"{name}.undertow"
    learner.save(file)
    return str(file)


def test_compiled_equals_interpreted(tmp_path: Path) -> None:
    """The same arms, and forecasts and widths to 1e-12 of their size, with and without the compiler."""

    learners = [trained(name, tmp_path) for name, e in registry().items() if issubclass(e.policy, LearningPolicy)]

    def run(**environment: str) -> dict[str, Array]:
        file = tmp_path / f"{len(environment)}.npz"
        paths = os.pathsep.join([str(Path(__file__).parent), *sys.path])
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
