"""Fit state-space models to tables with another library, in its own environment without undertow.

    python -m benchmarks.filter_peers.fit PEER JOBS.json

Each job names a file with the table to fit, (n, m), the whole table, (N, m), and the order, and a file to write the
one-step forecasts of the whole table and the seconds of the fit to. A line of JSON is printed for every job: its error,
null if there was none. The first job is done twice, so that no time is one of compiling.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Forecaster = Callable[[Array], Array]  # one-step forecasts of a whole table

_EM_STEPS = 50  # the default of the library


def statsmodels(train: Array, order: int) -> Forecaster:
    """Maximise the likelihood of a vector autoregression with measurement noise, which has as many states or more."""
    from statsmodels.tsa.statespace.varmax import VARMAX

    centre, lags = np.nanmean(train, axis=0), -(-order // train.shape[1])
    model = VARMAX(train - centre, order=(lags, 0), trend="n", measurement_error=True)
    fitted = model.fit(disp=False, maxiter=200)
    if not np.isfinite(fitted.llf):
        raise ValueError("its likelihood is not a number")
    return lambda whole: np.asarray(fitted.apply(whole - centre).fittedvalues) + centre


def dynamax(train: Array, order: int) -> Forecaster:
    """Maximise the expected likelihood, step by step, from a random start."""
    import jax
    import jax.numpy as jnp
    from dynamax.linear_gaussian_ssm import LinearGaussianSSM

    if np.isnan(train).any():
        raise ValueError("its EM makes its likelihood NaN if entries are missing")
    jax.config.update("jax_enable_x64", True)
    centre, model = train.mean(axis=0), LinearGaussianSSM(order, train.shape[1])
    parameters, properties = model.initialize(jax.random.PRNGKey(0))
    parameters, scores = model.fit_em(
        parameters, properties, jnp.asarray(train - centre), num_iters=_EM_STEPS, verbose=False
    )
    if not np.isfinite(np.asarray(scores)).all():
        raise ValueError("its likelihood is not a number")

    def forecast(whole: Array) -> Array:
        found = model.filter(parameters, jnp.asarray(whole - centre))
        A, b = parameters.dynamics.weights, parameters.dynamics.bias
        ahead = np.vstack([parameters.initial.mean, found.filtered_means[:-1] @ A.T + b])
        return np.asarray(ahead @ parameters.emissions.weights.T + parameters.emissions.bias + centre)

    return forecast


def sippy(train: Array, order: int) -> Forecaster:
    """N4SID, which chooses the order by AIC; it needs an input, and gets noise that moves nothing."""
    from sippy_unipi import system_identification

    centre = train.mean(axis=0)
    noise = 1e-3 * np.random.default_rng(0).standard_normal((1, len(train)))
    found = system_identification((train - centre).T, noise, "N4SID", IC="AIC", SS_orders=[1, 8])
    return _innovations(np.asarray(found.A), np.asarray(found.C), np.asarray(found.K), centre)


def nfoursid(train: Array, order: int) -> Forecaster:
    """N4SID of a given order, with the library's own filter."""
    import pandas as pd
    from nfoursid.kalman import Kalman
    from nfoursid.nfoursid import NFourSID

    names = [f"y{place}" for place in range(train.shape[1])]
    centre = train.mean(axis=0)
    method = NFourSID(pd.DataFrame(train - centre, columns=names), output_columns=names, num_block_rows=10)
    method.subspace_identification()
    system, covariance = method.system_identification(rank=order)

    def forecast(whole: Array) -> Array:
        kalman, rows = Kalman(system, covariance), list[Array]()
        for row in whole - centre:
            rows.append(np.zeros(len(centre)) if not rows else np.asarray(kalman.y_predicteds[-1]).ravel())
            kalman.step(row[:, None], np.zeros((0, 1)))
        return np.asarray(np.array(rows) + centre, dtype=np.float64)

    return forecast


def _innovations(A: Array, C: Array, K: Array, centre: Array) -> Forecaster:
    """Forecast with a model in innovation form, x' = A x + K (y − C x)."""

    def forecast(whole: Array) -> Array:
        x: Array = np.zeros(len(A))
        rows = list[Array]()
        for row in whole - centre:
            rows.append(np.asarray(C @ x))
            x = np.asarray(A @ x + K @ (row - rows[-1]))
        return np.asarray(np.array(rows) + centre)

    return forecast


PEERS: dict[str, Callable[[Array, int], Forecaster]] = {
    "statsmodels": statsmodels,
    "dynamax": dynamax,
    "sippy": sippy,
    "nfoursid": nfoursid,
}


def do(fit: Callable[[Array, int], Forecaster], job: dict[str, Any]) -> str | None:
    """Fit and forecast; return the error, if there is one."""
    with np.load(job["path"]) as table:
        train, whole = table["train"], table["whole"]
    begun = time.process_time()
    try:
        forecast = fit(train, job["order"])
        seconds = time.process_time() - begun
        np.savez(job["out"], forecasts=forecast(whole), seconds=seconds)
    except Exception as problem:  # the table shows any exception of a library
        return (f"{type(problem).__name__}: {problem}".strip().splitlines() or ["no message"])[0][:200]
    return None


if __name__ == "__main__":
    jobs = json.loads(Path(sys.argv[2]).read_text())
    do(PEERS[sys.argv[1]], jobs[0])
    for job in jobs:
        print(json.dumps({"error": do(PEERS[sys.argv[1]], job)}), flush=True)
