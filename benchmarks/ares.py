"""The speed of ARES as a ratio to plain NumPy and C++, and its exactness after a million updates.

Everything that is compared is timed in turn, several times over; the best time counts, since anything else on the
machine can only add to it, and the spread says by how much it did.
"""

import ctypes
import functools
import math
import subprocess
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

import undertow
from benchmarks.report import CPP, HERE, OUT, REORDER, Array, Report, in_turn, sampled
from twins.naive_ares import NaiveARES
from undertow import Trajectory, paper_system, random_system, simulate
from undertow.ridge import ridge_project, ridge_update

Arms = npt.NDArray[np.int64]
NOISE_BOUND = 2.0


def main() -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    report = Report()
    simulation(report)
    accuracy(report)
    report.save(OUT / "ares.json")


def simulation(report: Report) -> None:
    """Whole trajectories on one core: ours, the readable twin, and the same algorithm in C++."""
    strict, reordered = "C++ -O3", "C++ -O3, sums reordered"
    cpp = {strict: compiled_cpp("ares", []), reordered: compiled_cpp("ares-reordered", REORDER)}
    kernel: Any = ridge_project
    alike = reordered if kernel.targetoptions["fastmath"] else strict  # as for our own kernels
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


if __name__ == "__main__":
    main()
