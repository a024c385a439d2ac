"""Background fits: made on threads, from copies, and swapped in once they have caught up.

The time at which a fit is ready depends on the clock, so it is a separate event, `Installed`, with the fitted block.
"""

import logging
import math
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from undertow.compiled import ahead
from undertow.errors import InvalidInputError
from undertow.learning.threads import FitThreads, shared_threads
from undertow.live.events import Installed, decode, encode
from undertow.live.fields import Each, Field
from undertow.live.saved import COUNT, LETTERS, Saved
from undertow.models.block import BLOCK
from undertow.models.log import ROWS, RoundLog
from undertow.models.model import Fit, Model, Span, Task
from undertow.support.checks import FloatArray

__all__ = ["BackgroundFits", "Claim", "Refit", "attempt", "begun", "fit_with_past"]

Refit = Literal["auto", "inline", "background"]

_SLICE = 32  # rounds that a fitted model catches up with before a decision
_OFTEN, _REMEMBERED = 3, 1000  # starts of one fit that give a warning, and number of fits that are counted
_LAST = 64  # rows that identify a fit

Claim = Callable[[str, int, float], bool]  # of a model's name, the round of a request, and the expected seconds

_LOG = logging.getLogger("undertow.fits")
_restarts: Counter[int] = Counter()  # how often this process started each fit

_FAILURES = (ArithmeticError, ValueError, MemoryError)  # of a fit; others may come from a signal


def attempt(make: Callable[[], Fit], failures: tuple[type[BaseException], ...] = _FAILURES) -> Fit | BaseException:
    """Make a fit, or return the reason of its failure: the policy then continues with its present model."""
    try:
        ahead.finish()
        return make()
    except failures as error:
        return error


def fit_with_past(model: Model, task: Task) -> Fit:
    """Fit a model and, if rewards come late, rewind it to the rounds whose rewards are still expected."""
    start = time.perf_counter()
    fit = model.fit(task)
    fit = fit._replace(seconds=time.perf_counter() - start)
    begin = max(int(BLOCK.open(fit.block).head.begin), task.begin)
    then = int(min(task.round - task.late, task.missing))
    if not task.late or then <= begin:
        return fit
    block = model.rewound(fit.block)
    model.believe(block, task.rows[begin - task.begin : then - task.begin], then)
    first = model.context_first
    model.catch_up(block, 0, task.rows[then - task.begin :][:first], Span(then, then, then, then + first))
    return fit._replace(earlier=(then, block))


class _Taken(NamedTuple):
    """A finished fit, and its block, which catches up with the present."""

    event: Installed
    answer: Fit | str  # or the reason of its failure
    end: int  # the round that it has reached
    block: FloatArray


