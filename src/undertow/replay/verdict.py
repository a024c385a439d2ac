"""The answer of a replay in a sentence: the gain, its reliability, and the advice.

The best is the one with the highest interval, if that excludes no gain.
"""

from collections.abc import Sequence
from typing import Any

import polars as pl

from undertow.replay.full import Replay
from undertow.replay.keyed import ALL, FLEET, PER_KEY, KeyedContender
from undertow.replay.logged import LogReplay
from undertow.support.numbers import number

__all__ = ["answer_on_log", "answer_on_table"]

_MANY = 1000  # effective rounds of a reliable estimate
_DOUBTED = 100  # ... and the minimum


def answer_on_log(result: LogReplay) -> tuple[str, str]:
    """Return the policy or fixed arm whose gain over the log has the highest lower end, and the answer.

    Estimates with a warning are skipped, unless all have one. The name is "" if no gain is above zero.
    """
    if result.table.keys is not None:
        return _answer_on_keys(result)
    rows = result.summary.filter(pl.col("kind") != "log").to_dicts()
    sound = [row for row in rows if not row["warning"]] or rows
    best, most = max(sound, key=lambda row: row["gain_low"]), max(sound, key=lambda row: row["gain"])
    earns, earned, more = ("costs", "cost", "less") if result.table.minimize else ("earns", "earned", "more")
    if best["gain_low"] <= 0:
        return "", (
            f"Keep the present policy: no policy and no fixed arm {earns} {more} beyond chance. The largest estimate, "
            f"of {most['policy']}, is {_gain(most)} {more} per round, doubly robust. {_trust(result, most)}"
        )
    other = max((row for row in sound if row["kind"] == "policy"), key=lambda row: row["gain"], default=None)
    advice = "Try it on a part of the decisions first."
    if best["kind"] == "fixed arm":
        advice = "Play that arm; a policy is not needed."
        advice += f" The best policy, {other['policy']}, gains {_gain(other)}." if other else ""
    return best["policy"], (
        f"{_capital(best['policy'])} would have {earned} {_gain(best)} {more} per round than was logged, by the doubly "
        f"robust estimate. {_trust(result, best)} {advice}"
    )


def answer_on_table(result: Replay) -> tuple[str, str]:
    """Return the policy with the largest gain over the best fixed arm, at the lower end, and the answer.

    The name is "" if none beats it beyond chance.
    """
    if result.table.keys is not None:
        return _answer_on_keys(result)
    policies = result.summary.filter(pl.col("kind") == "policy").to_dicts()
    fixed = result.summary.filter(pl.col("policy").str.starts_with("best fixed arm")).row(0, named=True)
    arm, rounds = fixed["policy"].partition(": ")[2], result.table.rounds
    best = min(policies, key=lambda row: row["regret_fixed_high"])
    earned, more = ("cost", "less") if result.table.minimize else ("earned", "more")
    trust = f"Every arm's reward is known, so nothing is estimated; the interval is that of {rounds:,} rounds."
    if best["regret_fixed_high"] < 0:
        gain = _interval([-best[name] / rounds for name in ("regret_fixed", "regret_fixed_high", "regret_fixed_low")])
        return best["policy"], (
            f"{best['policy']} would have {earned} {gain} {more} per round than always {arm}, the best fixed arm in "
            f"hindsight. {trust} Use it."
        )
    most = min(policies, key=lambda row: row["regret_fixed"])
    gain = _interval([-most[name] / rounds for name in ("regret_fixed", "regret_fixed_high", "regret_fixed_low")])
    if fixed["share_low"] <= 0 and all(row["share_low"] <= 0 for row in policies):
        do = "Choose as you like: neither a policy nor a fixed arm beats a random choice beyond chance"
    else:
        do = f"Keep {arm}: no policy beats the best fixed arm beyond chance"
    return "", f"{do}. {most['policy']} comes closest: {gain} {more} per round than that arm. {trust}"


