"""What a learner reports: its models and its health."""

import dataclasses
import json
from typing import TYPE_CHECKING, Any, NamedTuple

from undertow._checks import FloatArray
from undertow.compiled.kernel import plain
from undertow.errors import InvalidInputError
from undertow.learners.judge import handicap
from undertow.learners.model import last_innovations
from undertow.showing import html_table
from undertow.system import LinearGaussianSystem

if TYPE_CHECKING:
    from undertow.learners.learner import Learner

__all__ = ["FitRecord", "Health", "ModelInUse", "health_of", "models_in_use", "read_records"]

_handicap = plain(handicap)


class FitRecord(NamedTuple):
    """The outcome of one fit: its model and round, what was found, or why it failed."""

    model: str
    round: int
    order: int
    log_likelihood: float
    tried: int
    failure: str | None


_KINDS = ((str,), (int,), (int,), (float,), (int,), (str, type(None)))


def read_records(text: bytes) -> list[FitRecord]:
    """Read outcomes of fits from the JSON of a save file."""
    entries = json.loads(text.decode())
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


class Health(NamedTuple):
    """The health of a learner.

    Attributes
    ----------
    innovations
        For each model, the standardised differences between the last rewards and its forecasts, oldest first: about
        N(0, 1) while the model holds.
    level
        Running mean of the squared innovations, contexts included, of a shared system and of structural levels once
        they are fitted; an alarm is raised at 2.
    alarms
        How often that happened.
    fits
        The last fits of all models, with the reason where one failed.
    under_way
        The models that are being fitted in the background.
    """

    innovations: dict[str, FloatArray]
    level: dict[str, float]
    alarms: dict[str, int]
    fits: tuple[FitRecord, ...]
    under_way: tuple[str, ...]

    def _repr_html_(self) -> str:
        last = {record.model: record for record in self.fits}
        rows = [
            (
                name,
                self.level.get(name),
                self.alarms[name],
                last[name].round if name in last else None,
                (last[name].failure or "found") if name in last else None,
            )
            for name in self.alarms
        ]
        head = ["model", "mean squared innovation", "alarms", "last fit in round", "outcome"]
        note = f"Being fitted: {', '.join(self.under_way)}." if self.under_way else ""
        return html_table("Health", rows, head, note)


def models_in_use(learner: "Learner", *, minimise: bool) -> tuple[ModelInUse, ...]:
    """Return the models that have been fitted, the one with the largest score, less its handicap, first."""
    found = []
    for number, (model, own) in enumerate(zip(learner.models, learner.blocks, strict=True)):
        head, score = own.model.head, own.model.score
        if head.order:
            content = model.describe(learner.block(number))
            if minimise and isinstance(content, LinearGaussianSystem):  # fitted to the negative of the costs
                content = dataclasses.replace(content, arms=-content.arms, reward_offset=-content.reward_offset)
            total = score.total - _handicap(head, score.count)
            found.append(ModelInUse(model.name, int(head.order), int(head.fitted), total, content))
    return tuple(sorted(found, key=lambda model: -model.score))


def health_of(learner: "Learner") -> Health:
    """Return innovations, alarms, fits and their failures."""
    blocks = {model.name: own.model for model, own in zip(learner.models, learner.blocks, strict=True)}
    watched = [model.name for model in learner.models if model.watched and blocks[model.name].head.order]
    return Health(
        {name: last_innovations(block) for name, block in blocks.items()},
        {name: blocks[name].alarm.level for name in watched},
        {name: int(block.running.alarms) for name, block in blocks.items()},
        tuple(learner.records),
        tuple(learner.models[number].name for number in learner.fits.under_way),
    )
