"""A diagnosis in sentences."""

import numpy as np

from undertow.replay.diagnosis import SMALL, Diagnosis, Measured
from undertow.replay.simple_rules import ALL_PAST, AVERAGE, Rule

__all__ = ["advice", "answer", "describe", "rule_words"]

_PERSISTS = 0.2  # an autocorrelation that is of use
_SHOWN = 12  # arms
_VARIATION = "the relative rewards' variation"


def answer(found: Diagnosis) -> str:
    """Answer the question in one sentence."""
    won, more = _percent(found.rule_share), _points(found.beyond)
    rules = f"Simple rules that see every arm's reward win {won} of what a clairvoyant wins"
    return {
        "motion": f"Yes: try policies; arms change places in a way that can be followed. {rules}, {more} more than a "
        "fixed arm.",
        "fixed": f"Not quite: keep {found.best_arm}; there is something to win, but a fixed arm wins it. {rules}, no "
        "more than that arm.",
        "nothing": f"No: use no policy here; there is nothing to win, as far as {found.rounds:,} rounds can tell. "
        f"{rules}.",
        "unclear": f"Record more: {found.rounds:,} rounds are too few to tell. {rules}.",
    }[found.verdict]


def describe(found: Diagnosis) -> list[tuple[str, str]]:
    """Return the measurements as titles with a paragraph each."""
    paragraphs = [
        ("What you can win", _to_win(found)),
        ("How the arms move", _motion(found)),
        ("How far to look back", _looking_back(found)),
        ("Whether contexts carry signal", _contexts(found)),
    ]
    if found.features is not None:
        told = "carry signal" if found.features.low > 0 else "carry no separate signal"
        text = f"Features {told}: a regression on them explains {_percent(found.features)} of {_VARIATION}."
        paragraphs.append(("Whether features carry signal", text))
    return [*paragraphs, ("What to do", advice(found))]


def advice(found: Diagnosis) -> str:
    """Return advice."""
    caution = (
        " Remember that a diagnosis sees every arm's reward, while a policy sees only what it plays. "
        "'undertow replay' shows how much policies win."
    )
    if found.verdict == "motion":
        return (
            "Try policies on it; start with Autopilot." + caution
            if found.beyond.value >= SMALL
            else f"Policies can win a little more than the arm {found.best_arm}, if they lose little in finding out "
            "which arm that is; check that in a replay." + caution
        )
    if found.verdict == "fixed":
        return (
            f"Find the best arm ({found.best_arm} in this table) with a test or a plain UCB, and keep it. "
            "No rule that was tried does better." + caution
        )
    if found.verdict == "nothing":
        return (
            "Do not use a policy here: whatever it wins in a replay is luck. Other measurements, known before "
            "the rewards, might change that; more of the same would not. Daily stock returns are the classic example."
        )
    return "Record more rounds and try again; until then, do not trust what any policy wins in a replay."


def rule_words(rule: Rule) -> str:
    """Describe a rule."""
    kind, rounds = rule
    if kind == ALL_PAST:
        return "the arm that was best so far"
    if kind == AVERAGE:
        return f"the arm with the largest mean over the last {rounds} rounds" if rounds > 1 else "the last round's best"
    back = f" of the last {rounds} rounds" if rounds > 1 else " of the last round" if rounds else ""
    return f"the largest forecast of a regression on {kind}{back}"


def _to_win(found: Diagnosis) -> str:
    return (
        f"A clairvoyant plays the best arm of every round; no policy can, since the noise is unknown. "
        f"Of a clairvoyant's gain over a random choice, the best fixed arm in hindsight, {found.best_arm}, wins "
        f"{100 * found.fixed_share:.0f} %. On the second half of the table, using earlier rounds only, the rule that "
        f"had earned most so far (mostly {rule_words(found.rule)}) wins {_percent(found.rule_share)}, and the arm that "
        f"was best so far {_percent(found.fixed_ahead)}: a difference of {_points(found.beyond)}."
    )


