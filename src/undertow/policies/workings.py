"""What goes on inside a policy: a packed state, streams of random numbers, rewards that wait, and hooks."""

import abc
import copy
import functools
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Concatenate, Literal, NamedTuple, ParamSpec, Self, TypeVar

import numpy as np
import numpy.typing as npt

from undertow import _checks
from undertow._checks import FloatArray
from undertow.errors import InvalidInputError, OutOfTurnError, UnknownDecisionError
from undertow.policies.arms import arm_names, copy_parts
from undertow.policies.decision import Claims, Why
from undertow.policies.play import LEARN, OBSERVE, Kernels, Stage
from undertow.policies.state import EXPLORE, FEATURES, HEADER, PER_ARM, PROPOSED
from undertow.policies.units import Units

__all__ = ["Pending", "Seed", "Workings", "locked"]

Given = ParamSpec("Given")
Result = TypeVar("Result")
Owner = TypeVar("Owner", bound="Workings")

_BOUND = ("_lock", "_stage", "_order", "_closed", "_memory", "_worker")  # made anew in a copy

_SHARED_AXES = dict.fromkeys(("order", "forecast", "width", "window", "closed"), "k") | {"memory": "p"}

Seed = int | np.random.SeedSequence | np.random.Generator | None


def locked(method: Callable[Concatenate[Owner, Given], Result]) -> Callable[Concatenate[Owner, Given], Result]:
    """Have calls of a method wait for one another, and for those of the policy's other methods."""

    @functools.wraps(method)
    def waiting(self: Owner, /, *args: Given.args, **kwargs: Given.kwargs) -> Result:
        with self._lock:
            return method(self, *args, **kwargs)

    return waiting


class Pending(NamedTuple):
    """A decision that waits for its reward."""

    round: int
    arm: int
    memory: FloatArray


