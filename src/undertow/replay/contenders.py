"""The contenders of a replay: a default set, or any policies by name and parameters."""

import re
import tomllib
from collections.abc import Callable, Sequence
from functools import partial
from threading import Lock
from typing import Any, TypeVar

from undertow.contenders import Contender, known_policy
from undertow.errors import InvalidInputError
from undertow.live.clock import is_duration
from undertow.policies import LivePolicy, registry
from undertow.replay.table import Table
from undertow.support import checks
from undertow.support.pool import Progress, run_tasks

__all__ = [
    "MOST_ROUNDS",
    "build",
    "check_labels",
    "few_runs",
    "parse_policies",
    "play_all",
    "reads_clock",
    "remarks",
    "usual_runs",
    "who_plays",
]

Result = TypeVar("Result")

DEFAULTS = (
    Contender("Autopilot", "autopilot"),
    Contender("LearnedKalman", "learned-kalman"),
    Contender("StructuralKalman", "structural-kalman"),
    Contender("ARES", "ares"),
    Contender("LinUCB", "linucb", {"window": 5}),
    Contender("LinUCB + own rewards", "linucb", {"window": 5, "reward_lags": 5}),
    Contender("Discounted UCB", "discounted-ucb"),
    Contender("Sliding-window UCB", "sliding-window-ucb"),
    Contender("Random", "random"),
)
MOST_ROUNDS = 250_000  # of a policy by default, in all its runs together
_USUAL_RUNS = 3
_MANY_ARMS = 40  # with more, five lags of every arm's reward give each regression hundreds of inputs


def parse_policies(text: str) -> list[Contender]:
    """Parse policies separated by commas: labels or names, with parameters in brackets.

    Examples
    --------
    >>> [contender.label for contender in parse_policies("autopilot, linucb(window=5, reward_lags=2)")]
    ['Autopilot', 'linucb(window=5, reward_lags=2)']
    """
    if not isinstance(text, str):
        raise InvalidInputError(f"policies: expected text such as 'linucb(window=5), random', got {text!r:.80}")
    return [_parse(word.strip()) for word in re.split(r",(?![^(]*\))", text) if word.strip()]


def _parse(word: str) -> Contender:
    name, bracket, rest = word.partition("(")
    name = name.strip()
    if not bracket:
        for contender in DEFAULTS:
            if name.lower() in (contender.label.lower(), contender.policy):
                return contender
    if ":" not in name and name not in registry():
        labels = ", ".join(contender.label for contender in DEFAULTS)
        near = checks.did_you_mean(name, registry())
        raise InvalidInputError(
            f"policies: no policy is called {name!r}{near}; there are {labels}, and by name "
            f"{', '.join(sorted(registry()))}"
        )
    known_policy(name)
    if bracket and not rest.endswith(")"):
        raise InvalidInputError(f"policies: {word!r} does not end with a bracket; expected as in linucb(window=5)")
    try:
        parameters = tomllib.loads(f"given = {{{rest.removesuffix(')')}}}")["given"]
    except tomllib.TOMLDecodeError as error:
        raise InvalidInputError(f"policies: expected parameters as in linucb(window=5), got {word!r}") from error
    return Contender(word, name, parameters)


_TAKEN = ("always ", "any arm at random", "best fixed arm", "clairvoyant")  # fixed arms and bounds of the report


def check_labels(chosen: Sequence[Contender]) -> None:
    """Refuse what are no policies, and labels that are there twice or taken."""
    asked: Any = chosen
    if odd := [given for given in ([asked] if isinstance(asked, str) else asked) if not isinstance(given, Contender)]:
        raise InvalidInputError(
            f"policies: expected the output of parse_policies, got {odd[0]!r:.80}; "
            "write parse_policies('linucb, random')"
        )
    labels = [contender.label for contender in chosen]
    if twice := next((label for label in labels if labels.count(label) > 1), None):
        raise InvalidInputError(f"policies: {twice!r} is the label of more than one policy; give them different labels")
    if taken := next((label for label in labels if label.startswith(_TAKEN)), None):
        raise InvalidInputError(f"policies: {taken!r} is the name of a row of the report; choose another label")


def who_plays(table: Table, chosen: Sequence[Contender] = ()) -> tuple[list[Contender], list[str]]:
    """Return the policies for a table, by default all that can play it, and remarks on the choice.

    A chosen policy that cannot play the table is an error; one of the default set is omitted.
    """
    check_labels(chosen)
    playing, notes = [], []
    for contender in chosen or DEFAULTS:
        if not chosen and contender.parameters.get("reward_lags") and len(table.arms) > _MANY_ARMS:
            notes.append(f"{contender.label} is left out: with {len(table.arms)} arms it has too many inputs")
            continue
        try:
            build(contender, table, seed=0)
        except (InvalidInputError, TypeError) as error:
            if chosen:
                raise InvalidInputError(f"policies: {contender.label}: {error}") from error
            notes.append(f"{contender.label} is left out: {error}")
        else:
            playing.append(contender)
    return playing, notes


