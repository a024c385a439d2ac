"""docs/serve.md and the files for deployment: what they say is run, or understood by the programs it is for."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main

from served import as_command
from undertow.cli import app
from undertow.serve.calls import CALLS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "serve.md").read_text()
DEPLOY = sorted((ROOT / "deploy").iterdir())


def block(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.S)
    return str(found)


def test_the_first_calls_of_the_page(tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is missing")
    with as_command(tmp_path, f"sqlite:///{tmp_path}/shop.db") as command:
        calls = block("sh").replace("http://127.0.0.1:8000", command.url).replace("curl", "curl -sSf --retry 5")
        done = subprocess.run(["bash", "-euc", calls], capture_output=True, text=True, timeout=120, check=True)
        assert '"id":"order-1207"' in done.stdout
        assert '"reward":0.7' in done.stdout
        program = block("py").replace("http://127.0.0.1:8000", command.url).replace("autopilot", "linucb")
        ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
        assert re.fullmatch(r"(bike|van) [\d.]+\nTrue\n", ran.stdout)


def test_the_files_for_deployment_run_commands_that_exist() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    text = "\n".join(file.read_text() for file in DEPLOY)
    called = re.findall(r'(?:RUN undertow |bin/undertow |"undertow", ")(\w+)', text)
    assert len(called) == 3
    assert [name for name in called if name not in commands or commands[name].hidden] == []


def test_every_option_that_is_written_down_exists() -> None:
    serve = typer.main.get_command(app).commands["serve"]  # type: ignore[attr-defined]
    known = {option for parameter in serve.params for option in parameter.opts}
    texts = [PAGE, *(file.read_text() for file in DEPLOY)]
    lines = [line for text in texts for line in text.splitlines() if re.search(r"undertow\W+serve|^    command:", line)]
    used = {option for line in lines for option in re.findall(r"(?<![\w-])--[a-z-]+", line)}
    assert used >= {"--workers", "--tokens", "--allow-host", "--host"}
    assert used <= known


def test_every_call_is_in_the_page() -> None:
    table = PAGE.partition("## Calls")[2].partition("## Who")[0]
    for call in CALLS:
        place = re.sub(r":\w+}", "}", call.path)
        short = place.replace("/v1/bandits/{name}/", "…/")
        rows = [
            line for line in table.splitlines() if f"{short}`" in line or f"{short}?" in line or f"{place}`" in line
        ]
        assert any(call.method in row for row in rows), place


def test_the_unit_is_understood() -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd is missing")
    (unit,) = (file for file in DEPLOY if file.suffix == ".service")
    done = subprocess.run(
        [analyze, "verify", "--man=no", unit], capture_output=True, text=True, timeout=60, check=False
    )
    complaints = [line for line in done.stderr.splitlines() if unit.name in line and "is not executable" not in line]
    assert not complaints
