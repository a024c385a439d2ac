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
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import ClassVar, NamedTuple

import numpy as np

from undertow._checks import FloatArray
from undertow.compiled.player import Player
from undertow.errors import InvalidInputError
from undertow.learners.log import RoundLog
from undertow.learners.model import BLOCK, Model, Span
from undertow.live.rounds import Turns
from undertow.live.saved import COUNT, Saved

__all__ = ["LateRewards", "Past"]

_PACE, _SAVINGS = 60_000, 3_000_000  # nanoseconds of work that a round adds, and that may be saved up and spent at once
_LEAST, _CALL = 300_000, 40_000  # that are worth a start, and that going on with one model takes in any case
_SLICE = 64  # rounds between two moments that are remembered, where all rewards come at once
_SELDOM = 4  # how much farther apart moments are where no reward has been late
_WIDEST = 8192  # rounds between those that are remembered of long ago

Moment = tuple[int, FloatArray]  # a round, and a block as it was before that was decided


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

    @property
    def missing(self) -> float:
        """The oldest round whose reward the model does not know; infinite where it knows all."""
        return min(self.since, self.late)

    def note(self, then: int) -> "Past":
        """Take note of a reward of an earlier round, unless the block on its way will come by."""
        if then < self.begin or then >= self.late or (self.again is not None and then >= self.again[0]):
            return self
        return self._replace(late=then)

    def remember(self, moment: Moment, now: int, oldest: int, widest: int, factor: int = 1) -> "Past":
        """Remember one more moment, and forget some: a reward goes back by its age once more, or `factor` times."""
        marks = [*self.marks, moment]
        kept = [marks.pop()]
        while marks and kept[-1][0] > oldest:  # no reward is older
            between, newer = marks.pop(), kept[-1][0]
            if not marks or marks[-1][0] < newer - min(factor * max(now - newer, _SLICE), widest):
                kept.append(between)
        return self._replace(marks=tuple(reversed(kept)))


