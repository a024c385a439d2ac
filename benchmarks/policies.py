"""How fast ARES is, as ratios: against plain NumPy, C++ and other libraries; and how exact after a million updates.

Everything that is compared is timed in turn, several times over; the best time counts, since anything else on the
machine can only add to it, and the spread says by how much it did. Other libraries run in processes of their own, in
turn with ours. The tables are also written to out/bench/policies.json.
"""

import ctypes
import datetime
import functools
import itertools
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import undertow
from naive_ares import NaiveARES
from undertow import Trajectory, _kernel, paper_system, random_system, simulate
from undertow.ridge import ridge_project, ridge_update

HERE = Path(__file__).parent
OUT = HERE.parent / "out" / "bench"
Array = npt.NDArray[np.float64]
Arms = npt.NDArray[np.int64]
Times = dict[str, list[float]]

REPEATS = 5
NOISE_BOUND = 2.0
CPP = ["g++", "-std=c++17", "-O3", "-march=native", "-shared", "-fPIC"]
REORDER = ["-fassociative-math", "-freciprocal-math", "-fno-signed-zeros", "-fno-trapping-math", "-fno-math-errno"]
PEERS = {  # name in peer_rounds.py: its package, and how many times our time it should take (None: only shown)
    "mabwiser LinUCB": ("mabwiser", 25),
    "VW cb_explore": ("vowpalwabbit", None),  # its leanest mode, with neither SquareCB nor features of actions
    "VW cb_explore_adf": ("vowpalwabbit", 4),
}