@dataclass(kw_only=True, eq=False, repr=False)
class Workings(abc.ABC):
    """A packed state and its kernels, random draws, pending rewards, and what a policy may do differently.

    Parameters
    ----------
    arms
        How many arms, or their names.
    explore
        ε in [0, 1]: with this probability the arm is drawn from all that are open, whatever the policy proposes.
    minimise
        Whether rewards are costs: the policy goes for the least, and its forecasts are of costs.
    max_pending
        How many decisions wait for their reward at the most; the oldest are forgotten first.
    rng
        Seed or Generator for policies that randomise. Each run of `simulate` has a stream of its own, and run 0 that of
        the live policy; none of them is a stream that `sample` uses, whatever the seed.
    """

    claims: ClassVar[Claims]
    kernels: ClassVar[Kernels]
    axes: ClassVar[Mapping[str, str]]
    registered_name: ClassVar[str]
    citation: ClassVar[str]

    arms: int | Sequence[str]
    explore: float = 0.0
    minimise: bool = False
    max_pending: int = 100_000
    rng: Seed = None

    def __post_init__(self) -> None:
        self._lock = threading.RLock()
        self.names = arm_names(self.arms)
        self.explore = _checks.number("explore", self.explore, least=0)
        if self.explore > 1:
            raise InvalidInputError(f"explore: expected a probability, at most 1, got {self.explore:g}")
        self.minimise = _checks.flag("minimise", self.minimise)
        self.max_pending = _checks.integer("max_pending", self.max_pending, least=1)
        self._context_dim = _checks.integer("context_dim", getattr(self, "context_dim", 0), least=0)
        self._feature_dim = _checks.integer("feature_dim", getattr(self, "feature_dim", 0), least=0)
        self._context_first = _checks.flag("context_first", getattr(self, "context_first", False))
        self._seeds = _checks.seed_sequence(self.rng)
        self._seed_run(0)
        self._due: Literal["decide", "observe"] = self._first_due
        self._decisions = 0
        self._forgotten = -1  # the youngest decision that was dropped
        self._pending: dict[int, Pending] = {}
        self._pause = math.inf  # the round before whose decision the units change
        self._units: Units | None = None
        if self.minimise:
            self._units = Units.plain(self._context_dim, self._feature_dim, minimise=True)
        self._state = self._new_state()
        self._state[FEATURES], self._state[EXPLORE] = self._feature_dim, self.explore
        self._draws = self._draw(np.random.default_rng(0), 1).shape[1] + (2 if self.explore else 0)
        self._bind()

    @property
    def arm_count(self) -> int:
        """Number of arms k."""
        return len(self.names)

    def _bind(self) -> None:
        """Take hold of the parts of the state."""
        k = self.arm_count
        self._stage = Stage(k, self._context_dim, self._feature_dim, self._draws)
        start = HEADER + PER_ARM * k
        self._order = self._state[HEADER : HEADER + k]
        self._closed = self._state[start - k : start]
        self._memory = self._state[start : start + int(self._state[2])]

    def _seed_run(self, number: int) -> None:
        """Begin the streams of run `number`: the policy's own, and that of exploring, which leaves the first alone."""
        self._rng, self._explore_rng = (
            _checks.child(self._seeds, _checks.POLICY_BRANCH, *key) for key in ((number,), (number, 0))
        )

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            return copy.deepcopy({name: value for name, value in self.__dict__.items() if name not in _BOUND})

    def __setstate__(self, entries: dict[str, Any]) -> None:
        self.__dict__.update(entries)
        self._lock = threading.RLock()
        self._bind()

    # What a policy has to say

    @abc.abstractmethod
    def _new_state(self) -> FloatArray:
        """Check the parameters and return the packed state before the first round."""

    def _draw(self, rng: np.random.Generator, rounds: int) -> FloatArray:
        """Return the random numbers that `decide` needs, one row a round."""
        return np.empty((rounds, 0))

    # Hooks with a plain default

    def _before_decision(self) -> None:  # noqa: B027
        """Prepare a round; policies that re-filter late rewards remember here where it began."""

    def _after_decision(self, t: int, arm: int) -> None:  # noqa: B027
        """Take note of the choice of round t."""

    def _all_draws(self, rounds: int) -> FloatArray:
        """Return the policy's random numbers and, where it explores, two more a round."""
        own = self._draw(self._rng, rounds)
        return np.hstack([own, self._explore_rng.random((rounds, 2))]) if self.explore else own

    def _propensity(self, arm: int) -> float:
        """Return the probability with which the arm of the last decision was chosen."""
        chance = self._chance(arm)
        if not self.explore:
            return chance
        return (1 - self.explore) * chance + self.explore / int((self._closed == 0).sum())

    def _chance(self, arm: int) -> float:
        """Return the probability with which the policy itself proposed an arm; 1 or 0 where it does not randomise."""
        return float(arm == self._state.item(PROPOSED))

    def _take_over(self, old: Self) -> None:
        """Become what `old` is, with one more arm, of which nothing is known."""
        self._take_parts(old)
        self._rng, self._explore_rng = old._rng, old._explore_rng
        self._due, self._decisions, self._forgotten = old._due, old._decisions, old._forgotten
        self._units = old._units

    def _take_parts(self, old: Self) -> None:
        """Copy the parts of the old state to their places, and what decisions that wait will need."""
        header = self._state[:HEADER].copy()
        places = {"k": np.arange(len(old.names)), "p": self._input_places(old)}
        copy_parts(old.kernels.open(old._state), self.kernels.open(self._state), {**_SHARED_AXES, **self.axes}, places)
        self._state[[0, 2]] = header[[0, 2]]
        for number, waiting in old._pending.items():
            memory = np.zeros(len(self._memory))
            memory[places["p"]] = waiting.memory
            self._pending[number] = waiting._replace(memory=memory)

    def _input_places(self, old: Self) -> npt.NDArray[np.int64]:
        """Return where the entries of an old memory stand in one of ours."""
        return np.arange(len(old._memory))

    def _begin_columns(self, **columns: FloatArray | float) -> None:  # noqa: B027
        """Have columns that were not seen before begin with these values, for policies that standardise."""

    def _rescale_if_due(self) -> None:  # noqa: B027
        """Change the units before a decision, for policies that standardise what they see."""

    def _note_seen(self, **columns: FloatArray | float) -> None:  # noqa: B027
        """Take note of values in their own units: context, features or reward, one row each."""

    def _why(self) -> Why | None:
        """Explain the decision that was just made."""
        return None

    def _attend(self) -> None:
        """Do what the kernel asked for when it answered −1 instead of an arm, so that it can decide."""
        raise NotImplementedError

    def _scratch_state(self) -> FloatArray:
        """Return a copy of the state for a forecast that is to change nothing."""
        return self._state.copy()

    def _note_played(self, data: FloatArray, arms: FloatArray, first: int, last: int) -> None:  # noqa: B027
        """Take note of rounds that `simulate` played: rows `first` to `last` of a block, with the arms chosen."""

    def _apply_reward(self, memory: FloatArray, arm: int, reward: float, age: int) -> None:
        stage = self._stage
        stage.arm[0], stage.rewards[arm] = arm, reward
        stage.take(self.kernels, self._state, LEARN, memory, age)

    def _apply_context(self) -> None:
        self._stage.take(self.kernels, self._state, OBSERVE)

    def _extra_arrays(self) -> dict[str, FloatArray]:
        """Return what a save has to keep beside the state."""
        return {}

    def _restore_extra(self, arrays: dict[str, FloatArray]) -> None:  # noqa: B027
        """Take back what `_extra_arrays` returned."""

    def _has_windows(self) -> bool:
        return False

    def _fits(self, state: FloatArray) -> bool:
        """Tell whether a saved state has the sizes of this policy's."""
        sizes = [0, 1, 2, FEATURES]
        return state.shape == self._state.shape and np.array_equal(state[sizes], self._state[sizes])

    def _restore_pending(self, ids: FloatArray, rounds: FloatArray, arms: FloatArray, memories: FloatArray) -> None:
        self._pending = {
            int(number): Pending(int(t), int(arm), memory.copy())
            for number, t, arm, memory in zip(ids, rounds, arms, memories, strict=True)
        }

    # Checks

    @property
    def _first_due(self) -> Literal["decide", "observe"]:
        return "observe" if self._context_first and self._context_dim else "decide"

    def _outlook(self) -> tuple[FloatArray, FloatArray, npt.NDArray[np.int64] | None]:
        forecast, width, window = self._stage.record.copy()
        if self._units is not None:
            forecast, width = self._units.outward(forecast, width)
        return forecast, width, window.astype(np.int64) if self._has_windows() else None

    def _checked_features(self, features: npt.ArrayLike | None) -> FloatArray | None:
        """Check the round's features."""
        q = self._feature_dim
        if features is None:
            if q:
                raise InvalidInputError(f"features: expected shape ({q},), got None; call decide(features)")
            return None
        if not q:
            can = "give feature_dim at construction" if self.claims.takes_features else "this policy takes none"
            raise InvalidInputError(f"features: expected None, got {features!r:.60}; {can}")
        return _checks.row("features", features, (q,))

    def _set_features(self, given: FloatArray | None) -> None:
        """Put the round's features on stage."""
        if given is not None:
            self._stage.features[:] = given if self._units is None else self._units.inward(given, self._context_dim)

    def _set_context(self, context: npt.ArrayLike | None) -> None:
        """Check a context and put it on stage."""
        row = self._stage.context
        if context is None:
            row.fill(math.nan)
            return
        row[:] = _checks.row("context", context, row.shape, missing=True)
        self._note_seen(context=row)
        if self._units is not None:
            row[:] = self._units.inward(row, 0)

    def _out_of_turn(self, call: str) -> OutOfTurnError:
        if not self._context_dim:
            return OutOfTurnError("observe: this policy was built without contexts; give context_dim at construction")
        if call == "decide":
            return OutOfTurnError(
                "decide: the context of this round is due first; call observe(context), "
                "or observe(None) if there was none"
            )
        return OutOfTurnError(
            "observe: the decision of this round is due first; call decide(), "
            "or skip(rounds, contexts) if no decision was taken for a while"
        )

    def _unknown(self, number: int) -> UnknownDecisionError:
        if number >= self._decisions:
            return UnknownDecisionError(
                f"decision: this policy has not made a decision number {number} "
                f"(it has made {self._decisions}); give the decision to the policy that made it"
            )
        if number > self._forgotten:
            return UnknownDecisionError(f"decision: the reward of number {number} has been learned already")
        return UnknownDecisionError(
            f"decision: number {number} is too old (or its reward was learned long ago): only max_pending = "
            f"{self.max_pending} decisions wait for their reward"
        )
