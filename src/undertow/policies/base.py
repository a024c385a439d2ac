"""The bookkeeping that our policies share: turns, ids, rewards that wait, random draws.

    decision = policy.decide()            # which arm, and why
    policy.learn(decision, reward)        # may come late, out of order, or never
    policy.observe(context)               # one row of context; None where it is missing

With contexts, `decide` and `observe` alternate: decide first is the paper's order and the default, observe first
(`context_first=True`) the everyday one. Without contexts, every `decide` is a round.
"""

import abc
import dataclasses
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from undertow import _checks
from undertow._checks import FloatArray
from undertow.errors import InvalidInputError, OutOfTurnError, UnknownDecisionError
from undertow.policies.decision import Claims, Decision, Outlook, Policy, Why
from undertow.policies.play import DECIDE, LEARN, OBSERVE, Kernels, Stage
from undertow.policies.state import FEATURES, HEADER, ROUNDS

__all__ = ["Claims", "Decision", "LivePolicy", "Outlook", "Policy", "Seed"]

Seed = int | np.random.SeedSequence | np.random.Generator | None


class _Pending(NamedTuple):
    round: int
    arm: int
    memory: FloatArray


@dataclass(kw_only=True, eq=False, repr=False)
class LivePolicy(abc.ABC):
    """Base of our policies: turns, ids, pending rewards and random draws around a packed state and its kernels.

    A policy adds its parameters as dataclass fields, declares its claims, builds its first state and names its kernels.

    Parameters
    ----------
    arms
        How many arms, or their names.
    max_pending
        How many decisions wait for their reward at the most; the oldest are forgotten first.
    rng
        Seed or Generator for policies that randomise. Each run of `simulate` has a stream of its own, and run 0 that of
        the live policy; none of them is a stream that `sample` uses, whatever the seed.
    """

    claims: ClassVar[Claims]
    kernels: ClassVar[Kernels]
    registered_name: ClassVar[str]
    citation: ClassVar[str]

    arms: int | Sequence[str]
    max_pending: int = 100_000
    rng: Seed = None

    def __post_init__(self) -> None:
        self.names = _names(self.arms)
        self.max_pending = _checks.integer("max_pending", self.max_pending, least=1)
        self._context_dim = _checks.integer("context_dim", getattr(self, "context_dim", 0), least=0)
        self._feature_dim = _checks.integer("feature_dim", getattr(self, "feature_dim", 0), least=0)
        self._context_first = bool(getattr(self, "context_first", False))
        self._seeds = _checks.seed_sequence(self.rng)
        self._rng = _checks.child(self._seeds, _checks.POLICY_BRANCH, 0)
        self._due: Literal["decide", "observe"] = self._first_due
        self._decisions = 0
        self._forgotten = -1  # the youngest decision that was dropped
        self._pending: dict[int, _Pending] = {}
        self._state = self._new_state()
        self._state[FEATURES] = self._feature_dim
        self._draws = self._draw(np.random.default_rng(0), 1).shape[1]
        self._stage = Stage(self.arm_count, self._context_dim, self._feature_dim, self._draws)
        start = HEADER + 4 * self.arm_count
        self._order = self._state[HEADER : HEADER + self.arm_count]
        self._memory = self._state[start : start + int(self._state[2])]

    # What a policy has to say

    @abc.abstractmethod
    def _new_state(self) -> FloatArray:
        """Check the parameters and return the packed state before the first round."""

    def _draw(self, rng: np.random.Generator, rounds: int) -> FloatArray:
        """Return the random numbers that `decide` needs, one row a round."""
        return np.empty((rounds, 0))

    # What users call

    @property
    def arm_count(self) -> int:
        """Number of arms k."""
        return len(self.names)

    @property
    def round(self) -> int:
        """Number of rounds begun so far."""
        return int(self._state[ROUNDS])

    @property
    def pending(self) -> int:
        """Number of decisions that wait for their reward."""
        return len(self._pending)

    @property
    def parameters(self) -> dict[str, Any]:
        """Return what the policy was constructed with."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}

    def __repr__(self) -> str:
        given = {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.name != "rng"}
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        shown = ", ".join(f"{name}={value!r}" for name, value in given.items() if value != defaults[name])
        return f"{type(self).__name__}({shown})"

    def decide(self, features: npt.ArrayLike | None = None) -> Decision:
        """Choose an arm for this round.

        `features` are what is known before the choice and not moved by the state, for policies with a `feature_dim`.
        """
        if self._due != "decide":
            raise self._out_of_turn("decide")
        self._set_features(features)
        self._before_decision()
        t, number, stage = int(self._state[ROUNDS]), self._decisions, self._stage
        if self._draws:
            stage.draws[:] = self._draw(self._rng, 1)[0]
        while not stage.take(self.kernels, self._state, DECIDE):
            self._attend()
        arm = int(stage.arm[0])
        self._decisions = number + 1
        if self._context_dim:
            self._due = "observe"
        self._pending[number] = _Pending(t, arm, self._memory.copy())
        if len(self._pending) > self.max_pending:
            self._forgotten = next(iter(self._pending))
            del self._pending[self._forgotten]
        self._after_decision(t, arm)
        return Decision(number, t, arm, self.names[arm], *self._outlook(), self._why())

    def learn(self, decision: Decision | int, reward: float) -> None:
        """Take in the reward of an earlier decision, given as the decision or as its id."""
        number = decision.id if isinstance(decision, Decision) else _checks.integer("decision", decision, least=0)
        waiting = self._pending.get(number)
        if waiting is None:
            raise self._unknown(number)
        if isinstance(decision, Decision) and (decision.arm, decision.round) != (waiting.arm, waiting.round):
            raise UnknownDecisionError(
                f"decision: number {number} of this policy was arm {waiting.arm} in round {waiting.round}, "
                f"not arm {decision.arm} in round {decision.round}; give the decision to the policy that made it"
            )
        x = _checks.number("reward", reward)
        age = int(self._state[ROUNDS]) - 1 - waiting.round
        self._apply_reward(waiting.memory, waiting.arm, x, age)
        del self._pending[number]

    def observe(self, context: npt.ArrayLike | None) -> None:
        """Take in the round's context, (m,): NaN where an entry is missing, None where all are."""
        if self._due != "observe":
            raise self._out_of_turn("observe")
        self._set_context(context)
        self._apply_context()
        self._due = "decide"

    def skip(self, rounds: int = 1, contexts: npt.ArrayLike | None = None) -> None:
        """Let rounds pass in which no decision is taken; their contexts, (rounds, m), are missing unless given."""
        rounds = _checks.integer("rounds", rounds, least=1)
        if self._due != self._first_due:
            raise OutOfTurnError(
                f"skip: this round has begun; {self._due} first (observe(None) where there was no context)"
            )
        m = self._context_dim
        rows = None if contexts is None else _checks.array("contexts", contexts, (rounds, m), missing=True)
        for number in range(rounds):
            self._set_context(None if rows is None else rows[number])
            if m and self._context_first:
                self._apply_context()
            self._before_decision()
            self.kernels.skip(self._state)
            if m and not self._context_first:
                self._apply_context()

    def forecast(self, features: npt.ArrayLike | None = None) -> Outlook:
        """Return what the policy would predict now, before its own draws, and change nothing."""
        self._set_features(features)
        self._stage.draws[:] = 0.0
        self._stage.take(self.kernels, self._scratch_state(), DECIDE)
        return Outlook(*self._outlook())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything needed to continue bit for bit; `undertow.load` reads it. The format is open, not pickle."""
        from undertow.policies.files import save_policy

        save_policy(self, path)

    # What `simulate` calls

    @property
    def by_hand(self) -> bool:
        """Whether `simulate` has to play through the methods, which no policy of ours needs by itself."""
        return False

    @property
    def unused(self) -> bool:
        """Whether nothing has happened to the policy yet."""
        return self._decisions == 0 and self.round == 0 and self._due == self._first_due

    def for_run(self, number: int, *, context_first: bool | None = None) -> "LivePolicy":
        """Return an unused copy with the stream of run `number`; that of run 0 is the policy's own."""
        changes: dict[str, Any] = {"rng": self._seeds}
        if context_first is not None and hasattr(self, "context_first"):
            changes["context_first"] = context_first
        twin = type(self)(**(self.parameters | changes))
        twin._rng = _checks.child(self._seeds, _checks.POLICY_BRANCH, number)
        twin._order[:] = self._order
        return twin

    # Hooks with a plain default

    def _before_decision(self) -> None:  # noqa: B027
        """Prepare a round; policies that re-filter late rewards remember here where it began."""

    def _after_decision(self, t: int, arm: int) -> None:  # noqa: B027
        """Take note of the choice of round t."""

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
            int(number): _Pending(int(t), int(arm), memory.copy())
            for number, t, arm, memory in zip(ids, rounds, arms, memories, strict=True)
        }

    # Checks

    @property
    def _first_due(self) -> Literal["decide", "observe"]:
        return "observe" if self._context_first and self._context_dim else "decide"

    def _outlook(self) -> tuple[FloatArray, FloatArray, npt.NDArray[np.int64] | None]:
        record = self._stage.record.copy()
        return record[0], record[1], record[2].astype(np.int64) if self._has_windows() else None

    def _set_features(self, features: npt.ArrayLike | None) -> None:
        """Check the round's features and put them on stage."""
        q = self._feature_dim
        if features is None and q:
            raise InvalidInputError(f"features: expected shape ({q},), got None; call decide(features)")
        if features is not None:
            if not q:
                can = "give feature_dim at construction" if self.claims.takes_features else "this policy takes none"
                raise InvalidInputError(f"features: expected None, got {features!r:.60}; {can}")
            self._stage.features[:] = _checks.array("features", features, (q,))

    def _set_context(self, context: npt.ArrayLike | None) -> None:
        """Check a context and put it on stage."""
        row = self._stage.context
        if context is None:
            row.fill(math.nan)
            return
        plain = type(context) is np.ndarray and context.dtype == np.float64 and context.shape == row.shape
        if not plain or any(map(math.isinf, context.tolist())):  # type: ignore[union-attr]
            context = _checks.array("context", context, row.shape, missing=True)
        row[:] = context

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


def _names(arms: int | Sequence[str]) -> tuple[str, ...]:
    if isinstance(arms, str):
        raise InvalidInputError(f"arms: expected a number or a list of names, got the text {arms!r}")
    if not isinstance(arms, Sequence):
        return tuple(str(arm) for arm in range(_checks.integer("arms", arms, least=1)))
    names = tuple(arms)
    if not names or not all(isinstance(name, str) for name in names):
        raise InvalidInputError(f"arms: expected at least one name, each a text, got {arms!r:.80}")
    if len(set(names)) < len(names):
        raise InvalidInputError(f"arms: expected names that differ, got {arms!r:.80}")
    return names
