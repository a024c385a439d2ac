"""Runs the Python examples of every Markdown page as tests; docstring examples are run by pytest itself."""

import importlib
from collections.abc import Iterator
from doctest import ELLIPSIS, NORMALIZE_WHITESPACE

import pytest
from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser

pytest_collect_file = Sybil(
    parsers=[PythonCodeBlockParser(doctest_optionflags=ELLIPSIS | NORMALIZE_WHITESPACE)],
    patterns=["*.md"],
    fixtures=["same_registry"],
).pytest()


@pytest.fixture(scope="module")
def same_registry() -> Iterator[None]:
    """Forget, after a page or a file of tests, the policies that it registered."""
    importlib.import_module("undertow.policies")  # ours stay
    entries = importlib.import_module("undertow.live.registry")._ENTRIES  # noqa: SLF001 (nobody else forgets a policy)
    before = dict(entries)
    yield
    entries.clear()
    entries.update(before)


@pytest.fixture(autouse=True, scope="session")
def compiled_here() -> Iterator[None]:
    """Have the processes of the tests compile by themselves: what a test sees is not to depend on what is on disk."""
    ahead = importlib.import_module("undertow.compiled.ahead")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ahead, "compilation_of", lambda *given: None)
        yield
