import os
import shutil
import subprocess
import sys
from pathlib import Path

import llvmlite.binding
import pytest

import undertow
from undertow.compiled.cache import source_stamp
from undertow.compiled.kernel import REVOCABLE, inlined, plain

PACKAGE = Path(undertow.__file__).parent
CALLEE = "from undertow.compiled.kernel import kernel\n\n@kernel\ndef inner(x: float) -> float:\n    return x + {}\n"
CALLER = (
    "from undertow.compiled.kernel import kernel\nfrom undertow.callee import inner\n\n"
    "@kernel\ndef outer(x: float) -> float:\n    return 10 * inner(x)\n"
)
OUTSIDE = (
    "from typing import NamedTuple\nfrom undertow.compiled import Common, Layout, compile_loop, inlined\n"
    "from {package}parts import bonus\n"
    "class State(NamedTuple):\n    common: Common\n"
    "@inlined\ndef decide(own, features, draws):\n    own.common.forecast[0] = bonus()\n    return 0\n"
    "@inlined\ndef learn(own, memory, arm, rewards, age):\n    pass\n"
    "loop = compile_loop(__name__, Layout(State), decide=decide, learn=learn)\n"
)
PARTS = "from undertow.compiled import inlined\n@inlined\ndef bonus():\n    return {}\n"
DECIDES = (
    "import numpy as np\n"
    "state, out = loop.layout.new(k=1, m=0, q=0, p=0), np.zeros((1, 4))\n"
    "loop.play(state, np.zeros(1), 1, 0, 1, 0, np.zeros(0), 0, out, 0, 0)\n"
    "print(out[0, 1], sum(loop.play.stats.cache_hits.values()))\n"
)
PROGRAM = "from undertow.caller import outer; print(outer(1.0), sum(outer.stats.cache_hits.values()))"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the package that a test may edit, with two kernels more: a caller, and its callee in another file."""
    ours = shutil.ignore_patterns("__pycache__")
    shutil.copytree(PACKAGE, tmp_path / "undertow", ignore=ours)
    (tmp_path / "undertow" / "caller.py").write_text(CALLER)
    (tmp_path / "undertow" / "callee.py").write_text(CALLEE.format(1))
    return tmp_path


def run(folder: Path, program: str = PROGRAM, warning: str = "", **environment: str) -> str:
    known = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env=known | {"PYTHONPATH": str(folder)} | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    found = done.stderr.strip()
    assert found.startswith(warning) if warning else found == ""
    assert len(found.splitlines()) <= 1
    return done.stdout.strip()


def test_an_edit_of_a_callee_in_another_file_is_noticed(copy: Path) -> None:
    assert run(copy) == "20.0 0"
    assert run(copy) == "20.0 1"  # from the cache
    (copy / "undertow" / "callee.py").write_text(CALLEE.format(2))
    assert run(copy) == "30.0 0"
    cache = copy / "undertow" / "__pycache__" / "kernels"
    assert len(list(cache.glob("undertow.caller-*"))) == 1  # what went stale is gone


@pytest.mark.parametrize("package", ["", "mine.deeper."])
def test_an_edit_of_a_policy_outside_undertow_is_noticed(copy: Path, package: str) -> None:
    folder = copy.joinpath(*package.split("."))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "policy.py").write_text(OUTSIDE.format(package="." if package else ""))
    (folder / "parts.py").write_text(PARTS.format(1.5))
    program = f"from {package}policy import loop\n{DECIDES}"
    assert run(copy, program) == "1.5 0"
    assert run(copy, program) == "1.5 1"
    (folder / "parts.py").write_text(PARTS.format(20.5))
    assert run(copy, program) == "20.5 0"
    cache = copy / "undertow" / "__pycache__" / "kernels"
    assert len(list(cache.glob(f"{package}policy-*"))) == 1


def test_a_policy_that_is_in_no_module_is_not_kept(copy: Path) -> None:
    """Neither what a script or a notebook defines, nor what comes from a text: the next may have the same names."""
    for bonus in (1.5, 20.5):
        (copy / "parts.py").write_text(PARTS.format(bonus))
        assert run(copy, OUTSIDE.format(package="") + DECIDES) == f"{bonus} 0"
        assert run(copy, f"exec({OUTSIDE.format(package='') + DECIDES!r}, {{}})") == f"{bonus} 0"
    assert not list((copy / "undertow" / "__pycache__" / "kernels").glob("[!u]*"))


def test_an_edit_elsewhere_costs_nothing(copy: Path) -> None:
    run(copy)
    with (copy / "undertow" / "theory" / "lower.py").open("a") as file:
        file.write("\n# an afterthought\n")
    assert run(copy) == "20.0 1"


def test_the_cache_goes_where_numba_is_told(copy: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    assert run(copy, NUMBA_CACHE_DIR=str(elsewhere)) == "20.0 0"
    assert run(copy, NUMBA_CACHE_DIR=str(elsewhere)) == "20.0 1"
    assert list(elsewhere.rglob("*.nbi"))
    assert not (copy / "undertow" / "__pycache__" / "kernels").exists()


def test_no_cache_is_no_obstacle(copy: Path, tmp_path: Path) -> None:
    blocked = tmp_path / "a file, not a folder"
    blocked.touch()
    warning = (
        "undertow compiles its kernels in every process, since there is no folder to keep them in; "
        f"set NUMBA_CACHE_DIR to one that can be written (tried: {blocked / 'undertow-'}"
    )
    assert run(copy, warning=warning, NUMBA_CACHE_DIR=str(blocked)) == "20.0 0"


def test_importing_compiles_nothing_and_leaves_numbas_settings_alone() -> None:
    program = (
        "import sys, numba; before = numba.config.CACHE_DIR; from numba.core import event\n"
        "with event.install_recorder('numba:compile') as seen:\n    import undertow\n"
        "print(len(seen.buffer), numba.config.CACHE_DIR == before, 'scipy.linalg' in sys.modules)"
    )
    assert run(PACKAGE.parent, program) == "0 True False"


def test_the_stamp_follows_imports() -> None:
    assert source_stamp("undertow.equations.kalman") != source_stamp("undertow.trajectory")
    assert source_stamp("undertow.equations.kalman") == source_stamp.__wrapped__("undertow.equations.kalman")


def test_compiling_leaves_the_settings_of_the_process_as_they_were(copy: Path) -> None:
    # The option of LLVM cannot be read, so what is asked of LLVM is recorded; a kernel of the user's own is let alone.
    program = (
        "import gc, numba, llvmlite.binding as llvm; from numba.core import event\n"
        "asked, collecting = [], []; set_option = llvm.set_option\n"
        "llvm.set_option = lambda name, option: (asked.append((option, gc.isenabled())), set_option(name, option))\n"
        "from undertow.caller import outer\n"
        "class Look(event.Listener):\n"
        "    def on_start(self, event): collecting.append(gc.isenabled())\n"
        "    def on_end(self, event): pass\n"
        "event.register('numba:compile', Look())\n"
        "before = numba.config.SLP_VECTORIZE; outer(1.0)\n"
        "print(asked, collecting, gc.isenabled(), numba.config.SLP_VECTORIZE == before)\n"
        "asked.clear(); collecting.clear(); numba.njit(lambda x: x + 1)(1.0); print(asked, collecting)"
    )
    result = subprocess.run(
        [sys.executable, "-c", program],
        cwd=copy,
        env=os.environ | {"PYTHONPATH": str(copy)},
        capture_output=True,
        text=True,
        check=True,
    )
    revocable = llvmlite.binding.llvm_version_info >= REVOCABLE
    expected = [("--disable-lsr=true", False), ("--disable-lsr=false", False)] if revocable else []
    assert result.stdout.splitlines() == [f"{expected} [False, False] True True", "[] [True]"]


@inlined
def shifted(x: float, by: float = 2.0) -> float:
    return x + by


def test_the_python_function_behind_a_compiled_one_calls_no_compiled_one() -> None:
    """Called from Python, a part that is inlined would end the process."""
    here, nearby = sys.modules[__name__], shifted

    def by_name(x: float) -> float:
        return shifted(x)

    def by_closure(x: float) -> float:
        return nearby(x, 3.0)

    def by_module(x: float) -> float:
        return float(here.shifted(x, by=4.0))

    for function, expected in ((by_name, 3.0), (by_closure, 4.0), (by_module, 5.0)):
        assert plain(function)(1.0) == expected
        assert plain(inlined(function))(1.0) == expected
