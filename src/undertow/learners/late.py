"""Rewards that come late: each model goes through the rounds since once more, some of them before every decision.

A late reward is filed in the log, and its round is noted. Before the next decisions, a copy of the model's block goes
from a state before that round through the log, with all rewards that have come, and takes the place of the block when
it has arrived in the present. Rewards that come meanwhile, for rounds it has not reached, are taken along; the others
wait for the next pass.

A decision spends no more on this than it has saved up, by a formula and not by the clock, so that a seed fixes what is
done when. A reward that is late now and then is in before the next decision. Where all are late, the work of a decision
is the same for every delay, and a reward waits a fraction of its delay longer.
"""

import math
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from operator import itemgetter
from typing import ClassVar, NamedTuple

import numpy as np

from undertow._checks import FloatArray
from undertow.compiled.player import Player
from undertow.errors import InvalidInputError
from undertow.learners.log import RoundLog
from undertow.learners.model import BLOCK, Model, Span
from undertow.live.fields import Each, Field, Number
from undertow.live.rounds import Turns
from undertow.live.saved import COUNT, Saved

__all__ = ["LateRewards", "Past"]

_PACE, _SAVINGS = 60_000, 3_000_000  # nanoseconds of work that a round adds, and that may be saved up and spent at once
_LEAST, _CALL = 300_000, 40_000  # that are worth a start, and that going on with one model takes in any case
_SLICE = 64  # rounds between two moments that are remembered, where all rewards come at once
_SELDOM = 4  # how much farther apart moments are where no reward has been late
_WIDEST = 8192  # rounds between those that are remembered of long ago

Moment = tuple[int, FloatArray]  # a round, and a block as it was before that was decided
_ROUND = itemgetter(0)
_NEVER: Moment = -1, np.empty(0)


