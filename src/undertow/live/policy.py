"""The live object around a policy's compiled steps.

    decision = policy.decide()            # which arm, and why
    policy.learn(decision, reward)        # may come late, out of order, or never
    policy.observe(context)               # one row of context; None if it is missing

With contexts, `decide` and `observe` alternate: decide first is the paper's order and the default, observe first
(`context_first=True`) the everyday one. Without contexts, every `decide` is a round.

Every method may be called from any thread; calls on one policy wait for one another.
"""

import copy
import math
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any, ClassVar, Literal, Self, cast

import numpy as np
import numpy.typing as npt

from undertow.compiled.loop import Loop
from undertow.errors import InvalidInputError
from undertow.live.arms import arm_names, checked_costs
from undertow.live.clock import duration, is_duration
from undertow.live.decision import Capabilities
from undertow.live.episode import play_episode
from undertow.live.journal import Journal
from undertow.live.names import Named, Names, declared
from undertow.live.parts import Inside, LivePlayer, Parts
from undertow.live.pending import Pending
from undertow.live.rounds import Timeline, Turns
from undertow.live.shows import Shows
from undertow.live.streams import Seed, Streams
from undertow.live.units import Columns
from undertow.support import checks
from undertow.support.checks import FloatArray
from undertow.support.renamed import OF_POLICIES, Renamed, refuse_hooks, refuse_parameters
from undertow.trajectory import Trajectory

__all__ = ["LivePolicy"]

_LIMITS = ("max_wait", "max_delay")  # each counts rounds, or is a time