class Report:
    """Prints what was measured and keeps it for the file."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[str, Any]] = {}

    def table(self, title: str, unit: str = "", times: Mapping[str, list[float]] = {}) -> None:
        """Print the best time of each, its spread, and its ratio to the first."""
        print(f"\n{title}" + (f", {unit}, best of {len(next(iter(times.values())))} (spread)" if times else ""))
        first = min(next(iter(times.values()), [0.0]))
        for name, values in times.items():
            best = min(values)
            print(f"  {name:26} {best:12,.2f}  ({max(values) / best - 1:4.0%})  {best / first:10.2f} ×")
        self.tables[title] = {"unit": unit, "times": dict(times), "notes": [], "targets": []}

    def note(self, text: str) -> None:
        """Print a line that belongs to the last table."""
        print(f"  {text}")
        next(reversed(self.tables.values()))["notes"].append(text)

    def target(self, what: str, value: float, *, most: float = math.inf, least: float = -math.inf) -> None:
        """Print whether the last table meets a target."""
        met = least <= value <= most
        bound = f"≤ {most:g}" if most < math.inf else f"≥ {least:g}"
        print(f"  {'met   ' if met else 'MISSED'} {what}: {value:.3g} {bound if met else f'instead of {bound}'}")
        targets = next(reversed(self.tables.values()))["targets"]
        targets.append({"what": what, "value": value, "target": bound, "met": met})

    def save(self, path: Path) -> None:
        """Write all tables, with the machine and the versions that they were measured with."""
        versions = {"python": platform.python_version(), "g++": _output([CPP[0], "-dumpfullversion"])}
        versions |= {module.__name__: module.__version__ for module in (undertow, numba, np)}
        versions |= dict(line.split("==") for line in (HERE / "peers.txt").read_text().split() if "numpy" not in line)
        machine = {"platform": platform.platform(), "processor": _processor(), "cores": os.cpu_count()}
        date = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        content = {"date": date, "machine": machine, "versions": versions, "tables": self.tables}
        path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
        missed = [target for table in self.tables.values() for target in table["targets"] if not target["met"]]
        print(f"\n{len(missed)} targets missed; written to {path.relative_to(HERE.parent)}")


def main() -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    report = Report()
    simulation(report)
    growth(report)
    live_round(report)
    import_time(report)
    accuracy(report)
    report.save(OUT / "policies.json")


def simulation(report: Report) -> None:
    """Whole trajectories on one core: ours, the readable twin, and the same algorithm in C++."""
    strict, reordered = "C++ -O3", "C++ -O3, sums reordered"
    cpp = {strict: compiled_cpp("ares", []), reordered: compiled_cpp("ares-reordered", REORDER)}
    alike = reordered if _kernel._OPTIONS["fastmath"] else strict  # what our own kernels are allowed
    for system, rounds, few in ((paper_system(1), 200_000, 200), (random_system(10, 5, 10, rng=0), 20_000, 50)):
        path = sampled(system, rounds)
        beginning = Trajectory(path.contexts[:few], path.rewards[:few])
        policy = ares(path)
        run = simulate(policy, path, record=["windows"])  # compiles
        assert run.windows is not None
        same = [np.mean(run.arms == play(path)) for play in cpp.values()]
        same.append(np.mean(run.arms[:few] == naive_arms(beginning)))
        assert min(same) >= 0.999, f"the arms agree in {same} of the rounds"
        calls: dict[str, Callable[[], object]] = {"undertow": functools.partial(simulate, policy, path, threads=1)}
        calls |= {name: functools.partial(play, path) for name, play in cpp.items()}
        calls |= {"plain NumPy": functools.partial(naive_arms, beginning)}
        times = in_turn(calls, {"plain NumPy": few}, rounds)
        m, k, p = path.context_dim, path.arm_count, 10 * path.context_dim + 1
        report.table(f"ARES on a stored trajectory, m = {m}, k = {k}, p = {p}", "ns a round on one core", times)
        report.note(f"the same arms in {same[0]:.2%} and {same[1]:.2%} (C++) and {same[2]:.2%} (NumPy) of the rounds")
        report.note(f"a decision reads the rows of the largest window: {run.windows.max(axis=1).mean():.1f} of 10")
        best = {name: min(values) for name, values in times.items()}
        report.target(f"undertow over {alike}", best["undertow"] / best[alike], most=1.5)
        if p == 11:
            report.target("plain NumPy over undertow", best["plain NumPy"] / best["undertow"], least=600)


def growth(report: Report) -> None:
    """How the time of a round grows with the number of inputs."""
    lengths = (10, 20, 40, 80)
    path = sampled(random_system(10, 5, 2, rng=0), 3_000)
    policies = {f"s_N = {s}, p = {5 * s + 1}": ares(path, max_window=s) for s in lengths}
    calls = {name: functools.partial(simulate, policy, path, threads=1) for name, policy in policies.items()}
    times = in_turn(calls, {}, path.rounds)
    best = [min(values) for values in times.values()]
    report.table("ARES when the window doubles, m = 5, k = 2", "ns a round on one core", times)
    report.target("largest ratio of a doubling", max(b / a for a, b in itertools.pairwise(best)), most=4.6)
    slope = np.polyfit(np.log([5 * s + 1 for s in lengths]), np.log(best), 1)[0]
    report.note(f"fitted exponent of p: {slope:.2f}; expected from the algorithm: 2")


def live_round(report: Report) -> None:
    """Decide, learn and observe from Python, on [1, the last 10 contexts]; peers get the vector ready-made."""
    path = sampled(paper_system(1), 5_000)
    recent = np.lib.stride_tricks.sliding_window_view(path.contexts[:-1, 0], 10)[:, ::-1]
    folder = OUT / "live"
    folder.mkdir(exist_ok=True)
    np.save(folder / "inputs.npy", np.column_stack([np.ones(len(recent)), recent]))
    np.save(folder / "rewards.npy", path.rewards[10:])
    peers, errors = installed_peers(folder)
    contexts, rewards = list(path.contexts), path.rewards.tolist()

    def ours() -> dict[str, float]:
        policy = undertow.make("ares", arms=2, context_dim=1)
        arms = []
        start = time.perf_counter()
        for context, paid in zip(contexts, rewards, strict=True):
            decision = policy.decide()
            policy.learn(decision, paid[decision.arm])
            policy.observe(context)
            arms.append(decision.arm)
        microseconds = (time.perf_counter() - start) / path.rounds * 1e6
        gain = np.mean(path.rewards[np.arange(path.rounds), arms] - path.rewards.mean(axis=1))
        return {"microseconds": microseconds, "gain": float(gain)}

    ours()  # compiles
    calls = {"undertow": ours, **peers}
    answers = [{name: call() for name, call in calls.items()} for _ in range(REPEATS)]
    times = {name: [answer[name]["microseconds"] for answer in answers] for name in calls}
    report.table("A live round from Python, p = 11, k = 2", "µs, peers in processes of their own in turn", times)
    gains = ", ".join(f"{name} {answers[0][name]['gain']:.3f}" for name in calls)
    report.note(f"earned a round above the average of the arms: {gains}")
    for name, error in errors.items():
        report.note(f"{name} did not install: {error}")
    best = {name: min(values) for name, values in times.items()}
    report.target("µs of undertow", best["undertow"], most=12)
    for name in peers:
        least = PEERS[name][1]
        if least is not None:
            report.target(f"{name} over undertow", best[name] / best["undertow"], least=least)


def import_time(report: Report) -> None:
    """Fresh interpreters with warm files; the time inside them, without their own start."""
    code = "import time; start = time.perf_counter(); import {}; print((time.perf_counter() - start) * 1e3)"
    times: Times = {"numba": [], "undertow": []}
    for turn in range(8):
        for name, values in times.items():
            milliseconds = float(_output([sys.executable, "-c", code.format(name)]))
            if turn > 0:  # the first warms the files
                values.append(milliseconds)
    report.table("Import in a fresh interpreter", "ms", times)
    medians = {name: statistics.median(values) for name, values in times.items()}
    report.note(f"medians of 7: numba {medians['numba']:.0f} ms, undertow {medians['undertow']:.0f} ms")
    report.target("undertow over numba, medians", medians["undertow"] / medians["numba"], most=1.5)


def accuracy(report: Report) -> None:
    """Compare a million recursive updates with one factorisation in extended precision, for every window."""
    rows, p = 1_000_000, 11
    rng = np.random.default_rng(0)
    contexts = rng.normal(scale=100, size=rows + 100 + p)
    Θ = np.lib.stride_tricks.sliding_window_view(contexts, p)[: rows + 100].copy()
    Θ[:, 0] = 1
    X = Θ[:rows] @ rng.normal(size=p) + rng.normal(size=rows)
    fresh = Θ[rows:]
    W, u, log_det = np.eye(p), np.zeros(p), np.zeros(p)
    numba.njit(learn_rows)(Θ[:rows], X, W, u, log_det)
    V, b = np.eye(p, dtype=np.longdouble), np.zeros(p, dtype=np.longdouble)
    for part in np.array_split(np.arange(rows), 20):
        inputs = Θ[part].astype(np.longdouble)
        V += inputs.T @ inputs
        b += X[part].astype(np.longdouble) @ inputs
    L = cholesky(V)
    forecast = np.cumsum(solve_lower(L, fresh.T.astype(V.dtype)) * solve_lower(L, b)[:, None], axis=0)
    found = np.cumsum(W @ fresh.T * u[:, None], axis=0)
    exact = 2 * np.cumsum(np.log(np.diag(L)))
    report.table("A million updates, context variance 10⁴, p = 11, against extended precision")
    gap = np.linalg.norm((found - forecast).astype(float), axis=1) / np.linalg.norm(forecast.astype(float), axis=1)
    report.target("largest relative error of a forecast", float(gap.max()), most=1e-9)
    report.target("largest relative error of log det V", float(np.max(np.abs(log_det / exact - 1))), most=1e-9)


def learn_rows(Θ: Array, X: Array, W: Array, u: Array, log_det: Array) -> None:
    """Update the factor with one row after another, as ARES does."""
    p = len(u)
    y, r, row_norms = np.empty(p), np.empty(p), np.empty(p)
    for t in range(len(X)):
        ridge_project(W, Θ[t], y, p)
        q = 0.0
        for i in range(p):
            q += y[i] * y[i]
            log_det[i] += math.log(1.0 + q)
        ridge_update(W, u, y, X[t], r, row_norms)


def cholesky(V: npt.NDArray[np.longdouble]) -> npt.NDArray[np.longdouble]:
    """Return L with V = LL', in the precision of V."""
    L = np.zeros_like(V)
    for i in range(len(V)):
        L[i, :i] = solve_lower(L[:i, :i], V[:i, i])
        L[i, i] = np.sqrt(V[i, i] - L[i, :i] @ L[i, :i])
    return L