def _motion(found: Diagnosis) -> str:
    first = [values[0] for values in found.autocorrelation.values()]
    loud = sum(max(map(abs, values)) > max(_PERSISTS, found.chance) for values in found.autocorrelation.values())
    stays, chance = 100 * found.stays_best, 100 * found.stays_by_chance
    least, middle, most = min(first), np.median(first), max(first)
    text = (
        f"The best arm of a round is the best of the next in {stays:.0f} % of rounds; if rounds were drawn "
        f"independently, it would be in {chance:.0f} %. An arm's relative reward is its reward minus the mean of all "
        f"arms in that round. Its autocorrelation from one round to the next is {least:.2f}"
        + (f" to {most:.2f}" if f"{least:.2f}" != f"{most:.2f}" else "")
        + (f" (median {middle:.2f})" if len(first) > 2 else "")
        + f"; values within ±{found.chance:.2f} are not significant. "
    )
    if not loud:
        return text + f"No arm exceeds ±{_PERSISTS} at any lag up to {_lags(found)}: the past says little."
    if middle < -_PERSISTS:
        text += "Negative values mean that arms swing: an arm above the others will soon be below. "
    return text + f"Of {len(first)} arms, {loud} exceed ±{_PERSISTS} at some lag up to {_lags(found)}."


def _lags(found: Diagnosis) -> int:
    return len(next(iter(found.autocorrelation.values())))


def _looking_back(found: Diagnosis) -> str:
    mean, fit = found.averages[found.average_window], found.regressions[found.regression_window]
    means = (
        f"Among plain means of the last w rounds, w = {found.average_window} predicts best and explains "
        f"{100 * mean:.0f} % of {_VARIATION} about the mean of all rounds before."
        if mean > 0.01
        else "Plain means of the last w rounds predict no better than the mean of all rounds, whatever w."
    )
    known = "rewards" if found.contexts is None and found.features is None else "everything known"
    fits = (
        f"Among regressions on {known} of the last w rounds, w = {found.regression_window} is enough: "
        f"{100 * fit:.0f} %."
        if fit > 0.01
        else f"Nor do regressions on {known} of the last w rounds."
        if mean <= 0.01
        else f"Regressions on {known} of the last w rounds explain nothing."
    )
    return f"{means} {fits}"


def _contexts(found: Diagnosis) -> str:
    if found.contexts is None or found.contexts_beyond is None:
        return "The table has none. A measurement of what moves the rewards may be worth more than additional rounds."
    alone, beyond = found.contexts, found.contexts_beyond
    if alone.low > 0 and beyond.low > 0:
        verdict = "They do, and add to what past rewards carry"
    elif alone.low > 0:
        verdict = "They do, but past rewards carry as much"
    elif beyond.low > 0:
        verdict = "Not alone, but together with past rewards"
    else:
        verdict = "They do not, as far as a regression can tell"
    return (
        f"{verdict}: past contexts alone explain {_percent(alone)} of {_VARIATION}, and "
        f"{_percent(beyond, digits=1)} beyond everything else."
    )


def _percent(measured: Measured, digits: int = 0) -> str:
    value, low, high = (f"{100 * number:.{digits}f}" for number in measured)
    return f"{value} % ({low} to {high})".replace("-", "−")


def _points(measured: Measured) -> str:
    """Write a difference of two shares, which is not a share itself and may exceed 100."""
    return _percent(measured).replace(" % ", " points ")


def arm_lines(found: Diagnosis) -> list[tuple[str, ...]]:
    """Return the autocorrelation of some arms at some lags, the strongest first, as cells of a table."""
    lags = [lag for lag in (1, 2, 3, 5, 7, 10, 20, 50) if lag <= _lags(found)]
    strong = sorted(found.autocorrelation, key=lambda name: -max(map(abs, found.autocorrelation[name])))
    rows = [
        (name, *(f"{found.autocorrelation[name][lag - 1]:.2f}".replace("-", "−") for lag in lags))
        for name in strong[:_SHOWN]
    ]
    return [("arm", *(f"lag {lag}" for lag in lags)), *rows]


def closing(found: Diagnosis) -> str:
    """Return a note on the arms that are not shown."""
    hidden = len(found.autocorrelation) - _SHOWN
    return f"and {hidden} more arms with weaker ones" if hidden > 0 else ""
