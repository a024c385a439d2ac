"""A sampler for Optuna that chooses categorical parameters while the objective drifts."""

from collections.abc import Sequence
from typing import Any

from undertow.errors import InvalidInputError
from undertow.policies import Decision, LivePolicy, make
from undertow.support import checks

with checks.needing("this adapter", "optuna"):
    from optuna.distributions import BaseDistribution, CategoricalDistribution
    from optuna.samplers import BaseSampler, RandomSampler
    from optuna.study import Study, StudyDirection
    from optuna.trial import FrozenTrial, TrialState

__all__ = ["UndertowSampler"]


class UndertowSampler(BaseSampler):
    """Choose categorical parameters by a policy, one for each parameter, and learn the values of trials.

    It is for one objective that drifts while it is optimised: a trial is a round, and the best value of an hour ago may
    not be best now. Do not use it for a search on a stationary objective, in which only the best trial counts; Optuna's
    own samplers do that better. Each parameter is chosen separately; the others are noise to its policy.

    A trial that fails, is pruned or has an infinite value teaches nothing. `pickle` keeps the learned state.

    Parameters
    ----------
    policy
        Name of a policy in the registry that needs no contexts, no features and no system.
    others
        Sampler of parameters that are not categorical, by default Optuna's `RandomSampler`.
    seed
        Seed of the policies and of the default for `others`.
    **parameters
        Parameters of the policy, such as `explore`. Its arms, `minimize` and `rng` follow from study and seed.

    Examples
    --------
    >>> import optuna
    >>> optuna.logging.set_verbosity(optuna.logging.WARNING)
    >>> study = optuna.create_study(sampler=UndertowSampler("discounted-ucb", seed=0, discount=0.9))
    >>> study.optimize(lambda trial: {"a": 1.0, "b": 2.0}[trial.suggest_categorical("way", ["a", "b"])], n_trials=30)
    >>> [trial.params["way"] for trial in study.trials].count("a") > 20
    True
    """

    def __init__(
        self,
        policy: str = "autopilot",
        *,
        others: BaseSampler | None = None,
        seed: int | None = None,
        **parameters: Any,
    ) -> None:
        if taken := sorted(parameters.keys() & {"arms", "minimize", "rng", "context_dim", "feature_dim"}):
            raise InvalidInputError(f"{taken[0]}: this follows from the study and the seed; omit it")
        if others is not None and not isinstance(others, BaseSampler):
            raise InvalidInputError(f"others: expected a sampler of Optuna, got {others!r:.80}")
        self._seed = None if seed is None else checks.integer("seed", seed, least=0)
        self._name, self._parameters = policy, parameters
        self._make(2, minimize=True)  # errors appear now, not within a trial
        self._others = RandomSampler(seed) if others is None else others
        self._policies: dict[tuple[str, str], LivePolicy] = {}
        self._waiting: dict[tuple[str, int], list[tuple[LivePolicy, Decision]]] = {}

    def policy(self, study: Study, parameter: str) -> LivePolicy | None:
        """Return the policy that chooses a parameter of a study; None before its first trial."""
        return self._policies.get((study.study_name, parameter))

    # Called by Optuna

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Return nothing: every parameter is chosen separately."""
        return {}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return nothing: every parameter is chosen separately."""
        return {}

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Choose the value of a categorical parameter; ask another sampler for the others."""
        if not isinstance(param_distribution, CategoricalDistribution):
            return self._others.sample_independent(study, trial, param_name, param_distribution)
        minimize = _direction(study) == StudyDirection.MINIMIZE
        key, choices = (study.study_name, param_name), param_distribution.choices
        policy = self._policies.get(key)
        if policy is None:  # if two threads make one, only the first is used
            policy = self._policies.setdefault(key, self._make(len(choices), minimize=minimize))
        if policy.arm_count != len(choices):
            raise InvalidInputError(f"{param_name}: had {policy.arm_count} choices before, and now has {len(choices)}")
        decision = policy.decide()
        self._waiting.setdefault((study.study_name, trial.number), []).append((policy, decision))
        return choices[decision.arm]

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """Notify the other sampler that a trial begins."""
        self._others.before_trial(study, trial)

    def after_trial(self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None) -> None:
        """Learn the value of a trial."""
        for policy, decision in self._waiting.pop((study.study_name, trial.number), []):
            if state == TrialState.COMPLETE and values is not None and abs(values[0]) < checks.LARGEST:
                policy.learn(decision, float(values[0]))
        self._others.after_trial(study, trial, state, values)

    def reseed_rng(self) -> None:
        """Reseed the other sampler in a parallel worker; existing policies continue as they are."""
        self._others.reseed_rng()

    def _make(self, choices: int, *, minimize: bool) -> LivePolicy:
        return make(self._name, arms=choices, minimize=minimize, rng=self._seed, **self._parameters)


def _direction(study: Study) -> StudyDirection:
    if len(study.directions) != 1:
        raise InvalidInputError(f"study: expected one objective, got {len(study.directions)}; a policy has one reward")
    return study.direction
