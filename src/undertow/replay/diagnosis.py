"""Is there anything to win on a table? Answer before any policy is trusted on it."""

import functools
from dataclasses import asdict, dataclass
from html import escape
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from undertow.errors import InvalidInputError
from undertow.replay.bootstrap import Measured, block_length, check_block, measured, resampled_means
from undertow.replay.simple_rules import (
    ALL,
    ALL_PAST,
    AVERAGE,
    CONTEXTS,
    FEATURES,
    REWARDS,
    WITHOUT,
    Rule,
    Rules,
    try_rules,
)
from undertow.replay.table import Table, require_table
from undertow.support.checks import FloatArray
from undertow.support.numbers import share
from undertow.support.pool import Progress

if TYPE_CHECKING:
    from undertow.support.drawing import Sheet

__all__ = ["Diagnosis", "Measured", "diagnose"]

LEAST_ROUNDS = 100
SMALL = 0.05  # a share of the gap that is not worth a policy, even if it is real
_WIDE = 0.25  # an interval from below zero to above this share is inconclusive
_AS_GOOD = 0.01  # of the variation
_ROUNDING = 1e-12  # of the largest reward: smaller differences count as none
_LAGS = 60
_BASE: Rule = (ALL_PAST, 0)
Verdict = Literal["motion", "fixed", "nothing", "unclear"]


@dataclass(frozen=True)
class Diagnosis:
    """The diagnosis of a table; forecasts are measured on the second half, from the rounds before.

    Attributes
    ----------
    verdict
        "motion": arms change places in a way that can be followed. "fixed": a fixed arm wins as much.
        "nothing": there is nothing to win. "unclear": too few rounds to tell.
    rounds, arms
        Size of the table.
    autocorrelation, chance
        Of each arm's relative reward (its reward minus the mean over arms in that round), at lags 1, 2, …; within ±
        `chance` it is not significant.
    stays_best, stays_by_chance
        The share of rounds whose best arm is also the best of the next, and that share for independent rounds.
    best_arm, fixed_share
        The arm with the largest mean, and the share of the clairvoyant's gain that it wins in hindsight.
    averages, regressions
        By window length w: the share that the mean of the last w rounds explains, and a regression on them, of the
        relative rewards' variation, their squared distance from the mean of all rounds before. It is 1 for a perfect
        forecast, and negative for one that is worse than that mean.
    average_window, regression_window
        The lengths that predict best, or the shortest that come within one point of it.
    features, past_rewards, contexts
        The share that regressions on these alone explain; None if there are none.
    contexts_beyond
        The share that contexts explain beyond features and past rewards, or beyond the mean of all rounds before if
        that is the better forecast.
    rule
        The rule that was followed most, each time the one with the largest rewards so far.
    rule_share, fixed_ahead, beyond
        On the second half: the share won by following that rule, by the arm that was best so far, and the difference.
    """

    verdict: Verdict
    rounds: int
    arms: tuple[str, ...]
    autocorrelation: dict[str, list[float]]
    chance: float
    stays_best: float
    stays_by_chance: float
    best_arm: str
    fixed_share: float
    averages: dict[int, float]
    regressions: dict[int, float]
    average_window: int
    regression_window: int
    features: Measured | None
    past_rewards: Measured
    contexts: Measured | None
    contexts_beyond: Measured | None
    rule: Rule
    rule_share: Measured
    fixed_ahead: Measured
    beyond: Measured

    def __str__(self) -> str:
        """Return the answer and the measurements in plain words."""
        from undertow.replay.diagnosis_text import answer, describe

        return "\n\n".join([answer(self), *(f"{title}. {words}" for title, words in describe(self))])

    def _repr_html_(self) -> str:
        from undertow.replay.diagnosis_text import answer, describe

        rows = "".join(f"<tr><th>{escape(title)}</th><td>{escape(words)}</td></tr>" for title, words in describe(self))
        return f"<table><caption>{escape(answer(self))}</caption>{rows}</table>"  # whole sentences, not shortened

    def plot(self) -> "Sheet":
        """Draw autocorrelations, the variation explained by windows, and possible gains; needs matplotlib."""
        from undertow.replay.figures import sheet_of_diagnosis

        return sheet_of_diagnosis(self)

    def to_dict(self) -> dict[str, Any]:
        """Return all attributes as plain values for JSON."""
        plain = {name: value._asdict() for name, value in vars(self).items() if isinstance(value, Measured)}
        return asdict(self) | plain | {"rule": {"knows": self.rule[0], "past_rounds": self.rule[1]}}


