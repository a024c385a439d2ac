"""How a learner makes fits beside its decisions: on a thread, from copies, and swapped in once they have caught up."""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from undertow.policies.member import BEGIN, BUSY, FITTED, TRIED, Fit, Span, Task, attempt
from undertow.policies.worker import Worker

if TYPE_CHECKING:
    from undertow.policies.learning import LearningPolicy

__all__ = ["amended", "begin_anew", "ready", "start"]

_SLICE = 32  # rounds that a fitted model catches up with before a decision


def start(policy: "LearningPolicy", number: int, task: Task, made: Fit | None = None) -> None:
    """Make a fit on the thread; where it is made already, have it hear of rewards that have come since."""
    policy._block(number)[BUSY] = 1.0
    answer: list[Fit | Exception] = []
    member, task = policy._members[number], amended(policy, task)
    policy._under_way[number] = (task, answer)
    policy._outdated.discard(number)
    if policy._worker is None or not policy._worker.here:
        policy._worker = Worker(policy)

    def fitted() -> Fit:
        begin = task.round  # going through no rounds loads the kernel here, and not in a decision
        member.catch_up(task.block.copy(), 0, task.rows[:0], Span(begin, begin, begin, begin))
        return member.fit(task)

    def filtered(made: Fit) -> Fit:
        block = made.block.copy()
        member.believe(block, task.rows[int(block[BEGIN]) - task.begin :], task.round)
        return made._replace(block=block)

    make = fitted if made is None else partial(filtered, made)
    policy._worker.tasks.put(lambda: answer.append(attempt(make)))


def begin_anew(policy: "LearningPolicy") -> None:
    """Start the fits again whose thread answers another policy, or has not followed into a forked process."""
    policy._worker = None
    for number, (task, answer) in list(policy._under_way.items()):
        if not answer:
            start(policy, number, task)


def amended(policy: "LearningPolicy", task: Task) -> Task:
    """Return a task with the rewards that the log knows by now."""
    log, rows = policy._log, task.rows.copy()
    first = max(task.begin, log.begin)
    rows[first - task.begin :, -1] = log.rows(first, task.round)[:, -1]
    return task._replace(rows=rows)


def ready(policy: "LearningPolicy") -> Iterator[tuple[int, Task, Fit | Exception]]:
    """Yield the fits, made or failed, that can be swapped in before the coming decision."""
    if policy._worker is not None and not policy._worker.here:
        begin_anew(policy)
    for number, (task, answer) in tuple(policy._under_way.items()):
        if answer and number in policy._outdated and isinstance(answer[0], Fit):
            start(policy, number, task, answer[0])
        elif answer and _has_caught_up(policy, number, task, answer[0]):
            del policy._under_way[number]
            yield number, task, answer[0]


def _has_caught_up(policy: "LearningPolicy", number: int, task: Task, answer: Fit | Exception) -> bool:
    """Take a fitted model through some of the rounds since, so that no decision has to wait for all of them.

    Rounds whose rewards may still come are left for the end.
    """
    if isinstance(answer, Exception):
        return True
    if number not in policy._waiting:
        policy._waiting[number] = (task.round, answer.block.copy())
        policy._waiting[number][1][[FITTED, TRIED]] = task.round
    begin, block = policy._waiting[number]
    last = policy.round - policy._latest
    end = min(begin + _SLICE, last)
    if end > begin:
        policy._log.open(end - 1)
        policy._members[number].catch_up(block, 0, policy._log.rows(begin, end), Span(begin, end, begin, end))
        policy._waiting[number] = (end, block)
    return end >= last
