"""Late rewards: each model replays the rounds since, some of them before every decision.

A late reward is recorded in the history, with its round. Before the next decisions, a copy of the model's block replays
the history from before that round, with all rewards so far, and replaces the block when it reaches the present. Rewards
that come meanwhile, for rounds it has not reached, are included; the others wait for the next pass.

A decision has a budget for this work, from a formula and not the clock, so that a seed fixes the order of work. An
occasional late reward is applied before the next decision. If all are late, the work of a decision is the same for
every delay, and a reward waits a fraction of its delay longer.
"""

import math
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from operator import itemgetter
from typing import ClassVar, NamedTuple

import numpy as np

from undertow.compiled.player import Player
from undertow.errors import InvalidInputError
from undertow.live.fields import Each, Field, Number
from undertow.live.rounds import Turns
from undertow.live.saved import COUNT, Saved
from undertow.models.block import BLOCK
from undertow.models.log import RoundLog
from undertow.models.model import Model, Span
from undertow.support.checks import FloatArray

__all__ = ["LateRewards", "Past"]

_PACE, _SAVINGS = 60_000, 3_000_000  # nanoseconds of work per round, and largest budget of a decision
_LEAST, _CALL = 300_000, 40_000  # minimum budget to start, and overhead per model
_SLICE = 64  # rounds between two marks, if no reward is late
_SELDOM = 4  # factor between marks if no reward has been late
_WIDEST = 8192  # largest number of rounds between marks

Mark = tuple[int, FloatArray]  # a round, and a block before its decision
_ROUND = itemgetter(0)
_NEVER: Mark = -1, np.empty(0)


