"""The comparisons behind the verdicts on the paper's statements.

Every verdict leaves room for chance. If a number should exceed another, this holds if it does by more than two standard
errors over runs, fails if it falls short by more, and is undecided between. Exact numbers have no error.
"""

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

import numpy as np

from undertow.equations.riccati import spectral_radius
from undertow.study.plan import SystemSpec
from undertow.study.summary import Array, resampled
from undertow.support.numbers import plus_minus, standard_error
from undertow.theory import true_noise_bound
from undertow.window import bias_deviations, window_errors

__all__ = [
    "ALIKE",
    "CHOSEN",
    "COMMITS",
    "EQUAL",
    "ERRORS",
    "FAILS",
    "HOLDS",
    "LONGEST",
    "MORE",
    "NEAR",
    "STEADY",
    "SURE",
    "UNDECIDED",
    "Array",
    "Evidence",
    "Judgement",
    "Measured",
    "ares_beats_pies",
    "beats_others",
    "bias_falls",
    "commits",
    "harder",
    "leans",
    "least_error",
    "less_to_gain",
    "little_error",
    "near_the_best_window",
    "nearer_to_oracle",
    "pies_order",
    "small_windows_suffice",
    "smallest_window",
    "some_window_beats_ares",
    "widths_of_arms",
    "widths_of_systems",
    "windows",
    "windows_move",
    "worst",
]

HOLDS, UNDECIDED, FAILS = "holds", "undecided", "fails"
_ORDER = (FAILS, UNDECIDED, HOLDS)
ERRORS = 2.0  # standard errors that a difference has to exceed

_PSI = (1, 2, 3, 4)
_OTHERS = ("UCB", "Sliding-window UCB", "Rexp3", "Random")
LONGEST = 10  # window of the paper
_PIES = tuple(f"PIES({s})" for s in range(1, LONGEST + 1))
_LATE = 0.8  # windows, widths and errors are those of the last fifth of the rounds
_SETTLED = (0.25, 0.5)  # from round 2500 of 10,000 on, as the paper says, up to the middle
MORE = 0.1  # the paper's "at most 10 % more"
_NAMED, NEAR = (8, 10), 1.0  # the windows that the paper names for psi = 2, and how near is near
ALIKE = 1.25  # widths within this factor are "approximately the same"
EQUAL = 0.02  # errors within this share of the least are "approximately the same"
CHOSEN = 1.5  # a mean window this near to a window is a choice of it
STEADY = 0.5  # a mean window that moves by less stays "approximately constant"
COMMITS = 0.95  # of the rounds in which windows differ
SURE = 0.95  # share of bootstrap resamples that decides about an order
_ENOUGH = 1.01  # a window with this much of the least error variance is sufficient


class Judgement(NamedTuple):
    """One comparison behind a verdict.

    Attributes
    ----------
    where
        The system, and other objects of the comparison.
    estimate
        The deciding number, defined by the criterion.
    error
        Two of its standard errors over runs, 0 for an exact one; None if resamples decide.
    share
        The share of bootstrap resamples of the runs in which the statement is true; None if the error decides.
    verdict
        "holds", "undecided" or "fails".
    words
        The same for a reader.
    """

    where: str
    estimate: float
    error: float | None
    share: float | None
    verdict: str
    words: str


class Measured(Protocol):
    """Measurements of a study for a statement; they raise KeyError if one is missing."""

    def system(self, psi: int) -> SystemSpec:
        """Return the system."""

    def regret(self, psi: int, policy: str) -> Array:
        """Return the regret after the last round, by run."""

    def mean(self, psi: int, column: str, first: float, last: float = 1.0) -> Array:
        """Return the mean of ARES's width or window between two shares of the rounds, by run and arm."""

    def committed(self, psi: int) -> Array:
        """Return how often ARES without lines 19 and 20 plays the arm of the largest window, by run."""


Evidence = Iterator[Judgement]


def worst(verdicts: Iterable[str]) -> str:
    """Return the least favourable verdict."""
    return min(verdicts, key=_ORDER.index)


def _verdict(margin: float, error: float = 0.0) -> str:
    """Judge a margin that should be positive, given two of its standard errors."""
    return HOLDS if margin > error else FAILS if margin < -error or error == 0.0 else UNDECIDED


