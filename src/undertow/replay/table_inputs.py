"""Features of a table: columns of numbers and words, and those that every arm has for itself."""

from collections.abc import Sequence

import numpy as np

from undertow.errors import InvalidInputError
from undertow.replay.columns import AT
from undertow.replay.source import Source
from undertow.support import checks
from undertow.support.checks import FloatArray

__all__ = ["EACH", "features_of_arms", "numbers_of", "shared_features"]

EACH = f"{AT}*"  # ends the name of a feature that every arm has for itself


def numbers_of(source: Source, names: Sequence[str], *, missing: bool = False) -> FloatArray:
    """Return columns of numbers, (n, columns)."""
    parts = [source.numbers(name, missing=missing) for name in names]
    return np.stack(parts, axis=1) if parts else np.empty((source.frame.height, 0))


def shared_features(source: Source, names: Sequence[str]) -> tuple[FloatArray, list[str]]:
    """Return the features that all arms share, (n, q), and their names."""
    parts = [source.features(name) for name in names]
    values = [np.empty((source.frame.height, 0)), *(values for values, _ in parts)]
    return np.hstack(values), [name for _, expanded in parts for name in expanded]


def features_of_arms(source: Source, names: Sequence[str], arms: Sequence[str]) -> tuple[FloatArray, list[str]]:
    """Return the features that arms have for themselves, (n, k, q), and their names."""
    for name in names:
        arm = name.partition(AT)[2]
        if arm not in arms:
            near = checks.did_you_mean(arm, arms)
            raise InvalidInputError(
                f"{source.place(-1, name)}: expected the name of an arm after {AT}, got {arm!r:.80}{near}; rename the "
                f"column, or leave it out; arms are {', '.join(arms)}"
            )
    features = list(dict.fromkeys(name.partition(AT)[0] for name in names))
    columns = [[f"{feature}{AT}{arm}" for arm in arms] for feature in features]
    if lacking := next((name for group in columns for name in group if name not in names), None):
        feature = lacking.partition(AT)[0]
        raise InvalidInputError(
            f"{source.place(-1)}: expected {feature}{AT}… for every arm, and there is no {lacking!r:.80}; add it"
        )
    values = np.stack([numbers_of(source, group) for group in columns], axis=2)
    return values, [f"{feature}{EACH}" for feature in features]
