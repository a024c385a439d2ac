"""Candidates: your own models in Autopilot, their interface and their part in decisions.

Autopilot asks every candidate for forecasts, scores them by the reward of the played arm, and lets the leader decide.
Nothing of a candidate is compiled, so `simulate` plays an Autopilot with candidates through its methods.
"""

import copy
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NamedTuple, Protocol, cast

import numpy as np
import numpy.typing as npt

from undertow.compiled.kernel import plain
from undertow.compiled.layout import Layout
from undertow.compiled.loop import DECIDE, LEARN, OBSERVE
from undertow.errors import InvalidInputError
from undertow.learning.learner import Learner
from undertow.live.decision import Why
from undertow.live.fields import Field
from undertow.live.rounds import Waiting
from undertow.live.saved import MEASURED, Saved
from undertow.models.block import Block, note_error
from undertow.models.log import has_context
from undertow.models.model import Model
from undertow.support import checks
from undertow.support.checks import FloatArray

__all__ = ["Candidate", "CandidateForecast", "CandidateModel", "WithCandidates"]

_note_error = plain(note_error)


class CandidateForecast(NamedTuple):
    """A candidate's forecast of the present round, each (k,): reward, bonus, the reward's standard deviation."""

    mean: npt.ArrayLike
    width: npt.ArrayLike
    deviation: npt.ArrayLike


class Candidate(Protocol):
    """The interface of a candidate.

    Its `forecast` is called before every decision, and whenever the policy's own `forecast` is; it gets every reward,
    with its round and arm, and every context as it comes (NaN if missing). It gets no time steps: its `forecast` is
    called for each decision of a time step, and while time passes it only observes contexts, if any. `warm_start`
    replays past rounds in the same way. With `minimize`, rewards and forecasts are negative costs. It is deep-copied
    for each run of `simulate`, and its attributes with every checkpoint. To be saved with its Autopilot, and kept in
    stores, it needs `state` and `from_state`: see `register_candidate`.
    """

    name: str

    def forecast(self, features: FloatArray) -> CandidateForecast:
        """Return the forecast of every arm in the present round.

        `features` are (q,) for all arms, or (k, q), a row for each. In a warm start, they are those of the played arm,
        (q,).
        """

    def learn(self, round: int, arm: int, reward: float) -> None:
        """Learn the reward of the arm played in a round, the present one or an earlier one."""

    def observe(self, context: FloatArray) -> None:
        """Observe a context, (m,)."""


class CandidateState(NamedTuple):
    """The block: forecasts and score as in every model, and the forecast standard deviations."""

    model: Block
    deviation: Annotated[FloatArray, "k"]


def _never(*args: Any) -> Any:
    raise NotImplementedError("a candidate learns in its own `learn`, and is neither fitted nor replayed")


@dataclass(frozen=True)
class CandidateModel(Model):
    """The place of a candidate among Autopilot's models: its forecasts and its score."""

    layout = Layout(CandidateState)
    watched: ClassVar[bool] = False
    filtered: ClassVar[bool] = False
    fit = believe = rewound = with_belief = adopt = cast(Any, _never)

    def fill(self, own: CandidateState) -> None:
        """Request no fits."""
        own.model.running.next_fit = math.inf

    def ask(self, candidate: Candidate, features: FloatArray, own: CandidateState) -> None:
        """Write a candidate's forecasts into its block."""
        k = self.arms
        mean, width, deviation = candidate.forecast(features)
        own.model.forecast[:] = checks.array(f"{self.name}: mean", mean, (k,))
        own.model.width[:] = checks.array(f"{self.name}: width", width, (k,))
        own.deviation[:] = checks.array(f"{self.name}: deviation", deviation, (k,))
        if not (own.deviation > 0).all():
            raise InvalidInputError(f"{self.name}: deviation: expected numbers above 0, got {own.deviation.min():g}")
        own.model.arm_error[:] = own.deviation
        own.model.head.order = 1.0


def _held(candidate: Candidate) -> dict[str, Any] | None:
    """Return a copy of a candidate's attributes; None if they cannot be copied or restored."""
    try:
        return copy.deepcopy(vars(candidate))
    except Exception:  # any error of attributes that cannot be copied
        return None


