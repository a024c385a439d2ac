"""Exceptions at random moments of calls: a call either happened or did not, and one that did not can be repeated.

Beside the policy that is interrupted stand two twins, one before the call and one after it. The interrupted policy has
to be one of the two, to the last bit of what a save file would hold, and after the call was repeated the second one; it
has to play on as that one does. Exceptions come from a timer, at any instruction, and from a trace, at any line.
"""

import copy
import gc
import itertools
import json
import linecache
import logging
import math
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

import undertow
from helpers import LIVE, full_system, learner_of, make_policy, unnamed
from undertow.learning.policy import LearningPolicy
from undertow.live.files import snapshot
from undertow.policies import Decision, LivePolicy, registry

SYSTEM = full_system(3, 2, 3, seed=1)
PATH = SYSTEM.sample(400, rng=1)
ROUNDS = 60  # at most, before the first interrupt; learners make a few fits in them
_FORMS: tuple[dict[str, Any], ...] = (
    {},
    {"explore": 0.3, "context_first": True},
    {"standardize": True, "minimize": True},
    {"reward_lags": 2, "standardize": True, "feature_dim": 1},
    {"max_pending": 2, "max_delay": 4},
    {"default_reward": 0.5, "max_wait": 2, "context_first": True},
    {"refit": "background"},
)

_NAMED = ("pending_ids", "learned_ids", "answers")  # in which ids and digests of calls are

Call = Callable[[LivePolicy], object]


class Interrupt(Exception):
    """What the handler raises: as any program's own exception, it may be caught by nobody but who waits for it."""


class Counts(NamedTuple):
    """How many calls were made, how many of them a signal hit, and which of these were torn."""

    calls: int
    hits: int
    wrong: tuple[str, ...]


def digest(policy: LivePolicy) -> tuple[Any, ...]:
    """Everything that a policy is, but for the ids of its decisions, in which copies differ."""
    header, arrays = snapshot(policy)
    kept = {name: (values.shape, values.tobytes()) for name, values in arrays.items() if name not in _NAMED}
    more: tuple[Any, ...] = ()
    if isinstance(policy, LearningPolicy):
        learner = learner_of(policy)
        more = (learner.latest, learner.log.begin, learner.log.end, len(learner.records))
    return json.dumps(header, sort_keys=True), kept, policy.names, policy.round, policy.pending, more


def sound(policy: LivePolicy) -> bool:
    """Whether the fits that a learner waits for are under way; what answers they give, and when, is another matter."""
    if not isinstance(policy, LearningPolicy):
        return True
    learner = learner_of(policy)
    busy = {number for number, own in enumerate(learner.blocks) if own.model.running.busy}
    return busy == set(learner.fits.under_way)


def variants() -> list[tuple[str, dict[str, Any]]]:
    """Every policy in every form that it can have."""
    found = []
    for name, form in itertools.product(LIVE, _FORMS):
        known = registry()[name].parameters
        given = {key: value for key, value in form.items() if key in known}
        if (name, given) not in found:
            found.append((name, given))
    return found


def _features(policy: LivePolicy, rng: np.random.Generator) -> Any:
    q = getattr(policy, "feature_dim", 0)
    return rng.normal(size=q) if q else None


def _warm_start(policy: LivePolicy, rng: np.random.Generator) -> Call:
    arms, rewards, contexts = rng.integers(0, 3, 40), rng.normal(size=40), rng.normal(size=(40, 2))
    q = getattr(policy, "feature_dim", 0)
    features = rng.normal(size=(40, q)) if q else None
    return lambda p: p.warm_start(arms, rewards, contexts=contexts, features=features)  # type: ignore[attr-defined]


