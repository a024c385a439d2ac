"""The role of each column of a table, given or by name."""

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from undertow.errors import InvalidInputError
from undertow.support import checks

__all__ = ["AT", "ESTIMATE", "PHASES", "UNIFORM", "Columns", "find_columns", "separator_hint"]

PHASES = ("hour", "weekday", "month")
UNIFORM = "uniform"  # in place of a propensity column: every arm was equally likely
ESTIMATE = "estimate"  # ... and the probabilities are estimated from features
AT = "@"  # price@a is the price of arm a
_TIMES = ("time", "timestamp", "datetime", "date")


@dataclass(frozen=True)
class Columns:
    """The columns of a table by role.

    Attributes
    ----------
    rewards
        One column per arm if every arm's reward is known; empty for a log.
    contexts, features
        Measurements of a round, and columns known before its decision; `price@a` is the price of arm a.
    time, phases
        The column of timestamps, and its phases that become features.
    arm, reward, propensity
        Of a log: the arm that was played, its reward, and the probability with which it was chosen.
    key
        The column that names the key of each row, such as a shop, for a bandit per key.
    unused
        All other columns.
    """

    rewards: tuple[str, ...] = ()
    contexts: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    time: str | None = None
    phases: tuple[str, ...] = ()
    arm: str | None = None
    reward: str | None = None
    propensity: str | None = None
    key: str | None = None
    unused: tuple[str, ...] = ()

    @property
    def logged(self) -> bool:
        """Whether the table is a log, with the reward of one arm per row."""
        return self.arm is not None

    @property
    def arms(self) -> tuple[str, ...]:
        """Names of the arms of a full table: its reward columns, without their common prefix."""
        if len(self.rewards) > 1 and all(name.startswith("reward_") for name in self.rewards):
            return tuple(name.removeprefix("reward_") for name in self.rewards)
        return self.rewards

    def describe(self) -> list[str]:
        """Return one line per role with its columns."""
        known = [*self.features, *(f"{name} of {self.time}" for name in self.phases)]
        lines = {
            f"rewards of {len(self.rewards)} arms: {', '.join(self.rewards)}": self.rewards,
            f"log: arm in {self.arm}, reward in {self.reward}, propensity in {self.propensity}": self.logged,
            f"contexts: {', '.join(self.contexts) or 'none'}": True,
            f"features: {', '.join(known) or 'none'}": True,
            f"time: {self.time}": self.time,
            f"key: {self.key}": self.key,
            f"not used: {', '.join(self.unused)}": self.unused,
        }
        return [line for line, shown in lines.items() if shown]


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
    key: str | None = None,
    every_arm: bool = False,
) -> Columns:
    """Find the columns of a table among their names.

    By default, names decide: reward_*, context_* and feature_*; arm, reward and propensity; time, timestamp, datetime
    or date. Given names may be patterns such as "station_*". With `every_arm`, a table that could be either is no log.

    Examples
    --------
    >>> find_columns(["time", "reward_a", "reward_b", "context_x", "note"]).describe()
    ['rewards of 2 arms: reward_a, reward_b', 'contexts: context_x', 'features: none', 'time: time', 'not used: note']
    """
    for phase in checks.entries("phases", phases):
        if phase not in PHASES:
            near = checks.did_you_mean(phase, PHASES)
            raise InvalidInputError(f"phases: expected some of {', '.join(PHASES)}, got {phase!r}{near}")
    for part, name in {"time": time, "arm": arm, "reward": reward, "propensity": propensity, "key": key}.items():
        if not isinstance(name, str | None):
            raise InvalidInputError(f"{part}: expected the name of a column, got {name!r:.80}")
    if rewards and (arm or reward or propensity):
        raise InvalidInputError("rewards: one column per arm, or arm, reward and propensity of a log; got both")
    given = {"contexts": contexts, "features": features, "rewards": rewards}
    chosen = {part: _matching(names, part, patterns) for part, patterns in given.items()}
    taken = {name for group in chosen.values() for name in group} | {arm, reward, propensity, time, key}
    for part in given:
        if not given[part]:
            chosen[part] = [name for name in names if name.startswith(f"{part[:-1]}_") and name not in taken]
    logged = bool(arm or reward or propensity)
    if not rewards and not logged:
        logged = {"arm", "reward"} <= set(names) - taken
        if logged and every_arm and len(chosen["rewards"]) > 1:
            logged = False
        elif logged and len(chosen["rewards"]) > 1:
            raise InvalidInputError(
                "rewards: there are columns reward_…, one per arm, and columns of a log, arm and "
                "reward; choose one: rewards 'reward_*', or arm 'arm' for the log"
            )
    if logged:
        chosen["rewards"] = []
    times = (name for word in _TIMES for name in names if name.lower() == word and name not in taken)
    time = _one(names, "time", time) or next(times, None)
    key = _one(names, "key", key)
    if phases and time is None:
        raise InvalidInputError(f"phases: there is no column of timestamps; name it with time; {_there(names)}")
    if logged:
        arm = _one(names, "arm", arm or "arm")
        reward = _one(names, "reward", reward or "reward")
        if propensity is None and "propensity" not in names:
            raise InvalidInputError(
                "propensity: a log needs the probability with which its arm was chosen; name the column, or pass "
                f"{UNIFORM!r} if every arm was equally likely, or {ESTIMATE!r}; {_there(names)}"
            )
        if propensity not in (UNIFORM, ESTIMATE):
            propensity = _one(names, "propensity", propensity or "propensity")
    elif len(chosen["rewards"]) < 2:
        found = ", ".join(chosen["rewards"]) or "none"
        raise InvalidInputError(
            f"rewards: expected at least two columns, one per arm (or arm, reward and propensity of a log), found "
            f"{found}; say which they are, as in rewards 'price_*', or name them reward_…; {_there(names)}"
        )
    parts = {part: tuple(group) for part, group in chosen.items()}
    used = [*parts["rewards"], *parts["contexts"], *parts["features"], time, arm, reward, propensity, key]
    if twice := next((name for name in used if name is not None and used.count(name) > 1), None):
        raise InvalidInputError(f"column {twice!r} is given more than one role; a column can have only one")
    unused = tuple(name for name in names if name not in used)
    return Columns(
        **parts,
        time=time,
        phases=tuple(phases),
        arm=arm,
        reward=reward,
        propensity=propensity,
        key=key,
        unused=unused,
    )