def build(contender: Contender, table: Table, *, seed: int, context_first: bool = False) -> Any:
    """Make a policy for a table; inputs are standardized if it can do that, unless its parameters say otherwise."""
    if contender.capabilities.needs_system or contender.capabilities.simulates_only:
        raise InvalidInputError(f"{contender.policy} needs the true system, and a table does not contain it")
    blind = table.features.ndim == 3 and not contender.capabilities.takes_arm_features
    waits = any(is_duration(contender.parameters.get(limit)) for limit in ("max_wait", "max_delay"))
    at_once: dict[str, Any] = {} if waits else {"max_pending": 1}  # rewards come immediately or never
    policy = contender.build(
        arms=list(table.arms),
        context_dim=table.contexts.shape[1],
        feature_dim=0 if blind else table.features.shape[-1],
        context_first=context_first,
        standardize=True,
        tick=table.tick,
        rng=seed,
        **at_once,
    )
    if reads_clock(policy) and table.stamps is None:
        raise InvalidInputError(
            f"{contender.policy} has a tick, or waits for a time, and the table has no column of timestamps; name it "
            f"with time, or count rounds"
        )
    return policy


def reads_clock(policy: Any) -> bool:
    """Whether a policy needs the times of rows."""
    return isinstance(policy, LivePolicy) and policy.parts.reads_clock


def remarks(contenders: Sequence[Contender], table: Table) -> list[str]:
    """Return remarks on the policies that do not use all of the table."""
    capabilities = {contender.label: contender.capabilities for contender in contenders}
    notes = []
    if table.missing:
        notes.append(f"{table.missing} of {table.contexts.size} context entries are missing")
        poor = [
            label for label, claim in capabilities.items() if claim.uses_contexts and not claim.handles_missing_contexts
        ]
        if poor:
            notes.append(
                f"without the capability to handle missing contexts: {', '.join(poor)}; do not trust what they won here"
            )
    if table.contexts.shape[1] and (
        blind := [label for label, claim in capabilities.items() if not claim.uses_contexts]
    ):
        notes.append(f"policies that do not use contexts: {', '.join(blind)}")
    takes = "takes_features" if table.features.ndim == 2 else "takes_arm_features"
    if table.features.shape[-1] and (
        blind := [label for label, claim in capabilities.items() if not getattr(claim, takes)]
    ):
        notes.append(f"policies that do not use features: {', '.join(blind)}")
    return notes


def usual_runs(rounds: int) -> int:
    """Return the default number of runs: differences between them average out over many rounds."""
    return max(1, min(_USUAL_RUNS, MOST_ROUNDS // rounds))


def few_runs(rounds: int, who: str) -> list[str]:
    """Return a remark on policies with fewer runs than usual, because of many rounds."""
    if (runs := usual_runs(rounds)) == _USUAL_RUNS:
        return []
    often = "once" if runs == 1 else "twice"
    return [f"{rounds:,} rounds are many, so {who} played them {often}, not {_USUAL_RUNS} times; --runs sets how often"]


def play_all(
    contenders: Sequence[Contender],
    play: Callable[[Contender, int, Progress], Result],
    *,
    rounds: int,
    runs: int,
    random: bool = False,
    threads: int | None,
    progress: Progress | None,
) -> dict[str, list[Result]]:
    """Call `play(contender, run, …)` `runs` times if anything is random, else once; return the results by label.

    `play` reports how many of its `rounds` it has played; `progress`, how many of all.
    """
    runs = checks.integer("runs", runs, least=1)
    tasks = [(one, run) for one in contenders for run in range(runs if random or one.randomised else 1)]
    whole = _Whole(rounds * len(tasks), progress)
    played = run_tasks([partial(play, *task, whole.part()) for task in tasks], threads=threads)
    found: dict[str, list[Result]] = {}
    for (contender, _), result in zip(tasks, played, strict=True):
        found.setdefault(contender.label, []).append(result)
    return found


class _Whole:
    """Adds up the rounds of several runs, and reports every hundredth part."""

    def __init__(self, total: int, progress: Progress | None) -> None:
        self.done, self.total, self.tell, self.lock = 0, total, progress, Lock()
        if progress:
            progress(0, total)

    def part(self) -> Progress:
        """Return the progress function of one run."""
        before = 0

        def add(done: int, _: int) -> None:
            nonlocal before
            with self.lock:
                told = 100 * self.done // self.total
                self.done += done - before
                before = done
                if self.tell and 100 * self.done // self.total > told:
                    self.tell(self.done, self.total)

        return add
