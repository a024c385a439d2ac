"""What a live policy consists of, and what the rest of undertow calls of it."""

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

from undertow.compiled.player import Player
from undertow.live.decision import Capabilities
from undertow.live.fields import Field, Written, nbytes_of
from undertow.live.metrics import Measure
from undertow.live.names import Named
from undertow.live.pending import Pending
from undertow.live.rounds import Timeline, Turns
from undertow.live.saved import Saved
from undertow.live.streams import Streams
from undertow.live.units import Columns
from undertow.support.checks import FloatArray

__all__ = ["Inside", "LivePlayer", "Parts"]


class LivePlayer(Player):
    """A player whose state is in checkpoints and save files."""

    remembers: ClassVar[tuple[Field, ...]] = (
        Field("loop"),
        Written("state", "state", Saved(("n",), missing=True)),
    )


class Parts(NamedTuple):
    """What a live policy consists of."""

    player: Player
    columns: Columns
    streams: Streams
    turns: Turns
    pending: Pending
    timeline: Timeline

    @property
    def all(self) -> tuple[Any, ...]:
        """All parts that remember something, and their parts."""
        turns, pending, timeline = self.turns, self.pending, self.timeline
        own = (self.player, turns, turns.clock, pending, pending.subjects, self.streams, self.columns)
        return (*own, timeline, *timeline.parts)

    @property
    def sizes(self) -> dict[str, int]:
        """What formulas in the declarations of fields may count."""
        player, pending = self.player, self.pending
        k, m, q, p = map(int, player.common.sizes)
        counted = {"rounds": player.rounds, "decisions": pending.made, "limit": pending.most}
        return {"k": k, "m": m, "q": q, "p": p, "n": len(player.state), **counted}

    @property
    def nbytes(self) -> int:
        """Bytes of the policy's numbers: state, pending decisions, history; without Python's objects."""
        return nbytes_of(self.all)

    @property
    def unused(self) -> bool:
        """Whether nothing has happened to the policy yet."""
        return self.pending.made == 0 and self.player.rounds == 0 and self.turns.due == self.turns.first

    @property
    def time_step(self) -> int:
        """Number of time steps begun so far: as many as rounds, but for decisions with `elapsed=0`."""
        return self.player.time_steps

    @property
    def contexts_seen(self) -> int:
        """Number of rounds whose contexts have been observed, or were missing."""
        return self.turns.contexts_seen(self.player.rounds)

    @property
    def feature_columns(self) -> tuple[str, ...]:
        """What the columns of features mean, where the policy has `feature_names`: those that events hold."""
        return _labels(self.columns.features, self.columns.feature_dim)

    @property
    def context_columns(self) -> tuple[str, ...]:
        """What the entries of a context mean, where the policy has `context_names`."""
        return _labels(self.columns.contexts, self.columns.context_dim)

    @property
    def reads_clock(self) -> bool:
        """Whether what happens depends on the times of calls: there is a tick, or a wait that is a time."""
        return self.turns.clock.tick is not None or not self.pending.timeless


class Inside(Parts):
    """The parts of a policy for a look inside, and what simulations, save files, stores and fleets call of it.

    None of it is part of the interface: it may change with any version.
    """

    parameters: Callable[[], dict[str, Any]]  # with which it was constructed
    capabilities: Callable[[], Capabilities]  # with these parameters
    for_run: Callable[..., Any]  # an unused copy with the stream of a run
    play: Callable[..., None]  # through a path
    runs_in_python: Callable[[], bool]  # whether `simulate` has to call its methods instead
    settle: Callable[[], None]  # so that nothing is done ahead, or put off
    begin_log: Callable[[], None]  # of events, after the parts were changed by more than events
    compile_here: Callable[[], None]  # and not in another process
    draw_rounds: Callable[[int], FloatArray]  # the random numbers of the next rounds
    chance_of: Callable[[FloatArray, int], float]  # of the arm that was played, in a state after its decision
    measures: Callable[..., list[Measure]]  # of `metrics`, with more labels

    @classmethod
    def of(cls, parts: Parts, **calls: Callable[..., Any]) -> "Inside":
        """Return parts with these calls."""
        inside = cls(*parts)
        vars(inside).update(calls)
        return inside


def _labels(named: Named | None, width: int) -> tuple[str, ...]:
    return tuple(named.columns) if named is not None and width else ()
