"""The models of a learner: their blocks in its state, and how fits take effect there.

If a fit is due, the decision's kernel requests it. Inline, the fit is made immediately; in the background, a thread
makes it from a copy, and the model is swapped in before a later decision, after it has caught up with the rounds in
between.
"""

import json
import math
from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, ClassVar

import numpy as np

from undertow.compiled import ahead
from undertow.compiled.kernel import plain
from undertow.compiled.player import Player
from undertow.errors import InvalidInputError
from undertow.learning.fits import BackgroundFits, Claim, Refit, attempt, begun, fit_with_past
from undertow.learning.late import LateRewards
from undertow.learning.notices import Notices
from undertow.live.fields import Field, Number
from undertow.live.health import FitRecord
from undertow.live.rounds import Timeline, Turns
from undertow.live.saved import LETTERS, Saved
from undertow.models.block import BLOCK, Block, set_units
from undertow.models.judge import fit_is_due
from undertow.models.log import RoundLog, same_time_step
from undertow.models.model import Fit, Model, Span, Task
from undertow.support.checks import FloatArray

__all__ = ["Refits"]

LONGEST = 20_000  # rounds that a fit looks at
_SHORT = 20_000.0  # microseconds that a decision may wait for fits, by the models' formulas
_KINDS = ((str,), (int,), (int,), (float,), (int,), (str, type(None)))  # of a record

_fit_is_due = plain(fit_is_due)


def _written(records: Iterable[FitRecord]) -> FloatArray:
    """Return outcomes of fits as a save file keeps them: JSON, whose letters are numbers."""
    return np.frombuffer(json.dumps(list(records)).encode(), dtype=np.uint8).astype(np.float64)


def _read(letters: FloatArray) -> list[FitRecord]:
    """Take back what `_written` returned."""
    entries = json.loads(letters.astype(np.uint8).tobytes().decode())
    for entry in entries:
        if not isinstance(entry, list) or len(entry) != len(_KINDS) or not all(map(isinstance, entry, _KINDS)):
            raise InvalidInputError(f"fit_records: expected the outcome of a fit, got {entry!r:.60}")
    return [FitRecord(*entry) for entry in entries]


def _unfitted(block: Block) -> tuple[FloatArray, ...]:
    """Return the ranges of a block that a fit keeps: the schedule of fits, then the score."""
    return block.running.numbers, block.innovations, *_scores(block)


def _scores(block: Block) -> tuple[FloatArray, ...]:
    return block.score.numbers, block.squares, block.scored


def _write(parts: Iterable[FloatArray], block: Block) -> None:
    """Write the first of these ranges into a block, or all of them."""
    for part, numbers in zip(_unfitted(block), parts, strict=False):
        part[:] = numbers


def _level_with_last(newcomer: Block, blocks: Sequence[Block]) -> None:
    """Give a new model the lowest score of the other fitted models, if any."""
    others = [block for block in blocks if block is not newcomer and block.head.order > 0.0]
    if others:
        last = min(others, key=lambda block: block.score.total)
        for mine, theirs in zip(_scores(newcomer), _scores(last), strict=True):
            mine[:] = theirs


