"""Fits in the background: made on a thread, from copies, and swapped in once they have caught up."""

import math
import time
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from undertow._checks import FloatArray
from undertow.compiled import ahead
from undertow.errors import InvalidInputError
from undertow.learners.crew import Crew, join_crew
from undertow.learners.log import RoundLog
from undertow.learners.model import BLOCK, Fit, Model, Span, Task
from undertow.live.saved import COUNT, Saved

__all__ = ["BackgroundFits", "Refit", "attempt", "begun", "fit_with_past"]

Refit = Literal["auto", "inline", "background"]

_SLICE = 32  # rounds that a fitted model catches up with before a decision


FAILURES = (ArithmeticError, ValueError, MemoryError)  # of a fit; anything else may be a signal's, and ends the call


def attempt(make: Callable[[], Fit], failures: tuple[type[Exception], ...] = FAILURES) -> Fit | Exception:
    """Make a fit, or return why it failed: the policy then continues with the model it has."""
    ahead.finish()
    try:
        return make()
    except failures as error:
        return error


def fit_with_past(model: Model, task: Task) -> Fit:
    """Fit a model and, where rewards come late, rewind it to where those of the next rounds will go back to."""
    start = time.perf_counter()
    fit = model.fit(task)
    fit = fit._replace(seconds=time.perf_counter() - start)
    begin = max(int(BLOCK.open(fit.block).head.begin), task.begin)
    then = int(min(task.round - task.late, task.missing))
    first = model.context_first and model.context_dim > 0
    if not task.late or then <= begin:
        return fit
    block = model.rewound(fit.block)
    model.believe(block, task.rows[begin - task.begin : then - task.begin], then)
    model.catch_up(block, 0, task.rows[then - task.begin :][:first], Span(then, then, then, then + first))
    return fit._replace(earlier=(then, block))


