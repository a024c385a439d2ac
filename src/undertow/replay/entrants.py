"""The policies that play a table: a sensible set, or any others by name and parameters."""

import re
import tomllib
from collections.abc import Sequence
from typing import Any

from undertow.errors import InvalidInputError
from undertow.policies import LivePolicy, make, registry
from undertow.replay.table import Table
from undertow.study.plan import PolicySpec

__all__ = ["build", "entrants", "parse_policies", "remarks"]

DEFAULTS = (
    PolicySpec("Autopilot", "autopilot", {}),
    PolicySpec("LearnedKalman", "learned-kalman", {}),
    PolicySpec("StructuralKalman", "structural-kalman", {}),
    PolicySpec("ARES", "ares", {}),
    PolicySpec("LinUCB", "linucb", {"window": 5}),
    PolicySpec("LinUCB + own rewards", "linucb", {"window": 5, "reward_lags": 5}),
    PolicySpec("Discounted UCB", "discounted-ucb", {}),
    PolicySpec("Sliding-window UCB", "sliding-window-ucb", {}),
    PolicySpec("Random", "random", {}),
)
_MANY_ARMS = 40  # beyond, five lags of every arm's reward make regressions of hundreds of inputs for each arm


def parse_policies(text: str) -> list[PolicySpec]:
    """Read policies separated by commas, each the label or name of one, with parameters in brackets where it has any.

    Examples
    --------
    >>> [spec.label for spec in parse_policies("autopilot, linucb(window=5, reward_lags=2)")]
    ['Autopilot', 'linucb(window=5, reward_lags=2)']
    """
    return [_parse(word.strip()) for word in re.split(r",(?![^(]*\))", text) if word.strip()]


def _parse(word: str) -> PolicySpec:
    name, bracket, rest = word.partition("(")
    name = name.strip()
    if not bracket:
        for spec in DEFAULTS:
            if name.lower() in (spec.label.lower(), spec.policy):
                return spec
    if name not in registry():
        labels = ", ".join(spec.label for spec in DEFAULTS)
        raise InvalidInputError(
            f"policies: no policy is called {name!r}; there are {labels}, and by name {', '.join(sorted(registry()))}"
        )
    if bracket and not rest.endswith(")"):
        raise InvalidInputError(f"policies: {word!r} does not end with a bracket; expected as in linucb(window=5)")
    try:
        parameters = tomllib.loads(f"given = {{{rest.removesuffix(')')}}}")["given"]
    except tomllib.TOMLDecodeError as error:
        raise InvalidInputError(f"policies: expected parameters as in linucb(window=5), got {word!r}") from error
    return PolicySpec(word, name, parameters)


_TAKEN = ("always ", "any arm at random", "best fixed arm", "clairvoyant")  # fixed arms and bounds of the report


def entrants(table: Table, chosen: Sequence[PolicySpec] = ()) -> tuple[list[PolicySpec], list[str]]:
    """Return the policies that play a table, by default all that can, and what has to be said about the choice.

    A policy that was asked for and cannot play the table is an error; of the default set it is left out.
    """
    labels = [spec.label for spec in chosen]
    if twice := next((label for label in labels if labels.count(label) > 1), None):
        raise InvalidInputError(f"policies: {twice!r} stands for more than one; give them labels that differ")
    if taken := next((label for label in labels if label.startswith(_TAKEN)), None):
        raise InvalidInputError(f"policies: {taken!r} is what a row of the report is called; give it another label")
    playing, notes = [], []
    for spec in chosen or DEFAULTS:
        if not chosen and spec.parameters.get("reward_lags") and len(table.arms) > _MANY_ARMS:
            notes.append(f"{spec.label} is left out: with {len(table.arms)} arms it has too many inputs")
            continue
        try:
            build(spec, table, seed=0)
        except (InvalidInputError, TypeError) as error:
            if chosen:
                raise InvalidInputError(f"policies: {spec.label}: {error}") from error
            notes.append(f"{spec.label} is left out: {error}")
        else:
            playing.append(spec)
    return playing, notes


def build(spec: PolicySpec, table: Table, *, seed: int, context_first: bool = False) -> LivePolicy:
    """Make a policy for a table; whatever can standardise its inputs does, unless told otherwise."""
    entry = registry()[spec.policy]
    if entry.claims.needs_system or entry.claims.simulates_only:
        raise InvalidInputError(f"{spec.policy} has to be told the system, and a table comes without")
    fitting: dict[str, Any] = {
        "context_dim": table.contexts.shape[1],
        "feature_dim": table.features.shape[1],
        "context_first": context_first,
        "standardise": True,
        "max_pending": 1,  # rewards come at once or never
    }
    given = {name: value for name, value in fitting.items() if name in entry.parameters} | dict(spec.parameters)
    return make(spec.policy, arms=list(table.arms), rng=seed, **given)


def remarks(specs: Sequence[PolicySpec], table: Table) -> list[str]:
    """Say which policies do not use all of the table."""
    claims = {spec.label: registry()[spec.policy].claims for spec in specs}
    notes = []
    if table.missing:
        notes.append(f"{table.missing} of {table.contexts.size} context entries are missing")
        poor = [label for label, claim in claims.items() if claim.uses_contexts and not claim.handles_missing_contexts]
        if poor:
            notes.append(f"without a claim to handle missing contexts: {', '.join(poor)}; distrust what they won here")
    if table.contexts.shape[1] and (blind := [label for label, claim in claims.items() if not claim.uses_contexts]):
        notes.append(f"without use for contexts: {', '.join(blind)}")
    if table.features.shape[1] and (blind := [label for label, claim in claims.items() if not claim.takes_features]):
        notes.append(f"without use for features: {', '.join(blind)}")
    return notes