def _error(values: Array) -> float:
    return ERRORS * standard_error(values)


def _above(values: Array, least: float = 0.0) -> str:
    return _verdict(float(values.mean()) - least, _error(values))


def _below(values: Array, most: float) -> str:
    return _verdict(most - float(values.mean()), _error(values))


def _within(values: Array, centre: float, most: float) -> str:
    return _verdict(most - abs(float(values.mean()) - centre), _error(values))


def _from(where: str, values: Array, verdict: str, words: str) -> Judgement:
    return Judgement(where, float(values.mean()), _error(values), None, verdict, f"{where}: {words}")


def _exactly(where: str, value: float, holds: bool, words: str) -> Judgement:
    return Judgement(where, value, 0.0, None, HOLDS if holds else FAILS, f"{where}: {words}")


def beats_others(study: Measured) -> Evidence:
    """Statement 1: ARES and every PIES against the policies that do not use contexts."""
    for psi in _PSI:
        savings = {
            (ours, other): 1 - study.regret(psi, ours) / study.regret(psi, other)
            for ours in ("ARES", *_PIES)
            for other in _OTHERS
        }
        (ours, other), least = min(savings.items(), key=lambda item: float(item[1].mean()))
        verdict = worst(_above(saving) for saving in savings.values())
        yield _from(f"psi = {psi}", least, verdict, f"smallest saving {_percent(least)}, {ours} against {other}")


def pies_order(study: Measured) -> Evidence:
    """Statement 2: the order of PIES's windows, in bootstrap resamples of the runs."""
    for psi in _PSI:
        regrets = np.array([study.regret(psi, name) for name in _PIES])
        medians = np.median(regrets, axis=1)
        drawn = resampled(regrets.T, lambda runs, axis: np.median(runs, axis=axis))  # (resamples, windows)
        share = float(((drawn.argmax(axis=1) == 0) & (drawn.argmin(axis=1) == LONGEST - 1)).mean())
        verdict = HOLDS if share >= SURE else FAILS if share <= 1 - SURE else UNDECIDED
        where = f"psi = {psi}"
        words = f"highest at s = {medians.argmax() + 1}, lowest at s = {medians.argmin() + 1}"
        words = f"{where}: {words}, and at 1 and 10 in {100 * share:.0f} % of resamples"
        yield Judgement(where, share, None, share, verdict, words)


def some_window_beats_ares(study: Measured) -> Evidence:
    """Statement 3a: the window of PIES that beats ARES, and is near enough."""
    for psi in (1, 2, 3):
        found: dict[str, tuple[str, Array]] = {}
        for name in _PIES:
            excess = study.regret(psi, "ARES") / study.regret(psi, name) - 1
            near = HOLDS if psi == 2 else _below(excess, MORE)
            found[name] = worst([_above(excess), near]), excess
        name, (verdict, excess) = max(found.items(), key=lambda item: (_ORDER.index(item[1][0]), item[1][1].mean()))
        yield _from(f"psi = {psi}", excess, verdict, f"ARES is {_percent(excess)} above {name}")


def near_the_best_window(study: Measured) -> Evidence:
    """Statement 3b: ARES against the best window of PIES."""
    for psi in (1, 3):
        excess = {name: study.regret(psi, "ARES") / study.regret(psi, name) - 1 for name in _PIES}
        name = max(excess, key=lambda name: float(excess[name].mean()))
        words = f"ARES is {_percent(excess[name])} above {name}, the best window"
        yield _from(f"psi = {psi}", excess[name], _below(excess[name], MORE), words)


def ares_beats_pies(study: Measured) -> Evidence:
    """Statement 4: ARES against every window of PIES at psi = 4."""
    savings = {name: 1 - study.regret(4, "ARES") / study.regret(4, name) for name in _PIES}
    least = min(savings, key=lambda name: float(savings[name].mean()))
    verdict = worst(_above(saving) for saving in savings.values())
    yield _from("psi = 4", savings[least], verdict, f"smallest saving {_percent(savings[least])}, against {least}")


