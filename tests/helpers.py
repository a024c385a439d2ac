"""Systems and data that several tests share."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from undertow import LinearGaussianSystem, Trajectory, random_system
from undertow.contenders import build
from undertow.learning.learner import Learner
from undertow.live.fields import arrays_of
from undertow.models.block import BLOCK, Block
from undertow.policies import CandidateForecast, Decision, LivePolicy, registry

Array = npt.NDArray[np.float64]

LIVE = [name for name, entry in registry().items() if not entry.capabilities.simulates_only]


def arguments(d: int = 3, m: int = 2, k: int = 2, seed: int = 0) -> dict[str, Any]:
    """Every constructor argument of a system with drift, offsets and correlated context noise, free to be spoilt."""
    base = random_system(d, m, k, rng=seed, spectral_radius=0.9, drift=True)
    rng = np.random.default_rng(seed)
    factor = rng.standard_normal((m, m)) + 2 * np.eye(m)
    return {
        "dynamics": base.dynamics.copy(),
        "arms": base.arms.copy(),
        "state_noise": base.state_noise.copy(),
        "reward_noise": rng.uniform(0.5, 2, k),
        "context_map": base.context_map.copy(),
        "context_noise": factor @ factor.T,
        "drift": base.drift.copy(),
        "initial_mean": rng.standard_normal(d),
        "initial_covariance": np.eye(d) * 2,
        "context_offset": rng.standard_normal(m),
        "reward_offset": rng.standard_normal(k),
    }


def full_system(d: int = 3, m: int = 2, k: int = 2, seed: int = 0) -> LinearGaussianSystem:
    """A system in which nothing is zero, so that a forgotten term shows."""
    return LinearGaussianSystem(**arguments(d, m, k, seed))


def with_gaps(values: Array, share: float, seed: int) -> Array:
    """A copy with a share of its entries missing."""
    holes = np.random.default_rng(seed).random(values.shape) < share
    return np.where(holes, np.nan, values)


def make_policy(name: str, system: LinearGaussianSystem, **parameters: Any) -> LivePolicy:
    """A registered policy that fits a system, whatever it has to be told of it."""
    fitting: dict[str, Any] = {"arms": system.arm_count, "context_dim": system.context_dim}
    if "refit" in registry()[name].parameters:
        fitting["refit"] = "inline"  # to be repeatable
    return build(name, system=system, **(fitting | parameters))


def with_features(path: Trajectory, q: int = 2) -> Trajectory:
    """A path with features drawn with seed 7."""
    features = np.random.default_rng(7).standard_normal((path.rounds, q))
    return Trajectory(path.contexts, path.rewards, means=path.means, features=features)


def dims(policy: LivePolicy) -> tuple[int, int, bool]:
    """Numbers of context entries and features, and whether the context comes first."""
    given = {name: getattr(policy, name, 0) for name in ("context_dim", "feature_dim", "context_first")}
    return given["context_dim"], given["feature_dim"], bool(given["context_first"])


def live_round(policy: LivePolicy, path: Trajectory, t: int, *, learn: bool = True, **more: Any) -> Decision:
    """Play round t of a path by hand; `more` is given to `decide`."""
    m, q, first = dims(policy)
    if m and first:
        policy.observe(path.contexts[t, :m])
    decision = policy.decide(path.features[t, :q] if q else None, **more)
    if learn:
        policy.learn(decision, paid(path, decision))
    if m and not first:
        policy.observe(path.contexts[t, :m])
    return decision


def paid(path: Trajectory, decision: Decision) -> float:
    """The reward of a decision for the round of a path with the same number."""
    return float(path.rewards[decision.round, decision.arm])


def id_of(policy: LivePolicy, number: int) -> str:
    """The id of a policy's decision with this number, whether it waits or not."""
    pending = policy.parts.pending
    waiting = (id for id, entry in pending.waiting.items() if entry.number == number)
    return next(waiting, f"{pending.id_prefix}-{number}")


def id_at(policy: LivePolicy, round: int) -> str:
    """The id of the decision of a round, which waits for its reward."""
    return next(id for id, entry in policy.parts.pending.waiting.items() if entry.round == round)


def unnamed(decision: Decision) -> str:
    """A decision as JSON without its id, in which twins differ."""
    return decision._replace(id="").to_json()


def everything(policy: LivePolicy) -> tuple[Any, ...]:
    """What a rejected call may not change; ids of a policy's own are its numbers, since twins have others."""
    player, columns, streams, turns, pending, _ = policy.parts
    streams.rewind_to(pending.made, policy._draws)  # noqa: SLF001 (to settle would also wait for kernels)
    seen = {name: values.tobytes() for name, values in arrays_of((columns,), policy.parts.sizes).items()}
    drawn = streams.own.bit_generator.state, streams.explore.bit_generator.state
    waiting = [(id if id in pending.given else None, entry.number) for id, entry in pending.waiting.items()]
    due = turns.due, pending.made, list(pending.given)
    return player.state.tobytes(), waiting, due, policy.names, drawn, seen


def regressions(policy: LivePolicy) -> tuple[Array, Array]:
    """V − λI and b of every arm of a ridge policy, in the policy's units."""
    own = policy.parts.player.own
    if hasattr(own, "b"):
        return own.V.copy(), own.b.copy()
    L, λ = np.linalg.inv(own.W), policy.parts.parameters()["ridge"]
    return L @ L.transpose(0, 2, 1) - λ * np.eye(L.shape[-1]), np.einsum("aij,aj->ai", L, own.u)


def learner_of(policy: LivePolicy) -> Learner:
    """The learner inside a policy."""
    learner = policy.parts.timeline
    assert isinstance(learner, Learner)
    return learner


def models_of(policy: LivePolicy) -> list[Block]:
    """What the blocks of a learner's models begin with, as views of its state."""
    return [own.model for own in learner_of(policy).blocks]


def fit_next(policy: LivePolicy, round: float) -> None:
    """Have every model fitted next in a round; with infinity, unless an alarm is raised, never."""
    for model in models_of(policy):
        model.running.next_fit = round


def never_fit(policy: LivePolicy) -> None:
    """Have no further fits, in the state and in those that late rewards go back to."""
    learner = learner_of(policy)
    blocks = [own.model for own in learner.blocks]
    for past in learner.late.past.values():
        blocks += [BLOCK.open(block) for _, block in (past.base, *past.marks)]
    for block in blocks:
        block.running.next_fit, block.alarm.tried = math.inf, 10**9  # no alarm either


def settle(policy: LivePolicy) -> None:
    """Take in all late rewards, as the next decisions would do."""
    learner = learner_of(policy)
    while any(learner.late.missing(number) < math.inf for number in learner.late.past):
        learner.late.savings = 10**9
        learner.take_in(learner.late.attend())


class Constant:
    """Expects the same of every arm for ever, and remembers what it was told."""

    def __init__(self, mean: float = 0.0, deviation: float = 3.0, name: str = "constant") -> None:
        self.mean, self.deviation, self.name = mean, deviation, name
        self.told: list[tuple[int, int, float]] = []
        self.seen: list[Array] = []

    def forecast(self, features: Array) -> CandidateForecast:
        return CandidateForecast(np.full(2, self.mean), np.zeros(2), np.full(2, self.deviation))

    def learn(self, round: int, arm: int, reward: float) -> None:
        self.told.append((round, arm, reward))

    def observe(self, context: Array) -> None:
        self.seen.append(context)
