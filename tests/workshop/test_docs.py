import importlib
import re
from pathlib import Path
from typing import Any

import pytest

import undertow

ROOT = Path(__file__).parents[2]
WORDS = (ROOT / "CONTRIBUTING.md").read_text().partition("## Words of the inside")[2].partition("\n## ")[0]
LEARNERS = (ROOT / "docs" / "decisions" / "0004-learners.md").read_text().partition("## Symbols\n")[2]
TABLES = (ROOT / "docs" / "notation.md").read_text() + LEARNERS + WORDS
NAMES = sorted({name for row in re.findall(r"^\|.*\|$", TABLES, re.M) for name in re.findall(r"`([\w.]+)`", row)})


def test_the_tables_of_names_are_read() -> None:
    assert len(NAMES) > 200


@pytest.mark.parametrize("name", NAMES)
def test_every_name_in_the_tables_exists(name: str) -> None:
    *path, last = name.split(".")
    owner: Any = undertow
    for part in path:  # a name of the package, or a module that nothing may have imported yet
        owner = getattr(owner, part, None) or importlib.import_module(f"{owner.__name__}.{part}")
    # fields of dataclasses without a default are annotations, not attributes
    assert hasattr(owner, last) or last in owner.__annotations__


@pytest.mark.parametrize(
    "page", sorted(ROOT.glob("*.md")) + sorted((ROOT / "docs").rglob("*.md")), ids=lambda p: p.name
)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+?)\)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


PLACES = (ROOT / "CONTRIBUTING.md").read_text().partition("## I want to change …")[2].partition("\n## ")[0]
SOURCES = ROOT / "src" / "undertow"


@pytest.mark.parametrize("row", re.findall(r"^\| (?!…|-).*\|$", PLACES, re.M), ids=lambda row: row.split(" |")[0][2:])
def test_the_table_of_places_is_true(row: str) -> None:
    files, functions, tests = (re.findall(r"`(.+?)`", cell) for cell in row.split("|")[2:5])
    places = [place for file in files for place in (SOURCES / file).rglob("*.py")] + [SOURCES / file for file in files]
    code = "".join(place.read_text() for place in places if place.is_file())
    assert all((SOURCES / file).exists() for file in files), files
    assert all(re.search(rf"(def|class) {part}\b", code) for name in functions for part in name.split(".")), functions
    assert all(list((ROOT / "tests").rglob(f"{name.removeprefix('tests/').removesuffix('.py')}.py")) for name in tests)
