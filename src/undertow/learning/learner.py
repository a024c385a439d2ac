"""The code around a learner's compiled steps: its history, models fitted to it, late rewards.

If a fit is due, the decision's kernel requests it. Inline, the fit is made immediately; in the background, a
thread makes it from a copy, and the model is swapped in before a later decision, after it has caught up with the rounds
in between. A late reward is recorded, and applied at its own round before one of the next decisions (`learning.late`).
"""

import math
from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np

from undertow.compiled import ahead
from undertow.compiled.player import Player
from undertow.errors import InvalidInputError
from undertow.learning.fits import BackgroundFits, Claim, Refit, attempt, begun, fit_with_past
from undertow.learning.health import read_records, written_records
from undertow.learning.late import LateRewards
from undertow.learning.notices import Notices
from undertow.learning.reasons import Reasons
from undertow.live.decision import Why
from undertow.live.events import Installed
from undertow.live.fields import Field, Number
from undertow.live.health import FitRecord
from undertow.live.rewind import too_late
from undertow.live.rounds import Timeline, Turns, Waiting
from undertow.live.saved import LETTERS, Saved
from undertow.models.judge import level_with_last, unfitted
from undertow.models.log import LARGEST, RoundLog, require_small, same_time_step
from undertow.models.looks import note_late_reward
from undertow.models.model import BLOCK, Fit, Model, Span, Task, score_again, set_units
from undertow.support.checks import FloatArray

__all__ = ["Learner"]

LONGEST = 20_000  # rounds that a fit looks at
_SHORT = 20_000.0  # microseconds that a decision may wait for fits, by the models' formulas