class Past(NamedTuple):
    """One model's memory for late rewards, immutable, blocks included.

    Attributes
    ----------
    base
        The fitted model. For earlier rounds, only its belief is filtered again, with the same model.
    begin
        The first round that it was fitted to.
    marks
        Blocks to return to, before the base (rewound) and after it, oldest first.
    again
        The block that replays the history, if any, and the round that it has reached.
    since
        The oldest round whose late reward that block includes.
    late
        The oldest round whose late reward neither it nor the model includes; infinite if none.
    """

    base: Mark
    begin: int
    marks: tuple[Mark, ...] = ()
    again: Mark | None = None
    since: float = math.inf
    late: float = math.inf

    def written(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return what a save file keeps: how many marks and which late rounds, and the blocks."""
        kept = [*self.marks, self.base, *([] if self.again is None else [self.again])]
        late = [-1.0 if math.isinf(t) else float(t) for t in (self.since, self.late)]
        rounds, blocks = zip(*kept, strict=True)
        return np.array([float(len(self.marks)), *late]), np.array(rounds, dtype=np.float64), np.array(blocks)


def thinned(marks: tuple[Mark, ...], now: int, oldest: int, widest: int, factor: int = 1) -> tuple[Mark, ...]:
    """Return the marks that are worth keeping: a reward goes back by its age once more, or `factor` times."""
    left = list(marks)
    kept = [left.pop()]
    while left and kept[-1][0] > oldest:  # no reward is older
        between, newer = left.pop(), kept[-1][0]
        if not left or left[-1][0] < newer - min(factor * max(now - newer, _SLICE), widest):
            kept.append(between)
    return tuple(reversed(kept))


class LateRewards:
    """The late rewards of a learner, applied to its models."""

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
        blocks: Sequence[FloatArray],
        log: RoundLog,
        max_delay: int | None,
    ) -> None:
        self.player, self.turns, self.models, self.log = player, turns, models, log
        self.by_time = max_delay is None  # then it follows the rounds within the longest delay
        self.max_delay = max_delay or 0
        self.work = [round(1000 * model.step_work) for model in models]
        self.widest = min(_WIDEST, (log.keep - self.max_delay) // 2)  # remembered rounds must be in the history
        self.savings, self.counted = _SAVINGS, 0  # and the round up to which it is added up
        self.wake = 0.0  # the round before whose decision work is due
        self.past: dict[int, Past] = {}
        for number, block in enumerate(blocks):
            self.begin(number, (0, block.copy()))

    def begin(self, number: int, base: Mark, earlier: Mark | None = None, late: float = math.inf) -> None:
        """Begin with a fitted model, which lacks late rewards from round `late` on."""
        if self.models[number].filtered:
            marks = () if earlier is None or earlier[0] >= base[0] else (earlier,)
            self.past[number] = Past(base, int(BLOCK.open(base[1]).head.begin), marks, late=late)
            self.wake = 0.0

    def reach_back(self, rounds: int) -> None:
        """Extend the memory to rewards that are `rounds` late, if the longest delay is a time."""
        self.log.keep += rounds - self.max_delay
        self.max_delay = rounds

    def note(self, then: int) -> None:
        """Record a reward of an earlier round, for models whose replaying block is past it."""
        for number, past in self.past.items():
            ahead = past.again is None or then < past.again[0]
            if ahead and past.begin <= then < past.late:
                self.past[number] = past._replace(late=then)
        self.wake = min(self.wake, self._funded())

    def _funded(self) -> int:
        """Return the round before whose decision the budget suffices to start."""
        return self.counted + max(0, -((self.savings - _LEAST) // _PACE))

    def missing(self, number: int) -> float:
        """Return the oldest round whose late reward a model lacks; infinite if none."""
        past = self.past.get(number)
        return math.inf if past is None else min(past.since, past.late)

    def attend(self, *, due: bool = False, keep: bool = True) -> dict[int, FloatArray]:
        """Continue with late rewards within the budget, and return finished blocks, by model.

        A decision may be `due` or skipped; otherwise, a context may come first. Without `keep`, no mark is kept.
        """
        past, now, arrived = self.past.copy(), int(self.player.begun()), dict[int, FloatArray]()
        savings = min(self.savings + _PACE * (now - self.counted), _SAVINGS)
        unsettled, work = [], 0  # all of them replay equally many rounds
        for number, own in past.items():
            if own.since < math.inf or own.late < math.inf:
                unsettled.append(number)
                work += self.work[number]
        if unsettled and savings >= _LEAST:
            seen = now + 1 if self.turns.context_first and due else self.turns.contexts_seen(now)
            self.log.open(max(now, seen) - 1)
            rows = self.log.rows(self.log.begin, max(now, seen))
            # enough rounds to catch up with the present
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
        """Replay at most `most` rounds with a block; return it if it is finished, and their number."""
        model, at, first = self.models[number], self.log.begin, int(self.turns.context_first)
        base, begin, marks, again, since, late = past
        rounds, arrived = 0, None
        while rounds < most and (since < math.inf or late < math.inf):
            if again is None:  # return to the last mark before the late reward, under the fitted model
                marks = marks[: bisect_right(marks, late, key=_ROUND)]
                again = max((*marks[-1:], base if base[0] <= late else _NEVER), key=_ROUND)
                if again[0] < at:
                    start = max(begin, at)
                    begins = rows[start - at :][:first], Span(start, start, start, start + first)
                    again = start, model.led(model.rewound(base[1]), *begins)
                since, late = late, math.inf
            (t, block), fitted = again, base[0]
            apart = max(_SLICE, (now - t) // 8)  # the further back, the fewer marks are kept
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
        """Remember the present block, when a decision is due, at certain intervals.

        The intervals are short if rewards have been a little late, and long if not.
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
        kept = [(t, block.copy()) for t, block in zip(rounds, blocks, strict=True)]
        since, behind = (math.inf if t < 0 else t for t in late)
        more = count + 1 + (since < math.inf)
        if count < 0 or len(kept) != more or any(t >= u for t, u in pairwise(rounds[:count])):
            raise InvalidInputError(f"{name}: expected {count} rounds, each later than the one before, and a fit")
        if any(not self.log.begin <= t < self.player.rounds for t in (since, behind) if t < math.inf):
            raise InvalidInputError(f"{name}: expected late rewards of rounds in the log, got {since:g}, {behind:g}")
        again, base = kept[-1] if since < math.inf else None, kept[count]
        begin = int(BLOCK.open(base[1]).head.begin)
        self.past[number] = Past(base, begin, tuple(kept[:count]), again, since, behind)

    def read_savings(self, numbers: FloatArray) -> None:
        """Take back what may be spent, up to which round it was added up, and when there is something to do."""
        self.savings, self.counted, self.wake = numbers.astype(int).tolist()

    def check_loaded(self) -> None:
        """Refuse savings of rounds that have not been; keep as many rounds as rewards are waited for."""
        if self.counted > self.player.rounds:
            raise InvalidInputError(f"savings: expected those of {self.player.rounds} rounds, got {self.counted}")
        if self.by_time:
            self.log.keep += self.max_delay
