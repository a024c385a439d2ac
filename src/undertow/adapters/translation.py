"""Shared by the adapters: another package's arms and contexts, translated into those of a policy."""

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

from undertow.errors import InvalidInputError
from undertow.live import Decision, LivePolicy
from undertow.support import checks
from undertow.support.checks import FloatArray

__all__ = ["Arms", "Columns"]


class Arms:
    """Another package's arms, in the order of a policy's.

    If not given, they are the names that the policy was built with; a policy built with a number numbers them in order
    of appearance.
    """

    def __init__(self, policy: LivePolicy, identifiers: Sequence[Any] | None) -> None:
        if not isinstance(policy, LivePolicy):
            raise InvalidInputError(f"policy: expected a policy of undertow, got {policy!r:.80}")
        self._count = policy.arm_count
        if identifiers is not None:
            self._known = _distinct(identifiers)
            if len(self._known) != self._count:
                raise InvalidInputError(f"arms: expected {self._count}, as the policy has, got {identifiers!r:.80}")
        else:
            self._known = list(policy.names) if isinstance(policy.arms, Sequence) else []

    def decide(
        self, policy: LivePolicy, identifiers: Iterable[Any], columns: "Columns | None" = None, context: Any = None
    ) -> tuple[Decision, Any]:
        """Give a policy its part of the context and let it decide; return its decision, and the other package's arm."""
        given = list(identifiers)
        places = self._indices(given)
        everything = len(set(places)) == self._count
        features = columns.observe(policy, context) if columns else None
        decision = policy.decide(features, available=None if everything else places)
        return decision, given[places.index(decision.arm)]

    def _indices(self, given: list[Any]) -> list[int]:
        known = self._known + [arm for arm in _distinct(given) if arm not in self._known]
        if len(known) > self._count:
            raise InvalidInputError(
                f"arms: the policy has {self._count} arms, {self._known!r:.60}, but not {known[-1]!r:.40}; "
                f"give arms=…, in the policy's order"
            )
        self._known = known
        return [known.index(_plain(arm)) for arm in given]


class Columns:
    """The entries of another package's context that are a policy's contexts and features.

    Entries are keys of a dictionary or positions of a sequence, in the policy's order; None for all. By default a
    sequence, or a single number, is taken whole if the policy takes only one of the two. `absent` is the value of an
    entry that a dictionary lacks; None if every entry is required. The policy observes contexts before it decides, or
    none.
    """

    def __init__(
        self,
        policy: LivePolicy,
        *,
        contexts: Sequence[Hashable] | None,
        features: Sequence[Hashable] | None,
        absent: float | None,
    ) -> None:
        self._sizes = int(getattr(policy, "context_dim", 0)), int(getattr(policy, "feature_dim", 0))
        self._entries = contexts, features
        self._absent = absent
        for name, entries, size in zip(("contexts", "features"), self._entries, self._sizes, strict=True):
            if entries is not None and (isinstance(entries, str) or len(entries) != size):
                raise InvalidInputError(f"{name}: expected {size} entries, as the policy has, got {entries!r:.80}")
        if all(self._sizes) and None in self._entries:
            raise InvalidInputError("contexts, features: this policy takes both; say which entries are which")
        if self._sizes[0] and not getattr(policy, "context_first", False):
            raise InvalidInputError(
                "policy: contexts come before the choice here; build it with context_first=True, or with feature_dim "
                "if they are not measurements of the hidden state"
            )

    def observe(self, policy: LivePolicy, context: Any) -> FloatArray | None:
        """Give a policy its part of the context, and return the features for its decision."""
        (m, q), (contexts, features) = self._sizes, self._entries
        absent = math.nan if self._absent is None else self._absent
        seen = None if context is None or not m else _row("contexts", context, contexts, m, absent)
        known = None if not q else _row("features", context, features, q, self._absent)
        if m:
            policy.observe(seen)
        return known


def _row(name: str, context: Any, entries: Sequence[Hashable] | None, size: int, absent: float | None) -> FloatArray:
    if isinstance(context, Mapping):
        if entries is None:
            raise InvalidInputError(
                f"{name}: expected the keys of the {size} entries to take from a dictionary, got None"
            )
        if absent is None and (lost := [key for key in entries if key not in context]):
            raise InvalidInputError(f"{name}: the context has no {lost[0]!r}; it has {', '.join(map(repr, context))}")
        row = [context.get(key, absent) for key in entries]
    else:
        whole = list(context) if isinstance(context, Iterable) and not isinstance(context, str) else [context]
        places = range(len(whole)) if entries is None else [checks.integer(name, entry, least=0) for entry in entries]
        if len(whole) <= max(places, default=-1):
            raise InvalidInputError(f"{name}: expected at least {max(places) + 1} entries, got {context!r:.80}")
        row = [whole[place] for place in places]
    return checks.array(name, row, (size,), missing=name == "contexts")


def _distinct(identifiers: Iterable[Any]) -> list[Any]:
    plain: list[Any] = []
    for arm in map(_plain, identifiers):
        if arm not in plain:
            plain.append(arm)
    return plain


def _plain(arm: Any) -> Any:
    return tuple(arm) if isinstance(arm, list) else arm