class BackgroundFits:
    """The fits of one learner that are made on a thread, by the number of their model."""

    def __init__(self, models: Sequence[Model], log: RoundLog) -> None:
        self.models, self.log = models, log
        self.under_way: dict[int, tuple[Task, list[Fit | Exception]]] = {}
        self.missed: dict[int, float] = {}  # the oldest round of which they do not know a reward that has come since
        self._led: dict[int, tuple[int, FloatArray]] = {}  # fitted blocks, and the round they have come to
        self._crew: Crew | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_crew": None}  # a copy asks for its fits itself

    def start(self, number: int, task: Task) -> None:
        """Make a fit on a thread."""
        answer: list[Fit | Exception] = []
        model = self.models[number]
        if self._crew is None or not self._crew.here:
            self._crew = join_crew(self)
        wanted = weakref.ref(self)

        def fitted() -> Fit:
            begin = task.round  # going through no rounds loads the kernel here, and not in a decision
            model.catch_up(task.block.copy(), 0, task.rows[:0], Span(begin, begin, begin, begin))
            return fit_with_past(model, task)

        self._crew.do(lambda: None if wanted() is None else answer.append(attempt(fitted, (Exception,))))
        self.under_way[number] = (task, answer)  # last: what is said to be under way has to be
        self.missed.setdefault(number, math.inf)

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do before a decision, where fits are under way."""
        here = self._crew is not None and self._crew.here
        return here and not any(answer for _, answer in self.under_way.values())

    def keep(self) -> Any:
        """Return what `put_back` needs to undo all that comes after."""
        return self.under_way.copy(), self.missed.copy(), self._led.copy()

    def put_back(self, kept: Any) -> None:
        """Be again as when `keep` was called."""
        self.under_way, self.missed, self._led = kept

    def start_again(self) -> None:
        """Start fits again that are made for another policy, or whose thread did not follow into a forked process."""
        self._crew = None
        for number, (task, answer) in list(self.under_way.items()):
            if not answer:
                self.start(number, task)

    def note_reward(self, then: int) -> None:
        """Take note of a reward of an earlier round, of which fits under way do not know."""
        for number, (task, _) in self.under_way.items():
            if then < self._led.get(number, (task.round,))[0]:
                self.missed[number] = min(self.missed[number], then)

    def ready(self, now: int) -> Iterator[tuple[int, Task, Fit | Exception]]:
        """Yield the fits, made or failed, that can be swapped in before round `now` is decided."""
        if self._crew is None or not self._crew.here:
            self.start_again()
        for number, (task, answer) in tuple(self.under_way.items()):
            if answer and self._has_caught_up(number, task, answer[0], now):
                del self.under_way[number]
                if isinstance(answer[0], Exception):
                    del self.missed[number]
                yield number, task, answer[0]

    def _has_caught_up(self, number: int, task: Task, answer: Fit | Exception, last: int) -> bool:
        """Lead a fitted model through some of the rounds since, so that no decision has to wait for all of them."""
        if isinstance(answer, Exception):
            return True
        begin, block = self._led.setdefault(number, (task.round, begun(answer.block, task.round)))
        end = min(begin + _SLICE, last)
        if end > begin:
            self.log.open(end - 1)
            block = block.copy()
            self.models[number].catch_up(block, 0, self.log.rows(begin, end), Span(begin, end, begin, end))
            self._led[number] = (end, block)
        return end >= last

    def take_led(self, number: int, task: Task, fit: Fit) -> tuple[int, FloatArray, float]:
        """Return the block of a fit, the round that it has been led to, and the oldest of which it lacks a reward."""
        missed = min(self.missed.pop(number, math.inf), math.inf if fit.whole else task.missing)
        return *self._led.pop(number, (task.round, fit.block)), missed

    def _amended(self, task: Task) -> FloatArray:
        """Return the rows of a task with the rewards that the log knows by now."""
        log, rows = self.log, task.rows.copy()
        first = max(task.begin, log.begin)
        rows[first - task.begin :, -1] = log.rows(first, task.round)[:, -1]
        return rows

    def arrays(self) -> dict[str, FloatArray]:
        """Return the fits under way as tasks, to be started again."""
        arrays = {}
        for number, (task, _) in self.under_way.items():
            missing = min(task.missing, self.missed[number])
            late = (task.late, -1 if math.isinf(missing) else missing)
            arrays[f"task_{number}"] = np.array([task.round, task.begin, *task.seed, *late], dtype=np.float64)
            arrays[f"task_{number}_rows"], arrays[f"task_{number}_block"] = self._amended(task), task.block
        return arrays

    def saved(self, names: Collection[str]) -> dict[str, Saved]:
        """Return what `arrays` may be, where these names are there."""
        expected = {}
        for number, model in enumerate(self.models):
            if f"task_{number}" in names:
                expected[f"task_{number}"] = Saved((7,), -1, COUNT - 1, whole=True)
                expected[f"task_{number}_rows"] = self.log.saved(f"rows {number}")
                expected[f"task_{number}_block"] = Saved((model.length,), missing=True)
        return expected

    def restore(self, arrays: Mapping[str, FloatArray], now: int) -> None:
        """Take back what `arrays` returned."""
        for number, model in enumerate(self.models):
            if f"task_{number}" not in arrays:
                continue
            t, begin, *seed, late, missing = (int(value) for value in arrays[f"task_{number}"])
            rows, block = arrays[f"task_{number}_rows"], arrays[f"task_{number}_block"]
            if not 0 <= begin <= t <= now or len(rows) != t - begin or late < 0 or min(seed) < 0:
                raise InvalidInputError(f"task_{number}: rounds {begin} to {t} do not fit rows of shape {rows.shape}")
            self.log.check(rows, model.arms)
            model.layout.check(block, model.sizes(), model.block())
            self.start(number, Task(t, begin, rows, block, tuple(seed), late, math.inf if missing < 0 else missing))


def begun(block: FloatArray, fitted: int) -> FloatArray:
    """Return a copy of a fitted block that says when that was."""
    copy = block.copy()
    own = BLOCK.open(copy)
    own.head.fitted = own.alarm.tried = fitted
    return copy
