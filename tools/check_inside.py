"""Check how the inside is written: no numbered places in packed states, no long files, no numba in policies.

    python tools/check_inside.py               # places by number, and numba among the policies
    python tools/check_inside.py --long 400    # and files of more than 400 lines

A packed state is read through the names of its parts: `state[3]`, `settings[FITS]` or `state[at + n]` do not name it,
and break silently if something is inserted before it.
"""

import argparse
import ast
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

SOURCES = Path(__file__).resolve().parents[1] / "src" / "undertow"
PACKED = {"state", "settings", "header", "head", "sizes", "block", "prior", "hyper"}
OFFSET = "at"


class Finding(NamedTuple):
    """One place that breaks a rule."""

    path: Path
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}"


def numbered_places(path: Path, source: str) -> Iterator[Finding]:
    """Find subscripts of packed arrays by a literal, by a constant in capitals, or by an offset from `at`."""
    tree = ast.parse(source)
    annotations = {id(node) for annotation in _annotations(tree) for node in ast.walk(annotation)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and id(node) not in annotations and _is_numbered(node):
            yield Finding(path, node.lineno, ast.unparse(node))


def numba_imports(path: Path, source: str) -> Iterator[Finding]:
    """Find imports of numba or its parts."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                modules = [name.name for name in names]
            case ast.ImportFrom(module=str(module), level=0):
                modules = [module]
            case _:
                continue
        if any(module.split(".")[0] == "numba" for module in modules):
            yield Finding(path, node.lineno, ast.unparse(node))


def long_file(path: Path, source: str, most: int) -> Iterator[Finding]:
    """Find a file of more than `most` lines."""
    lines = len(source.splitlines())
    if lines > most:
        yield Finding(path, lines, f"{lines} lines, {most} at most")


def _annotations(tree: ast.AST) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        match node:
            case ast.AnnAssign(annotation=annotation) | ast.arg(annotation=ast.expr() as annotation):
                yield annotation
            case ast.FunctionDef(returns=ast.expr() as annotation):
                yield annotation


def _is_numbered(node: ast.Subscript) -> bool:
    match node.value:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            pass
        case _:
            return False
    if name not in PACKED:
        return False
    return any(_is_number(part) for part in _parts(node.slice)) or _is_offset(node.slice)


def _parts(index: ast.expr | None) -> Iterator[ast.expr]:
    """Go through an index: entries of tuples and lists, bounds of slices, both sides of sums, what a sign is before."""
    match index:
        case None:
            return
        case ast.Tuple(elts=entries) | ast.List(elts=entries):
            for entry in entries:
                yield from _parts(entry)
        case ast.Slice(lower=lower, upper=upper, step=step):
            for bound in (lower, upper, step):
                yield from _parts(bound)
        case ast.BinOp(left=left, right=right):
            yield from _parts(left)
            yield from _parts(right)
        case ast.UnaryOp(operand=operand):
            yield from _parts(operand)
        case _:
            yield index


def _is_number(part: ast.expr) -> bool:
    match part:
        case ast.Constant(value=int()):
            return True
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return len(name) > 1 and name.isascii() and name == name.upper()  # p, S and Γ are sizes and symbols
    return False


def _is_offset(index: ast.expr) -> bool:
    """Whether an index is a sum, or has one for a bound or an entry, in which `at` occurs."""
    sums = (node for node in ast.walk(index) if isinstance(node, ast.BinOp))
    names = (getattr(node, "id", getattr(node, "attr", None)) for total in sums for node in ast.walk(total))
    return OFFSET in names


def check(sources: Path, most: int | None = None) -> list[Finding]:
    """Return all findings in a folder of sources."""
    found: list[Finding] = []
    for path in sorted(sources.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        found += numbered_places(path, source)
        if "policies" in path.relative_to(sources).parts:
            found += numba_imports(path, source)
        if most is not None:
            found += long_file(path, source, most)
    return found


def main(given: Sequence[str] | None = None) -> int:
    """Print all findings; return 1 if there are any."""
    parser = argparse.ArgumentParser(prog="python tools/check_inside.py")
    parser.add_argument("--long", type=int, metavar="LINES", help="also refuse files of more lines than this")
    parser.add_argument("sources", nargs="?", type=Path, default=SOURCES, help="the folder to look through")
    chosen = parser.parse_args(given)
    found = check(chosen.sources, chosen.long)
    for finding in found:
        print(finding)
    print(f"{len(found)} found" if found else "The inside is as it should be.")
    return int(bool(found))


if __name__ == "__main__":
    raise SystemExit(main())
