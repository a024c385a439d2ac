"""Candidates: your own models in Autopilot, their interface and their part in decisions.

Autopilot asks every candidate for forecasts, scores them by the reward of the played arm, and lets the leader decide.
Nothing of a candidate is compiled, so `simulate` plays an Autopilot with candidates through its methods.
"""

import copy
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np
import numpy.typing as npt

from undertow.compiled.kernel import plain
from undertow.compiled.layout import Layout
from undertow.compiled.loop import DECIDE, LEARN, OBSERVE
from undertow.errors import InvalidInputError
from undertow.learning.fits import Claim
from undertow.learning.learner import Learner
from undertow.live.decision import Why
from undertow.live.events import Installed
from undertow.live.fields import Field
from undertow.live.rounds import Timeline, Waiting
from undertow.live.saved import MEASURED, Saved
from undertow.models.log import has_context
from undertow.models.model import Block, Fit, Model, Span, Task, note_error
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


@dataclass(frozen=True)
class CandidateModel(Model):
    """The place of a candidate among Autopilot's models: its forecasts and its score."""

    layout = Layout(CandidateState)
    watched: ClassVar[bool] = False
    filtered: ClassVar[bool] = False

    label: str

    @property
    def name(self) -> str:
        """The candidate's name."""
        return self.label

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

    def fit(self, task: Task) -> Fit:
        """Return the block unchanged: a candidate learns in its own `learn`."""
        return Fit(task.block.copy(), (), 1, math.nan)

    def believe(self, block: FloatArray, rows: FloatArray, end: int) -> None:
        """Do nothing: the candidate got the late reward directly."""

    def rewound(self, block: FloatArray) -> FloatArray:
        """Do nothing."""
        return block.copy()

    def with_belief(self, block: FloatArray, led: FloatArray) -> FloatArray:
        """Do nothing."""
        return block.copy()

    def adopt(self, old: Self, block: FloatArray, rows: FloatArray, end: int) -> FloatArray:
        """Refuse: a candidate cannot add an arm."""
        raise InvalidInputError("candidates: an Autopilot with candidates cannot add an arm")

    def catch_up(self, blocks: FloatArray, at: int, rows: FloatArray, span: Span) -> None:
        """Do nothing: the candidate has seen these rounds."""


def _held(candidate: Candidate) -> dict[str, Any] | None:
    """Return a copy of a candidate's attributes; None if they cannot be copied or restored."""
    try:
        return copy.deepcopy(vars(candidate))
    except Exception:  # any error of attributes that cannot be copied
        return None


class WithCandidates(Timeline):
    """The timeline of a learner with candidates: they forecast, learn and are scored in Python around its steps.

    `expected` has, for pending decisions, each candidate's forecast mean and standard deviation.
    """

    plain: ClassVar[bool] = False
    has_effects: ClassVar[bool] = True
    remembers: ClassVar[tuple[Field, ...]] = (
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

    def __init__(self, learner: Learner, candidates: Sequence[Candidate]) -> None:
        super().__init__(learner.player)
        self.learner, self.candidates = learner, list(candidates)
        self.first = len(learner.models) - len(self.candidates)  # of their blocks
        self.expected: dict[int, list[tuple[float, float]]] = {}

    @property
    def costly(self) -> bool:
        """Whether the learner has made a fit."""
        return self.learner.costly

    @costly.setter
    def costly(self, value: bool) -> None:
        self.learner.costly = value

    @property
    def parts(self) -> tuple[Any, ...]:
        """The learner, and its parts."""
        return self.learner, *self.learner.parts

    def mark(self) -> Any:
        """Return copies of the candidates' attributes, and their forecasts."""
        return [_held(candidate) for candidate in self.candidates], self.expected.copy()

    def go_back(self, mark: Any) -> None:
        """Restore the candidates' attributes; may be repeated."""
        held, expected = mark
        for candidate, attributes in zip(self.candidates, held, strict=True):
            if attributes is not None:
                vars(candidate).clear()
                vars(candidate).update(copy.deepcopy(attributes))
        self.expected = expected.copy()

    def arrived(self) -> Sequence[Installed]:
        """Return finished background fits that are not events yet."""
        return self.learner.arrived()

    def install(self, event: Installed) -> None:
        """Swap in a background fit."""
        self.learner.install(event)

    def prepare(self, oldest: int, *, choice: bool = True, still: bool = False) -> None:
        """Prepare a round and, before a choice, call every candidate's forecast."""
        self.learner.prepare(oldest, choice=choice, still=still)
        if choice:
            self._ask(self.learner.blocks)

    def _ask(self, blocks: Sequence[Any]) -> None:
        models = self.learner.models
        for number, candidate in enumerate(self.candidates, self.first):
            model = models[number]
            assert isinstance(model, CandidateModel)
            model.ask(candidate, self.player.given.copy(), blocks[number])

    def attend(self) -> None:
        """Make the fits that are due."""
        self.learner.attend()

    def decided(self, t: int, arm: int) -> Why | None:
        """Remember the forecasts of the played arm."""
        why = self.learner.decided(t, arm)
        if arm < 0:
            return why
        blocks = self.learner.blocks[self.first :]
        self.expected[t] = [(float(own.model.forecast[arm]), float(own.deviation[arm])) for own in blocks]
        while next(iter(self.expected)) < t - self.learner.late.max_delay:
            del self.expected[next(iter(self.expected))]
        return why

    def report(self) -> None:
        """Start fits, and warn of those that failed."""
        self.learner.report()

    def share_fits(self, claim: Claim) -> None:
        """Ask `claim` before a background fit."""
        self.learner.share_fits(claim)

    def forget_notices(self) -> None:
        """Drop reports on events that were applied again."""
        self.learner.forget_notices()

    def check_reward(self, waiting: Waiting, reward: float, age: int) -> None:
        """Refuse a reward that comes too late, or with which models would overflow."""
        self.learner.check_reward(waiting, reward, age)

    def learn(self, waiting: Waiting, reward: float, age: int) -> None:
        """Pass a reward to every candidate, and score its forecast."""
        for candidate in self.candidates:
            candidate.learn(waiting.round, waiting.arm, reward)
        places = [self.learner.block(number) for number in range(self.first, len(self.learner.models))]
        before = [place.copy() for place in places]
        self.learner.learn(waiting, reward, age)
        for place, kept, (mean, deviation), own in zip(
            places, before, self.expected.pop(waiting.round), self.learner.blocks[self.first :], strict=True
        ):
            place[:] = kept  # the state may have been rolled back; a candidate is not
            _note_error(own.model, waiting.arm, reward - mean, deviation)

    def observe(self) -> None:
        """Pass a context to every candidate."""
        for candidate in self.candidates:
            candidate.observe(self.player.context.copy())
        self.learner.observe()

    def lead_through_log(self) -> None:
        """Replay the rounds of the log for the candidates."""
        log, turns = self.learner.log, self.learner.turns
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
        state = self.learner.scratch()
        self._ask(self.learner.open_blocks(state))
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
