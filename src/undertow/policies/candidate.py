"""A model of your own beside those of Autopilot: what it has to do, and how it is fitted in.

Autopilot asks every candidate for forecasts, scores them by the reward of the arm that was played, and lets the leader
decide. Nothing of a candidate is compiled, so `simulate` plays an Autopilot with candidates through its methods.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, Self

import numpy as np
import numpy.typing as npt

from undertow import _checks
from undertow._checks import FloatArray
from undertow._kernel import plain
from undertow.errors import InvalidInputError
from undertow.policies.log import RoundLog
from undertow.policies.member import GUEST, KIND, NEXT, READY, SETTINGS, SIZE, Fit, Member, Span, Task, note_density

__all__ = ["Candidate", "CandidateForecast", "CandidateMember", "Guests"]


_note_density = plain(note_density)


class CandidateForecast(NamedTuple):
    """What a candidate expects of the present round, each (k,): reward, exploration bonus, deviation of the reward."""

    mean: npt.ArrayLike
    width: npt.ArrayLike
    deviation: npt.ArrayLike


class Candidate(Protocol):
    """What Autopilot asks of a model of yours.

    It is asked for a forecast before every decision, and whenever somebody asks the policy for one; it is told of every
    reward, with the round and the arm it belongs to, and of every context as it comes (NaN where an entry is missing).
    `warm_start` leads it through past rounds in the same way. With `minimise`, rewards and forecasts are negative
    costs. It is deep-copied for each run of `simulate`.
    """

    name: str

    def forecast(self, features: FloatArray) -> CandidateForecast:
        """Return what is expected of every arm in the present round, whose features are given, (q,)."""

    def learn(self, round: int, arm: int, reward: float) -> None:
        """Take in the reward of an arm that was played in a round, the present one or an earlier one."""

    def observe(self, context: FloatArray) -> None:
        """Take in a context, (m,)."""


@dataclass(frozen=True)
class CandidateMember(Member):
    """The place of a candidate among Autopilot's models: its forecasts and its score."""

    label: str

    @property
    def name(self) -> str:
        """What the candidate calls itself."""
        return self.label

    @property
    def size(self) -> int:
        """Length of the block: settings, forecasts as every model has them, and deviations."""
        return SETTINGS + 5 * self.arms

    def block(self) -> FloatArray:
        """Return the block before the first round."""
        block = np.zeros(self.size)
        block[KIND], block[SIZE], block[NEXT] = GUEST, self.size, math.inf
        return block

    def ask(self, candidate: Candidate, features: FloatArray, block: FloatArray) -> None:
        """Write a candidate's forecasts into its block."""
        k = self.arms
        mean, width, deviation = candidate.forecast(features)
        rows = block[SETTINGS:].reshape(5, k)
        rows[0] = _checks.array(f"{self.name}: mean", mean, (k,))
        rows[1] = _checks.array(f"{self.name}: width", width, (k,))
        rows[2] = 0.0
        rows[4] = _checks.array(f"{self.name}: deviation", deviation, (k,))
        if not (rows[4] > 0).all():
            raise InvalidInputError(f"{self.name}: deviation: expected numbers above 0, got {rows[4].min():g}")
        rows[3] = rows[4]
        block[READY] = 1.0

    def fit(self, task: Task) -> Fit:
        """Return the block as it is: a candidate fits itself when it learns."""
        return Fit(task.block.copy(), (), 1, math.nan)

    def believe(self, block: FloatArray, rows: FloatArray, end: int) -> None:
        """Leave the candidate alone: it was told of the late reward itself."""

    def adopt(self, old: Self, block: FloatArray, rows: FloatArray, end: int) -> FloatArray:
        """Refuse: only its author can tell a candidate of a new arm."""
        raise InvalidInputError("candidates: an Autopilot with candidates of your own cannot take in another arm")

    def catch_up(self, state: FloatArray, at: int, rows: FloatArray, span: Span) -> None:
        """Leave the candidate alone: it has seen these rounds."""


class Guests:
    """The candidates of one Autopilot, asked before every decision, told of what comes, and scored by what they said.

    `expected` remembers, for decisions whose reward may still come, mean and deviation that each of them expected.
    """

    def __init__(self, candidates: Sequence[Candidate], members: Sequence[CandidateMember]) -> None:
        self.pairs = list(zip(candidates, members, strict=True))
        self.expected: dict[int, list[tuple[float, float]]] = {}

    def ask(self, features: FloatArray, blocks: Sequence[FloatArray]) -> None:
        """Write what every candidate expects of the present round into its block."""
        for (candidate, member), block in zip(self.pairs, blocks, strict=True):
            member.ask(candidate, features.copy(), block)

    def remember(self, t: int, arm: int, blocks: Sequence[FloatArray], max_delay: int) -> None:
        """Remember what was expected of the arm that is played in round t."""
        k = self.pairs[0][1].arms
        self.expected[t] = [(float(b[SETTINGS + arm]), float(b[SETTINGS + 4 * k + arm])) for b in blocks]
        while next(iter(self.expected)) < t - max_delay:
            del self.expected[next(iter(self.expected))]

    def learn(self, t: int, arm: int, reward: float) -> None:
        """Tell every candidate of a reward."""
        for candidate, _ in self.pairs:
            candidate.learn(t, arm, reward)

    def observe(self, context: FloatArray) -> None:
        """Tell every candidate of a context."""
        for candidate, _ in self.pairs:
            candidate.observe(context.copy())

    def score(self, t: int, reward: float, blocks: Sequence[FloatArray], now: int) -> None:
        """Score what was expected of the reward of round t, which has come now."""
        for (mean, deviation), block in zip(self.expected.pop(t), blocks, strict=True):
            _note_density(block, (reward - mean) / deviation, deviation, now)

    def lead_through(self, log: RoundLog, context_first: bool) -> None:
        """Lead the candidates through the rounds of a log, as if they had been asked and told then."""
        m = log.context_dim
        for t in range(log.begin, log.end):
            row = log.row(t)
            if m and context_first:
                self.observe(row[:m])
            for candidate, _ in self.pairs:
                candidate.forecast(row[m : log.arm].copy())
            if not math.isnan(row[log.reward]):
                self.learn(t, int(row[log.arm]), float(row[log.reward]))
            if m and not context_first:
                self.observe(row[:m])