def solve_lower(L: npt.NDArray[np.longdouble], B: npt.NDArray[np.longdouble]) -> npt.NDArray[np.longdouble]:
    """Return L⁻¹B."""
    Y = np.zeros_like(B)
    for i in range(len(L)):
        Y[i] = (B[i] - L[i, :i] @ Y[:i]) / L[i, i]
    return Y


def sampled(system: undertow.LinearGaussianSystem, rounds: int) -> Trajectory:
    """Return a path without its means, so that no regret is computed while a policy is timed."""
    path = system.sample(rounds, rng=0)
    return Trajectory(path.contexts, path.rewards)


def ares(path: Trajectory, max_window: int = 10) -> Any:
    """Return the policy that all sides run."""
    k, m = path.arm_count, path.context_dim
    return undertow.make("ares", arms=k, context_dim=m, max_window=max_window, noise_bound=NOISE_BOUND)


def naive_arms(path: Trajectory) -> Arms:
    policy = NaiveARES(path.arm_count, path.context_dim, noise_bound=NOISE_BOUND)
    arms = np.empty(path.rounds, dtype=np.int64)
    for t in range(path.rounds):
        arms[t] = policy.decide()[0]
        policy.learn(int(arms[t]), path.rewards[t, arms[t]])
        policy.observe(path.contexts[t])
    return arms


