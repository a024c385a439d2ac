"""The value of a policy: one that learns beats a random choice, and none beats full knowledge."""

from undertow.contracts.trial import Trial, rule
from undertow.policies import FullInformationOracle, Random


@rule("better than Random", "uses_contexts", "contexts tell arms apart")
def _better_than_random(trial: Trial) -> None:
    trial.compare(Random(arms=trial.arms, rng=1), worse=True, gaps=0.0)


@rule("better than Random with missing contexts", "handles_missing_contexts", "contexts tell arms apart")
def _better_with_gaps(trial: Trial) -> None:
    trial.compare(Random(arms=trial.arms, rng=1), worse=True, gaps=0.3)


@rule("not better than full knowledge")
def _not_too_good(trial: Trial) -> None:
    trial.compare(FullInformationOracle(trial.system), worse=False, gaps=0.0)
