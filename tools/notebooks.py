"""Write examples/notebooks from the examples: every program as a notebook that plays a short version.

    python tools/notebooks.py

A docstring becomes the first cell, each function or class becomes a cell, and the last cells run the program
and show its figure. A test compares the notebooks with the programs and runs them.
"""

import ast
import json
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
FOLDER = EXAMPLES / "notebooks"
SHORT = {  # arguments for a run of seconds; the page's commands take minutes
    "channels": "--seeds 1 --rounds 500",
    "compression": "--worlds 1 --rounds 300",
    "controllers": "--worlds 1 --rounds 200",
    "first_look": "--runs 2",
    "forecasters": "--seeds 1 --rounds 500",
    "learning_rate": "--seeds 1 --rounds 20",
    "portfolio": "--seeds 1 --rounds 500",
    "pricing": "--seeds 1 --rounds 200",
    "queries": "--worlds 1 --rounds 300",
    "stations": "--seeds 1 --rounds 100",
}
START = 'import sys\n\nsys.path.insert(0, "..")  # lineup.py and costs.py, which the examples share'


def notebook(name: str) -> str:
    """Return a notebook as a string."""
    source = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
    tree, lines = ast.parse(source), source.splitlines()
    page = "" if name == "first_look" else f", and its [page](../../docs/examples/{name}.md)"
    about = f"The program [{name}.py](../{name}.py) as a notebook{page}. It plays a short version."
    cells = [_cell("markdown", f"# {(ast.get_docstring(tree) or '').rstrip()}\n\n{about}"), _cell("code", START)]
    cells += [_cell("code", part) for part in _parts(tree, lines)]
    figure = f"../../out/notebooks/{name}.png"
    words = ", ".join(f'"{word}"' for word in [*SHORT[name].split(), "--out", figure])
    cells.append(_cell("markdown", "Omit the numbers for the version of the page, which takes minutes."))
    cells.append(_cell("code", f"main([{words}])"))
    cells.append(_cell("code", f'from IPython.display import Image\n\nImage("{figure}")'))
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    content = {
        "cells": [cell | {"id": f"{name}-{place}"} for place, cell in enumerate(cells)],
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def _parts(tree: ast.Module, lines: list[str]) -> list[str]:
    """Return the source of the cells: each function or class alone, other code together."""
    parts: list[str] = []
    before = 0  # the last line of the code before
    alone = True
    for node in tree.body:
        whole = isinstance(node, ast.FunctionDef | ast.ClassDef)
        text = "\n".join(lines[before : node.end_lineno])
        docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        before = int(node.end_lineno or before)
        if docstring or isinstance(node, ast.If):  # the docstring is the first cell; __main__ is the last one
            continue
        if whole or alone:
            parts.append(text.strip())
        else:
            parts[-1] += f"\n{text}"
        alone = whole
    return parts


def _cell(kind: str, text: str) -> dict[str, Any]:
    more: dict[str, Any] = {"execution_count": None, "outputs": []} if kind == "code" else {}
    return {"cell_type": kind, "metadata": {}, "source": text.splitlines(keepends=True)} | more


def main() -> None:
    """Write all notebooks."""
    FOLDER.mkdir(exist_ok=True)
    for name in SHORT:
        (FOLDER / f"{name}.ipynb").write_text(notebook(name), encoding="utf-8")
        print(FOLDER / f"{name}.ipynb")


if __name__ == "__main__":
    main()