def next_call(policy: LivePolicy, rng: np.random.Generator) -> tuple[str, Call]:
    """Draw a call that is allowed now."""
    turns, waiting = policy.parts.turns, policy.pending
    m, calls = turns.context_dim, {}
    reward, context = float(rng.normal()), rng.normal(size=m)
    context[rng.random(m) < 0.2] = math.nan
    features, rounds = _features(policy, rng), int(rng.integers(1, 4))
    contexts = rng.normal(size=(rounds, m)) if m else None
    id = f"event {policy.parts.pending.made}" if rng.random() < 0.3 else None
    if turns.due == "decide":
        calls["decide"] = lambda p: p.decide(features, id=id)
        opened = [name for name in policy.names if name not in policy.retired]
        some = list(rng.choice(opened, size=int(rng.integers(1, len(opened) + 1)), replace=False))
        calls["decide among some"] = lambda p: p.decide(features, available=some)
    else:
        calls["observe"] = lambda p: p.observe(context)
        if turns.context_first:
            calls["decide with context"] = lambda p: p.decide(features, context=context, id=id)
    if waiting:
        late = int(rng.integers(waiting))
        calls["learn"] = lambda p: p.learn(list(p.parts.pending.waiting)[-1], reward)
        calls["learn late"] = lambda p: p.learn(list(p.parts.pending.waiting)[late], reward)
        many = int(rng.integers(1, 5))
        calls["learn many"] = lambda p: p.learn_many(ids := list(p.parts.pending.waiting)[-many:], [reward] * len(ids))
    if policy.round and (not m or turns.due == "observe"):
        calls["decide again"] = lambda p: p.decide(features, elapsed=0, id=id)
    if turns.due == turns.first and rng.random() < 0.3:
        given = {"context": context} if turns.context_first else {}
        calls["decide later"] = lambda p: p.decide(features, elapsed=1 + rounds, **given)
        calls["skip"] = lambda p: p.skip(rounds, contexts)
    if rng.random() < 0.1:
        calls["arms"] = _change_of_arms(policy)
    if rng.random() < 0.1:
        calls["forecast"] = lambda p: p.forecast(features)
    if isinstance(policy, LearningPolicy) and policy.parts.unused:
        calls["warm start"] = _warm_start(policy, rng)
    name = str(rng.choice(list(calls)))
    return name, calls[name]


def _change_of_arms(policy: LivePolicy) -> Call:
    if policy.retired:
        name = policy.retired[0]
        return lambda p: p.add_arm(name)
    if policy.capabilities.needs_system or policy.arm_count > 4:
        name = policy.names[0]
        return lambda p: p.retire_arm(name)
    name = f"new {policy.arm_count}"
    return lambda p: p.add_arm(name)


def attempt(call: Call, policy: LivePolicy) -> object:
    """Make a call, and return what it returned or raised: what is refused may be refused."""
    try:
        return call(policy)
    except undertow.UndertowError as error:
        return repr(error)


class Alarm:
    """A timer whose handler raises, but only while it is armed: a signal may be handled later than it came."""

    def __init__(self) -> None:
        self.armed = False

    def __call__(self, number: int, frame: object) -> None:
        if self.armed:
            self.armed = False
            raise Interrupt

    def interrupts(self, call: Call, policy: LivePolicy, delay: float) -> bool:
        """Make a call with the timer running; return whether the signal came within it."""
        gc.disable()  # an exception within a finaliser is lost
        try:
            self.armed = True
            signal.setitimer(signal.ITIMER_REAL, delay)
            attempt(call, policy)
            self.armed = False
        except Interrupt as error:
            return _within(error)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            gc.enable()
        return False


class Fault:
    """A trace that raises at one of the lines of undertow that a call goes through.

    Lines with `with` are left out: a trace can raise between the end of a block and the release of its lock, where no
    signal is ever handled.
    """

    def __init__(self, line: float = math.inf) -> None:
        self.left, self.seen = line, 0

    def __call__(self, frame: Any, event: str, argument: object) -> Any:
        if "/undertow/" not in frame.f_code.co_filename or frame.f_code.co_name == "__del__":
            return None
        if event == "line" and not linecache.getline(frame.f_code.co_filename, frame.f_lineno).lstrip().startswith(
            "with "
        ):
            self.seen += 1
            if self.seen > self.left:
                self.left = math.inf
                raise Interrupt
        return self

    def interrupts(self, call: Call, policy: LivePolicy) -> bool:
        """Make a call with the trace on; return whether it raised."""
        gc.disable()
        old = sys.gettrace()
        sys.settrace(self)
        try:
            attempt(call, policy)
        except Interrupt:
            return True
        finally:
            sys.settrace(old)
            gc.enable()
        return False


