"""What rounds are made of: which call is due, decisions that wait for a reward, and how data reach the state."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from undertow import _checks
from undertow._checks import FloatArray
from undertow.compiled.loop import Player
from undertow.errors import InvalidInputError, OutOfTurnError, UnknownDecisionError
from undertow.live.decision import Decision, Why
from undertow.live.saved import Saved
from undertow.live.streams import Streams
from undertow.live.units import Columns

__all__ = ["Parts", "Pending", "Timeline", "Turns", "Waiting"]


class Waiting(NamedTuple):
    """A decision that waits for its reward: its round, its arm, and what learning the reward will need."""

    round: int
    arm: int
    memory: FloatArray


class Pending:
    """The decisions that wait for their reward, by number; the oldest are forgotten first."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.made = 0
        self.forgotten = -1  # the youngest decision that was dropped
        self.waiting: dict[int, Waiting] = {}

    def add(self, number: int, round: int, arm: int, memory: FloatArray) -> None:
        """Have a decision wait; a second time, it changes nothing."""
        self.made = number + 1
        self.waiting[number] = Waiting(round, arm, memory)
        if len(self.waiting) > self.most:
            self.forgotten = next(iter(self.waiting))
            del self.waiting[self.forgotten]

    def find(self, decision: Decision | int, names: Sequence[str]) -> tuple[int, Waiting]:
        """Return the number of a decision, given as such or by its number, and what waits for its reward."""
        if isinstance(decision, str):
            raise InvalidInputError(f"decision: expected a decision or its id, got the text {decision!r:.60}")
        number = decision.id if isinstance(decision, Decision) else _checks.integer("decision", decision, least=0)
        waiting = self.waiting.get(number)
        if waiting is None:
            raise self._unknown(number)
        made = (waiting.arm, names[waiting.arm], waiting.round)
        if isinstance(decision, Decision) and (decision.arm, decision.name, decision.round) != made:
            raise UnknownDecisionError(
                f"decision: number {number} of this policy was arm {made[0]} ({made[1]}) in round {made[2]}, not arm "
                f"{decision.arm} ({decision.name}) in round {decision.round}; give it to the policy that made it"
            )
        return number, waiting

    def oldest(self, otherwise: int) -> int:
        """Return the round of the oldest decision that waits."""
        return next(iter(self.waiting.values())).round if self.waiting else otherwise

    def keep(self) -> Any:
        """Return what `put_back` needs where no decision was added or learned since."""
        return self.made, self.forgotten, self.waiting

    def put_back(self, kept: Any) -> None:
        """Be again as when `keep` was called."""
        self.made, self.forgotten, self.waiting = kept

    def change_memories(self, change: Callable[[FloatArray], FloatArray]) -> None:
        """Replace what learning will need, where units or inputs have changed."""
        self.waiting = {number: entry._replace(memory=change(entry.memory)) for number, entry in self.waiting.items()}

    def widen_memories(self, size: int, places: npt.NDArray[np.int64] | None) -> None:
        """Give memories another size, their entries going to the places given, by default to the front."""

        def widened(memory: FloatArray) -> FloatArray:
            wider = np.zeros(size)
            wider[np.arange(len(memory)) if places is None else places] = memory
            return wider

        self.change_memories(widened)

    def arrays(self, memory: int) -> dict[str, npt.NDArray[np.float64 | np.int64]]:
        """Return what a save file keeps; a memory has so many numbers."""
        entries = self.waiting.values()
        return {
            "pending_ids": np.array(list(self.waiting), dtype=np.int64),
            "pending_rounds": np.array([entry.round for entry in entries], dtype=np.int64),
            "pending_arms": np.array([entry.arm for entry in entries], dtype=np.int64),
            "pending_memories": np.array([entry.memory for entry in entries]).reshape(len(entries), memory),
        }

    def saved(self, memory: int, arms: int, rounds: int) -> dict[str, Saved]:
        """Return what `arrays` may be after so many rounds."""
        return {
            "pending_ids": Saved(("waiting",), 0, self.made - 1, whole=True, rising=True),
            "pending_rounds": Saved(("waiting",), 0, rounds - 1, whole=True, rising=True),
            "pending_arms": Saved(("waiting",), 0, arms - 1, whole=True),
            "pending_memories": Saved(("waiting", memory), missing=True),
        }

    def restore(self, arrays: Mapping[str, FloatArray]) -> None:
        """Take back what `arrays` returned."""
        ids, rounds, arms = (arrays[f"pending_{part}"] for part in ("ids", "rounds", "arms"))
        if len(ids) > self.most:
            raise InvalidInputError(f"pending_ids: expected at most max_pending = {self.most}, got {len(ids)}")
        self.waiting = {
            int(number): Waiting(int(t), int(arm), memory.copy())
            for number, t, arm, memory in zip(ids, rounds, arms, arrays["pending_memories"], strict=True)
        }

    def _unknown(self, number: int) -> UnknownDecisionError:
        if number >= self.made:
            return UnknownDecisionError(
                f"decision: this policy has not made a decision number {number} "
                f"(it has made {self.made}); give the decision to the policy that made it"
            )
        if number > self.forgotten:
            return UnknownDecisionError(f"decision: the reward of number {number} has been learned already")
        return UnknownDecisionError(
            f"decision: number {number} is too old (or its reward was learned long ago): only max_pending = "
            f"{self.most} decisions wait for their reward"
        )


