"""The source of every published number: run the pieces, keep their output in results/, fill the pages.

    python tools/results.py                  # every piece that was not run with the present code; resumes
    python tools/results.py channels theory  # these
    python tools/results.py --list           # all pieces, with their versions
    python tools/results.py --fill           # fill the pages from results/, run nothing
    python tools/results.py --printed FILE PIECE     # FILE is the output of an earlier run of the command

A page says what it shows: `<!-- results: PIECE.BLOCK -->` before, `<!-- end -->` after. On lines of their own they hold
the whole block, or some rows of its table (`<!-- results: PIECE.BLOCK; ROW | ROW -->`). Within a line they hold a block
of one line, one cell of a table (`<!-- results: PIECE.BLOCK; ROW; COLUMN; FORMAT -->`; the format of a number is like
.2f, that of a text s), or version, date and machine (`<!-- results: PIECE.measured -->`). A page and `results/` that
disagree fail a test.
"""

import argparse
import datetime
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import textwrap
import time
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # only the script's own folder is on the path
from tools.pieces import PIECES, ROOT, tables_in
from undertow.support.folders import versions, write_json
from undertow.support.numbers import duration

RESULTS = ROOT / "results"
MARK = re.compile(r"(<!-- results: (.+?) -->)(.*?)(<!-- end -->)", re.S)
CODE = ("src/undertow", "examples", "benchmarks", "tools/torture.py", "tools/hardships.py", "tests/torture")
WIDTH = 96  # of a sentence that is shown as an indented block


def pages() -> list[Path]:
    """Return the documents; decisions and the changelog have the numbers of their own time."""
    found = [*ROOT.glob("*.md"), ROOT / "benchmarks" / "README.md", *(ROOT / "docs").rglob("*.md")]
    return sorted(page for page in found if page.name != "CHANGELOG.md" and page.parent.name != "decisions")


def result(name: str) -> dict[str, Any] | None:
    """Return the stored output of a piece."""
    file = RESULTS / f"{name}.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else None


def present_code() -> str:
    """Return a short hash of all code that may affect a number."""
    found = hashlib.blake2b(digest_size=6)
    for place in map(ROOT.joinpath, CODE):
        for file in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            found.update(f"{file.relative_to(ROOT)}\n".encode() + file.read_bytes())
    return found.hexdigest()


def machine() -> dict[str, Any]:
    """Return a description of this machine."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return {
        "processor": model or platform.processor(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "platform": platform.platform(),
    }


# Pages


def shown(reference: str, inline: bool) -> str:
    """Return the text of a page at a reference."""
    place, *cell = (part.strip() for part in reference.split(";"))
    name, _, block = place.partition(".")
    if name not in PIECES:
        raise LookupError(f"results: {reference}: no piece is called {name!r}; there are {', '.join(PIECES)}")
    kept = result(name)
    if kept and block == "measured":
        return measured(kept)
    if kept is None or block not in kept["blocks"]:
        raise LookupError(f"results: {reference}: there is no such block in results/{name}.json; run {name}")
    text = "\n".join(kept["blocks"][block])
    if len(cell) == 1:
        return f"\n{some_rows(text, [row.strip() for row in cell[0].split('|')])}\n"
    if cell:
        return one_cell(text, *cell)
    if inline:
        return text
    if "|" not in text and "```" not in text:  # a sentence
        text = textwrap.fill(text, WIDTH, initial_indent="    ", subsequent_indent="    ")
        return f"\n\n{text}\n\n"
    return f"\n{text}\n"


def measured(kept: dict[str, Any]) -> str:
    """Return the version, date and machine of a piece's run, as far as known."""
    where = kept["machine"]
    place = f"{where['cores']} cores of {where['processor']}" if where else ""
    return ", ".join(filter(None, [f"undertow {kept['version']}", (kept["date"] or "")[:10], place]))


def some_rows(text: str, names: Sequence[str]) -> str:
    """Return the head of the first table in a text, and the rows with these names, in the order of the names."""
    head, line, *rows = tables_in(text)[0].splitlines()
    by_name = {row.strip("|").split("|")[0].strip(): row for row in rows}
    if missing := next((name for name in names if name not in by_name), None):
        raise LookupError(f"results: the table has no row {missing!r}")
    return "\n".join([head, line, *(by_name[name] for name in names)])


def one_cell(text: str, row: str, column: str, form: str) -> str:
    """Return a cell of the first table in a text that has both the row and the column."""
    for table in tables_in(text):
        head, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines())
        values = [cells[head.index(column)] for cells in rows if cells[0] == row and column in head]
        if values:
            return values[0] if form == "s" else format(float(values[0].split()[0].strip("*")), form)
    raise LookupError(f"results: no table has a row {row!r} and a column {column!r}")


def filled(text: str) -> str:
    """Return a page filled from results/."""
    return MARK.sub(lambda found: found[1] + shown(found[2], not found[3].startswith("\n")) + found[4], text)


