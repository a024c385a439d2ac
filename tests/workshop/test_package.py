import dataclasses
import pydoc
import re
import subprocess
import sys
import tomllib
import venv
from pathlib import Path
from typing import Any

import pytest

import undertow
from undertow.store.durable import DurablePolicy

ROOT = Path(__file__).parents[2]
PROGRAM = """
import undertow
path = undertow.paper_system(psi=1).sample(100, rng=0)
beliefs = undertow.kalman.filter(undertow.paper_system(psi=1), path.contexts)
print(undertow.__version__, undertow.__file__, beliefs.forecasts.shape)
"""


@pytest.mark.slow
def test_wheel_installs_into_an_empty_environment(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--outdir", tmp_path, ROOT], check=True, capture_output=True
    )
    (wheel,) = tmp_path.glob("undertow-*.whl")
    venv.create(tmp_path / "empty", with_pip=True)
    python = tmp_path / "empty" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", wheel], check=True, capture_output=True)
    done = subprocess.run(
        [python, "-W", "error", "-c", PROGRAM], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    version, file, shape = done.stdout.split(maxsplit=2)
    assert version == undertow.__version__
    assert Path(file).is_relative_to(tmp_path / "empty")
    assert shape.strip() == "(100, 2)"
    assert (Path(file).parent / "py.typed").is_file()
    assert (Path(file).parent / "study" / "paper.toml").is_file()
    command = subprocess.run([python.with_name("undertow"), "study"], capture_output=True, text=True, check=False)
    assert command.returncode == 1  # the core comes without the command line's libraries, and says what to install
    assert "pip install 'undertow[study]'" in command.stderr
    assert "Traceback" not in command.stderr


def test_one_version_everywhere() -> None:
    version = undertow.__version__
    assert f'version = "{version}"' in (ROOT / "pyproject.toml").read_text()
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    assert re.search(rf"^## {re.escape(version)}\b", (ROOT / "CHANGELOG.md").read_text(), re.M)


def test_every_public_name_is_there_without_another_import() -> None:
    program = "import undertow; print([name for name in undertow.__all__ if getattr(undertow, name, None) is None])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert "simulate" in dir(undertow)
    assert not hasattr(undertow, "simulated")


CALLS = (
    "decide decide_several learn learn_many observe skip forecast health metrics plot save to_bytes events follow "
    "add_arm retire_arm pin unpin set_costs"
)
LOOKS = "names arm_count round pending retired costs pinned parts capabilities loop"


@pytest.mark.parametrize(
    ("kind", "more"),
    [(undertow.LinUCB, ""), (undertow.UCB, ""), (undertow.Autopilot, "warm_start models model system")],
)
def test_a_policy_has_few_public_names(kind: Any, more: str) -> None:
    """What only undertow calls is behind `parts`."""
    parameters = {field.name for field in dataclasses.fields(kind)}
    public = {name for name in dir(kind(arms=2)) if not name.startswith("_")}
    assert sorted(public - parameters) == sorted(f"{CALLS} {LOOKS} {more}".split())


@pytest.mark.parametrize(
    "kind", [undertow.LinUCB, undertow.Autopilot, undertow.LinearGaussianSystem, undertow.Trajectory, DurablePolicy]
)
def test_help_shows_an_array_as_one_word(kind: Any) -> None:
    shown = pydoc.plain(pydoc.render_doc(kind))
    assert "numpy._typing" not in shown
    assert "npt.ArrayLike" in shown


def test_the_contract_of_independence_lists_every_policy() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (listed,) = (contract["modules"] for contract in contracts if contract["type"] == "independence")
    files = (ROOT / "src" / "undertow" / "policies").glob("[a-z]*.py")
    assert sorted(listed) == sorted(f"undertow.policies.{file.stem}" for file in files)