def nearer_to_oracle(study: Measured) -> Evidence:
    """Statement 5: regret relative to the Oracle's, from psi to psi; Random for comparison."""
    for name in ("ARES", "PIES(1)", "PIES(10)"):
        ratios = [study.regret(psi, name) / study.regret(psi, "Oracle") for psi in _PSI]
        away = np.array([abs(float(ratio.mean()) - 1) for ratio in ratios])
        errors = np.array([_error(ratio) for ratio in ratios])
        steps, spread = np.diff(away), np.hypot(errors[1:], errors[:-1])
        least = int(steps.argmin())
        verdict = worst(_verdict(float(step), float(error)) for step, error in zip(steps, spread, strict=True))
        words = f"{name}: {', '.join(plus_minus(ratio, 2) for ratio in ratios)}"
        yield Judgement(name, float(steps[least]), float(spread[least]), None, verdict, words)


def windows(study: Measured) -> Evidence:
    """Statement 6: ARES's windows, psi against psi = 4, and the two that the paper names."""
    shortest = study.mean(4, "window", _LATE)
    for psi in _PSI:
        windows = study.mean(psi, "window", _LATE)
        for arm in (0, 1):
            mean, longer = windows[:, arm], windows[:, arm] - shortest[:, arm]
            verdicts = [HOLDS if psi == 4 else _above(longer)]
            verdicts += [_within(mean, _NAMED[arm], NEAR)] if psi == 2 else []
            yield _from(f"psi = {psi}, arm {arm + 1}", mean, worst(verdicts), plus_minus(mean))


def windows_move(study: Measured) -> Evidence:
    """Statement 9: how far ARES's windows still move."""
    for psi in _PSI:
        moved = study.mean(psi, "window", _LATE) - study.mean(psi, "window", *_SETTLED)
        for arm in (0, 1):
            values = moved[:, arm]
            verdict = _above(values) if psi in (1, 3) else _within(values, 0.0, STEADY)
            yield _from(f"psi = {psi}, arm {arm + 1}", values, verdict, f"moves by {plus_minus(values, 2)}")


def widths_of_arms(study: Measured) -> Evidence:
    """Statement 7a: widths of the two arms."""
    for psi in _PSI:
        widths = study.mean(psi, "width", _LATE)
        ratio = np.log(widths[:, 0] / widths[:, 1])
        both = " and ".join(plus_minus(widths[:, arm], 2) for arm in (0, 1))
        words = f"{both}, ratio {math.exp(ratio.mean()):.2f}"
        yield _from(f"psi = {psi}", ratio, _within(ratio, 0.0, math.log(ALIKE)), words)


def widths_of_systems(study: Measured) -> Evidence:
    """Statement 7b: widths from psi to psi."""
    widths = {psi: np.log(study.mean(psi, "width", _LATE).mean(axis=1)) for psi in _PSI}
    high, low = (pick(_PSI, key=lambda psi: float(widths[psi].mean())) for pick in (max, min))
    ratio = widths[high] - widths[low]
    words = f"psi = {high} has {math.exp(ratio.mean()):.1f} times the width of psi = {low}"
    error = ERRORS * math.hypot(standard_error(widths[high]), standard_error(widths[low]))
    verdict = _verdict(math.log(ALIKE) - float(ratio.mean()), error)
    yield Judgement("all systems", float(ratio.mean()), error, None, verdict, words)


def _window_errors(study: Measured, psi: int) -> Array:
    """Return the errors of the best forecast from s = 0, …, 10 contexts, (11, k)."""
    return np.asarray(np.sqrt(window_errors(study.system(psi).system, LONGEST)))


def smallest_window(study: Measured) -> Evidence:
    """Statement 8: ARES's windows against the smallest one that is as good."""
    for psi in _PSI:
        errors, windows = _window_errors(study, psi), study.mean(psi, "window", _LATE)
        for arm, smallest in enumerate(np.argmax(errors <= (1 + EQUAL) * errors.min(axis=0), axis=0)):
            window = windows[:, arm]
            words = f"{plus_minus(window)}, smallest such s = {smallest}"
            yield _from(f"psi = {psi}, arm {arm + 1}", window, _within(window, float(smallest), CHOSEN), words)