class BackgroundFits:
    """The background fits of one learner, by the number of their model.

    `under_way` has the requested fits, and `taken` the finished ones that catch up with the rounds since. Threads and
    their results are not included: a result counts once it is an event.
    """

    remembers: ClassVar[tuple[Field, ...]] = (
        Field("missed"),
        Each(
            "under_way",
            {
                "task_{}": Saved((8,), -1, COUNT - 1, whole=True),
                "task_{}_rows": ROWS._replace(shape=("log {}", ROWS.shape[1])),
                "task_{}_block": Saved(("block {}",), missing=True),
            },
            lambda fits, number: fits.written_task(number),
            lambda fits, number, *arrays: fits.read_task(number, *arrays),
        ),
        Each(
            "taken",
            {
                "taken_{}": Saved((2,), -1, COUNT - 1, whole=True),
                "taken_{}_event": Saved(("letters {}",), *LETTERS, whole=True),
                "taken_{}_block": Saved(("block {}",), missing=True),
            },
            lambda fits, number: fits.written_taken(number),
            lambda fits, number, *arrays: fits.read_taken(number, *arrays),
        ),
    )

    def __init__(self, models: Sequence[Model], log: RoundLog) -> None:
        self.models, self.log = models, log
        self.numbers = {model.name: number for number, model in enumerate(models)}
        self.under_way: dict[int, Task] = {}
        self.requested = False  # whether one was, since threads were last started
        self.missed: dict[int, float] = {}  # the oldest round whose reward came after they had reached a later one
        self.taken: dict[int, _Taken] = {}
        self._answers: dict[int, tuple[int, list[Fit | BaseException]]] = {}  # each with the round of its task
        self._own: dict[int, int] = {}  # the rounds of tasks requested here, not in a copy or a file
        self.claim: Claim | None = None  # if other processes have this policy, too
        self._threads: FitThreads | None = None

    def __getstate__(self) -> dict[str, Any]:
        nothing: dict[str, Any] = {"_threads": None, "_answers": {}, "_own": {}, "claim": None}
        return self.__dict__ | nothing  # a copy makes its own fits

    def request(self, number: int, task: Task) -> None:
        """Request a background fit, to start after the event that requested it."""
        self.under_way[number], self.missed[number] = task, math.inf
        self._own[number], self.requested = task.round, True

    def start_missing(self) -> None:
        """Start the requested fits that no thread of this process works on and no other process has claimed."""
        self.requested = False
        if self._threads is None or not self._threads.here:
            self._threads, self._answers = shared_threads(self), {}
        for number, task in self.under_way.items():
            if number in self.taken or self._answers.get(number, (-1, None))[0] == task.round:
                continue
            model = self.models[number]
            if self.claim is None or self.claim(model.name, task.round, 1e-6 * model.work(task)):
                self._start(number, task, self._threads)

    def _start(self, number: int, task: Task, crew: FitThreads) -> None:
        """Make a fit on a thread."""
        answer: list[Fit | BaseException] = []
        model, wanted = self.models[number], weakref.ref(self)

        def fitted() -> Fit:
            begin = task.round  # replaying no rounds loads the kernel here, not in a decision
            model.catch_up(task.block.copy(), 0, task.rows[:0], Span(begin, begin, begin, begin))
            return fit_with_past(model, task)

        def work() -> None:
            if wanted() is not None:
                here = threading.current_thread() is threading.main_thread()  # signals may raise other errors
                answer.append(attempt(fitted, (Exception if here else BaseException,)))

        if self._own.get(number) != task.round:
            _note_restart(model.name, task)
        crew.do(work)
        self._answers[number] = task.round, answer

    def arrived(self, now: int) -> list[Installed]:
        """Return the fits that threads have finished, before round `now` is decided."""
        self.start_missing()
        found = []
        for number, task in self.under_way.items():
            round, answer = self._answers.get(number, (-1, []))
            if number not in self.taken and round == task.round and answer:
                found.append(_told(self.models[number].name, task.round, now, answer[0]))
        return found

    def made(self, now: int) -> list[Installed]:
        """Make the fits requested here, before round `now` is decided, unless others may claim them."""
        if self.claim is not None:
            return []
        found = []
        for number, task in self.under_way.items():
            model = self.models[number]
            found.append(_told(model.name, task.round, now, attempt(partial(fit_with_past, model, task))))
        return found

    def take(self, event: Installed) -> None:
        """Accept a finished fit from an event."""
        number = self.numbers.get(event.model, -1)
        task = self.under_way.get(number)
        if task is None or number in self.taken or task.round != event.requested:
            raise InvalidInputError(
                f"event: no fit of the {event.model!r:.60} requested in round {event.requested!r} is under way"
            )
        answer = _fit_of(self.models[number], event)
        block = np.empty(0) if isinstance(answer, str) else begun(answer.block, task.round)
        self.taken[number] = _Taken(event, answer, task.round, block)

    def note_reward(self, then: int) -> None:
        """Record a reward of an earlier round that fits under way lack."""
        for number, task in self.under_way.items():
            if then < self._end(number, task):
                self.missed[number] = min(self.missed[number], then)

    def _end(self, number: int, task: Task) -> int:
        """Return the round that a fit under way has reached."""
        return self.taken[number].end if number in self.taken else task.round

    def advance(self, now: int) -> list[int]:
        """Continue with finished fits; return those that can be swapped in before round `now` is decided."""
        return [number for number in self.taken if self._has_caught_up(number, now)]

    def _has_caught_up(self, number: int, last: int) -> bool:
        """Replay some of the rounds since for a fitted model, so that no decision waits for all of them."""
        taken, task = self.taken[number], self.under_way[number]
        if isinstance(taken.answer, str):
            return True
        begin, end = taken.end, min(taken.end + _SLICE, last)
        block = taken.block.copy()
        if end > begin:
            self.log.open(end - 1)
            model = self.models[number]
            fresh = max(begin, taken.answer.unseen(task, first=model.context_first))
            model.catch_up(block, 0, self.log.rows(begin, end), Span(begin, end, fresh, end))
        self.taken[number] = taken._replace(end=end, block=block)
        return end >= last

    def finish(self, number: int, task: Task, fit: Fit | str) -> tuple[int, FloatArray, float]:
        """Return the block of a fit, the round that it has reached, and the oldest whose reward it lacks.

        It is no longer under way.
        """
        self.under_way.pop(number, None)
        missed, taken = self.missed.pop(number, math.inf), self.taken.pop(number, None)
        if isinstance(fit, str):
            return task.round, np.empty(0), missed
        end, block = (task.round, fit.block) if taken is None else (taken.end, taken.block)
        return end, block, missed if fit.whole else min(missed, task.missing)

    # Save files

    def written_task(self, number: int) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return a fit under way, to be started again, and the oldest round whose reward it lacks."""
        task = self.under_way[number]
        late = (task.late, _or_none(task.missing), _or_none(self.missed[number]))
        return np.array([task.round, task.begin, *task.seed, *late], dtype=np.float64), task.rows, task.block

    def read_task(self, number: int, numbers: FloatArray, rows: FloatArray, block: FloatArray) -> None:
        """Take back what `written_task` returned; the log has been read."""
        model = self.models[number]
        t, begin, *seed, late, missing, missed = numbers.astype(int).tolist()
        if not 0 <= begin <= t or len(rows) != t - begin or late < 0 or min(seed) < 0:
            raise InvalidInputError(f"task_{number}: rounds {begin} to {t} do not fit rows of shape {rows.shape}")
        self.log.check(rows, model.arms)
        model.layout.check(block, model.sizes(), model.block())
        self.under_way[number] = Task(t, begin, rows, block, tuple(seed), late, _or_infinite(missing))
        self.missed[number] = _or_infinite(missed)

    def written_taken(self, number: int) -> tuple[FloatArray, npt.NDArray[np.uint8], FloatArray]:
        """Return a finished fit, and its block, which catches up."""
        taken = self.taken[number]
        event = np.frombuffer(encode(taken.event), dtype=np.uint8)
        return np.array([taken.end, -1.0]), event, taken.block  # rewards that it lacks are those of its task

    def read_taken(self, number: int, numbers: FloatArray, letters: FloatArray, block: FloatArray) -> None:
        """Take back what `written_taken` returned."""
        model, (end, missed) = self.models[number], numbers.astype(int).tolist()
        event = decode(letters.astype(np.uint8).tobytes())
        if not isinstance(event, Installed) or event.model != model.name or event.failure is not None:
            raise InvalidInputError(f"taken_{number}: expected a fit of the {model.name}, got {event!r:.60}")
        self.take(event)
        model.layout.check(block, model.sizes(), model.block())
        self.taken[number] = self.taken[number]._replace(end=end, block=block)
        self.missed[number] = min(self.missed[number], _or_infinite(missed))

    def check_times(self, now: int) -> None:
        """Refuse fits of rounds that have not been."""
        for number, task in self.under_way.items():
            end = self._end(number, task)
            if not task.round <= end <= now or (number in self.taken and end < self.log.begin):
                raise InvalidInputError(f"task_{number}: rounds {task.round} to {end} do not fit round {now}")


def _note_restart(name: str, task: Task) -> None:
    """Count how often this process restarts a fit: a policy that is loaded for every call never finishes one."""
    key = hash((name, task.round, task.rows[-_LAST:].tobytes(), task.block.tobytes()))
    _restarts[key] += 1
    if _restarts[key] == _OFTEN - 1:
        _LOG.warning(
            "the fit of %s at round %d begins for the third time: the policy was copied, or saved and loaded, "
            "before it ended. Keep the policy in memory between calls, or pass refit='inline'",
            name,
            task.round,
        )
    if len(_restarts) > _REMEMBERED:
        _restarts.clear()


def _told(model: str, requested: int, now: int, answer: Fit | BaseException) -> Installed:
    """Return the event of a finished fit."""
    if isinstance(answer, BaseException):
        return Installed(model=model, requested=requested, round=now, failure=repr(answer))
    earlier_round, earlier = (None, None) if answer.earlier is None else answer.earlier
    return Installed(
        model=model,
        requested=requested,
        round=now,
        order=answer.order,
        log_likelihood=None if math.isnan(answer.log_likelihood) else answer.log_likelihood,
        tried=len(answer.tried),
        seconds=answer.seconds,
        block=answer.block.tobytes(),
        whole=answer.whole,
        earlier_round=earlier_round,
        earlier_block=b"" if earlier is None else earlier.tobytes(),
    )


def _fit_of(model: Model, event: Installed) -> Fit | str:
    """Return the checked fit of an event, or the reason of its failure."""
    if event.failure is not None:
        return event.failure
    blocks = []
    for content in (event.block, *([] if event.earlier_round is None else [event.earlier_block])):
        if len(content) % 8:
            raise InvalidInputError(f"event: expected the numbers of a block, got {len(content)} bytes")
        blocks.append(np.frombuffer(content, dtype=np.float64).copy())
        model.layout.check(blocks[-1], model.sizes(), model.block())
    earlier = None if event.earlier_round is None else (event.earlier_round, blocks[1])
    likelihood = math.nan if event.log_likelihood is None else event.log_likelihood
    return Fit(blocks[0], (None,) * event.tried, event.order, likelihood, event.whole, event.seconds, earlier)


def _or_none(then: float) -> float:
    """Return a round in the format of save files, −1 if none."""
    return -1 if math.isinf(then) else then


def _or_infinite(then: int) -> float:
    return math.inf if then < 0 else then


def begun(block: FloatArray, fitted: int) -> FloatArray:
    """Return a copy of a fitted block with the round of the fit."""
    copy = block.copy()
    own = BLOCK.open(copy)
    own.head.fitted = own.alarm.tried = fitted
    return copy
