"""What every policy does on fixed problems, written down once, so that a rebuilt inside can be held to it.

    python tests/frozen.py --write            # play every case and write tests/frozen.npz
    python tests/frozen.py --compare [TEXT]   # play (those with TEXT in their name) and say what is equal
    python tests/frozen.py --add              # play the cases that the table lacks, and add them

Only the public interface is used. Write the table with the code that is trusted, in a process that finds its kernels
compiled: run it twice and keep the second.
"""

import argparse
import functools
import hashlib
import json
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import llvmlite
import llvmlite.binding
import numba
import numpy as np
import numpy.typing as npt
import scipy

import undertow
from undertow import LinearGaussianSystem, Trajectory, UnknownDecisionError, paper_system
from undertow.policies import Autopilot, Decision, LearnedKalman, LivePolicy, StructuralKalman, registry

Array = npt.NDArray[np.float64]

TABLE = Path(__file__).with_name("frozen.npz")
EVERY = 20  # of so many rounds one is kept in numbers; the digest is of all
LEARNERS = ("learned-kalman", "structural-kalman", "autopilot")
KNOWN = ("context-oracle", "kalman-greedy", "kalman-ucb", "idea", "full-information-oracle")
LINEAR = ("linucb", "lints", "discounted-linucb", "sliding-window-linucb")

SYSTEMS: dict[str, Callable[[], LinearGaussianSystem]] = {
    "paper": lambda: paper_system(1),
    "paper3": lambda: paper_system(3),
    "blind": lambda: undertow.random_system(3, 0, 4, rng=1, spectral_radius=0.95, drift=True),
    "middle": lambda: undertow.random_system(4, 2, 3, rng=2, spectral_radius=0.97, drift=True),
    "large": lambda: undertow.random_system(5, 3, 6, rng=3, spectral_radius=0.9),
    "two": lambda: undertow.random_system(3, 2, 2, rng=4, spectral_radius=0.97),
    "one": lambda: undertow.random_system(2, 1, 1, rng=6, spectral_radius=0.9),
    "unseen": lambda: with_unseen_mode(undertow.random_system(3, 2, 3, rng=7, spectral_radius=0.9)),
    "four": lambda: undertow.random_system(4, 1, 4, rng=5, spectral_radius=0.95),
}


def with_unseen_mode(system: LinearGaussianSystem) -> LinearGaussianSystem:
    """Give a system one more direction that grows for ever and that neither contexts nor rewards see."""
    d, wide = system.state_dim, ((0, 0), (0, 1))
    dynamics, noise = (np.pad(matrix, (0, 1)) for matrix in (system.dynamics, system.state_noise))
    dynamics[d, d], noise[d, d] = 1.01, 1.0
    return LinearGaussianSystem(
        dynamics=dynamics,
        arms=np.pad(system.arms, wide),
        state_noise=noise,
        reward_noise=system.reward_noise,
        context_map=np.pad(system.context_map, wide),
        context_noise=system.context_noise,
        initial_covariance=np.eye(d + 1),
    )


class Played(NamedTuple):
    """What a policy did: everything with a leading axis of rounds, of all runs one after another."""

    arms: npt.NDArray[np.uint8]  # (n,)
    numbers: Array  # forecasts and widths, and in live play what else it said, (n, columns)
    windows: Array  # (n, k); NaN where there are none

    def digest(self) -> str:
        """Return a digest of every bit, all NaN being one."""
        total = hashlib.blake2b(self.arms.tobytes(), digest_size=16)
        for part in (self.numbers, self.windows):
            total.update(np.where(np.isnan(part), np.nan, part).tobytes())
        return total.hexdigest()


@dataclass(frozen=True)
class Case:
    """One policy with its parameters on one problem, simulated or played by hand."""

    name: str
    policy: str
    system: str
    parameters: dict[str, Any] = field(default_factory=dict)
    contexts: bool = True
    features: int = 0
    gaps: float = 0.0
    live: bool = False
    rounds: int = 400
    runs: int = 2
    warm: int = 0  # past rounds that a learner takes in before live play
    switch: bool | None = None  # the order within a round that `simulate` is asked for

    @property
    def learns(self) -> bool:
        """Whether the policy fits models, whose last digits depend on what the process compiled first."""
        return self.policy in LEARNERS

    def make(self) -> LivePolicy:
        """Make the policy, unused."""
        system, takes = _system(self.system), registry()[self.policy].parameters
        given = {"rng": 11} | ({"refit": "inline"} if self.learns else {}) | self.parameters
        if "system" in takes:
            return undertow.make(self.policy, system, **given)
        if self.contexts and "context_dim" in takes:
            given = {"context_dim": system.context_dim} | given
        if self.features:
            given = {"feature_dim": self.features} | given
        return undertow.make(self.policy, **({"arms": system.arm_count} | given))

    def play(self) -> Played:
        """Play the case, from nothing."""
        return play_live(self) if self.live else play_simulated(self)