def _within(error: BaseException) -> bool:
    trace, inside = error.__traceback__, False
    while trace is not None:
        inside |= "undertow/live/" in trace.tb_frame.f_code.co_filename
        trace = trace.tb_next
    return inside


def torn(call: Call, policy: LivePolicy, before: LivePolicy, after: LivePolicy, seed: int) -> bool:
    """Whether a policy is neither what it was before a call nor what it is after it, or cannot go on."""
    if not sound(policy):
        return True
    if getattr(policy, "refit", "") == "background":
        return False
    found = digest(policy)
    if found == digest(before):
        attempt(call, policy)
        found = digest(policy)
    if found != digest(after):
        return True
    one, other = copy.deepcopy(policy), after
    for each in range(3):
        name, call = next_call(one, np.random.default_rng((seed, each)))
        first, second = attempt(call, one), attempt(call, other)
        if name.startswith("decide") and _said(first) != _said(second):
            return True
    return digest(one) != digest(other)


def _said(answer: Any) -> str:
    return unnamed(answer) if isinstance(answer, Decision) else str(answer)


def trials(seed: int, each: int, alarm: Alarm, timers: float) -> Iterator[tuple[str, bool, bool]]:
    """Interrupt so many calls of one policy, then of the next, for ever; a share of them by timers.

    Yields what was called, whether a signal hit it, and whether that tore it.
    """
    rng = np.random.default_rng(seed)
    for name, form in itertools.cycle(rng.permutation(np.array(variants(), dtype=object)).tolist()):
        policy = make_policy(name, SYSTEM, rng=int(rng.integers(1000)), **form)
        begin = int(rng.integers(ROUNDS)) - ROUNDS // 3  # often with the first call
        while policy.round < begin:
            attempt(next_call(policy, rng)[1], policy)
        for _ in range(each):
            label, call = next_call(policy, rng)
            before, after = copy.deepcopy(policy), copy.deepcopy(policy)
            if rng.random() < timers:
                begun = time.perf_counter()
                attempt(call, after)
                lasted = time.perf_counter() - begun
                hit = alarm.interrupts(call, policy, 1e-6 + float(rng.random()) * (1.2 * lasted + 5e-6))
            else:
                counter = Fault()
                counter.interrupts(call, after)
                hit = Fault(int(rng.integers(max(counter.seen, 1)))).interrupts(call, policy)
            yield f"{label} of {name} {form}", hit, torn(call, policy, before, after, int(rng.integers(1000)))


def run(seed: int, *, seconds: float, hits: float = math.inf, each: int = 40, timers: float = 0.3) -> Counts:
    """Interrupt calls until there were enough hits or time is up, so many of each policy; only in the main thread.

    Nothing is logged meanwhile: `logging.Handler.handle` takes its lock one instruction before it promises to give it
    back, so an interrupt in between would stop every other thread that logs, in whatever program.
    """
    logging.disable()
    alarm, calls, found, wrong = Alarm(), 0, 0, []
    end = time.monotonic() + seconds
    old = signal.signal(signal.SIGALRM, alarm)
    try:
        for label, hit, is_torn in trials(seed, each, alarm, timers):
            calls, found = calls + 1, found + hit
            if is_torn:
                wrong.append(label)
            if found >= hits or time.monotonic() > end:
                break
    finally:
        signal.signal(signal.SIGALRM, old)
        logging.disable(logging.NOTSET)
    return Counts(calls, found, tuple(wrong))