def diagnose(
    table: Table,
    *,
    seed: int = 0,
    block: int | None = None,
    context_first: bool = False,
    progress: Progress | None = None,
) -> Diagnosis:
    """Measure the possible gain on a table with every arm's reward.

    Parameters
    ----------
    seed, block
        Seed and block length of the bootstrap; by default each series decides the length.
    context_first
        Whether a row's contexts are known before its decision.
    progress
        Called with the number of rules tried so far, and in all.

    Notes
    -----
    An arm's *relative reward* is its reward minus the mean over all arms in that round: a change that all arms share is
    irrelevant to the choice. The diagnosis measures

    - the autocorrelation of relative rewards. Values beyond ± 2/√n mean that the arm has memory; negative ones, that
      arms swing, as in the paper's system;
    - how often the best arm stays best, and how often it would if rounds were independent: the sum of squares of how
      often each arm is best;
    - the gain of the best fixed arm, chosen in hindsight: (its mean − mean of the table) / (mean of the best arm per
      row − mean of the table);
    - the window that predicts best: the plain mean of the last w rounds, and a ridge regression on all that is known
      (every arm's rewards, contexts, features). *Explained* is an out-of-sample R² relative to the mean of all earlier
      rounds. The report names the shortest w within a point of the best;
    - whether contexts and features carry signal: what a regression on them alone explains, and what they add to the
      rest; if that rest is worse than the mean of earlier rounds, what they add to this mean;
    - what can be won: each of ten blocks is forecast from the blocks before it, by the arm that was best so far, the
      largest mean of the last w rounds and the largest forecast of each regression. In the second half each block
      follows the rule that had earned most until then. Its gain, that of the best arm so far and the difference decide
      the answer.

    Intervals are 95 % intervals of the block bootstrap of `replay_table`.
    """
    require_table(table)
    if table.rewards is None:
        raise InvalidInputError(
            "table: a log has one reward per round, and this needs every arm's; replay_log estimates from a log what "
            "policies and fixed arms would have earned"
        )
    X = table.payoffs
    if len(X) < LEAST_ROUNDS:
        raise InvalidInputError(f"table: expected at least {LEAST_ROUNDS} rows, got {len(X)}; record more rounds")
    check_block(block, len(X) // 2)
    relative = X - X.mean(axis=1, keepdims=True)
    if np.ptp(X, axis=1).max() == 0:
        raise InvalidInputError("rewards: all arms pay the same in every row; there is nothing to choose")
    rounding = _ROUNDING * float(np.abs(X).max())
    rules = try_rules(table, context_first=context_first, progress=progress)
    best = X.argmax(axis=1)
    shares = np.bincount(best, minlength=X.shape[1]) / len(X)
    widest = next(kind for kind in (ALL, REWARDS) if (kind, 1) in rules.errors)
    averages, regressions = (
        {rule[1]: _explained_by(rules, rule, len(X), rounding) for rule in rules.errors if rule[0] == kind}
        for kind in (AVERAGE, widest)
    )
    errors = functools.cache(functools.partial(_errors, relative, rules))

    def signal(kind: str, beyond: str = ALL_PAST) -> Measured | None:
        rule, base = rules.best(kind), rules.best(beyond)
        if rule is None or base is None:
            return None
        return _measured(np.stack([errors(one) for one in (rule, base, _BASE)], axis=1), rounding, seed, block)

    verdict, rule_share, fixed_ahead, beyond = _judge(X, rules, seed, block)
    rewards_signal, contexts_signal = signal(REWARDS), signal(CONTEXTS)
    assert rewards_signal is not None
    return Diagnosis(
        verdict=verdict,
        rounds=len(X),
        arms=table.arms,
        autocorrelation={name: _autocorrelation(relative[:, a], rounding) for a, name in enumerate(table.arms)},
        chance=float(2 / np.sqrt(len(X))),
        stays_best=float((best[1:] == best[:-1]).mean()),
        stays_by_chance=float((shares**2).sum()),
        best_arm=table.arms[int(X.mean(axis=0).argmax())],
        fixed_share=float(share(X.mean(axis=0).max(), X.mean(), X.max(axis=1).mean())),
        averages=averages,
        regressions=regressions,
        average_window=_shortest(averages),
        regression_window=_shortest(regressions),
        features=signal(FEATURES),
        past_rewards=rewards_signal,
        contexts=contexts_signal,
        contexts_beyond=contexts_signal and signal(ALL, WITHOUT if (WITHOUT, 1) in rules.errors else REWARDS),
        rule=max(rules.followed, key=rules.followed.count),
        rule_share=rule_share,
        fixed_ahead=fixed_ahead,
        beyond=beyond,
    )


def _shortest(explained: dict[int, float]) -> int:
    return min(w for w, share in explained.items() if share >= max(explained.values()) - _AS_GOOD)


def _autocorrelation(series: FloatArray, rounding: float) -> list[float]:
    x = series - series.mean()
    power = float(x @ x)
    lags = range(1, min(_LAGS, len(x) // 4) + 1)
    return [float(x[:-lag] @ x[lag:] / power) if np.ptp(series) > rounding else 0.0 for lag in lags]


def _errors(relative: FloatArray, rules: Rules, rule: Rule) -> FloatArray:
    """Return a rule's squared error in each round that counts."""
    truth = relative[rules.first + rules.scored :]
    return np.asarray(((truth - rules.forecast(rule)[rules.scored :]) ** 2).sum(axis=1))


def _explained_by(rules: Rules, rule: Rule, rounds: int, rounding: float) -> float:
    """Return the share that a rule explains beyond the mean of all rounds before."""
    count = rounds - rules.first - rules.scored
    mean = [rules.errors[one][1] / count for one in (rule, _BASE, _BASE)]
    return float(_explained(np.array([mean]), rounding)[0])


def _explained(errors: FloatArray, rounding: float) -> FloatArray:
    """Return the gain of a rule over another, for each row of mean errors, as a share of the third.

    If the other is worse than the mean of all rounds before, that mean replaces it, so that no share exceeds 1. If that
    mean is never wrong, there is nothing to explain.
    """
    mine, other, whole = errors.T
    better = np.minimum(other, whole) - mine
    return np.asarray(np.divide(better, whole, out=np.zeros_like(whole), where=whole > rounding**2))


def _measured(errors: FloatArray, rounding: float, seed: int, block: int | None) -> Measured:
    means = resampled_means(errors, block=block or block_length(errors[:, 1] - errors[:, 0]), seed=seed)
    return measured(errors, means, lambda m: _explained(m, rounding))


def _judge(X: FloatArray, rules: Rules, seed: int, block: int | None) -> tuple[Verdict, Measured, Measured, Measured]:
    """Compare the followed rule with the arm that was best so far, in the rounds that count."""
    rest = X[rules.first + rules.scored :]
    rows = np.arange(len(rest))
    ruled = rest[rows, rules.chosen[rules.scored :]]
    fixed = rest[rows, rules.forecast(_BASE)[rules.scored :].argmax(axis=1)]
    series = np.stack([rest.mean(axis=1), rest.max(axis=1), ruled, fixed], axis=1)
    length = block or max(block_length(series[:, 2] - series[:, place]) for place in (0, 3))
    means = resampled_means(series, block=length, seed=seed)

    def won(one: int, other: int) -> Measured:
        return measured(series, means, lambda m: share(m[:, one] - m[:, other], 0.0, m[:, 1] - m[:, 0]))

    rule_share, fixed_ahead, beyond = won(2, 0), won(3, 0), won(2, 3)
    verdict: Verdict = "motion"
    if rule_share.low <= 0 and rule_share.high > _WIDE:
        verdict = "unclear"
    elif rule_share.low <= 0 or rule_share.value < SMALL:
        verdict = "nothing"
    elif beyond.low <= 0:
        verdict = "fixed"
    return verdict, rule_share, fixed_ahead, beyond
