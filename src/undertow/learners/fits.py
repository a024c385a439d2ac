"""Fits in the background: made on a thread, from copies, and swapped in once they have caught up.

When a fit takes effect depends on the machine, and on nothing else: a log of these moments (`Install`) is all that it
takes to repeat a run.
"""

import logging
import math
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, Literal, NamedTuple

import numpy as np

from undertow import _checks
from undertow._checks import FloatArray
from undertow.compiled import ahead
from undertow.errors import InvalidInputError
from undertow.learners.crew import Crew, join_crew
from undertow.learners.log import RoundLog
from undertow.learners.model import BLOCK, Fit, Model, Span, Task
from undertow.live.saved import COUNT, Saved

__all__ = ["BackgroundFits", "Install", "Refit", "attempt", "begun", "fit_with_past", "schedule_of"]

Refit = Literal["auto", "inline", "background"]

_ANSWER = itemgetter(1)  # of a task and the list that its answer comes into
_SLICE = 32  # rounds that a fitted model catches up with before a decision
_OFTEN, _REMEMBERED = 3, 1000  # starts of one fit that are too many, and of how many fits they are counted
_NAP = 0.001  # seconds between two looks at a fit that has to be waited for

_LOG = logging.getLogger("undertow.fits")
_again: Counter[int] = Counter()  # how often this process began a fit again

FAILURES = (ArithmeticError, ValueError, MemoryError)  # of a fit; anything else may be a signal's, and ends the call


def attempt(make: Callable[[], Fit], failures: tuple[type[BaseException], ...] = FAILURES) -> Fit | BaseException:
    """Make a fit, or return why it failed: the policy then continues with the model it has."""
    try:
        ahead.finish()
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


class Install(NamedTuple):
    """A fit of a model that was made in the background and took effect; `policy.on_install` tells of each.

    Attributes
    ----------
    model
        Name of the model.
    asked
        The round before whose decision the fit was asked for: it knows the rounds before.
    taken
        The round before whose decision it was there, and began to catch up with the rounds since.
    round
        The round before whose decision it took the place of the model.
    """

    model: str
    asked: int
    taken: int
    round: int


Schedule = dict[tuple[str, int], int]  # when fits are taken up, by their model and the round that asks for them


def schedule_of(installs: Iterable[Install]) -> Schedule:
    """Return when fits are to be taken up, by a log of installs."""
    schedule: Schedule = {}
    for given in installs:
        try:
            install = Install(*given)
            rounds = [_checks.integer(name, getattr(install, name), least=0) for name in ("asked", "taken", "round")]
        except (TypeError, InvalidInputError) as error:
            raise InvalidInputError(
                f"installs: expected what on_install was given (model, asked, taken, round), got {given!r:.80}"
            ) from error
        if rounds != sorted(rounds) or not isinstance(install.model, str):
            raise InvalidInputError(
                f"installs: expected rounds in their order, asked ≤ taken ≤ round, got {given!r:.80}"
            )
        schedule[install.model, rounds[0]] = rounds[1]
    return schedule


class _Led(NamedTuple):
    """A fitted block on its way to the present."""

    taken: int  # the round before whose decision it was taken up
    end: int  # the round that it has come to
    block: FloatArray
    missed: float = math.inf  # the oldest round that it went through without a reward that has come since


