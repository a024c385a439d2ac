"""Which column of a table is what: as the caller says, or as the names say."""

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from undertow.errors import InvalidInputError

__all__ = ["PHASES", "UNIFORM", "Columns", "find_columns", "separator_hint"]

PHASES = ("hour", "weekday", "month")
UNIFORM = "uniform"  # in place of a propensity column: every arm was equally likely
_TIMES = ("time", "timestamp", "datetime", "date")


@dataclass(frozen=True)
class Columns:
    """The columns of a table by their part.

    Attributes
    ----------
    rewards
        One column per arm where every arm's reward is known; empty for a log.
    contexts, features
        Measurements of a round, and what is known before its decision.
    time, phases
        The column of timestamps, and which phases of it become features.
    arm, reward, propensity
        A log: the arm that was played, what it paid, and the probability with which it was chosen.
    unused
        All others.
    """

    rewards: tuple[str, ...] = ()
    contexts: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    time: str | None = None
    phases: tuple[str, ...] = ()
    arm: str | None = None
    reward: str | None = None
    propensity: str | None = None
    unused: tuple[str, ...] = ()

    @property
    def logged(self) -> bool:
        """Whether the table is a log, with the reward of one arm a row."""
        return self.arm is not None

    @property
    def arms(self) -> tuple[str, ...]:
        """Names of the arms of a full table: its reward columns, without the prefix that they share."""
        if len(self.rewards) > 1 and all(name.startswith("reward_") for name in self.rewards):
            return tuple(name.removeprefix("reward_") for name in self.rewards)
        return self.rewards

    def describe(self) -> list[str]:
        """Say in one line each what was taken as what."""
        lines = [f"rewards of {len(self.rewards)} arms: {', '.join(self.rewards)}"] if self.rewards else []
        if self.logged:
            lines.append(f"a log: arm {self.arm}, reward {self.reward}, propensity {self.propensity}")
        lines.append(f"contexts: {', '.join(self.contexts) or 'none'}")
        lines.append(f"features: {', '.join([*self.features, *(f'{name} of {self.time}' for name in self.phases)])}")
        if not self.features and not self.phases:
            lines[-1] = "features: none"
        if self.time:
            lines.append(f"time: {self.time}")
        return [*lines, f"not used: {', '.join(self.unused)}"] if self.unused else lines


def find_columns(
    names: Sequence[str],
    *,
    rewards: Sequence[str] = (),
    contexts: Sequence[str] = (),
    features: Sequence[str] = (),
    time: str | None = None,
    phases: Sequence[str] = (),
    arm: str | None = None,
    reward: str | None = None,
    propensity: str | None = None,
) -> Columns:
    """Find the columns of a table among their names.

    What is not said follows from the names: reward_*, context_* and feature_*; arm, reward and propensity; time,
    timestamp, datetime or date. What is said may be a pattern such as "station_*".

    Examples
    --------
    >>> find_columns(["time", "reward_a", "reward_b", "context_x", "note"]).describe()
    ['rewards of 2 arms: reward_a, reward_b', 'contexts: context_x', 'features: none', 'time: time', 'not used: note']
    """
    for phase in phases:
        if phase not in PHASES:
            raise InvalidInputError(f"phases: expected some of {', '.join(PHASES)}, got {phase!r}")
    if rewards and (arm or reward or propensity):
        raise InvalidInputError("rewards: one column per arm, or arm, reward and propensity of a log; got both")
    given = {"contexts": contexts, "features": features, "rewards": rewards}
    chosen = {part: _matching(names, part, patterns) for part, patterns in given.items()}
    taken = {name for group in chosen.values() for name in group} | {arm, reward, propensity, time}
    logged = bool(arm or reward or propensity)
    if not rewards and not logged:
        chosen["rewards"] = [name for name in names if name.startswith("reward_") and name not in taken]
        logged = {"arm", "reward"} <= set(names) - taken
        if logged and len(chosen["rewards"]) > 1:
            raise InvalidInputError(
                "rewards: there are columns reward_…, one per arm, and columns of a log, arm and reward; say which to "
                "take: rewards 'reward_*', or arm 'arm' for the log"
            )
        if logged:
            chosen["rewards"] = []
    for part in ("contexts", "features"):
        if not given[part]:
            chosen[part] = [name for name in names if name.startswith(f"{part[:-1]}_") and name not in taken]
    time = _one(names, "time", time) or next((name for name in _TIMES if name in names and name not in taken), None)
    if phases and time is None:
        raise InvalidInputError(f"phases: there is no column of timestamps; name it with time; {_there(names)}")
    if logged:
        arm = _one(names, "arm", arm or "arm")
        reward = _one(names, "reward", reward or "reward")
        if propensity is None and "propensity" not in names:
            raise InvalidInputError(
                "propensity: a log needs the probability with which its arm was chosen; name the column, or say "
                f"{UNIFORM!r} where every arm was equally likely; {_there(names)}"
            )
        propensity = propensity or "propensity"
        propensity = propensity if propensity == UNIFORM else _one(names, "propensity", propensity)
    elif len(chosen["rewards"]) < 2:
        found = ", ".join(chosen["rewards"]) or "none"
        raise InvalidInputError(
            f"rewards: expected at least two columns, one per arm (or arm, reward and propensity of a log), found "
            f"{found}; say which they are, or name them reward_…; {_there(names)}"
        )
    parts = {part: tuple(group) for part, group in chosen.items()}
    used = [*parts["rewards"], *parts["contexts"], *parts["features"], time, arm, reward, propensity]
    if twice := next((name for name in used if name is not None and used.count(name) > 1), None):
        raise InvalidInputError(f"column {twice!r} is given more than one part; every column has one")
    unused = tuple(name for name in names if name not in used)
    return Columns(
        **parts, time=time, phases=tuple(phases), arm=arm, reward=reward, propensity=propensity, unused=unused
    )


def _matching(names: Sequence[str], part: str, patterns: Sequence[str]) -> list[str]:
    """Return the columns that some names or patterns stand for, in their order."""
    found: list[str] = []
    for pattern in patterns:
        matches = [pattern] if pattern in names else [name for name in names if fnmatchcase(name, pattern)]
        if not matches:
            raise InvalidInputError(f"{part}: there is no column {pattern!r}; {_there(names)}")
        found += [name for name in matches if name not in found]
    return found


def _one(names: Sequence[str], part: str, name: str | None) -> str | None:
    if name is not None and name not in names:
        raise InvalidInputError(f"{part}: there is no column {name!r}; {_there(names)}")
    return name


def _there(names: Sequence[str]) -> str:
    shown = ", ".join(names[:20]) + (", …" if len(names) > 20 else "")
    hint = separator_hint(names)
    return f"there are {shown}" + (f" ({hint})" if hint else "")


def separator_hint(names: Sequence[str]) -> str:
    """Say what the separator of a file may be whose columns were all taken for one; nothing where there are more."""
    marks = {",": "','", ";": "';'", "\t": "tab", "|": "'|'"}  # as a shell takes them
    if len(names) == 1 and (mark := next((mark for mark in marks if mark in names[0]), None)):
        return f"try --separator {marks[mark]}"
    return ""
