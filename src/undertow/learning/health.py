"""Reports of a learner: its models, its health, and its picture."""

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from undertow.compiled.kernel import plain
from undertow.learning.learner import Learner
from undertow.live import ContextPolicy, Health
from undertow.live.metrics import Measure
from undertow.models.block import last_innovations
from undertow.models.judge import handicap
from undertow.system import LinearGaussianSystem

if TYPE_CHECKING:
    from undertow.live.names import Inputs
    from undertow.support.drawing import Sheet

__all__ = ["ModelInUse", "Reports"]

_PLOTTED = 300  # rounds with rewards in a figure

_handicap = plain(handicap)


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


class Reports(ContextPolicy):
    """What a learner shows of its models."""

    _learner: Learner

    @property
    def models(self) -> tuple[ModelInUse, ...]:
        """The models that have been fitted, the one that decides first."""
        self._whole()
        found = []
        with self._lock:
            learner = self._learner
            for model, own, block in zip(learner.models, learner.blocks, learner.views, strict=True):
                head, score = own.model.head, own.model.score
                if not head.order:
                    continue
                content = model.describe(block)
                if self.minimize and isinstance(content, LinearGaussianSystem):  # fitted to negative costs
                    content = dataclasses.replace(content, arms=-content.arms, reward_offset=-content.reward_offset)
                total = score.total - _handicap(head, score.count)
                found.append(ModelInUse(model.name, int(head.order), int(head.fitted), total, content))
        return tuple(sorted(found, key=lambda model: -model.score))

    @property
    def model(self) -> ModelInUse | None:
        """The model that decides; None before the first fit."""
        return next(iter(self.models), None)

    @property
    def system(self) -> LinearGaussianSystem | None:
        """The system in use, with identity state noise, if a shared system decides; else None."""
        content = None if self.model is None else self.model.content
        return content if isinstance(content, LinearGaussianSystem) else None

    def health(self) -> Health:
        """Return a status summary: rounds, pending decisions, innovations, alarms, fits and failures."""
        with self._lock:
            health, learner = super().health(), self._learner
            models = [(model, own.model) for model, own in zip(learner.models, learner.blocks, strict=True)]
            return health._replace(
                innovations={model.name: last_innovations(block) for model, block in models},
                level={model.name: block.alarm.level for model, block in models if model.watched and block.head.order},
                alarms={model.name: int(block.running.alarms) for model, block in models},
                fits=tuple(learner.records),
                under_way=tuple(learner.models[number].name for number in learner.fits.under_way),
            )

    def _measures(self, **labels: str) -> list[Measure]:
        """Return the numbers of `metrics`, with more labels, to combine with those of other policies."""
        with self._lock:
            found, models = super()._measures(**labels), self.models
        for model in models:
            mine = found[0].labels | {"model": model.name}
            found.append(Measure("model_order", model.order, mine))
            found.append(Measure("model_deciding", model is models[0], mine))
            found.append(Measure("model_fitted_round", model.fitted, mine))
        return found

    def plot(self, features: "Inputs | None" = None) -> "Sheet":
        """Draw the forecasts, the rewards of the last rounds by arm, and the leads of models.

        `features` are those of the next round, if the policy takes them, without side effects.
        """
        from undertow.support.drawing import draw_arms

        with self._lock:
            outlook, models, log = self.forecast(features), self.models, self._learner.log
            first = max(log.begin, log.end - _PLOTTED)
            rows = log.rows(first, log.end).copy()
        known = np.flatnonzero(~np.isnan(rows[:, log.reward]))
        sign = -1.0 if self.minimize else 1.0
        return draw_arms(
            self.names,
            outlook.forecast,
            outlook.width,
            title=f"round {self.round}",
            past=(first + known, rows[known, log.arm].astype(np.int64), sign * rows[known, log.reward]),
            scores=[(model.name, model.score - models[0].score) for model in models],
        )