@dataclass(kw_only=True, eq=False, repr=False)
class LivePolicy(Shows):
    """Base of undertow's policies: it has the parts, and a policy provides data and steps.

    A policy adds its parameters as dataclass fields, declares its capabilities, describes its state and names its steps
    (`loop`), returns the sizes of the state (`_sizes`) and writes its first values (`_begin`); see docs/own_policy.md.

    Parameters
    ----------
    arms
        The number of arms, or their names.
    explore
        ε in [0, 1]: with this probability the arm is chosen at random from all open arms.
    minimize
        Whether rewards are to be small, such as seconds: the policy prefers the smallest.
    cost
        The known cost of playing an arm, in units of reward, by name: `{"large": 0.4}`; 0 for the others. It counts in
        the choice and not in learning: see `set_costs`.
    feature_names, context_names
        Names of the features and of the context entries, if they are given by name: a list if all are numbers, or the
        kind of each, `{"weight": "number", "country": ["DE", "FR"], "tag": "hash:16"}`. See docs/inputs.md.
    missing
        If a name is missing: "refuse" the row, or fill in the "mean" and mark it in one more column.
    max_pending
        Maximum number of pending decisions; the oldest are forgotten first.
    default_reward, max_wait
        A decision whose reward has not come after `max_wait` gets `default_reward`, and a reward that comes later is
        refused. Off by default, since it biases learning: see docs/live.md. The wait is a number of rounds, or a time,
        such as "3 days", for decisions with `at`.
    tick
        The length of a time step, such as "1 h", for decisions with `at`, whose times determine the elapsed steps.
    rng
        Seed or Generator for policies that randomise. Each run of `simulate` has its own stream, and run 0 that of the
        live policy; none of them is a stream that `sample` uses, whatever the seed. Without a seed, a forked process
        uses new random numbers.
    """

    capabilities: ClassVar[Capabilities]
    loop: ClassVar[Loop]
    _has_windows = False  # whether each arm's forecast has its own window

    arms: int | Sequence[str]
    explore: float = 0.0
    minimize: bool = False
    cost: Mapping[str, float] | None = None
    feature_names: "Names | None" = None
    context_names: "Names | None" = None
    missing: Literal["refuse", "mean"] = "refuse"
    max_pending: int = 100_000
    default_reward: float | None = None
    max_wait: int | str | timedelta | None = None
    tick: str | timedelta | None = None
    rng: Seed = None

    def __new__(cls, *args: Any, **given: Any) -> Self:
        """Refuse parameters by the names of earlier versions."""
        refuse_parameters(given)
        return super().__new__(cls)

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        refuse_hooks(cls)

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if name not in OF_POLICIES]

    def __post_init__(self) -> None:
        self._lock, self._journal = threading.RLock(), Journal()
        self.names = arm_names(self.arms)
        self.explore = checks.number("explore", self.explore, least=0)
        if self.explore > 1:
            raise InvalidInputError(f"explore: expected a probability, at most 1, got {self.explore:g}")
        self.minimize = checks.flag("minimize", self.minimize)
        self.max_pending = checks.integer("max_pending", self.max_pending, least=1)
        features, contexts = self._declare("feature"), self._declare("context")
        self._context_dim = checks.integer("context_dim", getattr(self, "context_dim", 0), least=0)
        self._feature_dim = checks.integer("feature_dim", getattr(self, "feature_dim", 0), least=0)
        context_first = checks.flag("context_first", getattr(self, "context_first", False))
        self._streams = Streams(self.rng)
        tick = None if self.tick is None else duration("tick", self.tick)
        self._turns = Turns(self._context_dim, context_first=context_first, tick=tick)
        self._check_default()
        limits = {name: duration(name, value) for name in _LIMITS if is_duration(value := getattr(self, name, None))}
        rounds = None if "max_wait" in limits else cast("int | None", self.max_wait)
        times = {"patience": limits.get("max_wait"), "delay": limits.get("max_delay")}
        self._pending = Pending(self.max_pending, rounds, **times)
        self._columns = self._make_columns()
        self._columns.declare(features, contexts)
        state = self._new_state()
        self._draw_count = self._draw(np.random.default_rng(0), 1).shape[1] + (2 if self.explore else 0)
        self._player = LivePlayer(type(self), state, self._draw_count)
        if self.cost is not None:
            self.cost = checked_costs("cost", self.cost, self.names)
            self._set_costs(self.cost)
        self._timeline = self._make_timeline()
        # Read in every call, as those of a timeline
        self._has_windows, self._awaits_kernels = self._has_windows, self._awaits_kernels

    def _declare(self, kind: str) -> Named | None:
        """Check the names of features or contexts, which determine their number."""
        lenient = checks.choice("missing", self.missing, ("refuse", "mean")) == "mean"
        found = declared(kind, getattr(self, f"{kind}_names"), lenient=lenient)
        if found is None:
            return None
        named, kinds = found
        setattr(self, f"{kind}_names", kinds)
        given = getattr(self, f"{kind}_dim", None)
        if given == 0 and not isinstance(getattr(type(self), f"{kind}_dim"), property):
            setattr(self, f"{kind}_dim", named.width)
        elif given is not None and given != named.width:
            raise InvalidInputError(f"{kind}_dim: expected {named.width}, as {kind}_names says, got {given!r:.60}")
        return named

    def _check_default(self) -> None:
        """Check the default reward and its wait."""
        if self.default_reward is None and self.max_wait is None:
            return
        if self.default_reward is None or self.max_wait is None:
            given = "default_reward" if self.max_wait is None else "max_wait"
            raise InvalidInputError(
                f"{given}: expected default_reward and max_wait together, got one of them: max_wait is the "
                f"number of rounds after which default_reward replaces a missing reward"
            )
        self.default_reward = checks.reward(self.default_reward)
        if is_duration(self.max_wait):
            return
        self.max_wait = checks.integer("max_wait", self.max_wait, least=1)
        for limit, most in (("max_pending", self.max_pending - 1), ("max_delay", getattr(self, "max_delay", math.inf))):
            if isinstance(most, int | float) and self.max_wait > most:  # a max_delay of another kind is refused later
                raise InvalidInputError(
                    f"max_wait: expected at most {most}, got {self.max_wait}; raise {limit} for more"
                )

    def _new_state(self) -> FloatArray:
        """Return the state before the first round."""
        layout = self.loop.layout
        sizes = {"k": self.arm_count, "m": self._context_dim, "q": self._feature_dim, "p": 0}
        state = layout.new(**(sizes | self._sizes()))
        own = layout.open(state)
        own.common.order[:] = np.arange(self.arm_count)
        own.common.head.explore, own.common.head.pinned, own.common.head.reward_unit = self.explore, -1.0, 1.0
        self._begin(own)
        return state

    # What a policy must define, and what it may override

    def _sizes(self) -> dict[str, int]:
        """Check the parameters and return the sizes of the state beyond the numbers of arms, contexts and features."""
        return {}

    def _begin(self, own: Any) -> None:
        """Write the state before the first round; everything but sizes and order is zero."""

    def _draw(self, rng: np.random.Generator, rounds: int) -> FloatArray:
        """Return the random numbers that `decide` needs, one row per round."""
        return np.empty((rounds, 0))

    def _probability(self, own: Any, arm: int) -> float:
        """Return the policy's own probability of an arm; 1 or 0 if it is deterministic."""
        return float(arm == self._player.proposed)  # faster than through `own`, in every decision

    def _probabilities(self, own: Any, played: int) -> FloatArray:
        """Return the policy's own probability of each arm, in a round in which one of them was played."""
        chances = np.zeros(len(self.names))
        if type(self)._probability is LivePolicy._probability:  # noqa: SLF001 (whether the policy overrides it)
            chances[self._player.proposed] = 1.0
        else:
            opened = np.flatnonzero(own.common.closed == 0)
            chances[opened] = [self._probability(own, arm) for arm in opened.tolist()]
        return chances

    def _claims_as_built(self) -> Capabilities:
        """Return the policy's capabilities with its present parameters."""
        return self.capabilities

    def _index_map(self, old_arms: int) -> dict[str, npt.NDArray[np.int64] | None]:
        """Return the places of entries of a state with fewer arms, for axes along which they do not stay in front.

        None is for parts that are not carried over.
        """
        return {}

    def _init_arm(self, own: Any) -> None:
        """Set the entries of a new arm, after the others were carried over."""

    def _run_parameters(self) -> dict[str, Any]:
        """Return the parameters that differ in a run of `simulate`."""
        return {}

    def _make_columns(self) -> Columns:
        """Return the units in which the policy computes."""
        return Columns(self._context_dim, self._feature_dim, minimize=self.minimize)

    def _make_timeline(self) -> Timeline:
        """Return how rewards and contexts reach the state."""
        return Timeline(self._player)

    def _check_kernels(self, *, decides: bool) -> None:
        """Check whether kernels are available; a decision may have to wait for them."""

    def _rescale(self) -> None:
        """Change the units, for policies whose columns are standardized."""
        raise NotImplementedError

    def _start_warm(self, rows: FloatArray) -> None:
        raise InvalidInputError("event: this policy does not learn from past rounds")

    def _parameters(self) -> dict[str, Any]:
        """Return the parameters of the policy."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def __repr__(self) -> str:
        given = {name: value for name, value in self._parameters().items() if name != "rng"}
        defaults = {field.name: field.default for field in fields(self)}
        shown = ", ".join(f"{name}={value!r}" for name, value in given.items() if value != defaults[name])
        return f"{type(self).__name__}({shown})"

    def _widen(self, name: str) -> None:
        self._streams.rewind_to(self._pending.made, self._draws)
        wider = type(self)(**(self._parameters() | {"arms": (*self.names, name), "rng": self._streams.seeds}))
        LivePolicy._take_over(wider, self._parts)
        kept = ("_lock", "_journal", "_awaits_kernels")
        self.__dict__.update({key: value for key, value in vars(wider).items() if key not in kept})
        self._timeline.costly = True

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything needed to continue bit-identically, for `undertow.load`. The format is open, not pickle."""
        from undertow.live.files import write_policy

        with self._lock:
            write_policy(self, path)

    def to_bytes(self) -> bytes:
        """Return the content of a save file, for a database or another process; `undertow.from_bytes` reads it."""
        from undertow.live.files import packed

        with self._lock:
            return packed(self)

    # What `simulate`, `load` and copies call

    @property
    def parts(self) -> Inside:
        """What the policy consists of, for a look inside, and what simulations, save files and stores call of it."""
        within = self._is_called()
        parts = self._whole()
        if not within:
            self._catch_up()
        return Inside.of(
            parts,
            parameters=self._parameters,
            capabilities=self._claims_as_built,
            for_run=self._for_run,
            play=self._play,
            runs_in_python=self._runs_in_python,
            settle=self._settle,
            begin_log=self._begin_log,
            compile_here=self._compile_here,
            draw_rounds=self._draws,
            chance_of=self._chance_of,
            measures=self._measures,
        )

    def _settle(self) -> None:
        """Finish or undo all work done ahead or deferred, so that the parts can be inspected."""
        if self._journal.torn:
            self._rebuild()
        self._catch_up()
        self._streams.rewind_to(self._pending.made, self._draws)

    def _compile_here(self) -> None:
        """Compile missing kernels in this process, without notice, and not in another one."""
        self._awaits_kernels = False

    def _runs_in_python(self) -> bool:
        """Whether `simulate` must call the methods; no compiled policy needs this."""
        return False

    def _for_run(self, number: int, *, context_first: bool | None = None, order: Sequence[int] | None = None) -> Any:
        """Return an unused copy with the stream of run `number`; that of run 0 is the policy's own.

        `order` is that of initial rounds and ties, by default the policy's own.
        """
        changes: dict[str, Any] = {"rng": self._streams.seeds} | self._run_parameters()
        if context_first is not None and hasattr(self, "context_first"):
            changes["context_first"] = context_first
        twin: LivePolicy = type(self)(**(self._parameters() | changes))
        ours, theirs = self._whole().player.common, twin.parts
        theirs.player.common.order[:] = ours.order if order is None else order
        theirs.player.obey(ours)
        theirs.streams.begin(number)
        theirs.begin_log()
        return twin

    def _begin_log(self) -> None:
        """Restart the log of events from the present parts, after changes other than by events."""
        self._journal = Journal()

    def _chance_of(self, state: FloatArray, arm: int) -> float:
        """Return the probability of the arm that was played, in another state of this policy, after its decision."""
        with self._lock:
            self._player.state[:] = state
            chances = self._propensities(arm)
            return 1.0 if chances is None else float(chances[arm])

    def _play(
        self,
        path: Trajectory,
        arms: npt.NDArray[np.int64],
        records: FloatArray,
        played: Callable[[int], None] = lambda rounds: None,
    ) -> None:
        """Play through a path; write the chosen arms and, if there is room, forecasts, widths and windows."""
        self._settle()
        self._begin_log()  # these rounds are no events
        play_episode(self._parts, self._draws, self._rescale, path, arms, records, played)
        self._streams.note(self._pending.made)
        if len(records) and not self._has_windows:
            records[:, -1] = math.nan

    def _take_over(self, old: Parts) -> None:
        """Carry over the parts of a policy with one arm less; the new arm has no data."""
        own, before = self._player.own, len(old.player.common.order)
        places = self._index_map(before)
        self.loop.layout.carry(old.player.state, self._player.state, places)
        own.common.order[before:] = np.arange(before, self.arm_count)
        self._pending, self._columns, self._streams = old.pending, old.columns, old.streams
        self._streams.note(self._pending.made)  # from here on, a decision uses more random numbers
        self._turns.due, self._turns.clock = old.turns.due, old.turns.clock
        self._pending.widen_memories(len(own.common.memory), places.get("p"))
        self._init_arm(own)
        self._timeline.take_over(old.timeline)

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            self._settle()
            kept = {name: value for name, value in self.__dict__.items() if name not in ("_lock", "_journal")}
            return copy.deepcopy(kept)

    def __setstate__(self, entries: dict[str, Any]) -> None:
        self.__dict__.update(entries)
        self._lock, self._journal = threading.RLock(), Journal()


for _name in OF_POLICIES:
    setattr(LivePolicy, _name, Renamed(_name, OF_POLICIES))