class Learner(Timeline):
    """The timeline of a policy that learns models; the blocks of its state are those of `models`, in their order."""

    plain: ClassVar[bool] = False
    has_effects: ClassVar[bool] = True
    remembers: ClassVar[tuple[Field, ...]] = (
        Number("latest", file="latest", most="rounds"),
        Field(
            "records",
            {"fit_records": Saved(("records",), *LETTERS, whole=True)},
            lambda learner: (written_records(learner.records),),
            lambda learner, letters: learner.records.extend(read_records(letters)),
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
        self.names = [model.name for model in self.models]
        self.lengths = [model.length for model in self.models]
        self.places = [sum(self.lengths[:number]) for number in range(len(self.lengths))]
        self.log = RoundLog(len(player.context), player.features.shape[1], LONGEST + (max_delay or 0))
        self.late = LateRewards(player, turns, self.models, self.places, self.log, max_delay)
        self.records: deque[FitRecord] = deque(maxlen=50)
        self.notices = Notices()
        self.fits = BackgroundFits(self.models, self.log)
        self.latest = 0  # recent delays of rewards, in rounds
        self._bind()

    def _bind(self) -> None:
        self.blocks = self.open_blocks(self.player.state)
        self.views = [self.block(number) for number in range(len(self.models))]
        scores = [(own.model.running.numbers, own.model.score) for own in self.blocks]
        self.lasting = [(running, score.cell("error_floor"), score.cell("rare")) for running, score in scores]
        self.reasons = Reasons(self.player, self.places, self.names, self.blocks)

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

    def block(self, number: int, state: FloatArray | None = None) -> FloatArray:
        """Return the block of a model, as a view of the state or of another one."""
        own = self.player.own if state is None else self.player.loop.layout.open(state)
        blocks: FloatArray = own.blocks[self.places[number] :]
        return blocks[: self.lengths[number]]

    def open_blocks(self, state: FloatArray) -> list[Any]:
        """Return the blocks of a state as named views."""
        blocks = self.player.loop.layout.open(state).blocks
        return [model.layout.open(blocks, at) for model, at in zip(self.models, self.places, strict=True)]

    # Fits

    def arrived(self) -> Sequence[Installed]:
        """Return finished background fits that are not events yet."""
        return self.fits.arrived(self.player.rounds) if self.fits.under_way else ()

    def install(self, event: Installed) -> None:
        """Accept a background fit."""
        self.fits.take(event)

    def prepare(self, oldest: int, *, choice: bool = True, still: bool = False) -> None:
        """Swap in the fits that have caught up, and go on with late rewards, if it is time for either."""
        late, t = self.late, int(self.player.begun())
        if late.by_time:
            late.reach_back(t - oldest)
        if t < late.wake and not still and not self.fits.taken:
            return
        if still:
            self.log.share(t)
        for number in self.fits.advance(t) if self.fits.taken else ():
            self.swap(number, self.fits.under_way[number], self.fits.taken[number].answer)
        if not t:  # the first decision
            ahead.begin(self.models[0].fitted_by)
        if arrived := late.attend(due=True):
            self.take_in(arrived)
        late.remember(self.views, self.latest)

    def attend(self, *, inline: bool = True) -> None:
        """Make or request the fits that are due; request all if none may be inline."""
        t, spent = self.player.rounds, 0.0
        for number, model in enumerate(self.models):
            block = self.blocks[number].model
            running, raised = block.running, block.alarm.raised
            if running.busy or (t < running.next_fit and not raised):
                continue
            self.log.open(t - 1)
            begin = max(int(block.head.begin), t - LONGEST, self.log.begin)
            seed = (int(self.player.own.learner.seed), number, int(running.fits))
            rows, late = self.log.rows(begin, t).copy(), (self.latest, self.late.missing(number))
            task = Task(t, begin, rows, self.block(number).copy(), seed, *late)
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
        known = block.head.order > 0.0
        kept = [part.copy() for part in unfitted(block)]
        self.block(number)[:] = led
        block.head.fitted = block.alarm.tried = t = task.round
        first = self.turns.context_first
        fresh = answer.unseen(task, first=first)
        self._catch_up(number, begin, max(begin, fresh), self.player.rounds + first)
        for part, numbers in zip(unfitted(block) if known else (block.running.numbers,), kept, strict=False):
            part[:] = numbers  # the rounds since were scored when played, if the model was fitted
        if not known:
            level_with_last(block, [own.model for own in self.blocks])
        base, before = begun(answer.block, t), unfitted(BLOCK.open(task.block) if known else block)
        for part, numbers in zip(unfitted(BLOCK.open(base)), before, strict=True):
            part[:] = numbers
        base = model.led(base, self.log.rows(t, t + first), Span(t, t, fresh, t + first))
        self.late.begin(number, (t, base), answer.earlier, missed)

    def report(self) -> None:
        """Start the fits that were requested, write to the program's log, and warn of fits that failed."""
        if self.fits.under_way:
            self.fits.start_missing()
        if self.notices.lines or self.notices.warnings:
            self.notices.report()

    def share_fits(self, claim: Claim) -> None:
        """Ask `claim` before a background fit, as other processes may make it."""
        self.fits.claim = claim

    def forget_notices(self) -> None:
        """Drop reports on events that were applied again."""
        self.notices.forget()

    def _catch_up(self, number: int, begin: int, fresh: int, seen: int) -> None:
        now = self.player.rounds
        self.log.open(max(now, seen) - 1)
        rows, span = self.log.rows(begin, max(now, seen)), Span(begin, now, fresh, seen)
        if len(rows):  # none after an inline fit, so its kernel is not compiled
            self.models[number].catch_up(self.player.own.blocks, self.places[number], rows, span)

    def take_in(self, arrived: Mapping[int, FloatArray]) -> None:
        """Put blocks that know of late rewards into their places; what fits have set since stays."""
        for number, block in arrived.items():
            running, error_floor, rare = self.lasting[number]
            kept = running.copy(), error_floor.copy(), rare.copy()
            self.views[number][:] = block
            changed = error_floor[...] != kept[1]
            running[:], error_floor[:], rare[:] = kept
            if changed:
                score_again(self.blocks[number].model)

    def scratch(self) -> FloatArray:
        """Return a copy of the state for a decision without fits."""
        state = self.player.state.copy()
        for number, block in self.late.attend(keep=False).items():
            self.block(number, state)[:] = block
        for own in self.open_blocks(state):
            own.model.running.next_fit, own.model.alarm.raised = math.inf, 0.0
        return state

    # The log, and rewards that come late

    def decided(self, t: int, arm: int) -> Why | None:
        """Record the choice of the last round, and return its explanation."""
        if arm < 0:
            return None
        log = self.log
        log.put(t, log.arm, arm)
        if log.feature_dim:
            log.row(t)[log.context_dim : log.shared] = self.player.features_of(arm)
        return self.reasons.why(t, self.notices)

    def observe(self) -> None:
        """Observe a context, and record it."""
        self.player.observe()
        number = int(self.player.begun()) - (not self.turns.context_first)
        self.log.put(number, self.log.context, self.player.context)

    def check_reward(self, waiting: Waiting, reward: float, age: int) -> None:
        """Refuse a reward that comes too late, or with which models would overflow."""
        if not -LARGEST <= reward <= LARGEST:
            require_small(reward)
        if (age > self.late.max_delay and not self.late.by_time) or waiting.round < self.log.begin:
            raise too_late(age, self.late.max_delay)

    def learn(self, waiting: Waiting, reward: float, age: int) -> None:
        """Record a reward and learn it: immediately if it is of the last round, otherwise at its own round."""
        then, latest = waiting.round, max(self.latest - 1, age)
        at_once = age == 0 and not (self.turns.context_first and self.turns.due == "decide")
        if at_once:
            self.player.learn(waiting.memory, waiting.arm, reward, 0)
        self.log.pay(then, reward)
        if self.fits.under_way:
            self.fits.note_reward(then)
        self.latest = latest
        if not at_once:
            note_late_reward(self.player.own.looks, then, waiting.arm, reward)
            self.late.note(then)

    def recorded(self, data: FloatArray, arms: FloatArray, begun: int, step: int) -> None:
        """Record steps that were played together."""
        self.notices.write()
        log, player, first, last = self.log, self.player, begun // 3, step // 3
        m, k, base = log.context_dim, len(player.rewards), player.rounds - last
        if step % 3:  # the context of the next round has come
            log.row(base + last)[:m] = data[last, :m]
        if last > first:
            log.open(base + last - 1)
            rows = log.rows(base + first, base + last)
            played = arms[first:last].astype(np.int64)
            numbers = np.arange(last - first)
            features = data[first:last, m + k :].reshape(len(rows), player.rows, log.feature_dim)
            rows[:, :m] = data[first:last, :m]
            rows[:, m : log.shared] = features[numbers, played if player.rows > 1 else 0]
            rows[:, log.arm] = played
            rows[:, log.reward] = data[first + numbers, m + played]

    def warm_start(self, rows: FloatArray, rounds: int, seed: int) -> None:
        """Begin after `rounds` rounds with these rows."""
        own, log = self.player.own, self.log
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
            self.late.begin(number, (rounds, self.block(number).copy()))

    # Reports

    # One more arm, and save files

    def take_over(self, old: "Learner") -> None:
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
            was, block = old.block(number), self.blocks[number].model
            before = old.models[number]
            rows = self.log.rows(max(int(before.layout.open(was).model.head.begin), self.log.begin), begin)
            self.block(number)[:] = model.adopt(before, was, rows, begin)
            if number in old.fits.under_way:  # a fit under way lacks the new arm
                block.running.busy, block.running.next_fit = 0.0, now
            if first:
                again = self.log.rows(begin, begin + 1)
                model.catch_up(own.blocks, self.places[number], again, Span(begin, begin, begin, begin + 1))
            self.late.begin(number, (begin, self.block(number).copy()))
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
            model.layout.check(self.block(number, state), model.sizes(), self.block(number))
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