def compiled_cpp(name: str, options: list[str]) -> Callable[[Trajectory], Arms]:
    """Compile ares.cpp and return a function from a trajectory to the chosen arms."""
    library = OUT / f"{name}.so"
    subprocess.run([*CPP, *options, str(HERE / "ares.cpp"), "-o", str(library)], check=True)
    function = ctypes.CDLL(str(library)).ares
    pointer, integer = ctypes.c_void_p, ctypes.c_int64
    function.argtypes = [pointer, pointer, integer, integer, integer, integer, pointer, pointer]
    function.restype = None
    settings = np.array([math.log(10), 1.0, 0.99, 0.1, 100.0, NOISE_BOUND])  # log 1/δ, λ, α, ν, B_G, B_R

    def play(path: Trajectory) -> Arms:
        arms = np.empty(path.rounds, dtype=np.int64)
        sizes = (path.rounds, path.context_dim, path.arm_count, 10)
        data = [array.ctypes.data for array in (path.contexts, path.rewards, settings, arms)]
        function(*data[:2], *sizes, *data[2:])
        return arms

    return play


def installed_peers(folder: Path) -> tuple[dict[str, Callable[[], dict[str, float]]], dict[str, str]]:
    """Install the peers in an environment of their own; return how to time each, and what went wrong."""
    python = OUT / "peers-venv" / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(OUT / "peers-venv")], check=True)
    errors = {}
    for pinned in (HERE / "peers.txt").read_text().split():
        command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", pinned]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            errors[pinned] = done.stderr.strip().splitlines()[-1]

    def timed(name: str) -> dict[str, float]:
        answer: dict[str, float] = json.loads(_output([str(python), str(HERE / "peer_rounds.py"), name, str(folder)]))
        return answer

    absent = {pinned.split("==")[0] for pinned in errors}
    there = [name for name, (package, _) in PEERS.items() if not absent & {package, "numpy"}]
    return {name: functools.partial(timed, name) for name in there}, errors


def in_turn(calls: Mapping[str, Callable[[], object]], rounds: Mapping[str, int], usual: int) -> Times:
    """Return nanoseconds a round of every call, timed in turn."""
    times: Times = {name: [] for name in calls}
    for _ in range(REPEATS):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            times[name].append((time.perf_counter() - start) / rounds.get(name, usual) * 1e9)
    return times


def _output(command: list[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    names = [line for line in info.read_text().splitlines() if line.startswith("model name")] if info.exists() else []
    return names[0].partition(":")[2].strip() if names else platform.processor()


if __name__ == "__main__":
    main()
