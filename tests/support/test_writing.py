"""Files that are written: whole, on disk, with the mode and the links of those before; and what is refused."""

import multiprocessing
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import undertow
from undertow import InvalidInputError, paper_system
from undertow.support import writing
from undertow.support.folders import whole

SAVERS = {
    "policy": lambda path: undertow.UCB(arms=2).save(path),
    "system": lambda path: paper_system(psi=1).save(path),
}
saver = pytest.mark.parametrize("save", SAVERS.values(), ids=SAVERS)


def mode(file: Path) -> int:
    return stat.S_IMODE(file.stat().st_mode)


@saver
def test_a_file_keeps_its_mode_and_a_new_one_has_the_usual(save: Any, tmp_path: Path) -> None:
    file, usual = tmp_path / "saved", tmp_path / "usual"
    usual.touch()
    save(file)
    assert mode(file) == mode(usual)
    for wanted in (0o600, 0o640, 0o664):
        file.chmod(wanted)
        save(file)
        assert mode(file) == wanted


@saver
def test_a_link_stays_and_its_file_is_replaced(save: Any, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    link, file = tmp_path / "link", tmp_path / "there" / "saved"
    link.symlink_to(Path("there") / "saved")
    for _ in range(2):  # first where there is no file yet
        save(link)
        assert link.is_symlink()
        assert file.stat().st_size > 100
        assert os.listdir(tmp_path / "there") == ["saved"]


@saver
def test_what_is_no_file_is_refused(save: Any, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "null").symlink_to("/dev/null")
    for name, kind in {"pipe": "a device or a pipe", "folder": "a folder", "null": "a device or a pipe"}.items():
        with pytest.raises(InvalidInputError, match=rf"{name}: expected the name of a file, and this is {kind}"):
            save(tmp_path / name)
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    assert sorted(os.listdir(tmp_path)) == ["folder", "null", "pipe"]
    with pytest.raises(FileNotFoundError, match=r"path: there is no folder '.*nowhere' to save into"):
        save(tmp_path / "nowhere" / "file")


def test_file_and_folder_are_on_disk_before_and_after_the_name_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    fsync, replace = os.fsync, os.replace

    def synced(handle: int) -> None:
        steps.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else f"file of {os.fstat(handle).st_size}")
        fsync(handle)

    def replaced(*names: Any) -> None:
        steps.append("rename")
        replace(*names)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    paper_system(psi=1).save(tmp_path / "saved")
    assert steps == [f"file of {(tmp_path / 'saved').stat().st_size}", "rename", "folder"]


def test_a_failure_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "saved"
    file.write_text("before")

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        paper_system(psi=1).save(file)
    assert (file.read_text(), os.listdir(tmp_path)) == ("before", ["saved"])


def test_a_name_may_be_as_long_as_the_file_system_takes(tmp_path: Path) -> None:
    paper_system(psi=1).save(tmp_path / ("ü" * 127))
    assert os.listdir(tmp_path) == ["ü" * 127]


SLOW = """
import sys, time
from pathlib import Path
from undertow.support.folders import whole
from undertow.support.writing import replacing
path = Path(sys.argv[1])
with whole(path / "results") as folder, replacing(path / "saved.json") as part:
    part.write_text("half")
    (folder / "half.csv").write_text("half")
    print("begun", flush=True)
    time.sleep(600)
"""


def test_what_a_killed_writer_left_is_removed_and_what_a_living_one_writes_is_not(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", SLOW, str(tmp_path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        (tmp_path / ".saved.json.part-").write_text("a user's own")
        for killed in (False, True):
            if killed:
                process.send_signal(signal.SIGKILL)
                process.wait()
            paper_system(psi=1).save(tmp_path / "saved.json")
            with whole(tmp_path / "results") as folder:
                (folder / "done.csv").write_text("done")
            left = [name for name in os.listdir(tmp_path) if ".part-" in name]
            assert len(left) == (1 if killed else 3), left
    assert sorted(os.listdir(tmp_path)) == [".saved.json.part-", "results", "saved.json"]


def _save_often(path: str, until: float) -> None:
    policy = undertow.UCB(arms=2, rng=os.getpid())
    while time.monotonic() < until:
        policy.save(path)


def test_many_processes_save_to_one_name(tmp_path: Path) -> None:
    file = tmp_path / "saved"
    until = time.monotonic() + 1.5
    workers = [multiprocessing.get_context("fork").Process(target=_save_often, args=(file, until)) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * 4
    assert os.listdir(tmp_path) == ["saved"]
    assert undertow.load(file).arm_count == 2


def test_a_file_that_moves_to_another_disk_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace = os.replace

    def elsewhere(old: Path, new: Path) -> None:
        if old.name == "made":
            raise OSError(18, "Invalid cross-device link")
        replace(old, new)

    monkeypatch.setattr(os, "replace", elsewhere)
    (tmp_path / "made").write_text("content")
    writing.put(tmp_path / "made", tmp_path / "place")
    assert (tmp_path / "place").read_text() == "content"


def test_where_nothing_can_be_locked_files_are_written_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(handle: int, how: int) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr("fcntl.flock", no_locks)
    paper_system(psi=1).save(tmp_path / "saved")
    monkeypatch.setattr(writing, "_LOCKS", False)
    paper_system(psi=2).save(tmp_path / "saved")
    assert os.listdir(tmp_path) == ["saved"]