@functools.cache
def _system(name: str) -> LinearGaussianSystem:
    return SYSTEMS[name]()


@functools.cache
def _paths(name: str, rounds: int, runs: int, features: int, gaps: float) -> Trajectory:
    paths = _system(name).sample(rounds, rng=5, runs=runs)
    rng = np.random.default_rng(6)
    contexts = np.where(rng.random(paths.contexts.shape) < gaps, np.nan, paths.contexts)
    drawn = rng.standard_normal((runs, rounds, features))
    return Trajectory(contexts, paths.rewards, means=paths.means, features=drawn)


def play_simulated(case: Case) -> Played:
    """Simulate a case."""
    paths = _paths(case.system, case.rounds, case.runs, case.features, case.gaps)
    tables = ("forecasts", "widths", "windows")
    run = undertow.simulate(case.make(), paths, record=tables, context_first=case.switch)
    assert run.forecasts is not None
    assert run.widths is not None
    assert run.windows is not None
    k = paths.arm_count
    numbers = np.concatenate([run.forecasts, run.widths], axis=-1).reshape(-1, 2 * k)
    return Played(run.arms.ravel().astype(np.uint8), numbers, run.windows.reshape(-1, k))


# Play by hand: rewards that come late and out of order or never, arms that come and go, gaps, skips, a save file


def play_live(case: Case) -> Played:
    """Play a case by hand, through whatever can happen to a policy in use."""
    path = _paths(case.system, case.rounds + 50, 1, case.features, case.gaps).run(0)
    rng, policy = np.random.default_rng(7), case.make()
    if case.warm:
        assert isinstance(policy, LearnedKalman | StructuralKalman | Autopilot)
        past, played = slice(0, case.warm), np.arange(case.warm) % policy.arm_count
        policy.warm_start(played, path.rewards[np.arange(case.warm), played], contexts=path.contexts[past])
    k = policy.arm_count + 1  # one arm comes new
    sees, features = case.contexts and path.context_dim > 0 and _sees(case), path.features
    first = bool(case.parameters.get("context_first", False))
    late: dict[int, list[Decision]] = {}
    rows: list[tuple[int, Array, Array]] = []
    round_ = 0
    for turn in range(case.rounds):
        policy = _happen(case, policy, path, turn, sees)
        round_ = policy.round
        context = None if turn % 17 == 5 else path.contexts[round_]
        row = features[round_] if case.features else None
        outlook = policy.forecast(row) if turn % 10 == 4 and not (sees and first) else None
        if sees and first:
            policy.observe(context)
        decision = policy.decide(row, available=_available(policy, turn))
        if rng.random() < 0.05:
            pass  # its reward never comes
        elif rng.random() < 0.6:
            _learn(policy, decision, path)
        else:
            late.setdefault(turn + int(rng.integers(1, 15)), []).append(decision)
        if sees and not first:
            policy.observe(context)
        due = late.pop(turn, [])
        for place in rng.permutation(len(due)):
            _learn(policy, due[place], path)
        rows.append((decision.arm, *_row(decision, outlook, k)))
    arms, numbers, windows = zip(*rows, strict=True)
    return Played(np.array(arms, dtype=np.uint8), np.array(numbers), np.array(windows))


def _sees(case: Case) -> bool:
    takes = registry()[case.policy].parameters
    return "context_dim" in takes or "system" in takes


def _happen(case: Case, policy: LivePolicy, path: Trajectory, turn: int, sees: bool) -> LivePolicy:
    """What comes between two rounds."""
    match turn:
        case 60:
            policy.retire_arm(policy.names[1])
        case 75:
            policy.skip(3)
        case 90:
            policy.add_arm(policy.names[1])
        case 110 if case.policy not in KNOWN:
            policy.add_arm("new")
        case 130:
            policy.skip(2, path.contexts[policy.round : policy.round + 2] if sees else None)
        case 145:
            with tempfile.TemporaryDirectory() as folder:
                policy.save(Path(folder) / "policy")
                return undertow.load(Path(folder) / "policy")
    return policy


