from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tools import notebooks

EXAMPLES = Path(notebooks.__file__).parents[1] / "examples"
QUICK = ("queries",)


def test_every_example_has_a_notebook() -> None:
    programs = {file.stem for file in EXAMPLES.glob("*.py") if "def main(arguments" in file.read_text()}
    assert programs == set(notebooks.SHORT) == {file.stem for file in notebooks.FOLDER.glob("*.ipynb")}


@pytest.mark.parametrize("name", notebooks.SHORT)
def test_a_notebook_is_that_of_its_program(name: str) -> None:
    file = notebooks.FOLDER / f"{name}.ipynb"
    assert file.read_text() == notebooks.notebook(name), "run make notebooks"
    content = nbformat.reads(file.read_text(), as_version=4)  # type: ignore[no-untyped-call]
    nbformat.validate(content)
    code = "\n".join(cell.source for cell in content.cells if cell.cell_type == "code")
    program = (EXAMPLES / f"{name}.py").read_text()
    kept = [line for line in program.split('"""', 2)[2].splitlines() if line.strip()]
    assert [line for line in kept[:-2] if line not in code.splitlines()] == []  # all but `if __name__ …`


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in notebooks.SHORT]
)
def test_a_notebook_runs_and_shows_its_figure(name: str) -> None:
    text = (notebooks.FOLDER / f"{name}.ipynb").read_text()
    content = nbformat.reads(text, as_version=4)  # type: ignore[no-untyped-call]
    folder = {"metadata": {"path": str(notebooks.FOLDER)}}
    NotebookClient(content, timeout=300, kernel_name="python3", resources=folder).execute()
    printed, shown = (cell.outputs for cell in content.cells[-2:])
    assert "|" in "".join(output.text for output in printed if output.output_type == "stream")
    assert "image/png" in shown[-1].data
