"""The cache of compiled kernels never stops anything: what is wrong with it costs time and one line in the log."""

import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from compiled.test_kernel import PROGRAM, copy, run  # noqa: F401 (a fixture)
from undertow.compiled import cache


@pytest.fixture
def warm(copy: Path) -> Path:  # noqa: F811
    """A package whose kernels are on disk."""
    assert run(copy) == "20.0 0"
    assert run(copy) == "20.0 1"
    return copy


def emptied(content: bytes) -> bytes:
    return b""


def halved(content: bytes) -> bytes:
    return content[: len(content) // 2]


def flipped(content: bytes) -> bytes:
    place = random.Random(0).randrange(len(content))
    return content[:place] + bytes([content[place] ^ 16]) + content[place + 1 :]


def foreign(content: bytes) -> bytes:
    return b"not a kernel at all"


@pytest.mark.parametrize("damage", [emptied, halved, flipped, foreign])
@pytest.mark.parametrize("kind", ["nbi", "nbc"])
def test_a_damaged_file_is_dropped_and_compiled_again(kind: str, damage: Callable[[bytes], bytes], warm: Path) -> None:
    files = list((warm / "undertow" / "__pycache__" / "kernels").glob(f"undertow.call*-*/*/*.{kind}"))
    assert files
    for file in files:
        file.write_bytes(damage(file.read_bytes()))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=warm,
        env={name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
        | {"PYTHONPATH": str(warm)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "20.0 0"
    (line,) = done.stderr.splitlines()
    assert line.startswith(str(warm / "undertow" / "__pycache__" / "kernels"))
    assert "it was removed, and the kernel is compiled again" in line
    assert "NUMBA_CACHE_DIR" in line
    assert run(warm) == "20.0 1"


def test_a_kernel_is_loaded_without_the_compiler_and_compiled_with_it(warm: Path) -> None:
    """numba imports SciPy's linear algebra with its compiler, which takes as long as all the rest of a first call."""
    asked = f"{PROGRAM}; import sys; print('scipy.linalg' in sys.modules)"
    assert run(warm, asked).split() == ["20.0", "1", "False"]
    assert run(warm, f"{asked}; print(outer(1), sum(outer.stats.cache_hits.values()))").split()[2:] == [
        "False",
        "20",
        "1",
    ]
    assert run(warm, f"{asked}; print(outer(1), sum(outer.stats.cache_hits.values()))").split()[2:] == [
        "False",
        "20",
        "2",
    ]


def test_a_full_disk_is_no_obstacle(copy: Path) -> None:  # noqa: F811
    """No file may grow beyond 100 bytes, which is what a write to a full disk is like."""
    limits = "sys.dont_write_bytecode = True; resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))"
    limited = f"import resource, sys, undertow; {limits}\n{PROGRAM}"
    kernels = copy / "undertow" / "__pycache__" / "kernels"
    assert run(copy, limited, warning=f"{kernels / 'undertow.call'}") == "20.0 0"
    assert not [file for file in kernels.rglob("*") if file.is_file() and "undertow.call" in str(file)]
    assert run(copy) == "20.0 0"
    assert run(copy) == "20.0 1"


NOBODY = """
import os, pwd
for name in ("HOME", "XDG_CACHE_HOME"):
    os.environ.pop(name, None)
def unknown(uid):
    raise KeyError(uid)
pwd.getpwuid = unknown
"""


def test_no_home_an_unknown_user_and_a_package_that_cannot_be_written_are_no_obstacle(copy: Path) -> None:  # noqa: F811
    cache = copy / "undertow" / "__pycache__"
    cache.mkdir()
    (cache / "kernels").touch()  # in the way, also for root
    warning = "undertow compiles its kernels in every process, since there is no folder to keep them in; set NUMBA_"
    assert run(copy, NOBODY + PROGRAM, warning=warning) == "20.0 0"


@pytest.mark.parametrize("gone", ["sys.stderr = None", "sys.stderr.close()"])
def test_a_process_without_a_place_for_messages_is_no_obstacle(gone: str, copy: Path) -> None:  # noqa: F811
    assert run(copy, f"import sys; {gone}\n{PROGRAM}") == "20.0 0"


AT_ONCE = """
import sys, time
from undertow.compiled.cache import cache_folder
print("ready", flush=True)
sys.stdin.readline()
for module in ("kalman_steps", "ridge", "window", "trajectory", "riccati", "caller", "callee"):
    assert str(cache_folder(f"undertow.{module}")).startswith(sys.argv[1]), cache_folder(f"undertow.{module}")
"""


def test_first_starts_at_once_share_one_cache(copy: Path) -> None:  # noqa: F811
    kernels, elsewhere = copy / "undertow" / "__pycache__" / "kernels", copy / "elsewhere"
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    environment |= {"PYTHONPATH": str(copy), "XDG_CACHE_HOME": str(elsewhere)}
    command = [sys.executable, "-c", AT_ONCE, str(kernels)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    started = [subprocess.Popen(command, cwd=copy, env=environment, text=True, **pipes) for _ in range(5)]  # type: ignore[call-overload]
    for process in started:
        assert process.stdout.readline() == "ready\n"
    for process in started:
        process.stdin.write("go\n")
        process.stdin.flush()
    assert [process.communicate()[1] for process in started] == [""] * len(started)
    assert not elsewhere.exists()


TWO_TYPES = """
from undertow.caller import outer
print(outer({value}), sum(outer.stats.cache_hits.values()))
"""


def test_types_have_files_of_their_own(copy: Path) -> None:  # noqa: F811
    assert run(copy, TWO_TYPES.format(value="1.0")) == "20.0 0"
    assert run(copy, TWO_TYPES.format(value="1")) == "20 0"
    names = sorted(file.name for file in copy.rglob("caller.outer*.nbc"))
    assert len(names) == 2
    for value, result in (("1.0", "20.0 1"), ("1", "20 1")):
        assert run(copy, TWO_TYPES.format(value=value)) == result


def test_a_folder_that_a_newer_version_removed_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "cache_folder", lambda module: tmp_path / "removed")
    with cache.alone("undertow.ridge"):
        entered = True
    assert entered
    (tmp_path / "removed").mkdir()
    with cache.alone("undertow.ridge"):
        assert (tmp_path / "removed" / "lock").exists()
