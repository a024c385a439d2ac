"""The hidden system as a gymnasium environment; importing this module registers it.

    import gymnasium, undertow.gym

    env = gymnasium.make("undertow/LinearGaussianBandit-v0", system=1.0, rounds=1000)

An episode plays a path from `LinearGaussianSystem.sample`, so a policy earns the same here as in
`undertow.simulate`.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from undertow.errors import InvalidInputError, OutOfTurnError
from undertow.example_systems import paper_system, random_system
from undertow.support import checks
from undertow.support.checks import FloatArray
from undertow.system import LinearGaussianSystem
from undertow.trajectory import Trajectory

with checks.needing("undertow.gym", "gym"):
    import gymnasium

__all__ = ["ID", "LinearGaussianBandit"]

#: Name of the environment for `gymnasium.make`.
ID = "undertow/LinearGaussianBandit-v0"
_REACH = 20.0  # standard deviations between a context's mean and the end of its box: no sample gets farther


class LinearGaussianBandit(gymnasium.Env[FloatArray, np.int64]):
    """A bandit whose contexts and rewards follow a hidden linear Gaussian system.

    An action is an arm, and an observation a context, (m,). The reward of a step is that of the arm, and `info` has
    what a learner cannot know: the `best_arm` of the round and the `regret` so far. An episode is truncated after
    `rounds` steps and never terminates. Episode i after `reset(seed=s)`, counted from 0, plays run i of
    `system.sample(rounds, rng=s, runs=…)`.

    Parameters
    ----------
    system
        A system; or ψ of the paper's; or the arguments of `random_system` as a dictionary, with rng = 0 by default so
        that every copy of the environment has the same system.
    rounds
        Steps of an episode.
    context_first
        False is the paper's order: a step returns the context of the same round, together with the reward, and
        `reset` returns the mean of the first context, since nothing has been seen yet. True is the everyday order:
        `reset` returns the first context, and a step that of the next round.

    Examples
    --------
    >>> env = gymnasium.make(ID, system={"state_dim": 4, "context_dim": 2, "arm_count": 3}, rounds=100)
    >>> context, info = env.reset(seed=0)
    >>> context, reward, terminated, truncated, info = env.step(2)
    >>> context.shape, sorted(info)
    ((2,), ['best_arm', 'regret'])
    """

    def __init__(
        self,
        *,
        system: LinearGaussianSystem | float | Mapping[str, Any] = 1.0,
        rounds: int = 1000,
        context_first: bool = False,
    ) -> None:
        self.system = _system(system)
        self.rounds = checks.integer("rounds", rounds, least=1)
        self.context_first = checks.flag("context_first", context_first)
        self.action_space = gymnasium.spaces.Discrete(self.system.arm_count)
        self.observation_space = _box(self.system, self.rounds)
        self._episode, self._round, self._regret = -1, 0, 0.0
        self._path: Trajectory | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[FloatArray, dict[str, Any]]:
        """Begin an episode: the first one of a seed, or the next one."""
        if options:
            raise InvalidInputError(f"options: expected none, got {options!r:.80}; give them to gymnasium.make")
        super().reset(seed=seed)
        self._episode = 0 if seed is not None else self._episode + 1
        seeds = self.np_random.bit_generator.seed_seq
        assert isinstance(seeds, np.random.SeedSequence)
        # one more round: the last step of an episode returns a next context too
        self._path = self.system.sample(self.rounds + 1, rng=seeds, runs=[self._episode]).run(0)
        self._round, self._regret = 0, 0.0
        if self.context_first:
            return self._path.contexts[0].copy(), {}
        return self.system.context_map @ self.system.initial_mean + self.system.context_offset, {}

    def step(self, action: np.int64) -> tuple[FloatArray, float, bool, bool, dict[str, Any]]:
        """Play an arm for one round."""
        path, t = self._path, self._round
        if path is None or t == self.rounds:
            raise OutOfTurnError("step: no episode is under way; call reset() first")
        (arm,) = checks.indices("action", [action], (1,), below=self.system.arm_count)
        assert path.means is not None
        means = path.means[t]
        self._round = t + 1
        self._regret += float(means.max() - means[arm])
        context = path.contexts[t + self.context_first].copy()
        info = {"best_arm": int(means.argmax()), "regret": self._regret}
        return context, float(path.rewards[t, arm]), False, self._round == self.rounds, info


def _system(system: LinearGaussianSystem | float | Mapping[str, Any]) -> LinearGaussianSystem:
    if isinstance(system, LinearGaussianSystem):
        return system
    if isinstance(system, Mapping):
        try:
            return random_system(**({"rng": 0} | dict(system)))
        except TypeError as error:
            raise InvalidInputError(f"system: expected the arguments of random_system, got {system!r:.80}") from error
    return paper_system(psi=checks.number("system", system))


def _box(system: LinearGaussianSystem, rounds: int) -> "gymnasium.spaces.Box[Any]":
    """Return a box that no context leaves, from the law of the state in every round of an episode."""
    Γ, μ, Q, C, θ0, R, *_ = system.symbols
    mean, Σ = system.initial_mean, system.initial_covariance
    low, high = np.full(len(C), np.inf), np.full(len(C), -np.inf)
    for _ in range(rounds + 1):
        centre, reach = C @ mean + θ0, _REACH * np.sqrt((C @ Σ @ C.T + R).diagonal())
        low, high = np.minimum(low, centre - reach), np.maximum(high, centre + reach)
        law = np.append(mean, Σ.diagonal())
        with np.errstate(over="ignore", invalid="ignore"):
            mean, Σ = Γ @ mean + μ, Γ @ Σ @ Γ.T + Q
        change = np.abs(np.append(mean, Σ.diagonal()) - law)
        if not np.isfinite(change).all():
            raise InvalidInputError(
                f"rounds: within {rounds} rounds the state of this unstable system overflows; ask for fewer"
            )
        if (change <= 1e-9 * np.abs(law)).all():
            break
    return gymnasium.spaces.Box(low, high, dtype=np.float64)


gymnasium.register(ID, entry_point="undertow.gym:LinearGaussianBandit")