class BackgroundFits:
    """The fits of one learner that are made on a thread, by the number of their model.

    With a `schedule`, a fit is taken up when that says, and waited for if need be; without, when it is there.
    """

    def __init__(self, models: Sequence[Model], log: RoundLog) -> None:
        self.models, self.log = models, log
        self.under_way: dict[int, tuple[Task, list[Fit | BaseException]]] = {}
        self.missed: dict[int, float] = {}  # the oldest round of which they do not know a reward that has come since
        self.schedule: Schedule | None = None
        self._led: dict[int, _Led] = {}
        self._crew: Crew | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_crew": None}  # a copy asks for its fits itself

    def start(self, number: int, task: Task) -> None:
        """Make a fit on a thread."""
        answer: list[Fit | BaseException] = []
        model = self.models[number]
        if self._crew is None or not self._crew.here:
            self._crew = join_crew(self)
        wanted = weakref.ref(self)

        def fitted() -> Fit:
            begin = task.round  # going through no rounds loads the kernel here, and not in a decision
            model.catch_up(task.block.copy(), 0, task.rows[:0], Span(begin, begin, begin, begin))
            return fit_with_past(model, task)

        def work() -> None:
            if wanted() is not None:
                here = threading.current_thread() is threading.main_thread()  # where signals raise what is not ours
                answer.append(attempt(fitted, (Exception if here else BaseException,)))

        self._crew.do(work)
        self.under_way[number] = (task, answer)  # last: what is said to be under way has to be
        self.missed.setdefault(number, math.inf)

    def scheduled(self, number: int, t: int) -> bool:
        """Whether a fit that is asked for before round t is to be taken up later."""
        return self.schedule is not None and (self.models[number].name, t) in self.schedule

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do before a decision, where fits are under way."""
        if self._crew is None or not self._crew.here or self.schedule is not None or self._led:
            return False
        return not any(map(_ANSWER, self.under_way.values()))

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
                self._start_again(number, task)

    def _start_again(self, number: int, task: Task) -> None:
        """Start a fit again; a policy that is loaded for every call never sees the end of one, and a line says so."""
        name, key = self.models[number].name, hash((task.round, task.rows.tobytes(), task.block.tobytes()))
        _again[key] += 1
        if _again[key] == _OFTEN - 1:
            _LOG.warning(
                "the fit of %s at round %d begins for the third time: the policy was copied, or saved and loaded, "
                "before it ended. Keep the policy in memory between calls, or pass refit='inline'",
                name,
                task.round,
            )
        if len(_again) > _REMEMBERED:
            _again.clear()
        self.start(number, task)

    def note_reward(self, then: int) -> None:
        """Take note of a reward of an earlier round, of which fits under way do not know."""
        for number, (task, _) in self.under_way.items():
            led = self._led.get(number)
            if then < task.round:
                self.missed[number] = min(self.missed[number], then)
            elif led is not None and then < led.end:
                self._led[number] = led._replace(missed=min(led.missed, then))

    def ready(self, now: int) -> Iterator[tuple[int, Task, Fit | BaseException, int]]:
        """Yield the fits, made or failed, that can be swapped in before round `now` is decided, and since when.

        `take_led` returns their blocks.
        """
        if self._crew is None or not self._crew.here:
            self.start_again()
        for number, (task, answer) in tuple(self.under_way.items()):
            if not self._is_due(number, task, answer, now):
                self._led.pop(number, None)  # of a save file, whose fit is not there yet
                continue
            led = self._led.get(number, _Led(now, task.round, np.empty(0)))
            if self._has_caught_up(number, task, led, answer[0], now):
                del self.under_way[number]
                yield number, task, answer[0], led.taken
                self._led.pop(number, None)  # of one that failed, too
                self.missed.pop(number, None)

    def _is_due(self, number: int, task: Task, answer: list[Fit | BaseException], now: int) -> bool:
        """Return whether a fit is to be taken up, or was."""
        if self.schedule is None:
            return bool(answer)
        due = number in self._led or self.schedule.get((self.models[number].name, task.round), math.inf) <= now
        while due and not answer:
            time.sleep(_NAP)
        return due

    def _has_caught_up(self, number: int, task: Task, led: _Led, answer: Fit | BaseException, last: int) -> bool:
        """Lead a fitted model through some of the rounds since, so that no decision has to wait for all of them."""
        if isinstance(answer, BaseException):
            return True
        begin, end = led.end, min(led.end + _SLICE, last)
        block = led.block.copy() if number in self._led else begun(answer.block, begin)
        if end > begin:
            self.log.open(end - 1)
            model = self.models[number]
            fresh = max(begin, answer.unseen(task, first=model.context_first and model.context_dim > 0))
            model.catch_up(block, 0, self.log.rows(begin, end), Span(begin, end, fresh, end))
        self._led[number] = led._replace(end=end, block=block)
        return end >= last

    def take_led(self, number: int, task: Task, fit: Fit) -> tuple[int, FloatArray, float]:
        """Return the block of a fit, the round that it has been led to, and the oldest of which it lacks a reward."""
        led = self._led.pop(number, _Led(task.round, task.round, fit.block))
        known = math.inf if fit.whole else task.missing
        return led.end, led.block, min(self.missed.pop(number, math.inf), led.missed, known)

    def arrays(self) -> dict[str, FloatArray]:
        """Return the fits under way as tasks, to be started again, and how far fitted blocks have come."""
        arrays = {}
        for number, (task, _) in self.under_way.items():
            late = (task.late, _or_none(task.missing), _or_none(self.missed[number]))
            arrays[f"task_{number}"] = np.array([task.round, task.begin, *task.seed, *late], dtype=np.float64)
            arrays[f"task_{number}_rows"], arrays[f"task_{number}_block"] = task.rows, task.block
            if number in self._led:
                led = self._led[number]
                arrays[f"led_{number}"] = np.array([led.taken, led.end, _or_none(led.missed)], dtype=np.float64)
                arrays[f"led_{number}_block"] = led.block
        return arrays

    def saved(self, names: Collection[str]) -> dict[str, Saved]:
        """Return what `arrays` may be, where these names are there."""
        expected = {}
        for number, model in enumerate(self.models):
            if f"task_{number}" in names:
                expected[f"task_{number}"] = Saved((8,), -1, COUNT - 1, whole=True)
                expected[f"task_{number}_rows"] = self.log.saved(f"rows {number}")
                expected[f"task_{number}_block"] = Saved((model.length,), missing=True)
                if f"led_{number}" in names:
                    expected[f"led_{number}"] = Saved((3,), -1, COUNT - 1, whole=True)
                    expected[f"led_{number}_block"] = Saved((model.length,), missing=True)
        return expected

    def restore(self, arrays: Mapping[str, FloatArray], now: int) -> None:
        """Take back what `arrays` returned."""
        for number, model in enumerate(self.models):
            if f"task_{number}" not in arrays:
                continue
            t, begin, *seed, late, missing, missed = (int(value) for value in arrays[f"task_{number}"])
            rows, block = arrays[f"task_{number}_rows"], arrays[f"task_{number}_block"]
            if not 0 <= begin <= t <= now or len(rows) != t - begin or late < 0 or min(seed) < 0:
                raise InvalidInputError(f"task_{number}: rounds {begin} to {t} do not fit rows of shape {rows.shape}")
            self.log.check(rows, model.arms)
            model.layout.check(block, model.sizes(), model.block())
            if f"led_{number}" in arrays:
                taken, end, behind = (int(value) for value in arrays[f"led_{number}"])
                if not t <= taken <= now or not max(t, self.log.begin) <= end <= now:
                    raise InvalidInputError(f"led_{number}: round {end} does not fit a fit of round {t} in round {now}")
                model.layout.check(arrays[f"led_{number}_block"], model.sizes(), model.block())
                self._led[number] = _Led(taken, end, arrays[f"led_{number}_block"], _or_infinite(behind))
            self.missed[number] = _or_infinite(missed)
            self._start_again(number, Task(t, begin, rows, block, tuple(seed), late, _or_infinite(missing)))


def _or_none(then: float) -> float:
    """Return a round as a save file keeps it, −1 where there is none."""
    return -1 if math.isinf(then) else then


def _or_infinite(then: int) -> float:
    return math.inf if then < 0 else then


def begun(block: FloatArray, fitted: int) -> FloatArray:
    """Return a copy of a fitted block that says when that was."""
    copy = block.copy()
    own = BLOCK.open(copy)
    own.head.fitted = own.alarm.tried = fitted
    return copy
