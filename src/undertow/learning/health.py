"""Reports of a learner: its models and its health."""

import dataclasses
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from undertow.compiled.kernel import plain
from undertow.errors import InvalidInputError
from undertow.live.health import FitRecord, Health
from undertow.models.judge import handicap
from undertow.models.model import last_innovations
from undertow.support.checks import FloatArray
from undertow.system import LinearGaussianSystem

if TYPE_CHECKING:
    from undertow.learning.learner import Learner

__all__ = ["ModelInUse", "health_of", "models_in_use", "read_records", "written_records"]

_handicap = plain(handicap)


_KINDS = ((str,), (int,), (int,), (float,), (int,), (str, type(None)))


def written_records(records: Iterable[FitRecord]) -> FloatArray:
    """Return outcomes of fits as a save file keeps them: JSON, whose letters are numbers."""
    return np.frombuffer(json.dumps(list(records)).encode(), dtype=np.uint8).astype(np.float64)


def read_records(letters: FloatArray) -> list[FitRecord]:
    """Take back what `written_records` returned."""
    entries = json.loads(letters.astype(np.uint8).tobytes().decode())
    for entry in entries:
        if not isinstance(entry, list) or len(entry) != len(_KINDS) or not all(map(isinstance, entry, _KINDS)):
            raise InvalidInputError(f"fit_records: expected the outcome of a fit, got {entry!r:.60}")
    return [FitRecord(*entry) for entry in entries]


class ModelInUse(NamedTuple):
    """One model of a learner: its name and order, the round of its last fit, its score in nats, and its content.

    The model with the largest score decides; its handicap has been subtracted.

    `content` is a `LinearGaussianSystem` for a shared system and the hyper-parameters in words for the structural
    model.
    """

    name: str
    order: int
    fitted: int
    score: float
    content: Any


def models_in_use(learner: "Learner", *, minimize: bool) -> tuple[ModelInUse, ...]:
    """Return the models that have been fitted, the one with the largest score, less its handicap, first."""
    found = []
    for number, (model, own) in enumerate(zip(learner.models, learner.blocks, strict=True)):
        head, score = own.model.head, own.model.score
        if head.order:
            content = model.describe(learner.block(number))
            if minimize and isinstance(content, LinearGaussianSystem):  # fitted to negative costs
                content = dataclasses.replace(content, arms=-content.arms, reward_offset=-content.reward_offset)
            total = score.total - _handicap(head, score.count)
            found.append(ModelInUse(model.name, int(head.order), int(head.fitted), total, content))
    return tuple(sorted(found, key=lambda model: -model.score))


def health_of(learner: "Learner", health: Health) -> Health:
    """Return the health of a policy with innovations, alarms, fits and their failures of its learner."""
    blocks = {model.name: own.model for model, own in zip(learner.models, learner.blocks, strict=True)}
    watched = [model.name for model in learner.models if model.watched and blocks[model.name].head.order]
    return health._replace(
        innovations={name: last_innovations(block) for name, block in blocks.items()},
        level={name: blocks[name].alarm.level for name in watched},
        alarms={name: int(block.running.alarms) for name, block in blocks.items()},
        fits=tuple(learner.records),
        under_way=tuple(learner.models[number].name for number in learner.fits.under_way),
    )
