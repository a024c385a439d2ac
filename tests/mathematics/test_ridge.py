import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from undertow import InvalidInputError
from undertow.ridge import NestedRidge


@settings(max_examples=40, deadline=None)
@given(
    block=st.integers(1, 3),
    max_window=st.integers(0, 5),
    rows=st.integers(0, 40),
    ridge=st.sampled_from([0.01, 1.0, 30.0]),
    seed=st.integers(0, 10**6),
)
def test_every_window_against_a_regression_of_its_own(
    block: int, max_window: int, rows: int, ridge: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    size = block * max_window + 1
    model = NestedRidge(block, max_window, ridge)
    Θ, X = rng.standard_normal((rows, size)), rng.standard_normal(rows)
    for inputs, target in zip(Θ, X, strict=True):
        model.update(inputs, target)
    new = rng.standard_normal(size)
    forecast = model.forecast(new)
    assert model.rows == rows
    for s in range(max_window + 1):
        p = block * s + 1
        V = ridge * np.eye(p) + Θ[:, :p].T @ Θ[:, :p]
        weights = np.linalg.solve(V, Θ[:, :p].T @ X)
        np.testing.assert_allclose(model.weights(s), weights, atol=1e-10)
        np.testing.assert_allclose(forecast.mean[s], weights @ new[:p], atol=1e-10)
        np.testing.assert_allclose(forecast.uncertainty[s], new[:p] @ np.linalg.solve(V, new[:p]), rtol=1e-9)
        np.testing.assert_allclose(model.log_det[s], np.linalg.slogdet(V)[1], rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(model.trace_inverse[s], np.trace(np.linalg.inv(V)), rtol=1e-9)
    V = ridge * np.eye(size) + Θ.T @ Θ
    W = model._W  # noqa: SLF001 (the factor itself is nobody's business)
    np.testing.assert_allclose(W @ V @ W.T, np.eye(size), atol=1e-9)


def test_bad_rows_change_nothing() -> None:
    model = NestedRidge(block=2, max_window=2)
    model.update(np.ones(5), 1.0)
    before = model.weights(2)
    for inputs, target, message in (
        (np.ones(4), 1.0, "inputs: expected shape (5,), got (4,)"),
        (np.full(5, np.nan), 1.0, "inputs: expected finite numbers"),
        (np.full(5, 1e160), 1.0, "inputs: expected numbers below 1e+152 in size, got 1e+160"),
        (np.ones(5), np.inf, "target: expected finite numbers"),
    ):
        with pytest.raises(InvalidInputError, match=re.escape(message)):
            model.update(inputs, target)
    np.testing.assert_array_equal(model.weights(2), before)
    for bad, message in (
        ({"block": 0, "max_window": 1}, "block: expected at least 1"),
        ({"block": 1, "max_window": -1}, "max_window: expected at least 0"),
        ({"block": 1, "max_window": 1, "ridge": 0}, "ridge: expected a number above 0"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            NestedRidge(**bad)
