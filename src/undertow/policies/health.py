"""What a learner tells people of itself."""

from typing import Any, NamedTuple

from undertow._checks import FloatArray

__all__ = ["FitRecord", "Health", "ModelInUse"]


class FitRecord(NamedTuple):
    """What became of one fit: its model and round, what was found, or why it failed."""

    model: str
    round: int
    order: int
    log_likelihood: float
    tried: int
    failure: str | None


class ModelInUse(NamedTuple):
    """One model of a learner: its name and order, the round of its last fit, its score in nats, and what it says.

    The model with the largest score decides; what a model has to lead by has been taken off.

    `content` is a `LinearGaussianSystem` for a shared system and the hyper-parameters in words for the structural
    model.
    """

    name: str
    order: int
    fitted: int
    score: float
    content: Any


class Health(NamedTuple):
    """How a learner fares.

    Attributes
    ----------
    innovations
        For each model, what the last rewards added to its forecasts, standardised, oldest first: about N(0, 1) while
        the model holds.
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
