"""Run the tests of one policy, one room of src/undertow, or one file: `make test ONLY=…`.

    make test ONLY=linucb                    # a policy: tests with its name as a parameter, and its file's examples
    make test ONLY=replay                    # a room: test files that import it or have its name, and its examples
    make test ONLY=src/undertow/kalman.py    # a file of the sources, of the tests, or a page

The first line of output says what is run. Options of pytest may follow: `make test ONLY='replay -k bootstrap'`.
"""

import ast
import os
import re
import shlex
import sys
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES, TESTS = ROOT / "src" / "undertow", ROOT / "tests"
RUN = ("--numprocesses", "logical", "--dist", "loadfile", "-m", "not slow")


def chosen(word: str) -> tuple[list[str], list[str]]:
    """Return the files and options of pytest for a word; raise ValueError for an unknown word."""
    path = ROOT / word
    if path.is_file() and SOURCES not in path.parents:
        return [str(path.relative_to(ROOT))], []
    room = path if SOURCES in path.parents else SOURCES / word
    for place in (room, room.with_suffix(".py")):
        if place.exists():
            return [str(file.relative_to(ROOT)) for file in (*tests_of(place), place)], []
    policies = registered()
    if word in policies:
        return [str(file.relative_to(ROOT)) for file in playing(word, policies[word])], ["--policy", word]
    known = [*policies, *(place.stem for place in SOURCES.iterdir())]
    near = get_close_matches(word, known, 1) or ["ucb"]
    raise ValueError(f"ONLY: {word!r} is no policy, room or file; did you mean {near[0]!r}?")


def registered() -> dict[str, type]:
    """Return the class of every registered policy."""
    from undertow.policies import registry

    return {name: entry.policy for name, entry in registry().items()}


def playing(name: str, policy: type) -> Iterator[Path]:
    """Find the test files that go through all policies or mention this one, and the policy's own file."""
    spoken = re.compile(rf"registry\(\)|\bLIVE\b|\b{policy.__name__}\b|[\"']{name}\b|frozen import")
    for file in sorted(TESTS.rglob("test_*.py")):
        if spoken.search(file.read_text(encoding="utf-8")):
            yield file
    yield Path(SOURCES.parent, *policy.__module__.split(".")).with_suffix(".py")


def tests_of(place: Path) -> Iterator[Path]:
    """Find the test files that import a folder or file of the sources, or are named after it."""
    module = ".".join(place.relative_to(SOURCES.parent).with_suffix("").parts)
    for file in sorted(TESTS.rglob("test_*.py")):
        named_after = place.stem.strip("_") in file.stem.removeprefix("test_")
        if named_after or any(f"{name}.".startswith(f"{module}.") for name in imported(file)):
            yield file


def imported(file: Path) -> Iterator[str]:
    """Find every module that a file imports, and every name from it as if it were a module."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        match node:
            case ast.Import(names=names):
                yield from (name.name for name in names)
            case ast.ImportFrom(module=str(module), names=names, level=0):
                yield module
                yield from (f"{module}.{name.name}" for name in names)


def main(arguments: list[str] | None = None) -> None:
    """Print what is run, and become pytest."""
    word, *more = shlex.split(" ".join(sys.argv[1:] if arguments is None else arguments))
    try:
        files, options = chosen(word)
    except ValueError as error:
        sys.exit(str(error))
    print(f"{word}: {' '.join([*options, *files, *more])}", flush=True)
    os.execv(sys.executable, [sys.executable, "-m", "pytest", *RUN, *options, *files, *more])


if __name__ == "__main__":
    main()