def fill() -> list[Path]:
    """Fill all pages, and return those that changed."""
    changed = []
    for page in pages():
        text = page.read_text(encoding="utf-8")
        if (new := filled(text)) != text:
            page.write_text(new, encoding="utf-8")
            changed.append(page)
    return changed


def references() -> Iterator[tuple[Path, str]]:
    """Yield every reference with its page."""
    for page in pages():
        for found in MARK.finditer(page.read_text(encoding="utf-8")):
            yield page, found[2]


# Running


def run(name: str) -> None:
    """Run a piece and store its output."""
    piece = PIECES[name]
    piece.prepare()
    begun, start = machine(), time.monotonic()
    keep(name, _printed([sys.executable, *piece.command]), time.monotonic() - start, begun)
    for source, place in piece.figures.items():
        shutil.copyfile(ROOT / source, ROOT / place)


def keep(name: str, printed: str, seconds: float | None, where: dict[str, Any]) -> None:
    """Write the file of a piece."""
    piece = PIECES[name]
    ours = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]  # of this clone
    content = {
        "piece": name,
        "command": f"python {' '.join(piece.command)}",
        "seeds": piece.seeds,
        "version": ours,
        "code": present_code(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="minutes"),
        "seconds": None if seconds is None else round(seconds),
        "machine": where,
        "versions": {"python": platform.python_version()} | versions() | {"undertow": ours},
        "blocks": {block: text.splitlines() for block, text in piece.blocks(printed).items()},
    }
    RESULTS.mkdir(exist_ok=True)
    write_json(RESULTS / f"{name}.json", content)


def _printed(command: list[str]) -> str:
    """Return the output of a command, and show its progress."""
    lines = []
    with subprocess.Popen(command, cwd=ROOT, env=_environment(), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            print(f"  {_progress(line)}", file=sys.stderr, flush=True)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return "".join(lines)


def _environment() -> dict[str, str]:
    """Return an environment in which this clone's code is found first."""
    paths = [str(ROOT / "src"), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)}


def _progress(line: str) -> str:
    """Return a line to show for one that was printed."""
    if not line.startswith("{"):
        return line.rstrip()
    event = json.loads(line)
    if event["event"] != "progress":
        return str(event["event"])
    left = event.get("seconds_left")
    return f"{event['done']} of {event['total']}" + (f", about {duration(left)} left" if left else "")


def due(names: Sequence[str]) -> list[str]:
    """Return the pieces to run: those named, or all that were not run with the present code."""
    if unknown := next((name for name in names if name not in PIECES), None):
        raise SystemExit(f"results: no piece is called {unknown!r}; there are {', '.join(PIECES)}")
    code = present_code()
    return list(names) or [
        name
        for name, piece in PIECES.items()
        if not piece.runs_in_python and ((kept := result(name)) is None or kept["code"] != code)
    ]


def expected(name: str) -> float:
    """Return the expected seconds of a piece."""
    kept = result(name)
    return float(kept["seconds"]) if kept and kept["seconds"] else 60 * PIECES[name].minutes


def listing() -> str:
    """Return a line for every piece."""
    lines = []
    for name in PIECES:
        kept = result(name) or {"version": "never run", "date": "", "seconds": None}
        lines.append(f"{name:20}{kept['version']:12}{kept['date'] or '':24}{duration(expected(name))}")
    return "\n".join(lines)


def main(given: Sequence[str] | None = None) -> int:
    """Run the command line; return 1 if a piece failed."""
    parser = argparse.ArgumentParser(prog="python tools/results.py", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("pieces", nargs="*", help="names of pieces; by default all that are due")
    parser.add_argument("--list", action="store_true", help="show all pieces and exit")
    parser.add_argument("--fill", action="store_true", help="fill the pages and exit")
    parser.add_argument("--printed", type=Path, metavar="FILE", help="file with the piece's earlier output")
    chosen = parser.parse_args(given)
    if chosen.list:
        print(listing())
        return 0
    names, failed = [] if chosen.fill else due(chosen.pieces), []
    if chosen.printed:
        if len(names) != 1:
            parser.error("--printed: name the one piece of that output")
        keep(names.pop(), chosen.printed.read_text(encoding="utf-8"), None, machine())
    for place, name in enumerate(names):
        left = sum(map(expected, names[place:]))
        print(f"{place + 1} of {len(names)}: {name}, about {duration(left)} left", file=sys.stderr, flush=True)
        try:
            run(name)
        except KeyboardInterrupt:
            print("\nresults: interrupted; finished pieces are kept, and the same command resumes", file=sys.stderr)
            return 130
        except (subprocess.CalledProcessError, LookupError, ValueError, OSError) as error:
            failed.append(f"{name}: {error}")
            print(f"  failed: {error}", file=sys.stderr, flush=True)
    for page in fill():
        print(f"filled {page.relative_to(ROOT)}")
    print("\n".join(failed), file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
