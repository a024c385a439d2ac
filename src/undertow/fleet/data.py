"""Checks of the inputs of a batch of decisions."""

from typing import Any

import numpy as np

from undertow.errors import InvalidInputError
from undertow.fleet.bucket import Data
from undertow.fleet.template import Template
from undertow.support import checks
from undertow.support.checks import FloatArray

__all__ = ["checked_data"]


def checked_data(template: Template, n: int, features: Any, contexts: Any, available: Any) -> Data:
    """Return the checked inputs of n decisions, in the policy's units."""
    k, m = template.k, template.m
    closed: FloatArray = np.empty((0, k))
    if available is not None:
        marks = np.asarray(available)
        if marks.dtype != np.bool_ or marks.shape not in ((n, k), (k,)):
            raise InvalidInputError(
                f"available: expected booleans of shape ({n}, {k}) or ({k},), got {marks.dtype} of {marks.shape}"
            )
        fresh = template.common(template.fresh).closed > 0
        open_ = np.broadcast_to(marks & ~fresh, (n, k))
        if not open_.any(axis=1).all():
            row = int(np.argmin(open_.any(axis=1)))
            raise InvalidInputError(f"available: expected at least one arm for each key, got none in row {row}")
        closed = np.where(open_, 0.0, 1.0)
    rows: FloatArray = np.empty((0, m))
    if contexts is not None:
        if not template.context_first:
            raise InvalidInputError(
                "contexts: this fleet's policy decides before it sees contexts, or takes none; call observe_many "
                "after it, or build it with context_first=True"
            )
        rows = template.inward(checks.measured("contexts", contexts, (n, m), missing=True), 0)
    known = _features(template, n, features)
    return Data(checks.readonly(rows), checks.readonly(known), checks.readonly(closed))


def _features(template: Template, n: int, features: Any) -> FloatArray:
    k, q, capabilities = template.k, template.q, template.policy.capabilities
    if features is None and not q:
        return np.empty((n, 0))
    if features is None or not q:
        wanted = f"expected shape ({n}, {q}), got None" if q else "this fleet's policy takes none"
        raise InvalidInputError(f"features: {wanted}")
    given = features if isinstance(features, np.ndarray) else checks.numbers("features", features)
    shape = (n, k, q) if given.ndim == 3 and capabilities.takes_arm_features else (n, q)
    values = template.inward(checks.measured("features", given, shape), template.m)
    return np.ascontiguousarray(values.reshape(n, -1) if n else values.reshape(0, q))
