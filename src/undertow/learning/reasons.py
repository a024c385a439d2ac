"""The reasons of a learner's decision, read from its state."""

import math
from collections.abc import Sequence

import numpy as np

from undertow.compiled.player import Player
from undertow.learning.notices import Notices
from undertow.live.decision import Why
from undertow.models.model import Block

__all__ = ["Reasons"]

_tuple = tuple.__new__  # makes an explanation in half the time of its class, whose __new__ is Python's


class Reasons:
    """Views of the reasons of a decision: the leading model, its lead, the errors of its forecasts, and looks."""

    def __init__(self, player: Player, places: Sequence[int], names: Sequence[str], blocks: Sequence[Block]) -> None:
        learner = player.own.learner
        self.arms = len(player.rewards)
        self.leader, self.lead, self.look = (learner.cell(name).item for name in ("leader", "lead", "look"))
        self.models = {
            place: (name, own.state_error.copy, own.arm_error.copy, own.head.cell("fitted").item)
            for place, name, own in zip(places, names, blocks, strict=True)
        }

    def why(self, t: int, notices: Notices) -> Why:
        """Return the reasons of the decision of round t, as recorded by the kernel, and report a new leader."""
        leader = self.leader()
        if leader < 0:
            k = self.arms
            return Why(np.full(k, math.inf), np.full(k, math.inf), "start-up", math.inf, -1, 0.0)
        name, state_error, arm_error, fitted = self.models[leader]
        lead = self.lead()
        if name != notices.leader:
            notices.leads(name, lead, t)
        return _tuple(Why, (state_error(), arm_error(), name, lead, t - int(fitted()), self.look()))