class WithCandidates(Learner):
    """A learner with candidates, its last models: they forecast, learn and are scored in Python around its steps.

    `expected` has, for pending decisions, each candidate's forecast mean and standard deviation.
    """

    remembers: ClassVar[tuple[Field, ...]] = (
        *Learner.remembers,
        Field(
            "expected",
            {
                "expected_rounds": Saved(("expected",), 0, "rounds-1", whole=True, rising=True),
                "expected_rewards": Saved(("expected", "candidates", 2), *MEASURED),
            },
            lambda own: own.written(),
            lambda own, *arrays: own.read(*arrays),
        ),
    )

    def __init__(self, candidates: Sequence[Candidate], *parts: Any, **settings: Any) -> None:
        super().__init__(*parts, **settings)
        self.candidates = list(candidates)
        self.first = len(self.models) - len(self.candidates)  # of their blocks
        self.expected: dict[int, list[tuple[float, float]]] = {}

    def mark(self) -> Any:
        """Return copies of all that the learner remembers, and of the candidates' attributes."""
        return [field.copy(self) for field in self.remembers], [_held(candidate) for candidate in self.candidates]

    def go_back(self, mark: Any) -> None:
        """Restore what `mark` returned; may be repeated."""
        kept, held = mark
        for field, value in zip(self.remembers, kept, strict=True):
            field.put_back(self, value)
        for candidate, attributes in zip(self.candidates, held, strict=True):
            if attributes is not None:
                vars(candidate).clear()
                vars(candidate).update(copy.deepcopy(attributes))

    def prepare(self, oldest: int, *, choice: bool = True, still: bool = False) -> None:
        """Prepare a round and, before a choice, call every candidate's forecast."""
        super().prepare(oldest, choice=choice, still=still)
        if choice:
            self._ask(self.blocks)

    def _ask(self, blocks: Sequence[Any]) -> None:
        for number, candidate in enumerate(self.candidates, self.first):
            model = self.models[number]
            assert isinstance(model, CandidateModel)
            model.ask(candidate, self.player.given.copy(), blocks[number])

    def decided(self, t: int, arm: int) -> Why | None:
        """Record the choice, and remember the forecasts of the played arm."""
        why = super().decided(t, arm)
        if arm < 0:
            return why
        blocks = self.blocks[self.first :]
        self.expected[t] = [(float(own.model.forecast[arm]), float(own.deviation[arm])) for own in blocks]
        while next(iter(self.expected)) < t - self.late.max_delay:
            del self.expected[next(iter(self.expected))]
        return why

    def learn(self, waiting: Waiting, reward: float, age: int) -> None:
        """Pass a reward to every candidate, and score its forecast."""
        for candidate in self.candidates:
            candidate.learn(waiting.round, waiting.arm, reward)
        super().learn(waiting, reward, age)
        expected = self.expected.pop(waiting.round)
        for own, (mean, deviation) in zip(self.blocks[self.first :], expected, strict=True):
            _note_error(own.model, waiting.arm, reward - mean, deviation)

    def observe(self) -> None:
        """Pass a context to every candidate."""
        for candidate in self.candidates:
            candidate.observe(self.player.context.copy())
        super().observe()

    def warm_start(self, rows: FloatArray, seed: int) -> None:
        """Begin after the rounds with these rows, which the candidates replay from the log."""
        super().warm_start(rows, seed)
        log, turns = self.log, self.turns
        m = log.context_dim
        for t, candidate in itertools.product(range(log.begin, log.end), self.candidates):
            row = log.row(t)
            for step in turns.order:
                if step == DECIDE:
                    candidate.forecast(row[m : log.shared].copy())
                elif step == LEARN and not math.isnan(row[log.reward]):
                    candidate.learn(t, int(row[log.arm]), float(row[log.reward]))
                elif step == OBSERVE and has_context(row[log.shared], context_first=turns.context_first):
                    candidate.observe(row[:m].copy())

    def scratch(self) -> FloatArray:
        """Return a copy of the state with the candidates' forecasts."""
        state = super().scratch()
        self._ask(self.open_blocks(state))
        return state

    def written(self) -> tuple[FloatArray, FloatArray]:
        """Return what was expected, for a save file; what the candidates know is among the policy's parameters."""
        pairs = np.array(list(self.expected.values())).reshape(-1, len(self.candidates), 2)
        return np.array(list(self.expected), dtype=np.float64), pairs

    def read(self, rounds: FloatArray, pairs: FloatArray) -> None:
        """Take back what `written` returned."""
        if pairs.shape[1] != len(self.candidates) or (pairs[:, :, 1] <= 0).any():
            raise InvalidInputError(f"expected_rewards: expected those of {len(self.candidates)} candidates")
        for number, row in zip(rounds.tolist(), pairs.tolist(), strict=True):
            self.expected[int(number)] = [(mean, deviation) for mean, deviation in row]

    def take_over(self, old: Any) -> None:
        """Refuse, as candidates cannot add an arm."""
        raise InvalidInputError("candidates: an Autopilot with candidates cannot add an arm")
