"""Runs the Python examples of every Markdown page as tests, and the tests of one policy with `--policy NAME`.

Docstring examples are run by pytest itself.
"""

import importlib
import os
from collections import defaultdict
from collections.abc import Iterator
from doctest import ELLIPSIS, NORMALIZE_WHITESPACE
from itertools import chain

import pytest
from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else importing LiteLLM asks the network for prices
pytest_plugins = ["services", "tables"]
pytest_collect_file = Sybil(
    parsers=[PythonCodeBlockParser(doctest_optionflags=ELLIPSIS | NORMALIZE_WHITESPACE)],
    patterns=["*.md"],
    fixtures=["same_registry"],
).pytest()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what `make test ONLY=policy` needs."""
    parser.addoption("--policy", help="only tests of this registered policy: its name is a parameter, or in the test's")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what does not concern the policy that was asked for."""
    name = config.getoption("--policy")
    if name is not None:
        chosen = [item for item in items if concerns(item, name)]
        config.hook.pytest_deselected(items=[item for item in items if item not in set(chosen)])
        items[:] = chosen


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show the files that took longest, below pytest's own list of tests."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for report in chain.from_iterable(terminalreporter.stats.values()):
        if isinstance(report, pytest.TestReport):
            seconds[report.nodeid.partition("::")[0]] += report.duration
    if len(seconds) > 1:
        terminalreporter.write_sep("=", "slowest files")
        for file, taken in sorted(seconds.items(), key=lambda one: -one[1])[:10]:
            terminalreporter.write_line(f"{taken:.2f}s {file}")


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
