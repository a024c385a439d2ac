"""Runs the Python examples of every Markdown page as tests, and the tests of one policy with `--policy NAME`.

Docstring examples are run by pytest itself.
"""

import importlib
from collections.abc import Iterator
from doctest import ELLIPSIS, NORMALIZE_WHITESPACE

import pytest
from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser

pytest_plugins = ["services", "tables"]
pytest_collect_file = Sybil(
    parsers=[PythonCodeBlockParser(doctest_optionflags=ELLIPSIS | NORMALIZE_WHITESPACE)],
    patterns=["*.md"],
    fixtures=["same_registry"],
).pytest()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --policy."""
    parser.addoption("--policy", help="only tests of this registered policy: its name is a parameter, or in the test's")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what does not concern the policy that was asked for."""
    name = config.getoption("--policy")
    if name is not None:
        chosen = [item for item in items if concerns(item, name)]
        config.hook.pytest_deselected(items=[item for item in items if item not in set(chosen)])
        items[:] = chosen


def concerns(item: pytest.Item, name: str) -> bool:
    """Return whether a test is about a policy: by a parameter, by its name, or as an example of the policy's file."""
    if "src" in item.path.parts:
        return True
    given = getattr(item, "callspec", None)
    values = [str(value).partition(":")[0] for value in given.params.values()] if given is not None else []
    word = name.replace("-", "_")
    return name in values or word == item.path.stem.removeprefix("test_") or f"_{word}_" in f"{item.name}_"


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