def _matching(names: Sequence[str], part: str, patterns: Sequence[str]) -> list[str]:
    """Return the columns that match some names or patterns, in their order."""
    found: list[str] = []
    for pattern in checks.entries(part, patterns):
        if not isinstance(pattern, str):
            raise InvalidInputError(f"{part}: expected names of columns, got {pattern!r:.80}")
        matches = [pattern] if pattern in names else [name for name in names if fnmatchcase(name, pattern)]
        if not matches:
            raise _no_column(names, part, pattern)
        found += [name for name in matches if name not in found]
    return found


def _one(names: Sequence[str], part: str, name: str | None) -> str | None:
    if name is not None and name not in names:
        raise _no_column(names, part, name)
    return name


def _no_column(names: Sequence[str], part: str, name: str) -> InvalidInputError:
    hint = checks.did_you_mean(name, names)
    if any(name in other and "," in other for other in names):
        hint = " (put a name that holds a comma into quotation marks: '\"price, net\", b')"
    return InvalidInputError(f"{part}: there is no column {name!r:.80}{hint}; {_there(names)}")


def _there(names: Sequence[str]) -> str:
    quoted = [f'"{name}"' if "," in name and len(names) > 1 else name for name in names[:20]]  # as an option takes it
    shown = ", ".join(quoted) + (", …" if len(names) > 20 else "")
    hint = separator_hint(names)
    return f"there are {shown}" + (f" ({hint})" if hint else "")


def separator_hint(names: Sequence[str]) -> str:
    """Suggest a separator for a file that is read as a single column; "" if there are more."""
    marks = {",": "','", ";": "';'", "\t": "tab", "|": "'|'"}  # as a shell takes them
    if len(names) == 1 and (mark := next((mark for mark in marks if mark in names[0]), None)):
        return f"try --separator {marks[mark]}"
    return ""