def least_error(study: Measured) -> Evidence:
    """Statement 10a: ARES's windows against the best one."""
    for psi in _PSI:
        best, windows = _window_errors(study, psi).argmin(axis=0), study.mean(psi, "window", _LATE)
        for arm in (0, 1):
            window, s = windows[:, arm], int(best[arm])
            words = f"{plus_minus(window)}, least error at s = {s}"
            yield _from(f"psi = {psi}, arm {arm + 1}", window, _within(window, s, CHOSEN), words)


def little_error(study: Measured) -> Evidence:
    """Statement 10b: the additional error of ARES's windows."""
    for psi in _PSI:
        errors, windows = _window_errors(study, psi), study.mean(psi, "window", _LATE)
        for arm in (0, 1):
            least = errors[:, arm].min()
            excess = np.interp(windows[:, arm], np.arange(LONGEST + 1), errors[:, arm]) / least - 1
            yield _from(f"psi = {psi}, arm {arm + 1}", excess, _below(excess, EQUAL), f"{_percent(excess)} more error")


def commits(study: Measured) -> Evidence:
    """Statement 11a: how often the arm of the largest window is played."""
    for psi in _PSI:
        share = study.committed(psi)
        yield _from(f"psi = {psi}", share, _above(share, COMMITS), f"in {_percent(share)} of the rounds")


def leans(study: Measured) -> Evidence:
    """Statement 11b: whether that is more than half."""
    for psi in _PSI:
        share = study.committed(psi)
        yield _from(f"psi = {psi}", share, _above(share, 0.5), f"in {_percent(share)} of the rounds")


def harder(study: Measured) -> Evidence:
    """Statement 12: quantities that rise with psi according to the paper."""
    systems = [study.system(psi).system for psi in _PSI]
    radii = [spectral_radius(system.steady_state.closed_loop) for system in systems]
    noise = [true_noise_bound(system) ** 2 for system in systems]
    for name, values, digits in (("ρ(Ψ − ΨKC)", radii, 3), ("max c'Pc + σ²", noise, 1)):
        rises = np.diff(values)
        yield _exactly(name, float(rises.min()), bool((rises > 0).all()), ", ".join(f"{v:.{digits}f}" for v in values))


def less_to_gain(study: Measured) -> Evidence:
    """Statement 13a: the savings of nine more contexts, from psi to psi."""
    gains = [1 - (errors[-1] / errors[1]) for errors in (_window_errors(study, psi) for psi in _PSI)]
    for arm in (0, 1):
        values = [float(gain[arm]) for gain in gains]
        falls = -np.diff(values)
        words = ", ".join(f"{100 * value:.1f} %" for value in values)
        yield _exactly(f"arm {arm + 1}", float(falls.min()), bool((falls > 0).all()), words)


def small_windows_suffice(study: Measured) -> Evidence:
    """Statement 13b: how long a window has to be."""
    enough = []
    for psi in _PSI:
        system = study.system(psi).system
        P, c = system.steady_state.prediction_covariance, system.arms
        limit = np.diag(c @ P @ c.T) + system.reward_noise
        enough.append([int(np.argmax(errors <= _ENOUGH * low)) for errors, low in zip(
            window_errors(system, 200).T, limit, strict=True)])  # fmt: skip
    for arm in (0, 1):
        values = [row[arm] for row in enough]
        falls = -np.diff(values)
        yield _exactly(
            f"arm {arm + 1}", float(falls.min()), bool((falls >= 0).all()), f"s = {', '.join(map(str, values))}"
        )


def bias_falls(study: Measured) -> Evidence:
    """Statement 14: the bias from window to window."""
    for psi in _PSI:
        deviations = bias_deviations(study.system(psi).system, LONGEST)
        for arm, values in enumerate(deviations.T):
            rise = float(np.diff(values).max())
            words = (
                f"{values[0]:.2f} at s = 0, at most {values.max():.2f} (s = {values.argmax()}), {values[-1]:.2f} at 10"
            )
            yield _exactly(f"psi = {psi}, arm {arm + 1}", -rise, rise < 0, words)


def _percent(values: Array) -> str:
    return f"{plus_minus(100 * values)} %"
