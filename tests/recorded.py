"""Long sequences of calls on every policy, in both forms of a round, and what came of them, written down once.

    python tests/recorded.py --write [TEXT]     # play all cases, or those with TEXT in their name, and write them down
    python tests/recorded.py --compare [TEXT]   # play them, and say what is equal

Where a context comes first, `decide(context=…)` and `observe(context)` with `decide()` are played, and have to agree.
Only the public interface is used.
"""

import argparse
import itertools
import math
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import undertow
from frozen import Frozen, Played, Table, fingerprint, read, verdict, write
from helpers import LIVE, full_system, make_policy
from undertow import UndertowError
from undertow.policies import Decision, LivePolicy, registry

TABLE = Path(__file__).with_name("recorded.npz")
SYSTEM = full_system(3, 2, 3, seed=1)
ROUNDS = 240
MOST_ARMS = 5
FORMS: dict[str, dict[str, Any]] = {
    "paper's order": {},
    "context first": {"context_first": True, "explore": 0.2, "minimize": True},
    "default rewards": {"context_first": True, "default_reward": 0.5, "max_wait": 12},
    "units that follow": {"context_first": True, "standardize": True, "reward_lags": 2},
    "features": {"context_first": True, "feature_dim": 2, "max_delay": 15},
    "few decisions wait": {"max_pending": 5, "standardize": True, "minimize": True},
}


class Case(NamedTuple):
    """A policy with some parameters."""

    policy: str
    form: str
    parameters: dict[str, Any]

    @property
    def learns(self) -> bool:
        """Whether models are fitted, whose last digits another processor rounds elsewhere."""
        return "refit" in registry()[self.policy].parameters

    @property
    def forms(self) -> tuple[bool, ...]:
        """In which forms it is played: with the context in `decide`, and in a call of its own."""
        return (True, False) if self.parameters.get("context_first") else (False,)


def cases() -> dict[str, Case]:
    """Return every case by name."""
    found = {}
    for policy, (form, given) in itertools.product(LIVE, FORMS.items()):
        known = registry()[policy].parameters
        parameters = {name: value for name, value in given.items() if name in known}
        if form == next(iter(FORMS)) or any(name in known for name in list(given)[-2:]):
            found[f"{policy}: {form}"] = Case(policy, form, parameters)
    return found


