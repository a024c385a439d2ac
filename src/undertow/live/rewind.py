"""Late rewards of Kalman filters: applied at their own round, and what came since is filtered again."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from undertow._checks import FloatArray
from undertow.compiled.loop import Player
from undertow.errors import InvalidInputError, UnknownDecisionError
from undertow.live.rounds import Timeline, Turns, Waiting
from undertow.live.saved import MEASURED, Saved

__all__ = ["Rewinding", "too_late"]


def too_late(age: int, most: int) -> UnknownDecisionError:
    """Return the error for a reward that comes too late."""
    return UnknownDecisionError(
        f"decision: its reward comes {age} rounds late, and only max_delay = {most} are remembered; build the policy "
        f"with max_delay={age} or more (it counts rounds: {most} are {most / 100:g} s at 100 decisions a second)",
        "late",
    )


@dataclass(slots=True)
class _Round:
    """A round that may have to be filtered again: the state before it, and what was seen in it."""

    before: FloatArray
    context: FloatArray | None = None
    arm: int = -1
    reward: float = math.nan
    still: bool = False  # whether it is of the same moment as the round before


class Rewinding(Timeline):
    """Remember the rounds whose reward may still come, at most `max_delay`, and filter them again if it does."""

    plain: ClassVar[bool] = False
    remembers: ClassVar[bool] = True

    def __init__(self, player: Player, turns: Turns, max_delay: int) -> None:
        super().__init__(player)
        self.turns, self.max_delay = turns, max_delay
        self.rounds: dict[int, _Round] = {}
        self.oldest = 0
        self.coming: tuple[int, _Round | None] = (0, None)  # what `decided` will remember
        self.before = np.empty(0)  # the state before the last context

    def prepare(self, oldest: int, *, choice: bool = True, still: bool = False, one_step: bool = False) -> None:
        """See where the round begins, unless it has begun with its context; it may yet be interrupted."""
        begins = still or not self.turns.context_first
        self.coming = oldest, _Round(self.player.state.copy(), still=still) if begins else None

    def decided(self, t: int, arm: int) -> None:
        """Remember the round."""
        self.oldest, begun = self.coming
        if begun is not None:
            self._open_round(t, begun)

    def _open_round(self, t: int, entry: _Round) -> None:
        for number in list(self.rounds):
            if number >= max(min(self.oldest, t), t - self.max_delay - 1):  # context first: t − 1 is still the last
                break
            del self.rounds[number]
        self.rounds[t] = entry

    def observe(self) -> None:
        """Take in a context, and remember it."""
        if self.turns.context_first:
            self.before = self.player.state.copy()
        self.player.observe()
        self.observed()

    def observed(self) -> None:
        """Remember the context."""
        context = self.player.context.copy()
        if self.turns.context_first:
            self._open_round(self.player.rounds, _Round(self.before, context))
        else:
            next(reversed(self.rounds.values())).context = context

    def learns_in_one_step(self, waiting: Waiting, age: int) -> bool:
        """Whether a reward is of the last round."""
        return waiting.round == next(reversed(self.rounds), None)

    def learned(self, waiting: Waiting, reward: float) -> None:
        """Remember the reward."""
        self.rounds[waiting.round] = replace(self.rounds[waiting.round], arm=waiting.arm, reward=reward)

    def keep(self, rounds: Sequence[int] = ()) -> Any:
        """Return the rounds that are remembered; a late reward replaces them."""
        return self.rounds.copy(), self.oldest

    def put_back(self, kept: Any) -> None:
        """Remember them again."""
        self.rounds, self.oldest = kept

    def learn(self, waiting: Waiting, reward: float, age: int, *, one_step: bool = True) -> None:
        """Apply a reward at its own round, and filter again what came since."""
        then = waiting.round
        if age > self.max_delay or then not in self.rounds:
            raise too_late(age, self.max_delay)
        if one_step:
            self.player.learn(waiting.memory, waiting.arm, reward, 0)
            self.learned(waiting, reward)
            return
        self.rounds[then] = replace(self.rounds[then], arm=waiting.arm, reward=reward)
        player, begun, first = self.player, self.player.rounds, self.turns.context_first
        closed = player.common.closed.copy()
        player.state[:] = self.rounds[then].before
        for number, seen in self.rounds.items():
            if number < then:
                continue
            if number > then:  # what this round begins with has changed
                self.rounds[number] = replace(seen, before=player.state.copy())
            if first:
                self._see_again(seen)
            if number < begun:
                player.stay(still=seen.still)
                player.skip()
            if seen.arm >= 0:
                player.learn(waiting.memory, seen.arm, seen.reward, 0)
            if not first:
                self._see_again(seen)
        player.common.closed[:] = closed  # arms may have been retired since

    def _see_again(self, seen: _Round) -> None:
        if seen.context is not None:
            self.player.context[:] = seen.context
            self.player.observe()

    @property
    def nbytes(self) -> int:
        """Bytes of the rounds that are remembered."""
        return len(self.rounds) * (self.player.state.nbytes + self.player.context.nbytes)

    def arrays(self) -> dict[str, FloatArray]:
        """Return the rounds that are remembered."""
        rounds, m = self.rounds.values(), len(self.player.context)
        nothing = np.full(m, math.nan)
        return {
            "round_numbers": np.array(list(self.rounds), dtype=np.float64),
            "round_states": np.array([r.before for r in rounds]).reshape(len(rounds), len(self.player.state)),
            "round_observed": np.array([r.context is not None for r in rounds], dtype=np.float64),
            "round_contexts": np.array([nothing if r.context is None else r.context for r in rounds]).reshape(
                len(rounds), m
            ),
            "round_arms": np.array([r.arm for r in rounds], dtype=np.float64),
            "round_rewards": np.array([r.reward for r in rounds]),
            "round_still": np.array([r.still for r in rounds], dtype=np.float64),
        }

    def saved(self, names: Collection[str], rounds: int) -> dict[str, Saved]:
        """Return what `arrays` may be after so many rounds."""
        player = self.player
        return {
            "round_numbers": Saved(("rounds",), 0, rounds, whole=True, rising=True),
            "round_states": Saved(("rounds", len(player.state)), missing=True),
            "round_observed": Saved(("rounds",), 0, 1, whole=True),
            "round_contexts": Saved(("rounds", len(player.context)), *MEASURED, missing=True),
            "round_arms": Saved(("rounds",), -1, len(player.rewards) - 1, whole=True),
            "round_rewards": Saved(("rounds",), *MEASURED, missing=True),
            "round_still": Saved(("rounds",), 0, 1, whole=True),
        }

    def restore(self, arrays: Mapping[str, FloatArray]) -> None:
        """Take back what `arrays` returned."""
        states, observed, contexts, arms, rewards, still = (
            arrays[f"round_{part}"] for part in ("states", "observed", "contexts", "arms", "rewards", "still")
        )
        self.rounds = {}
        for i, number in enumerate(arrays["round_numbers"].tolist()):
            self.check(states[i])
            if self.player.loop.layout.open(states[i]).common.head.rounds != number:
                raise InvalidInputError(f"round_states: expected the state before round {number:g}")
            context = contexts[i].copy() if observed[i] else None
            seen = (context, int(arms[i]), float(rewards[i]), bool(still[i]))
            self.rounds[int(number)] = _Round(states[i].copy(), *seen)
        now, first = self.player.rounds, self.turns.context_first
        last = (self.turns.contexts_seen(now) if first else now) - 1
        if next(reversed(self.rounds), -1) != last:
            raise InvalidInputError(f"round_numbers: expected round {last} to be the last")