def _answer_on_keys(result: Replay | LogReplay) -> tuple[str, str]:
    """Return what to take for a table with keys, and the answer: whether a fleet pays, and how much.

    Of the three ways, the simplest is taken that none of the others beats beyond chance.
    """
    rows = {row["policy"]: row for row in result.summary.filter(pl.col("kind") == "policy").to_dicts()}
    merit, sign = ("dr", -1 if result.table.minimize else 1) if isinstance(result, LogReplay) else ("regret_fixed", -1)
    ways: dict[str, list[str]] = {ALL: [], PER_KEY: [], FLEET: []}  # the simplest first
    for one in result.policies:
        assert isinstance(one, KeyedContender)
        ways[one.how].append(one.label)
    best = {how: max(labels, key=lambda label: sign * rows[label][merit]) for how, labels in ways.items()}
    pairs = {(one, other): values for one, other, *values in result.comparisons.rows()}

    def beats(how: str, other: str) -> bool:
        return bool(pairs[best[how], best[other]][1] > 0)

    unbeaten = [how for how in ways if not any(beats(other, how) for other in ways if other != how)]
    taken, fleet = (unbeaten or [FLEET])[0], best[FLEET]
    earned, words = ("cost", ("less", "more")) if result.table.minimize else ("earned", ("more", "less"))

    def apart(how: str, other: str) -> str:
        values = pairs[best[how], best[other]]
        return f"{_apart(values, words)} than {best[other]}"

    said = (
        f"A fleet {'pays' if beats(FLEET, PER_KEY) and beats(FLEET, ALL) else 'does not pay'} here: {fleet} would have "
        f"{earned} {_apart(pairs[fleet, best[ALL]], words)} per round than {best[ALL]}, and {apart(FLEET, PER_KEY)}. "
    )
    said += {
        ALL: f"Take one policy for all keys, the simplest: {best[ALL]} ({apart(ALL, PER_KEY)}).",
        PER_KEY: f"Take one policy per key: {best[PER_KEY]} ({apart(PER_KEY, ALL)}).",
        FLEET: f"Take {fleet}.",
    }[taken]
    row = rows[best[taken]]
    if isinstance(result, LogReplay):
        gain = _apart([row["gain"], row["gain_low"], row["gain_high"]], words)
        return best[taken], f"{said} That is {gain} than was logged, doubly robust. {_trust(result, row)}"
    gained = [-row[name] / result.table.rounds for name in ("regret_fixed", "regret_fixed_high", "regret_fixed_low")]
    if gained[1] <= 0:
        return "", (
            f"{said} But that is not better beyond chance than always the best fixed arm: {_apart(gained, words)}."
        )
    return best[taken], f"{said} That is {_apart(gained, words)} than always the best fixed arm."


def _apart(values: Sequence[float], words: tuple[str, str]) -> str:
    """Return a difference with its interval, and whether it is more or less."""
    value, low, high = values
    if value < 0:
        return f"{_interval([-value, -high, -low])} {words[1]}"
    return f"{_interval(values)} {words[0]}"


def _trust(result: LogReplay, row: dict[str, Any]) -> str:
    """Describe the reliability of an estimate."""
    behind = f"{row['effective']:,.0f} effective rounds stand behind it"
    if any("propensities" in note and "do not fit" in note for note in result.notes):
        return f"Do not trust it: the propensities do not fit the log ({behind})."
    if row["effective"] < _DOUBTED or row["warning"]:
        return f"Do not trust it: only {behind}."
    if result.table.estimated:
        return f"Trust it with care: {behind}, and their propensities are estimated."
    return f"Trust it{'' if row['effective'] >= _MANY else ' with care'}: {behind}."


def _gain(row: dict[str, Any]) -> str:
    return _interval([row["gain"], row["gain_low"], row["gain_high"]])


def _interval(values: Sequence[float]) -> str:
    value, low, high = map(number, values)
    return f"{value} ({low} to {high})"


def _capital(name: str) -> str:
    """Return the name of a row at the beginning of a sentence."""
    return name.replace("always ", "Always ", 1) if name.startswith("always ") else name