class LateRewards:
    """How the models of a learner come to know of late rewards."""

    remembers: ClassVar[tuple[str, ...]] = ("past", "savings", "counted", "wake", "max_delay")

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

    def wait(self, oldest: int) -> None:
        """Remember what rewards from round `oldest` on will need, where the longest delay is a time."""
        if self.by_time:
            self._remember_rounds(int(self.player.begun()) - oldest)

    def _remember_rounds(self, rounds: int) -> None:
        self.log.keep += rounds - self.max_delay
        self.max_delay = rounds

    def note(self, then: int) -> None:
        """Take note of a reward of an earlier round."""
        for number, past in self.past.items():
            self.past[number] = past.note(then)
        self.wake = min(self.wake, self._funded())

    def _funded(self) -> int:
        """Return the round before whose decision the savings are worth a start."""
        return self.counted + max(0, -((self.savings - _LEAST) // _PACE))

    def missing(self, number: int) -> float:
        """Return the oldest round whose reward a model does not know."""
        return self.past[number].missing if number in self.past else math.inf

    @property
    def settled(self) -> bool:
        """Whether all models know of all rewards."""
        return all(past.missing == math.inf for past in self.past.values())

    def attend(self, *, due: bool = False) -> dict[int, FloatArray]:
        """Go on with late rewards, as far as the savings reach, and return blocks that have arrived, by model.

        A decision may be `due`, or pass by unmade; otherwise, a context may come first.
        """
        self.past, self.savings, arrived = self._gone_on(due=due)
        self.counted = int(self.player.begun())
        return arrived

    def preview(self) -> dict[int, FloatArray]:
        """Return blocks that would arrive before the next decision, and remember nothing."""
        return self._gone_on(due=False)[2]

    def remember(self, blocks: Sequence[FloatArray], latest: int) -> None:
        """Remember the present moment, in which a decision is due, if it is time.

        It is time often where rewards have come a little late, and seldom where they have not.
        """
        now, spacing = int(self.player.begun()), min(max(latest // 4, _LEAST // _PACE), _SLICE) if latest else _SLICE
        self.wake = math.inf
        for number, past in self.past.items():
            last = max(past.base[0], past.marks[-1][0] if past.marks else 0)
            if past.since < math.inf or past.late < math.inf:
                self.wake = min(self.wake, max(self._funded(), now + 1))
                continue
            if now - last >= spacing:
                moment, last = (now, blocks[number].copy()), now
                factor = 1 if latest else _SELDOM
                self.past[number] = past.remember(moment, now, now - self.max_delay, self.widest, factor)
            self.wake = min(self.wake, last + spacing)

    def _gone_on(self, *, due: bool) -> tuple[dict[int, Past], int, dict[int, FloatArray]]:
        """Return what is remembered after one more decision, what is left of the savings, and blocks that arrive."""
        past, arrived, spent = self.past.copy(), dict[int, FloatArray](), 0
        now = int(self.player.begun())
        savings = min(self.savings + _PACE * (now - self.counted), _SAVINGS)
        if savings < _LEAST:
            return past, savings, arrived
        unsettled, work = [], 0  # all of them go equally far
        for number, own in past.items():
            if own.since < math.inf or own.late < math.inf:
                unsettled.append(number)
                work += self.work[number]
        if not unsettled:
            return past, savings, arrived
        seen = now + 1 if self.turns.context_first and due else self.turns.contexts_seen(now)
        self.log.open(max(now, seen) - 1)
        for number in unsettled:
            most = max((savings - _CALL * len(unsettled)) // work, 2 * _LEAST // _PACE)  # at least, faster than time
            past[number], block, rounds = self._led(number, past[number], most, now, seen)
            spent += rounds * self.work[number] + _CALL
            if block is not None:
                arrived[number] = block
        return past, max(savings - spent, 0), arrived

    def _led(self, number: int, past: Past, most: int, now: int, seen: int) -> tuple[Past, FloatArray | None, int]:
        """Lead a block through at most so many rounds; return it if it arrives, and how many they were."""
        first, rounds, arrived = int(self.turns.context_first), 0, None
        while rounds < most and (past.since < math.inf or past.late < math.inf):
            if past.again is None:
                past = self._begun(number, past)
            assert past.again is not None
            (begin, block), (fitted, base) = past.again, past.base
            apart = max(_SLICE, (now - begin) // 8)  # the farther back, the fewer moments are remembered
            stop = min(now, begin + min(most - rounds, apart), fitted if begin < fitted else now)
            block = self.lead(number, block, Span(begin, stop, begin + first, min(stop + first, seen)))
            if begin < fitted == stop:
                block = self.models[number].with_belief(base, block)
                past = past._replace(base=(stop, block))
            elif stop < now and stop - (past.marks[-1][0] if past.marks else 0) >= min(apart, _SLICE):
                past = past.remember((stop, block), now, now - self.max_delay, self.widest)
            past = past._replace(again=(stop, block))
            rounds += stop - begin
            if stop == now:
                past, arrived = past._replace(again=None, since=math.inf), block
        return past, arrived, rounds

    def _begun(self, number: int, past: Past) -> Past:
        """Go back to the last moment before the late reward, by the model as it was fitted."""
        late, first = int(past.late), self.turns.context_first
        kept, start = len(past.marks), None
        while kept and past.marks[kept - 1][0] > late:  # oldest first
            kept -= 1
        marks = past.marks[:kept]
        for moment in (*marks[-1:], past.base):
            if self.log.begin <= moment[0] <= late and (start is None or moment[0] > start[0]):
                start = moment
        if start is None:
            begin = max(past.begin, self.log.begin)
            block = self.models[number].rewound(past.base[1])
            start = (begin, self.lead(number, block, Span(begin, begin, begin, begin + first)))
        return past._replace(marks=marks, again=start, since=past.late, late=math.inf)

    def lead(self, number: int, block: FloatArray, span: Span) -> FloatArray:
        """Return a copy of a block that has gone through rounds of the log."""
        led = block.copy()
        rows = self.log.rows(span.begin, max(span.decided, span.seen))
        if len(rows):
            self.models[number].catch_up(led, 0, rows, span)
        return led

    @property
    def nbytes(self) -> int:
        """Bytes of all blocks that are remembered."""
        moments = (moment for past in self.past.values() for moment in (past.base, *past.marks, past.again))
        return sum(moment[1].nbytes for moment in moments if moment is not None)

    # Save files

    def arrays(self) -> dict[str, FloatArray]:
        """Return what is remembered."""
        arrays = {"savings": np.array([float(self.savings), float(self.counted), min(self.wake, COUNT)])}
        if self.by_time:
            arrays["max_delay"] = np.array([float(self.max_delay)])
        for number, past in self.past.items():
            moments = [*past.marks, past.base, *([] if past.again is None else [past.again])]
            late = [-1.0 if math.isinf(t) else float(t) for t in (past.since, past.late)]
            arrays[f"past_{number}"] = np.array([float(len(past.marks)), *late])
            arrays[f"past_{number}_rounds"] = np.array([float(t) for t, _ in moments])
            arrays[f"past_{number}_blocks"] = np.array([block for _, block in moments])
        return arrays

    def saved(self, rounds: int) -> dict[str, Saved]:
        """Return what `arrays` may be after so many rounds."""
        expected = {"savings": Saved((3,), 0, COUNT, whole=True)}
        if self.by_time:
            expected["max_delay"] = Saved((1,), 0, rounds, whole=True)
        for number in self.past:
            expected[f"past_{number}"] = Saved((3,), -1, COUNT, whole=True)
            expected[f"past_{number}_rounds"] = Saved((f"past {number}",), 0, rounds, whole=True)
            length = self.models[number].length
            expected[f"past_{number}_blocks"] = Saved((f"past {number}", length), missing=True)
        return expected

    def restore(self, arrays: Mapping[str, FloatArray]) -> None:
        """Take back what `arrays` returned; the log has been restored."""
        if self.by_time:
            self._remember_rounds(int(arrays["max_delay"].item()))
        self.savings, self.counted, self.wake = arrays["savings"].astype(int).tolist()
        if self.counted > self.player.rounds:
            raise InvalidInputError(f"savings: expected those of {self.player.rounds} rounds, got {self.counted}")
        for number in self.past:
            model, name = self.models[number], f"past_{number}"
            count, *late = (int(value) for value in arrays[name])
            rounds, blocks = arrays[f"{name}_rounds"].astype(int).tolist(), arrays[f"{name}_blocks"]
            for block in blocks:
                model.layout.check(block, model.sizes(), model.block())
            moments = [(t, block.copy()) for t, block in zip(rounds, blocks, strict=True)]
            since, behind = (math.inf if t < 0 else t for t in late)
            more = count + 1 + (since < math.inf)
            if count < 0 or len(moments) != more or any(t >= u for t, u in pairwise(rounds[:count])):
                raise InvalidInputError(f"{name}: expected {count} rounds, each later than the one before, and a fit")
            if any(not self.log.begin <= t < self.player.rounds for t in (since, behind) if t < math.inf):
                raise InvalidInputError(
                    f"{name}: expected late rewards of rounds in the log, got {since:g}, {behind:g}"
                )
            again, base = moments[-1] if since < math.inf else None, moments[count]
            begin = int(BLOCK.open(base[1]).head.begin)
            self.past[number] = Past(base, begin, tuple(moments[:count]), again, since, behind)
