"""Which policy or fixed arm a replay calls the best: the one whose interval lies highest, and only if it says so."""

from typing import TYPE_CHECKING, Any

import polars as pl

from undertow.reporting.numbers import number

if TYPE_CHECKING:
    from undertow.replay.full import Replay
    from undertow.replay.logged import LogReplay

__all__ = ["best_on_log", "best_on_table"]


def best_on_log(result: "LogReplay") -> tuple[str, str]:
    """Return the policy or fixed arm whose gain over the log has the highest lower end, and a sentence that says so.

    Estimates that come with a warning are left out, unless all do. The name is "" if no gain is above zero.
    """
    rows = result.summary.filter(pl.col("kind") != "log").to_dicts()
    sound = [row for row in rows if not row["warning"]] or rows
    best = max(sound, key=lambda row: row["gain_low"])
    policy = max((row for row in sound if row["kind"] == "policy"), key=lambda row: row["dr"], default=None)
    arm = max((row for row in sound if row["kind"] == "fixed arm"), key=lambda row: row["dr"], default=None)
    other = policy if best["kind"] == "fixed arm" else arm
    if best["gain_low"] <= 0:
        most = max(sound, key=lambda row: row["dr"])
        return "", (
            f"no policy and no fixed arm earns more than was logged beyond chance: the largest estimate, of "
            f"{most['policy']}, is a gain of {_gain(most)} per round"
        )
    rest = "" if other is None else f"; the best {other['kind']}, {other['policy']}, gains {_gain(other)}"
    return best["policy"], (
        f"{best['policy']} is the best by its interval: {number(best['dr'])} per round, {_gain(best)} more than was "
        f"logged{rest}"
    )


def best_on_table(result: "Replay") -> tuple[str, str]:
    """Return the policy that beats the best fixed arm by most, at the lower end, and a sentence that says so.

    The name is "" if none beats it beyond chance.
    """
    policies = result.summary.filter(pl.col("kind") == "policy").sort("share", descending=True).to_dicts()
    fixed = result.summary.filter(pl.col("policy").str.starts_with("best fixed arm")).row(0, named=True)
    best = min(policies, key=lambda row: row["regret_fixed_high"])
    won = f"the best fixed arm in hindsight wins {100 * fixed['share']:.1f} %"
    gap = "of the gap between any arm at random and a clairvoyant"
    if best["regret_fixed_high"] < 0:
        return best["policy"], f"{best['policy']} is the best by its interval: it won {_share(best)} {gap}; {won}"
    most = policies[0]
    return "", f"no policy beats the best fixed arm beyond chance: {most['policy']} won {_share(most)} {gap}; {won}"


def _gain(row: dict[str, Any]) -> str:
    return f"{number(row['gain'])} ({number(row['gain_low'])} to {number(row['gain_high'])})"


def _share(row: dict[str, Any]) -> str:
    return f"{100 * row['share']:.1f} % ({100 * row['share_low']:.1f} to {100 * row['share_high']:.1f})"