class Past(NamedTuple):
    """What one model remembers for late rewards; replaced as a whole, and no block is written into.

    Attributes
    ----------
    base
        The model as it was fitted. For rounds before, only its belief is filtered again, and the model stays as it is.
    begin
        The first round that it was fitted to.
    marks
        Moments to go back to, before the base (rewound) and after it, oldest first.
    again
        The block that goes through the log once more, if there is one, and the round that it has come to.
    since
        The oldest round whose reward that block brings.
    late
        The oldest round whose reward it does not bring, and the model does not know; infinite where there is none.
    """

    base: Moment
    begin: int
    marks: tuple[Moment, ...] = ()
    again: Moment | None = None
    since: float = math.inf
    late: float = math.inf

    def written(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return what a save file keeps: how many marks and which late rounds, and the moments."""
        moments = [*self.marks, self.base, *([] if self.again is None else [self.again])]
        late = [-1.0 if math.isinf(t) else float(t) for t in (self.since, self.late)]
        rounds, blocks = zip(*moments, strict=True)
        return np.array([float(len(self.marks)), *late]), np.array(rounds, dtype=np.float64), np.array(blocks)


def thinned(marks: tuple[Moment, ...], now: int, oldest: int, widest: int, factor: int = 1) -> tuple[Moment, ...]:
    """Return the moments that are worth keeping: a reward goes back by its age once more, or `factor` times."""
    left = list(marks)
    kept = [left.pop()]
    while left and kept[-1][0] > oldest:  # no reward is older
        between, newer = left.pop(), kept[-1][0]
        if not left or left[-1][0] < newer - min(factor * max(now - newer, _SLICE), widest):
            kept.append(between)
    return tuple(reversed(kept))


class LateRewards:
    """How the models of a learner come to know of late rewards."""

    remembers: ClassVar[tuple[Field, ...]] = (
        *map(Field, ("counted", "wake")),
        Field(
            "savings",
            {"savings": Saved((3,), 0, COUNT, whole=True)},
            lambda late: (np.array([float(late.savings), float(late.counted), min(late.wake, COUNT)]),),
            lambda late, numbers: late.read_savings(numbers),
        ),
        Number("max_delay", file="max_delay", most="rounds", when="by_time"),
        Each(
            "past",
            {
                "past_{}": Saved((3,), -1, COUNT, whole=True),
                "past_{}_rounds": Saved(("past {}",), 0, "rounds", whole=True),
                "past_{}_blocks": Saved(("past {}", "block {}"), missing=True),
            },
            lambda late, number: late.past[number].written(),
            lambda late, number, *arrays: late.read(number, *arrays),
        ),
    )

    def __init__(
        self,
        player: Player,
        turns: Turns,
        models: Sequence[Model],
        places: Sequence[int],
        log: RoundLog,
        max_delay: int | None,
    ) -> None:
        self.player, self.turns, self.models, self.places, self.log = player, turns, models, places, log
        self.by_time = max_delay is None  # then it is as many rounds as rewards are waited for
        self.max_delay = max_delay or 0
        self.work = [round(1000 * model.step_work) for model in models]
        self.widest = min(_WIDEST, (log.keep - self.max_delay) // 2)  # what is remembered has to be in the log
        self.savings, self.counted = _SAVINGS, 0  # and the round up to which they have been added up
        self.wake = 0.0  # the round before whose decision there is something to do
        self.past: dict[int, Past] = {}
        for number, (model, place) in enumerate(zip(models, places, strict=True)):
            self.begin(number, (0, player.own.blocks[place : place + model.length].copy()))

    def begin(self, number: int, base: Moment, earlier: Moment | None = None, late: float = math.inf) -> None:
        """Begin with a model as it was fitted; it does not know of rewards from round `late` on."""
        if self.models[number].filtered:
            marks = () if earlier is None or earlier[0] >= base[0] else (earlier,)
            self.past[number] = Past(base, int(BLOCK.open(base[1]).head.begin), marks, late=late)
            self.wake = 0.0

    def reach_back(self, rounds: int) -> None:
        """Remember what rewards that are so many rounds late will need, where the longest delay is a time."""
        self.log.keep += rounds - self.max_delay
        self.max_delay = rounds

    def note(self, then: int) -> None:
        """Note a reward of an earlier round, for the models whose block on its way will not come by."""
        for number, past in self.past.items():
            ahead = past.again is None or then < past.again[0]
            if ahead and past.begin <= then < past.late:
                self.past[number] = past._replace(late=then)
        self.wake = min(self.wake, self._funded())

    def _funded(self) -> int:
        """Return the round before whose decision the savings are worth a start."""
        return self.counted + max(0, -((self.savings - _LEAST) // _PACE))

    def missing(self, number: int) -> float:
        """Return the oldest round whose reward a model does not know; infinite where it knows all."""
        past = self.past.get(number)
        return math.inf if past is None else min(past.since, past.late)

    @property
    def settled(self) -> bool:
        """Whether all models know of all rewards."""
        return all(self.missing(number) == math.inf for number in self.past)

    def attend(self, *, due: bool = False, keep: bool = True) -> dict[int, FloatArray]:
        """Go on with late rewards, as far as the savings reach, and return blocks that have arrived, by model.

        A decision may be `due`, or pass by unmade; otherwise, a context may come first. Without `keep`, nothing of it
        is remembered.
        """
        past, now, arrived = self.past.copy(), int(self.player.begun()), dict[int, FloatArray]()
        savings = min(self.savings + _PACE * (now - self.counted), _SAVINGS)
        unsettled, work = [], 0  # all of them go equally far
        for number, own in past.items():
            if own.since < math.inf or own.late < math.inf:
                unsettled.append(number)
                work += self.work[number]
        if unsettled and savings >= _LEAST:
            seen = now + 1 if self.turns.context_first and due else self.turns.contexts_seen(now)
            self.log.open(max(now, seen) - 1)
            rows = self.log.rows(self.log.begin, max(now, seen))
            # at least so many rounds that it is faster than time
            most = max((savings - _CALL * len(unsettled)) // work, 2 * _LEAST // _PACE)
            spent = 0
            for number in unsettled:
                past[number], block, rounds = self._go_on(number, past[number], rows, most, now, seen)
                spent += rounds * self.work[number] + _CALL
                if block is not None:
                    arrived[number] = block
            savings = max(savings - spent, 0)
        if keep:
            self.past, self.savings, self.counted = past, savings, now
        return arrived

    def _go_on(
        self, number: int, past: Past, rows: FloatArray, most: int, now: int, seen: int
    ) -> tuple[Past, FloatArray | None, int]:
        """Lead a block through at most so many rounds; return it if it arrives, and how many they were."""
        model, at, first = self.models[number], self.log.begin, int(self.turns.context_first)
        base, begin, marks, again, since, late = past
        rounds, arrived = 0, None
        while rounds < most and (since < math.inf or late < math.inf):
            if again is None:  # go back to the last moment before the late reward, by the model as it was fitted
                marks = marks[: bisect_right(marks, late, key=_ROUND)]
                again = max((*marks[-1:], base if base[0] <= late else _NEVER), key=_ROUND)
                if again[0] < at:
                    start = max(begin, at)
                    begins = rows[start - at :][:first], Span(start, start, start, start + first)
                    again = start, model.led(model.rewound(base[1]), *begins)
                since, late = late, math.inf
            (t, block), fitted = again, base[0]
            apart = max(_SLICE, (now - t) // 8)  # the farther back, the fewer moments are remembered
            stop = min(now, t + min(most - rounds, apart), fitted if t < fitted else now)
            span = Span(t, stop, t + first, min(stop + first, seen))
            block = model.led(block, rows[t - at : max(stop, span.seen) - at], span)
            if t < fitted == stop:
                block = model.with_belief(base[1], block)
                base = stop, block
            elif stop < now and stop - (marks[-1][0] if marks else 0) >= min(apart, _SLICE):
                marks = thinned((*marks, (stop, block)), now, now - self.max_delay, self.widest)
            again, rounds = (stop, block), rounds + stop - t
            if stop == now:
                again, since, arrived = None, math.inf, block
        return Past(base, begin, marks, again, since, late), arrived, rounds

    def remember(self, blocks: Sequence[FloatArray], latest: int) -> None:
        """Remember the present moment, in which a decision is due, if it is time.

        It is time often where rewards have come a little late, and seldom where they have not.
        """
        now, spacing = int(self.player.begun()), min(max(latest // 4, _LEAST // _PACE), _SLICE) if latest else _SLICE
        wake = math.inf
        for number, past in self.past.items():
            last = max(past.base[0], past.marks[-1][0] if past.marks else 0)
            if past.since < math.inf or past.late < math.inf:
                wake = min(wake, max(self._funded(), now + 1))
                continue
            if now - last >= spacing:
                last, factor = now, 1 if latest else _SELDOM
                marks = (*past.marks, (now, blocks[number].copy()))
                self.past[number] = past._replace(marks=thinned(marks, now, now - self.max_delay, self.widest, factor))
            wake = min(wake, last + spacing)
        self.wake = wake

    # Save files

    def read(self, number: int, counts: FloatArray, numbers: FloatArray, blocks: FloatArray) -> None:
        """Take back the past of a model; the log has been read."""
        model, name = self.models[number], f"past_{number}"
        if number not in self.past:
            raise InvalidInputError(f"{name}: the {model.name} keeps no such array")
        count, *late = counts.astype(int).tolist()
        rounds = numbers.astype(int).tolist()
        for block in blocks:
            model.layout.check(block, model.sizes(), model.block())
        moments = [(t, block.copy()) for t, block in zip(rounds, blocks, strict=True)]
        since, behind = (math.inf if t < 0 else t for t in late)
        more = count + 1 + (since < math.inf)
        if count < 0 or len(moments) != more or any(t >= u for t, u in pairwise(rounds[:count])):
            raise InvalidInputError(f"{name}: expected {count} rounds, each later than the one before, and a fit")
        if any(not self.log.begin <= t < self.player.rounds for t in (since, behind) if t < math.inf):
            raise InvalidInputError(f"{name}: expected late rewards of rounds in the log, got {since:g}, {behind:g}")
        again, base = moments[-1] if since < math.inf else None, moments[count]
        begin = int(BLOCK.open(base[1]).head.begin)
        self.past[number] = Past(base, begin, tuple(moments[:count]), again, since, behind)

    def read_savings(self, numbers: FloatArray) -> None:
        """Take back what may be spent, up to which round it was added up, and when there is something to do."""
        self.savings, self.counted, self.wake = numbers.astype(int).tolist()

    def check_loaded(self) -> None:
        """Refuse savings of rounds that have not been; keep as many rounds as rewards are waited for."""
        if self.counted > self.player.rounds:
            raise InvalidInputError(f"savings: expected those of {self.player.rounds} rounds, got {self.counted}")
        if self.by_time:
            self.log.keep += self.max_delay