def _available(policy: LivePolicy, turn: int) -> list[str | int] | None:
    if turn % 7 != 3:
        return None
    arms = [arm for arm, name in enumerate(policy.names) if name not in policy.retired]
    return [arm if arm % 2 else policy.names[arm] for arm in arms[(turn // 7) % len(arms) :]]


def _learn(policy: LivePolicy, decision: Decision, path: Trajectory) -> None:
    paid = path.rewards[decision.round]
    reward = float(paid[decision.arm]) if decision.arm < len(paid) else 0.5 * float(paid[0] + paid[-1])
    try:
        policy.learn(decision if decision.round % 2 else decision.id, reward)
    except UnknownDecisionError:  # forgotten where only few may wait, or later than it can be learned
        known = policy.parts.parameters()
        assert known["max_pending"] < 100 or known.get("max_delay", 1000) < 15


def _row(decision: Decision, outlook: undertow.policies.Outlook | None, k: int) -> tuple[Array, Array]:
    """Return all that a decision says as a row, and its windows."""
    numbers, windows = np.full((4, k), np.nan), np.full(k, np.nan)
    arms = len(decision.forecast)
    numbers[0, :arms], numbers[1, :arms] = decision.forecast, decision.width
    if outlook is not None:
        numbers[2, :arms], numbers[3, :arms] = outlook.forecast, outlook.width
    if decision.window is not None:
        windows[:arms] = decision.window
    why = np.full(2 * k + 1, np.nan)
    if decision.why is not None:
        why[:arms], why[k : k + arms] = decision.why.state_error, decision.why.arm_error
        why[-1] = decision.why.since_fit
    return np.concatenate([numbers.ravel(), why, [decision.propensity]]), windows


# The cases


def cases() -> dict[str, Case]:
    """Return every case by name."""
    listed = [*_ares(), *_linear(), *_known(), *_bare(), *_relatives(), *_learners()]
    listed += _others(sorted(registry().keys() - {case.policy for case in listed}))
    return {case.name: case for case in listed}


def _others(names: list[str]) -> Iterator[Case]:
    """Two cases for each policy that has none of its own."""
    for name in names:
        case = functools.partial(_case, name)
        yield case("as it is", "two")
        yield case("live", "two", live=True)


def _case(policy: str, what: str, system: str, *, parameters: dict[str, Any] | None = None, **more: Any) -> Case:
    if more.get("live"):
        more = {"rounds": 200, "runs": 1} | more
    played = "ares-as-printed" if "as printed" in what else policy
    return Case(f"{policy}: {what}", played, system, parameters or {}, **more)


def _ares() -> Iterator[Case]:
    case = functools.partial(_case, "ares")
    yield case("as it is", "paper")
    yield case("weak context", "paper3")
    yield case("three arms, short windows", "middle", parameters={"max_window": 3, "window_penalty": 0.5})
    yield case("six arms, minimize", "large", parameters={"minimize": True, "max_window": 5, "smoothing": 0.9})
    yield case("gaps", "middle", parameters={"max_window": 4}, gaps=0.3)
    yield case("context first", "two", parameters={"context_first": True, "max_window": 6})
    yield case("context first, gaps, explore", "four", parameters={"context_first": True, "explore": 0.2}, gaps=0.3)
    yield case("standardize", "middle", parameters={"standardize": True, "max_window": 4})
    noisy = {"standardize": True, "minimize": True, "explore": 0.2, "context_first": True, "max_window": 2}
    yield case("standardize and all", "two", parameters=noisy, gaps=0.3)
    yield case("noise bound", "paper", parameters={"noise_bound": 2.5, "confidence": 0.05, "ridge": 3.0})
    biased = {"width": "noise+bias", "bias_bound": 0.7, "weight_bound": 10.0, "max_window": 5}
    yield case("bias", "two", parameters=biased)
    yield case("bias, standardize", "two", parameters=biased | {"standardize": True, "noise_bound": 1.5})
    for rows in (["A1"], ["A2"], ["A3"], ["A4"], ["A1", "A2"], ["A1", "A2", "A3", "A4"]):
        parameters = {"as_printed": rows, "max_window": 4, "noise_bound": 1.3 if "A3" in rows else "auto"}
        yield case(f"as printed {' '.join(rows)}", "two", parameters=parameters)
    printed = {"as_printed": ["A1", "A2"], "max_window": 3, "noise_bound": "auto"}
    yield case("as printed A1 A2, gaps", "middle", parameters=printed, gaps=0.3)
    long = {"rounds": 2100, "runs": 1}  # longer than what is played between two returns from compiled code
    yield case("long, standardize", "two", parameters={"standardize": True, "max_window": 3}, **long)
    yield case("switched to context first", "two", parameters={"max_window": 3}, switch=True)
    yield case("one arm", "one", parameters={"max_window": 3})
    yield case("live", "middle", parameters={"max_window": 4}, live=True)
    yield case("live, standardize", "two", parameters=noisy, live=True, gaps=0.3)
    yield case("live, as printed", "two", parameters=printed | {"max_pending": 4}, live=True)


def _linear() -> Iterator[Case]:
    for name in LINEAR:
        case = functools.partial(_case, name)
        own: dict[str, Any] = {"sliding-window-linucb": {"history": 60}, "discounted-linucb": {"discount": 0.95}}
        more: dict[str, Any] = own.get(name, {})
        yield case("as it is", "paper")
        short = more | {"window": 3}
        yield case("three arms", "middle", parameters=short | {"exploration": 0.5, "ridge": 2.0})
        yield case("six arms, minimize, explore", "large", parameters=short | {"minimize": True, "explore": 0.2})
        yield case("features and lags", "middle", parameters=short | {"reward_lags": 2}, features=2)
        yield case("features alone", "blind", parameters=more, contexts=False, features=2)
        yield case("lags alone", "blind", parameters=more | {"reward_lags": 3}, contexts=False)
        yield case("gaps", "middle", parameters=short, gaps=0.3)
        yield case("context first", "two", parameters=short | {"context_first": True})
        yield case("standardize", "middle", parameters=short | {"standardize": True})
        whole = short | {"standardize": True, "minimize": True, "context_first": True, "reward_lags": 1, "explore": 0.2}
        yield case("standardize and all", "two", parameters=whole, features=1, gaps=0.3)
        yield case("live", "middle", parameters=short, live=True)
        yield case("live, all", "two", parameters=whole, features=1, gaps=0.3, live=True)
        yield case("long", "two", parameters=whole, features=1, gaps=0.3, rounds=2100, runs=1)
        if name == "lints":
            yield case("live, nothing drawn", "two", parameters=short | {"exploration": 0.0}, live=True)
        if name == "sliding-window-linucb":
            older = {"history": 12, "window": 2}
            yield case("live, rewards older than the history", "two", parameters=older, live=True)
        if name == "linucb":
            few = short | {"reward_lags": 2, "max_pending": 4}
            yield case("live, lags, few pending", "two", parameters=few, live=True)
    case = functools.partial(_case, "pies")
    yield case("as it is", "paper")
    yield case("six arms, minimize", "large", parameters={"window": 2, "minimize": True, "explore": 0.2})
    yield case("frozen", "middle", parameters={"window": 3, "frozen": True})
    yield case("frozen, context first, gaps", "two", parameters={"frozen": True, "context_first": True}, gaps=0.3)
    yield case("standardize", "middle", parameters={"window": 3, "standardize": True}, gaps=0.3)
    yield case("frozen, standardize", "two", parameters={"frozen": True, "window": 2, "standardize": True})
    yield case("live", "middle", parameters={"window": 3}, live=True)
    yield case("live, frozen", "two", parameters={"window": 2, "frozen": True, "standardize": True}, live=True)


def _known() -> Iterator[Case]:
    for name in KNOWN:
        case = functools.partial(_case, name)
        factor: dict[str, Any] = {"exploration": 0.6} if name in ("kalman-ucb", "idea") else {}
        yield case("as it is", "paper")
        yield case("three arms", "middle", parameters=factor)
        yield case("six arms, minimize, explore", "large", parameters={"minimize": True, "explore": 0.2})
        yield case("gaps", "middle", parameters=factor, gaps=0.3)
        yield case("context first", "two", parameters={"context_first": True})
        yield case("context first, gaps", "middle", parameters={"context_first": True}, gaps=0.3)
        yield case("no contexts", "blind")
        yield case("unseen mode", "unseen")
        yield case("switched to decide first", "two", parameters={"context_first": True}, switch=False)
        if name != "full-information-oracle":
            yield case("live", "middle", live=True)
            first = {"context_first": True, "minimize": True, "explore": 0.2, "max_delay": 6}
            yield case("live, context first", "two", parameters=first, gaps=0.3, live=True)
            yield case("live, no contexts", "blind", live=True)


def _bare() -> Iterator[Case]:
    for name in ("ucb", "sliding-window-ucb", "discounted-ucb"):
        case = functools.partial(_case, name)
        own: dict[str, Any] = {"sliding-window-ucb": {"history": 40}, "discounted-ucb": {"discount": 0.9}}
        more: dict[str, Any] = own.get(name, {})
        yield case("as it is", "paper")
        yield case("six arms, minimize", "large", parameters=more | {"minimize": True, "exploration": 0.5})
        yield case("fixed scale, explore", "blind", parameters=more | {"scale": 2.0, "explore": 0.2})
        yield case("one arm", "one", parameters=more)
        yield case("live", "blind", parameters=more, live=True)
        if name == "sliding-window-ucb":
            yield case("live, rewards older than the history", "blind", parameters={"history": 5}, live=True)
        few = more | {"scale": 1.5, "minimize": True, "max_pending": 4}
        yield case("live, minimize", "two", parameters=few, live=True)
    case = functools.partial(_case, "random")
    yield case("as it is", "paper")
    yield case("six arms, explore", "large", parameters={"explore": 0.2})
    yield case("live", "blind", live=True)
    case = functools.partial(_case, "beta-thompson")
    yield case("as it is", "paper")
    yield case("discount, prices, minimize", "blind", parameters={"discount": 0.9, "prices": [0.1], "minimize": True})
    yield case("live", "blind", parameters={"discount": 0.99, "explore": 0.2}, live=True)
    case = functools.partial(_case, "rexp3")
    yield case("as it is", "paper")
    yield case("batches", "large", parameters={"horizon": 300, "variation_budget": 30.0})
    fixed = {"bounds": (-3.0, 3.0), "horizon": 400, "variation_budget": 5.0}
    yield case("bounds, minimize, explore", "blind", parameters=fixed | {"minimize": True, "explore": 0.2})
    yield case("live", "blind", parameters={"horizon": 300, "variation_budget": 30.0}, live=True)
    yield case("live, bounds", "two", parameters=fixed, live=True)


def _relatives() -> Iterator[Case]:
    """The paper's relatives: rewards alone, and the past arms that earned them."""
    for name, own in (("ubss", {"reward_lags": 2}), ("larl", {"max_lags": 4})):
        case = functools.partial(_case, name)
        yield case("as it is", "paper")
        yield case("six arms, minimize, explore", "large", parameters=own | {"minimize": True, "explore": 0.2})
        yield case("live", "blind", parameters=own, live=True)
        yield case("live, few pending", "two", parameters=own | {"max_pending": 4, "exploration": 0.3}, live=True)
    yield _case("ubss", "greedy", "blind", parameters={"reward_lags": 3, "exploration": 0.0})
    yield _case("larl", "horizon", "blind", parameters={"horizon": 200, "max_lags": 6})


def _learners() -> Iterator[Case]:
    for name in LEARNERS:
        case = functools.partial(_case, name)
        simulated: dict[str, Any] = {"rounds": 300, "runs": 1}
        yield case("contexts", "paper", **simulated)
        yield case("no contexts", "blind", contexts=False, **simulated)
        first = {"context_first": True, "minimize": True, "explore": 0.2}
        yield case("context first, gaps, minimize", "middle", parameters=first, gaps=0.3, **simulated)
        yield case("live", "two", live=True)
        yield case("live, context first", "middle", parameters=first, gaps=0.3, live=True)
        yield case("live, past rounds", "four", live=True, warm=40, rounds=150)
        if name != "learned-kalman":
            yield case("features", "two", features=2, **simulated)
            yield case("features alone", "blind", contexts=False, features=2, **simulated)
            yield case("live, features", "two", features=1, live=True)


# The table


def fingerprint() -> list[str]:
    """Return what the last digits depend on beside the code: compiler, libraries, processor."""
    features = {name: True for name, has in llvmlite.binding.get_host_cpu_features().items() if has}
    name = str(numba.config.CPU_NAME or llvmlite.binding.get_host_cpu_name())
    options = f"{numba.config.CPU_FEATURES or ''} optimised {numba.config.OPT!s} jit {not numba.config.DISABLE_JIT}"
    return [
        f"numba {numba.__version__}",
        f"llvmlite {llvmlite.__version__}",
        f"numpy {np.__version__}",
        f"scipy {scipy.__version__}",
        f"processor {name} {options}",
        " ".join(sorted(features)),
    ]


@dataclass(frozen=True, eq=False)
class Frozen:
    """One case as it was written down; no digest where the bits are those of another machine than the table's."""

    digest: str
    arms: npt.NDArray[np.uint8]
    numbers: Array  # of every 20th round

    @classmethod
    def of(cls, played: Played, *, bits: bool = True) -> "Frozen":
        """Return what is kept of a case that was played."""
        return cls(played.digest() if bits else "", played.arms, played.numbers[::EVERY])


class Table(NamedTuple):
    """What was written down, and on which machine."""

    fingerprint: list[str]
    cases: dict[str, Frozen]


def write(table: Table, path: Path = TABLE) -> None:
    """Write the table."""
    frozen = table.cases.values()
    entries = [[name, one.digest, len(one.arms), *one.numbers.shape] for name, one in table.cases.items()]
    text = json.dumps({"fingerprint": table.fingerprint, "cases": entries}).encode()
    np.savez_compressed(
        path,
        entries=np.frombuffer(text, dtype=np.uint8),
        arms=np.concatenate([one.arms for one in frozen]),
        numbers=np.concatenate([one.numbers.ravel() for one in frozen]),
    )


@functools.cache
def read(path: Path = TABLE) -> Table:
    """Read the table."""
    with np.load(path) as stored:
        text, arms, numbers = stored["entries"].tobytes(), stored["arms"], stored["numbers"]
    entries = json.loads(text)
    result, arm, number = {}, 0, 0
    for name, digest, rounds, rows, columns in entries["cases"]:
        part = numbers[number : number + rows * columns].reshape(rows, columns)
        result[name] = Frozen(digest, arms[arm : arm + rounds], part)
        arm, number = arm + rounds, number + rows * columns
    return Table(entries["fingerprint"], result)


def verdict(frozen: Frozen, played: Played) -> str:
    """Say how much of a case is as it was."""
    if played.digest() == frozen.digest:
        return "equal to the bit"
    if len(played.arms) != len(frozen.arms):
        return f"{len(played.arms)} rounds in place of {len(frozen.arms)}"
    error = "other shape"
    rows = played.numbers[::EVERY]
    if rows.shape == frozen.numbers.shape:
        differ = rows != frozen.numbers
        differ &= ~(np.isnan(rows) & np.isnan(frozen.numbers))
        first = f", from round {EVERY * int(differ.any(axis=1).argmax())} on" if differ.any() else ""
        with np.errstate(invalid="ignore"):
            error = f"numbers within {np.nanmax(np.abs(rows - frozen.numbers)[differ], initial=0.0):.1e}{first}"
    others = np.flatnonzero(played.arms != frozen.arms)
    if others.size:
        return f"ARMS DIFFER first in round {others[0]}, in {others.size} of {len(played.arms)}; {error}"
    return f"equal arms; {error}"


def main() -> None:
    """Write the table, or compare with it."""
    parser = argparse.ArgumentParser(prog="python tests/frozen.py")
    chosen = parser.add_mutually_exclusive_group(required=True)
    chosen.add_argument("--write", action="store_true", help=f"play every case and write {TABLE.name}")
    chosen.add_argument("--add", action="store_true", help=f"play the cases that {TABLE.name} lacks, and add them")
    chosen.add_argument("--compare", nargs="?", const="", metavar="TEXT", help="play cases, say what is equal")
    given = parser.parse_args()
    if given.write or given.add:
        table = read() if given.add else Table(fingerprint(), {})
        bits = table.fingerprint == fingerprint()
        known = {name: table.cases.get(name) or Frozen.of(case.play(), bits=bits) for name, case in cases().items()}
        write(table._replace(cases=known))
        print(f"{TABLE}: {len(known)} cases, {TABLE.stat().st_size} bytes")
        return
    table = read()
    print("the machine that wrote the table" if table.fingerprint == fingerprint() else "another machine")
    for name, case in cases().items():
        if given.compare in name:
            print(f"{name:60s} {verdict(table.cases[name], case.play())}", flush=True)


if __name__ == "__main__":
    main()
