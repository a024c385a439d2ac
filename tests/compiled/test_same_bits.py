"""The same calls give the same bits in every process, whatever it has compiled or loaded, on any number of threads."""

import json
import os
import subprocess
import sys
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import undertow
from digests import played
from undertow.compiled.kernel import inlined, inlined_kernel, kernel
from undertow.policies import registry
from undertow.support.checks import FloatArray

EVERY = list(registry())
LEARNERS = [name for name, entry in registry().items() if "refit" in entry.parameters]


def elsewhere(rounds: int, names: Sequence[str], **environment: str) -> dict[str, str]:
    """Digests of policies in a process of their own, one after the other."""
    program = Path(__file__).parents[1] / "digests.py"
    source = str(Path(undertow.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, str(program), str(rounds), *names],
        env=os.environ | {"PYTHONPATH": source} | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(json.loads(done.stdout))


def test_order_of_policies_and_threads_of_blas_change_nothing() -> None:
    """Here, in the order of the registry after whatever tests came before; there, backwards with one thread."""
    there = elsewhere(120, EVERY[::-1], OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1", OMP_NUM_THREADS="1")
    assert {name: played(name, 120) for name in EVERY} == there


@pytest.mark.slow
def test_order_of_policies_and_threads_of_blas_change_nothing_for_long() -> None:
    there = elsewhere(500, EVERY[::-1], OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1", OMP_NUM_THREADS="1")
    two = elsewhere(500, EVERY, OPENBLAS_NUM_THREADS="2", MKL_NUM_THREADS="2", OMP_NUM_THREADS="2")
    assert there == two


@pytest.mark.slow
def test_the_process_that_compiles_agrees_with_those_that_load(tmp_path: Path) -> None:
    cold = elsewhere(500, EVERY, NUMBA_CACHE_DIR=str(tmp_path))
    assert elsewhere(500, EVERY, NUMBA_CACHE_DIR=str(tmp_path)) == cold
    assert elsewhere(500, LEARNERS[::-1], NUMBA_CACHE_DIR=str(tmp_path)).items() <= cold.items()
    assert elsewhere(500, EVERY[::-1], NUMBA_CACHE_DIR=str(tmp_path / "backwards")) == cold


def inner(x: FloatArray, y: FloatArray) -> float:
    total = 0.0
    for i in range(len(x)):
        for j in range(len(y)):
            total += np.exp(x[i] * y[j]) / (1.0 + np.sin(x[j]) ** 2) + np.log(1.0 + y[i] ** 2)
            total -= np.cos(x[i] + y[j]) * np.tanh(y[j]) + np.sqrt(1.0 + x[i] ** 2)
            if total > 1e9:
                x[i] = np.floor(total) % 7.0
    for i in range(1, len(x)):  # it has to be too long to be inlined
        for j in range(i):
            if x[j] > y[i]:
                y[j], x[i] = x[i], y[j] * total
    return total


def test_a_kernel_keeps_the_copies_that_it_was_compiled_with() -> None:
    """A copy that other kernels could see would be run by them, or theirs by it, whichever was loaded first."""
    inner.__module__ = "__main__"  # so that it is compiled here, and not kept
    called = kernel(inner)

    def outer(x: FloatArray, y: FloatArray) -> float:
        return called(x, y) - called(y, x) + called(x, x) * called(y, y)

    outer.__module__ = "__main__"
    caller = kernel(outer)
    assert np.isfinite(caller(np.ones(3), np.ones(3)))
    (compiled,) = caller.overloads.values()  # type: ignore[attr-defined]
    parts = list(compiled.library.get_defined_functions())
    assert any("inner" in part.name and part.linkage.name == "internal" for part in parts)
    assert {part.linkage.name for part in parts} == {"internal", "external"}


@pytest.mark.parametrize(("decorator", "inlines"), [(kernel, False), (inlined_kernel, True)])
def test_a_kernel_is_compiled_alike_whoever_calls_it_first(decorator: Any, *, inlines: bool) -> None:
    """numba lets a function inherit from its caller whether it is inlined, and compiles it once for all callers."""
    part = decorator(types.FunctionType(inner.__code__, globals() | {"__name__": "__main__"}))

    @inlined
    def between(x: FloatArray, y: FloatArray) -> float:
        return float(part(x, y))

    def outer(x: FloatArray, y: FloatArray) -> float:
        return between(x, y) + 1.0

    outer.__module__ = "__main__"
    assert np.isfinite(kernel(outer)(np.ones(3), np.ones(3)))
    (compiled,) = part.overloads.values()
    assert ("alwaysinline" in compiled.library.get_llvm_str()) == inlines


def test_a_fingerprint_names_what_bits_depend_on() -> None:
    found = undertow.fingerprint()
    assert found["undertow"] == undertow.__version__
    assert all(isinstance(text, str) and text for text in found.values())
    assert json.loads(json.dumps(found)) == undertow.fingerprint()
