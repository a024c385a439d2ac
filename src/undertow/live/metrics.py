"""The metrics of a policy, in the text format of Prometheus.

Times are those of the events themselves, as Prometheus recommends: `time() - undertow_last_reward_timestamp_seconds` is
the age of the last reward. Counters of this process restart with it.
"""

import math
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from undertow.live.health import Health

__all__ = ["Measure", "exposition", "measures_of"]

_FAMILIES = {
    "rounds_total": ("counter", "Rounds begun."),
    "events_total": ("counter", "Events in the store."),
    "pending_decisions": ("gauge", "Pending decisions."),
    "oldest_pending_rounds": ("gauge", "Rounds since the oldest pending decision."),
    "refused_rewards_total": ("counter", "Rewards that this process refused, by reason."),
    "problems": ("gauge", "Problems named by health(); 0 if there are none."),
    "last_decision_timestamp_seconds": ("gauge", "Unix time of the last decision."),
    "last_reward_timestamp_seconds": ("gauge", "Unix time of the last reward."),
    "reward_delay_seconds": ("gauge", "Quantile of the time from a decision to its reward, of the last 1000 rewards."),
    "model_order": ("gauge", "Order of a fitted model."),
    "model_deciding": ("gauge", "1 for the model that decides, 0 for the others."),
    "model_fitted_round": ("gauge", "Round of the last fit."),
    "model_squared_innovation": ("gauge", "Running mean; about 1 if the model holds."),
    "model_alarms_total": ("counter", "Alarms, each of which asks for a fit."),
    "recent_fits": ("gauge", "Outcomes of the last 50 fits."),
    "fits_under_way": ("gauge", "Fits requested or being made in the background."),
}
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class Measure(NamedTuple):
    """A number with its labels; `name` is without the prefix `undertow_`."""

    name: str
    value: float
    labels: dict[str, str]


def measures_of(health: Health, **labels: str) -> list[Measure]:
    """Return the measures of a policy's health."""
    labels = {"policy": health.policy} | labels
    found = [
        Measure("rounds_total", health.round, labels),
        Measure("pending_decisions", health.pending, labels),
        Measure("oldest_pending_rounds", health.waited if health.pending else 0, labels),
        Measure("problems", len(health.problems), labels),
    ]
    found += [Measure("refused_rewards_total", n, labels | {"reason": each}) for each, n in health.refused.items()]
    found += [Measure("model_squared_innovation", x, labels | {"model": each}) for each, x in health.level.items()]
    found += [Measure("model_alarms_total", n, labels | {"model": each}) for each, n in health.alarms.items()]
    outcomes = Counter((each.model, "found" if each.failure is None else "failed") for each in health.fits)
    for model in health.alarms:
        for outcome in ("found", "failed"):
            more = {"model": model, "outcome": outcome}
            found.append(Measure("recent_fits", outcomes[model, outcome], labels | more))
        found.append(Measure("fits_under_way", model in health.under_way, labels | {"model": model}))
    return found


def exposition(measures: Iterable[Measure]) -> str:
    """Return measures, of one policy or of many, in the text format of Prometheus.

    Examples
    --------
    >>> print(exposition([Measure("rounds_total", 3, {"policy": "ucb"})]), end="")
    # HELP undertow_rounds_total Rounds begun.
    # TYPE undertow_rounds_total counter
    undertow_rounds_total{policy="ucb"} 3
    """
    lines: dict[str, list[str]] = {name: [] for name in _FAMILIES}
    for name, value, labels in measures:
        shown = ",".join(f'{key}="{text.translate(_ESCAPES)}"' for key, text in labels.items())
        lines[name].append(f"undertow_{name}{{{shown}}} {_number(value)}\n")
    return "".join(
        f"# HELP undertow_{name} {_FAMILIES[name][1]}\n# TYPE undertow_{name} {_FAMILIES[name][0]}\n{''.join(each)}"
        for name, each in lines.items()
        if each
    )


def _number(value: float) -> str:
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    return repr(int(value)) if value == int(value) and abs(value) < 2**53 else repr(float(value))