class Turns:
    """Which call is due: with contexts, `decide` and `observe` alternate; without, every `decide` is a round."""

    def __init__(self, context_dim: int, *, context_first: bool) -> None:
        self.context_dim, self.context_first = context_dim, context_first and context_dim > 0
        self.due = self.first

    @property
    def first(self) -> Literal["decide", "observe"]:
        """The call with which a round begins."""
        return "observe" if self.context_first else "decide"

    def require(self, call: Literal["decide", "observe"]) -> None:
        """Refuse a call that is not due."""
        if self.due != call:
            raise self._out_of_turn(call)

    def decided(self) -> None:
        """Note that a context comes next."""
        if self.context_dim:
            self.due = "observe"

    def observed(self) -> None:
        """Note that a decision comes next."""
        self.due = "decide"

    def contexts_seen(self, rounds: int) -> int:
        """Return how many rounds' contexts have been taken in, where so many rounds have begun."""
        if not self.context_dim:
            return 0
        return rounds + (self.due == "decide") if self.context_first else rounds - (self.due == "observe")

    def _out_of_turn(self, call: str) -> OutOfTurnError:
        if not self.context_dim:
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


class Timeline:
    """How rewards and contexts reach a policy's state; here, at once.

    A call is done in one step of the player, and what is then filed (`decided`, `learned`, `observed`) may be filed
    twice; or everything that it changes can be put back (`keep`). See `undertow.live.whole`.
    """

    plain: ClassVar[bool] = True  # whether a step of the player is all there is; asked before, since calls take time

    def __init__(self, player: Player) -> None:
        self.player = player

    def decides_in_one_step(self) -> bool:
        """Whether nothing changes before the next round is decided."""
        return True

    def learns_in_one_step(self, waiting: Waiting, age: int) -> bool:
        """Whether a reward that comes `age` rounds after its decision takes one step."""
        return True

    def keep(self, rounds: Sequence[int] = ()) -> Any:
        """Return what `put_back` needs to undo all that comes after; of earlier rounds, only rewards of these."""

    def put_back(self, kept: Any) -> None:
        """Be again as when `keep` was called; the state has been put back."""

    def prepare(self, oldest: int, *, choice: bool = True, one_step: bool = False) -> None:
        """Prepare a round, in which a choice is made or not; rewards from round `oldest` on may still come.

        With `one_step`, nothing may change that would have to be put back.
        """

    def attend(self) -> None:
        """Do what the policy asked for when it answered −1 instead of an arm, so that it can decide."""
        raise NotImplementedError("a policy of this kind always decides")

    def decided(self, t: int, arm: int) -> None:
        """Take note of the choice of round t, the last one: −1 where it passed without one."""

    def report(self) -> None:
        """Warn of what went wrong before a decision that has now been made."""

    def learn(self, waiting: Waiting, reward: float, age: int, *, one_step: bool = True) -> None:
        """Take in a reward that comes `age` rounds after its decision, as `learns_in_one_step` says."""
        self.player.learn(waiting.memory, waiting.arm, reward, age)

    def learned(self, waiting: Waiting, reward: float) -> None:
        """Take note of a reward."""

    def observe(self) -> None:
        """Take in the context that the player holds."""
        self.player.observe()

    def observed(self) -> None:
        """Take note of the context that the player holds."""

    def recorded(self, data: FloatArray, arms: FloatArray, begun: int, step: int) -> None:
        """Take note of steps that were played in one go: rows of a block, and the arms chosen."""

    def scratch(self) -> FloatArray:
        """Return a copy of the state for a forecast that is to change nothing."""
        return self.player.state.copy()

    @property
    def nbytes(self) -> int:
        """Bytes of what is remembered in addition to the state."""
        return 0

    def why(self) -> Why | None:
        """Explain the decision that was just made."""
        return None

    def take_over(self, old: Any) -> None:
        """Continue the timeline of a policy with one arm less; the state has been carried over."""

    def check(self, state: Any) -> None:
        """Refuse what is no state of this policy, whose own is still fresh or has been checked."""
        layout = self.player.loop.layout
        layout.check(state, layout.sizes_of(self.player.state), self.player.state)
        if layout.open(state).common.closed.all():
            raise InvalidInputError("state: closed: expected an arm that can be played")

    def saved(self, names: Collection[str], rounds: int) -> dict[str, Saved]:
        """Return what `arrays` may be after so many rounds, where these names are there."""
        return {}

    def arrays(self) -> dict[str, FloatArray]:
        """Return what a save file keeps in addition to the state."""
        return {}

    def restore(self, arrays: Mapping[str, FloatArray]) -> None:
        """Take back what `arrays` returned."""


class Parts(NamedTuple):
    """What a live policy consists of."""

    player: Player
    columns: Columns
    streams: Streams
    turns: Turns
    pending: Pending
    timeline: Timeline
