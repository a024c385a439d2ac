"""Several arms of one round: the best, then the best of the others, and so on, as decisions in one time step."""

from collections.abc import Iterable
from typing import Any

from undertow.errors import InvalidInputError
from undertow.live.arms import arm_index
from undertow.live.decision import Decision
from undertow.support import checks

__all__ = ["several"]


def several(
    policy: Any,
    count: Any,
    features: Any,
    *,
    available: Iterable[str | int] | None = None,
    id: str | None = None,
    **how: Any,
) -> tuple[Decision, ...]:
    """Return the first arms of a round, each as a decision; later ones exclude the ones before."""
    wanted = checks.integer("count", count, least=1)
    if {"subject", "sticky"} & how.keys():
        raise InvalidInputError("subject: expected none with several arms; a subject has one arm")
    names, retired = policy.names, policy.retired
    given = names if available is None else [names[arm_index("available", arm, names)] for arm in available]
    opened = [name for name in dict.fromkeys(given) if name not in retired]
    if wanted > len(opened):
        raise InvalidInputError(
            f"count: expected at most {len(opened)}, as many as there are arms to play, got {wanted}"
        )
    made = [policy.decide(features, available=None if available is None else opened, id=id, **how)]
    for place in range(2, wanted + 1):
        opened.remove(made[-1].name)
        made.append(policy.decide(features, available=opened, id=id and f"{id}/{place}", elapsed=0))
    return tuple(made)