class Refits(Timeline):
    """The part of a learner's timeline in which its models change other than by its rounds.

    The blocks of the state are those of `models`, in their order.
    """

    plain = False
    has_effects = True
    remembers: ClassVar[tuple[Field, ...]] = (
        Number("latest", file="latest", most="rounds"),
        Field(
            "records",
            {"fit_records": Saved(("records",), *LETTERS, whole=True)},
            lambda learner: (_written(learner.records),),
            lambda learner, letters: learner.records.extend(_read(letters)),
        ),
    )

    def __init__(
        self,
        player: Player,
        turns: Turns,
        models: Sequence[Model],
        *,
        max_delay: int | None,
        refit: Refit,
    ) -> None:
        super().__init__(player)
        self.turns, self.models, self.refit = turns, tuple(models), refit
        self.places = [0, *accumulate(model.length for model in self.models)][:-1]
        self.log = RoundLog(len(player.context), player.features.shape[1], LONGEST + (max_delay or 0))
        self._bind()
        self.late = LateRewards(player, turns, self.models, self.views, self.log, max_delay)
        self.records: deque[FitRecord] = deque(maxlen=50)
        self.notices = Notices()
        self.fits = BackgroundFits(self.models, self.log)
        self.latest = 0  # recent delays of rewards, in rounds

    def _bind(self) -> None:
        self.blocks = self.open_blocks(self.player.state)
        self.views = [self.block(number, self.player.state) for number in range(len(self.models))]
        scores = [(own.model.running.numbers, own.model.score) for own in self.blocks]
        self.lasting = [(running, score.cell("error_floor"), score.cell("rare")) for running, score in scores]

    def __getstate__(self) -> dict[str, Any]:
        bound = ("blocks", "views", "lasting", "reasons")
        return {name: value for name, value in self.__dict__.items() if name not in bound}

    def __setstate__(self, entries: dict[str, Any]) -> None:
        self.__dict__.update(entries)
        self._bind()

    @property
    def parts(self) -> tuple[Any, ...]:
        """The learner's other parts."""
        return self.log, self.late, self.fits, self.notices

    # The blocks of the models

    def block(self, number: int, state: FloatArray) -> FloatArray:
        """Return the block of a model in a state, as a view."""
        blocks: FloatArray = self.player.loop.layout.open(state).blocks[self.places[number] :]
        return blocks[: self.models[number].length]

    def open_blocks(self, state: FloatArray) -> list[Any]:
        """Return the blocks of a state as named views."""
        blocks = self.player.loop.layout.open(state).blocks
        return [model.layout.open(blocks, at) for model, at in zip(self.models, self.places, strict=True)]

    # Fits

    def attend(self, *, inline: bool = True) -> None:
        """Make or request the fits that are due; request all if none may be inline."""
        t, spent = self.player.rounds, 0.0
        for number, model in enumerate(self.models):
            block = self.blocks[number].model
            running, raised = block.running, block.alarm.raised
            if not _fit_is_due(block, t):
                continue
            self.log.open(t - 1)
            begin = max(int(block.head.begin), t - LONGEST, self.log.begin)
            seed = (int(self.player.own.learner.seed), number, int(running.fits))
            rows, own = self.log.rows(begin, t).copy(), self.views[number].copy()
            task = Task(t, begin, rows, own, seed, self.latest, self.late.missing(number))
            running.next_fit = min(math.ceil(t * model.growth(t)), t + LONGEST // 2)
            running.alarms += raised
            if raised:
                self.notices.alarm(model.name, block.alarm.level, t)
            if np.isnan(task.rows[:, -1]).all():  # nothing to learn from yet
                block.alarm.raised = 0.0
                continue
            running.fits += 1
            set_units([BLOCK.open(task.block), *(own.model for own in self.blocks)], task.rows)
            spent += model.work(task)
            short = self.refit == "auto" and (spent <= _SHORT or running.fits == 1)
            if inline and (short or self.refit == "inline"):
                answer = attempt(partial(fit_with_past, model, task))
                self.swap(number, task, answer if isinstance(answer, Fit) else repr(answer))
            else:
                running.busy = 1.0
                self.fits.request(number, task)

    def swap(self, number: int, task: Task, answer: Fit | str) -> None:
        """Swap a fitted model in and have it catch up with the rounds since; a fit that failed changes nothing."""
        model, block = self.models[number], self.blocks[number].model
        block.running.busy = block.alarm.raised = 0.0
        block.alarm.tried = task.round
        self.costly = True
        begin, led, missed = self.fits.finish(number, task, answer)
        if isinstance(answer, str):
            block.alarm.level = 1.0  # an immediate alarm would request the same fit again
            self.records.append(FitRecord(model.name, task.round, int(block.head.order), math.nan, 0, answer))
            self.notices.failed(model.name, task, answer)
            return
        found = answer.order, answer.log_likelihood, len(answer.tried)
        self.records.append(FitRecord(model.name, task.round, *found, None))
        self.notices.fitted(model.name, task, answer)
        base = self._replace(number, task, answer, begin, led)
        self.late.begin(number, (task.round, base), answer.earlier, missed)

    def _replace(self, number: int, task: Task, answer: Fit, begin: int, led: FloatArray) -> FloatArray:
        """Write a fitted block, which has reached round `begin`, into the state; return it as of the round of its task.

        A model that was fitted before keeps its score: the rounds since were scored when they were played.
        """
        model, block, t, first = self.models[number], self.blocks[number].model, task.round, self.turns.context_first
        fresh, known = answer.unseen(task, first=first), block.head.order > 0.0
        kept = [part.copy() for part in _unfitted(block)]
        self.views[number][:] = led
        block.head.fitted = block.alarm.tried = t
        self._catch_up(number, begin, max(begin, fresh), self.player.rounds + first)
        _write(kept if known else kept[:1], block)
        if not known:
            _level_with_last(block, [own.model for own in self.blocks])
        base = begun(answer.block, t)
        _write(_unfitted(BLOCK.open(task.block) if known else block), BLOCK.open(base))
        return model.led(base, self.log.rows(t, t + first), Span(t, t, fresh, t + first))

    def share_fits(self, claim: Claim) -> None:
        """Ask `claim` before a background fit, as other processes may make it."""
        self.fits.claim = claim

    def _catch_up(self, number: int, begin: int, fresh: int, seen: int) -> None:
        now = self.player.rounds
        self.log.open(max(now, seen) - 1)
        rows, span = self.log.rows(begin, max(now, seen)), Span(begin, now, fresh, seen)
        if len(rows):  # none after an inline fit, so its kernel is not compiled
            self.models[number].catch_up(self.player.own.blocks, self.places[number], rows, span)

    # A table of past rounds, one more arm, and save files

    def warm_start(self, rows: FloatArray, seed: int) -> None:
        """Begin after the rounds with these rows."""
        own, log, rounds = self.player.own, self.log, len(rows)
        ahead.begin(self.models[0].fitted_by)
        log.open(rounds - 1)
        log.rows(log.begin, rounds)[:] = rows[log.begin :]  # rows older than the log's memory are dropped
        own.common.head.rounds, own.learner.seed = rounds, seed
        own.common.head.time_steps = rounds - int(same_time_step(rows).sum())
        arms = rows[:, log.arm].astype(np.int64)
        own.plays[:] = np.bincount(arms[arms >= 0], minlength=len(own.plays))
        np.maximum.at(own.looks.last, arms[arms >= 0], np.flatnonzero(arms >= 0) + 1.0)
        for number in range(len(self.models)):
            running = self.blocks[number].model.running
            if running.next_fit < math.inf:  # a candidate has no fits
                running.next_fit = min(running.next_fit, max(rounds, own.learner.start))
            self.late.begin(number, (rounds, self.views[number].copy()))

    def take_over(self, old: "Refits") -> None:
        """Carry over the models of a learner with one arm less."""
        own, player, first = self.player.own, self.player, self.turns.context_first
        self.log, self.records, self.latest = old.log, old.records, old.latest
        self.fits = BackgroundFits(self.models, self.log)
        self.fits.claim = old.fits.claim
        self.late.log, self.late.savings, self.late.counted = old.log, old.late.savings, old.late.counted
        if own.learner.leader >= 0:  # with one more arm, blocks are longer
            own.learner.leader = self.places[old.places.index(int(own.learner.leader))]
        now, seen = player.rounds, self.turns.contexts_seen(player.rounds)
        begin = now if not self.turns.context_dim else seen - first  # the last round that could be decided
        if begin < 0:
            return
        self.log.open(max(now, seen) - 1)
        for number, model in enumerate(self.models):
            was, block = old.views[number], self.blocks[number].model
            before = old.models[number]
            rows = self.log.rows(max(int(before.layout.open(was).model.head.begin), self.log.begin), begin)
            self.views[number][:] = model.adopt(before, was, rows, begin)
            if number in old.fits.under_way:  # a fit under way lacks the new arm
                block.running.busy, block.running.next_fit = 0.0, now
            if first:
                again = self.log.rows(begin, begin + 1)
                model.catch_up(own.blocks, self.places[number], again, Span(begin, begin, begin, begin + 1))
            self.late.begin(number, (begin, self.views[number].copy()))
        for number in range(len(self.models)):
            self._catch_up(number, begin, begin + first, seen)
            block, was_block = self.blocks[number].model, old.blocks[number].model
            block.score.numbers[:] = was_block.score.numbers  # these rounds were scored when played
            block.innovations[:] = was_block.innovations
            block.squares[:-1], block.scored[:-1] = was_block.squares, was_block.scored

    def check(self, state: Any) -> None:
        """Refuse an invalid state of this learner, or invalid blocks in it."""
        super().check(state)
        for number, model in enumerate(self.models):
            model.layout.check(self.block(number, state), model.sizes(), self.views[number])
        leader = self.player.loop.layout.open(state).learner.leader
        if leader not in (-1, *self.places):
            raise InvalidInputError(f"state: expected the place of a model as its leader, got {leader:g}")

    def check_loaded(self) -> None:
        """Refuse a log, or fits under way, that do not fit the state."""
        log, now = self.log, self.player.rounds
        if not self.turns.contexts_seen(now) - 1 <= log.end <= now + 1:
            raise InvalidInputError(f"log: rounds {log.begin} to {log.end} do not fit round {now}")
        busy = [number for number, own in enumerate(self.blocks) if own.model.running.busy]
        if busy != list(self.fits.under_way) or (busy and self.refit == "inline"):
            raise InvalidInputError("state: expected a task for every fit under way in the background")
        log.check(log.rows(log.begin, log.end), len(self.player.rewards))
        self.fits.check_times(now)
