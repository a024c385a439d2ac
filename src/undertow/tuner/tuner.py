"""A tuner: calls one of several variants of a function, measures its cost, and learns which to call next."""

import inspect
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Generic, Literal, ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt

from undertow.errors import InvalidInputError, OutOfTurnError, UnknownDecisionError
from undertow.live import Decision, LivePolicy
from undertow.live.files import read_archive, restored, snapshot, write_archive
from undertow.live.saved import check_arrays
from undertow.policies import Autopilot
from undertow.support import checks
from undertow.tuner.ledger import Ledger
from undertow.tuner.results import Report, report_of

__all__ = ["Tuner"]

_log = logging.getLogger("undertow")
P = ParamSpec("P")
R = TypeVar("R")

REST, LONGEST_REST = 10, 1280  # calls of a variant's suspension after a failure, doubled for each in a row
_FORMAT, _VERSION = "undertow.tuner", 1
_OWN, _POLICY = "tuner_", "policy_"  # prefix of array names in a file
_SHORTEST = 1e-9  # seconds: the resolution of the clock


class Tuner(Generic[P, R]):
    """Call one of several variants of a function: the one with the least expected cost.

    A tuner is called like the function. It asks its policy for a variant, calls it, measures its cost, learns, and
    returns the variant's result. It may be called from any thread; variants run without a lock.

    If choosing costs more than it saves, the tuner keeps the best variant and chooses only occasionally. This overhead
    is about 1 % of the cost. It can compare the two if the cost is seconds or `second_costs` is given.

    Exceptions of a variant reach the caller. The call counts as `penalty` times the largest mean cost of a variant, and
    the variant is suspended for ten calls, twice as many after every further failure in a row.

    Parameters
    ----------
    variants
        Functions by name, which take the same arguments; more can be added by `variant`.
    cost
        "seconds", or a function of the variant's result and its seconds that returns the cost.
    features
        A function of the arguments of a call that returns the features: a number, or a list of fixed length.
    policy
        Any policy without contexts; its arms are the variants in their order. By default
        `Autopilot(minimize=True, refit="background")`.
    log
        Whether the policy learns the logarithm of the cost, so that it compares ratios.
    penalty
        The cost of a failed call, in units of the largest mean cost of a variant.
    second_costs
        The cost of a second, for your own cost function, to compare the overhead with it.

    Examples
    --------
    >>> tuner = Tuner({"sorted": sorted, "numpy": lambda values: np.sort(values).tolist()}, features=len)
    >>> tuner([3, 1, 2])
    [1, 2, 3]
    >>> @tuner.variant
    ... def reversed_twice(values):
    ...     return sorted(values, reverse=True)[::-1]
    >>> tuner.names
    ('sorted', 'numpy', 'reversed_twice')
    """

    def __init__(
        self,
        variants: Mapping[str, Callable[P, R]] | None = None,
        cost: Literal["seconds"] | Callable[[R, float], float] = "seconds",
        features: Callable[P, npt.ArrayLike] | None = None,
        policy: LivePolicy | None = None,
        *,
        log: bool = True,
        penalty: float = 10.0,
        second_costs: float | None = None,
    ) -> None:
        if not callable(cost):
            checks.choice("cost", cost, ("seconds",))
        self._cost = cost if callable(cost) else None
        if features is not None and not callable(features):
            raise InvalidInputError(f"features: expected a function of the arguments of a call, got {features!r:.80}")
        self._features = features
        self._log = checks.flag("log", log)
        self._penalty = checks.number("penalty", penalty, least=1)
        if second_costs is not None and self._cost is None:
            raise InvalidInputError(f"second_costs: omit it if the cost is in seconds; got {second_costs!r}")
        given = 1.0 if self._cost is None else second_costs
        self._second_costs = math.nan if given is None else checks.number("second_costs", given, above=0)
        self._lock = threading.RLock()
        self._names: list[str] = []
        self._functions: list[Callable[P, R]] = []
        if not isinstance(variants, Mapping | None):
            raise InvalidInputError(f"variants: expected a dictionary of functions by name, got {variants!r:.80}")
        for name, function in (variants or {}).items():
            self._check_variant(name, function)
            self._names.append(name)
            self._functions.append(function)
        self._policy: LivePolicy | None = None
        self._ledger = Ledger(len(self._names))
        self._failed = [0] * len(self._names)  # in a row
        self._suspended: dict[int, int] = {}  # the call until which each is suspended
        self._price = 0.0  # cost between two choices; 0 if every call is one
        self._room, self._best = 0.0, 0  # the rest of it, and the variant
        if policy is not None:
            self._adopt(policy)

    # Public calls

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the variant with the least expected cost."""
        begun = time.perf_counter()
        arm, decision = self._choose(*args, **kwargs)
        start = time.perf_counter()
        try:
            result = self._functions[arm](*args, **kwargs)
        except Exception:
            self._note_failure(arm, decision, time.perf_counter() - start, start - begun)
            raise
        end = time.perf_counter()
        self._note(arm, decision, self._cost_of(result, end - start), start - begun, end)
        return result

    def variant(self, function: Callable[P, R], *, name: str | None = None) -> Callable[P, R]:
        """Add a variant, by default under its own name; returns the function, so it works as a decorator."""
        name = getattr(function, "__name__", None) if name is None else name
        with self._lock:
            self._check_variant(name, function)
            assert isinstance(name, str)
            before = len(self._names)
            try:
                self._functions.append(function)
                self._failed.append(0)
                self._ledger.add_variant()
                self._price = self._room = 0.0
                self._names.append(name)
                if self._policy is not None:
                    self._policy.add_arm(name)
            except BaseException:
                if self._policy is None or self._policy.arm_count == before:
                    del self._functions[before:], self._failed[before:], self._names[before:]
                    self._ledger.drop_variants(before)
                raise
        return function

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the variants, in the order of the policy's arms."""
        return tuple(self._names)

    @property
    def policy(self) -> LivePolicy | None:
        """The policy that chooses; None before the first call if none was given."""
        return self._policy

    @property
    def calls(self) -> int:
        """Number of calls that have ended."""
        return self._ledger.calls

    def report(self) -> Report:
        """Return the report on the calls: a table to print, and a figure to draw."""
        with self._lock:
            explores = self._policy is not None and self._policy.explore > 0
            return report_of(self.names, self._ledger, explores=explores, in_seconds=self._cost is None)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the learned state and the measurements for `Tuner.load`. Functions are not written."""
        with self._lock:
            if self._policy is None:
                raise OutOfTurnError("save: this tuner has not been called yet and has no state")
            header, arrays = snapshot(self._policy)
            own = {"format": _FORMAT, "version": _VERSION, "names": self._names, "policy": header}
            parts = {_POLICY: arrays, _OWN: self._ledger.arrays()}
            flat = {prefix + name: value for prefix, part in parts.items() for name, value in part.items()}
            write_archive(path, own, flat)

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], variants: Mapping[str, Callable[P, R]], **options: Any
    ) -> "Tuner[P, R]":
        """Read a file of `save`; pass variants and options as to a new tuner.

        The file's variants must be among those given; others are added.
        """
        name = os.fspath(path)
        header, arrays = read_archive(name)
        if (header.get("format"), header.get("version")) != (_FORMAT, _VERSION):
            raise InvalidInputError(
                f"{name!s}: expected {_FORMAT} version {_VERSION}, got {header.get('format')!r:.60}"
            )
        names, inner = header.get("names"), header.get("policy")
        if (
            not isinstance(names, list)
            or not all(isinstance(each, str) for each in names)
            or not isinstance(inner, dict)
        ):
            raise InvalidInputError(f"{name!s}: damaged (expected names and a policy)")
        if absent := [each for each in names if each not in variants]:
            raise InvalidInputError(f"variants: {name!s} has {absent[0]!r:.60}, and no such function was given")
        parts: dict[str, dict[str, Any]] = {_POLICY: {}, _OWN: {}}
        for key, value in arrays.items():
            prefix = next((prefix for prefix in parts if key.startswith(prefix)), None)
            if prefix is None:
                raise InvalidInputError(f"{name!s}: damaged ({key:.60}: unknown array)")
            parts[prefix][key.removeprefix(prefix)] = value
        policy = restored(name, inner, parts[_POLICY])
        tuner = cls({each: variants[each] for each in names}, policy=policy, **options)
        tuner._continue(name, parts[_OWN])
        for each, function in variants.items():
            if each not in names:
                tuner.variant(function, name=each)
        return tuner

    # A call

    def _choose(self, *args: P.args, **kwargs: P.kwargs) -> tuple[int, Decision | None]:
        """Return a variant, and the policy's decision if it was asked."""
        with self._lock:
            if self._room > 0 and self._best not in self._suspended:
                return self._best, None
        row = None if self._features is None else np.atleast_1d(self._features(*args, **kwargs))  # the user's own code
        with self._lock:
            policy = self._policy or self._begin(row)
            decision = policy.decide(row, available=self._available() if self._suspended else None)
            return decision.arm, decision

    def _cost_of(self, result: R, seconds: float) -> float:
        if self._cost is None:
            return max(seconds, _SHORTEST)
        cost = float(checks.measured("cost", self._cost(result, seconds), ()))
        if cost < 0 or (cost == 0 and self._log):
            remedy = "; log=False accepts 0 as well" if cost == 0 else ""
            raise InvalidInputError(f"cost: expected a number above 0, got {cost:g}{remedy}")
        return cost

    def _note(self, arm: int, decision: Decision | None, cost: float, own: float, end: float) -> None:
        """Learn and record the cost of a call; the overhead counts from `end`."""
        with self._lock:
            ledger = self._ledger
            self._failed[arm] = 0
            if decision is None:
                self._room -= cost
                ledger.note_stretch(arm, cost)
                ledger.own_seconds += own + time.perf_counter() - end
                return
            assert self._policy is not None
            self._learn(decision, cost)
            own += time.perf_counter() - end
            ledger.own_seconds += own
            sampled = ledger.note_choice(arm, cost, decision.propensity, own, ran=True)
            if _is_start_up(decision):
                return
            if sampled:
                ledger.sample(self._forecasts(decision))
                self._price = ledger.room(self._second_costs)
            if self._price:
                forecasts = self._forecasts(decision)
                self._best = ledger.usual if self._features else forecasts.index(min(forecasts))
                self._room = self._price

    def _note_failure(self, arm: int, decision: Decision | None, seconds: float, own: float) -> None:
        """Learn the penalty, and suspend the variant."""
        with self._lock:
            ledger = self._ledger
            worst = ledger.dearest() or (max(seconds, _SHORTEST) if self._cost is None else None)
            self._failed[arm] += 1
            self._room = 0.0
            self._suspended[arm] = ledger.calls + 1 + min(REST * 2 ** (self._failed[arm] - 1), LONGEST_REST)
            if decision is None or worst is None:
                ledger.note_failure(arm)
                return
            cost = self._penalty * worst
            self._learn(decision, cost)
            ledger.own_seconds += own
            if ledger.note_choice(arm, cost, decision.propensity, own, ran=False) and not _is_start_up(decision):
                ledger.sample(self._forecasts(decision))

    def _learn(self, decision: Decision, cost: float) -> None:
        assert self._policy is not None
        value = math.log(cost) if self._log else cost
        try:
            self._policy.learn(decision, value if self._policy.minimize else -value)
        except UnknownDecisionError as error:  # the policy has forgotten this call after many others
            _log.info("a cost came too late to be learned: %s", error)

    def _forecasts(self, decision: Decision) -> list[float]:
        """Return the forecast cost of every variant."""
        assert self._policy is not None
        sign = 1.0 if self._policy.minimize else -1.0
        values = decision.forecast.tolist()
        return [math.exp(min(sign * value, 700.0)) for value in values] if self._log else [sign * v for v in values]

    def _available(self) -> list[int] | None:
        """Return the variants that are not suspended; None if all may be chosen."""
        calls = self._ledger.calls
        self._suspended = {arm: until for arm, until in self._suspended.items() if until > calls}
        available = [arm for arm in range(len(self._names)) if arm not in self._suspended]
        return available if self._suspended and available else None

    # Setup

    def _check_variant(self, name: Any, function: Any) -> None:
        if not isinstance(name, str) or not name or name in self._names:
            raise InvalidInputError(f"name: expected a new name, got {name!r:.60}")
        if not callable(function):
            raise InvalidInputError(f"variants: expected a function for {name!r:.60}, got {function!r:.60}")
        if inspect.iscoroutinefunction(function):
            raise InvalidInputError(f"variants: {name!r:.60} is a coroutine, and its time is not that of the call")

    def _begin(self, row: npt.NDArray[Any] | None) -> LivePolicy:
        """Make the default policy, with the number of features of the first call."""
        if len(self._names) < 2:
            raise InvalidInputError(f"variants: expected at least two to choose from, got {list(self._names)}")
        size = 0 if row is None else len(checks.measured("features", row, ("q",)))
        self._adopt(Autopilot(arms=list(self._names), feature_dim=size, minimize=True, refit="background"))
        assert self._policy is not None
        return self._policy

    def _adopt(self, policy: LivePolicy) -> None:
        if not isinstance(policy, LivePolicy):
            raise InvalidInputError(f"policy: expected a policy of undertow, got {policy!r:.80}")
        if policy.parts.parameters().get("context_dim", 0):
            raise InvalidInputError("policy: a tuner has features but no contexts; build it with feature_dim")
        named = not isinstance(policy.arms, int)
        if policy.arm_count != len(self._names) or (named and list(policy.names) != self._names):
            raise InvalidInputError(
                f"policy: expected the variants as its arms, {self._names!r:.80}, got {list(policy.names)!r:.80}"
            )
        self._policy = policy

    def _continue(self, name: Any, arrays: dict[str, Any]) -> None:
        """Continue from the numbers of a file."""
        try:
            check_arrays(arrays, self._ledger.saved())
        except InvalidInputError as error:
            raise InvalidInputError(f"{name!s}: damaged ({error})") from error
        self._ledger.restore(arrays)


def _is_start_up(decision: Decision) -> bool:
    """Return whether variants take turns, as nothing is known about them yet; such forecasts are meaningless."""
    return decision.why is not None and decision.why.model == "start-up"