class Sequence:
    """Calls that are drawn with a seed: the same for every policy of a size, in one form or the other."""

    def __init__(self, case: Case, *, one_call: bool) -> None:
        self.one_call, self.rng = one_call, np.random.default_rng(3)
        self.policy: LivePolicy = make_policy(case.policy, SYSTEM, rng=5, **case.parameters)
        self.path = SYSTEM.sample(8 * ROUNDS, rng=4)
        given = self.policy.parts.parameters()
        self.m = int(getattr(self.policy, "context_dim", 0))
        self.q, self.first = int(given.get("feature_dim", 0)), bool(given.get("context_first")) and self.m > 0
        self.late: dict[int, list[str]] = {}
        self.arms: dict[str, int] = {}
        self.said: list[str] = []  # what was refused

    def rows(self) -> Iterator[tuple[int, np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
        """Play, and yield what every decision says."""
        for turn in range(ROUNDS):
            self._between(turn)
            decision = self._decide(turn)
            yield decision.arm, self._numbers(decision, turn), np.full(1, math.nan)
            self._learn(turn, decision)
            if self.m and not self.first:
                self._try(lambda: self.policy.decide(), turn % 19 == 3)
                if turn % 10 == 9:
                    self._more(turn)
                self.policy.observe(self._context())

    def _more(self, turn: int) -> None:
        """Decide once more in the same time step."""
        decision = self.policy.decide(self._features(), elapsed=0)
        self._learn(turn, decision)

    def _context(self) -> Any:
        context = self.path.contexts[self.policy.round].copy()
        context[self.rng.random(len(context)) < 0.1] = math.nan
        return None if self.rng.random() < 0.05 else context

    def _features(self) -> Any:
        return self.rng.normal(size=self.q) if self.q else None

    def _try(self, call: Any, doit: bool) -> None:
        """Make a call that is refused, and remember how."""
        if doit:
            try:
                call()
            except UndertowError as error:
                self.said.append(type(error).__name__)
            else:
                self.said.append("taken")

    def _between(self, turn: int) -> None:
        """What comes between two rounds."""
        policy, rng = self.policy, self.rng
        rounds = int(rng.integers(1, 4))
        rows = self.path.contexts[policy.round : policy.round + rounds] if self.m and turn % 2 else None
        if turn % 23 == 17:
            policy.skip(rounds, rows)
        self._try(lambda: policy.learn("no such decision", 1.0), turn % 29 == 5)
        self._try(lambda: policy.observe([math.inf] * max(self.m, 1)), turn % 31 == 7)
        if turn in (40, 150):
            policy.retire_arm(policy.names[1])
        if turn in (70, 190):
            policy.add_arm(policy.names[1])
        if turn == 100 and not policy.capabilities.needs_system and policy.arm_count < MOST_ARMS:
            policy.add_arm("new")
        if turn in (55, 121):
            with tempfile.TemporaryDirectory() as folder:
                policy.save(Path(folder) / "policy")
                self.policy = undertow.load(Path(folder) / "policy")

    def _decide(self, turn: int) -> Decision:
        policy, rng = self.policy, self.rng
        passed = int(rng.integers(2, 5)) if turn % 13 == 11 else 1
        context, features, how = self._context() if self.first else None, self._features(), dict[str, Any]()
        if turn % 3:
            how["id"] = f"event {turn}"
        if turn % 9 == 4:
            names = [name for name in policy.names if name not in policy.retired]
            how["available"] = names[turn // 9 % len(names) :]
        if not self.first:
            return policy.decide(features, elapsed=passed, **how)
        if self.one_call:
            decision = policy.decide(features, context=context, elapsed=passed, **how)
        else:
            if passed > 1:
                policy.skip(passed - 1)
            policy.observe(context)
            decision = policy.decide(features, **how)
        if turn % 10 == 9:
            self._more(turn)
        return decision

    def _numbers(self, decision: Decision, turn: int) -> Any:
        """Return all that a decision says as a row."""
        row = np.full(6 * MOST_ARMS + 5, math.nan)
        parts = [decision.forecast, decision.width]
        if turn % 8 == 2 and not self.first:
            outlook = self.policy.forecast(self._features())
            parts += [outlook.forecast, outlook.width]
        if decision.why is not None:
            row[-3], row[-2] = decision.why.lead, decision.why.since_fit
            row[4 * MOST_ARMS : 4 * MOST_ARMS + len(parts[0])] = decision.why.state_error
            row[5 * MOST_ARMS : 5 * MOST_ARMS + len(parts[0])] = decision.why.arm_error
        for number, part in enumerate(parts):
            row[number * MOST_ARMS : number * MOST_ARMS + len(part)] = part
        own = decision.id if decision.id.startswith("event") else decision.id.rpartition("-")[2]
        row[-5], row[-4], row[-1] = decision.propensity, decision.time_step or 0, len(own) + 100 * len(self.said)
        return row

    def _learn(self, turn: int, decision: Decision) -> None:
        """Give rewards: at once, late, never, and some twice."""
        self.arms[decision.id] = decision.arm
        draw = self.rng.random()
        if draw < 0.65:
            self._pay(decision.id)
        elif draw < 0.95:
            self.late.setdefault(turn + int(self.rng.integers(1, 26)), []).append(decision.id)
        due = self.late.pop(turn, [])
        if len(due) > 1 and turn % 2:
            rewards = [self._reward(id) for id in due]
            self._try(lambda: self.policy.learn_many(due, rewards), True)
        else:
            for id in due:
                self._pay(id)

    def _pay(self, id: str) -> None:
        self._try(lambda: self.policy.learn(id, self._reward(id)), True)
        if self.rng.random() < 0.1:
            self._try(lambda: self.policy.learn(id, 17.0), True)

    def _reward(self, id: str) -> float:
        number = sum(map(ord, id)) if id.startswith("event") else int(id.rpartition("-")[2])
        return float(self.path.rewards[number, self.arms[id] % SYSTEM.arm_count])


def play(case: Case, *, one_call: bool) -> Played:
    """Play a case in one of its forms."""
    sequence = Sequence(case, one_call=one_call)
    arms, numbers, windows = zip(*sequence.rows(), strict=True)
    return Played(np.array(arms, dtype=np.uint8), np.array(numbers), np.array(windows))


def main() -> None:
    """Write the table, or compare with it."""
    parser = argparse.ArgumentParser(prog="python tests/recorded.py")
    chosen = parser.add_mutually_exclusive_group(required=True)
    chosen.add_argument("--write", nargs="?", const="", metavar="TEXT", help="play cases, and write them down")
    chosen.add_argument("--compare", nargs="?", const="", metavar="TEXT", help="play cases, say what is equal")
    given = parser.parse_args()
    text, listed = given.compare if given.write is None else given.write, cases()
    table = read(TABLE) if TABLE.exists() else Table(fingerprint(), {})
    known, bits = dict(table.cases), table.fingerprint == fingerprint()
    for name, case in listed.items():
        if text not in name:
            continue
        played = [play(case, one_call=form) for form in case.forms]
        forms = "" if len({each.digest() for each in played}) == 1 else ", FORMS DIFFER"
        if given.write is None:
            print(f"{name:50s} {verdict(known[name], played[-1])}{forms}", flush=True)
        else:
            known[name] = Frozen.of(played[-1], bits=bits)
            print(f"{name}{forms}", flush=True)
    if given.write is not None:
        write(table._replace(cases={name: known[name] for name in listed if name in known}), TABLE)


if __name__ == "__main__":
    main()
