"""Chunks of a study: what is damaged or lost with a worker is computed again; one study at a time works in a folder."""

import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from deadly import always_dies, refuses, square
from study.test_study import contents, small_plan
from undertow import InvalidInputError, UndertowError
from undertow.study.chunks import open_folder, read_tables, run_plan
from undertow.study.folder import is_whole
from undertow.study.plan import Plan
from undertow.support.workers import on_processes

FLIPS = 200


@pytest.fixture
def plan() -> Plan:
    return small_plan(policies=["Random"], rounds=60, runs=12)


@pytest.fixture
def folder(plan: Plan, tmp_path: Path) -> Path:
    folder = open_folder(plan, tmp_path)
    run_plan(plan, folder)
    return folder


def emptied(chunk: Path) -> None:
    (chunk / "regret.parquet").write_bytes(b"")


def halved(chunk: Path) -> None:
    content = (chunk / "detail.parquet").read_bytes()
    (chunk / "detail.parquet").write_bytes(content[: len(content) // 2])


def without_seconds(chunk: Path) -> None:
    (chunk / "seconds.json").unlink()


def without_hash(chunk: Path) -> None:
    (chunk / "hash").unlink()


def empty_folder(chunk: Path) -> None:
    for file in chunk.iterdir():
        file.unlink()


def a_file_in_its_place(chunk: Path) -> None:
    empty_folder(chunk)
    chunk.rmdir()
    chunk.write_bytes(b"")


def a_folder_in_its_files_place(chunk: Path) -> None:
    (chunk / "seconds.json").unlink()
    (chunk / "seconds.json").mkdir()


def another_chunk(chunk: Path) -> None:
    other = chunk.with_name("00000")
    for file in chunk.iterdir():
        file.write_bytes((other / file.name).read_bytes())


DAMAGES = [
    emptied,
    halved,
    without_seconds,
    without_hash,
    empty_folder,
    a_file_in_its_place,
    a_folder_in_its_files_place,
    another_chunk,
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_chunk_is_computed_again_and_said_so(
    damage: Callable[[Path], None], plan: Plan, folder: Path
) -> None:
    before = contents(folder)
    damage(folder / "chunks" / "00002")
    said: list[str] = []
    seen: list[int] = []
    run_plan(plan, folder, say=said.append, progress=lambda done, total: seen.append(done))
    assert said == [f"{folder / 'chunks' / '00002'}: this chunk is damaged; it will be computed again"]
    assert seen == [3, 4]
    assert contents(folder) == before
    run_plan(plan, folder, say=said.append)
    assert len(said) == 1


def test_every_flipped_bit_is_noticed(plan: Plan, folder: Path) -> None:
    draw = random.Random(0)
    files = list((folder / "chunks" / "00001").iterdir())
    assert len(files) == 4
    for number in range(FLIPS):
        file = files[number % 4]
        before = file.read_bytes()
        place, bit = draw.randrange(len(before)), draw.randrange(8)
        file.write_bytes(before[:place] + bytes([before[place] ^ 1 << bit]) + before[place + 1 :])
        assert is_whole(folder, 1) is False
        file.write_bytes(before)
        assert is_whole(folder, 1) is True


def test_damage_is_written_to_the_log_by_default(plan: Plan, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    emptied(folder / "chunks" / "00000")
    run_plan(plan, folder)
    assert "this chunk is damaged; it will be computed again" in caplog.text


def test_damage_while_a_study_runs_is_one_line(plan: Plan, folder: Path) -> None:
    emptied(folder / "chunks" / "00000")
    with pytest.raises(InvalidInputError, match=r"00000: this chunk was damaged meanwhile; run the same command again"):
        read_tables(folder)


WORDS = ["study", "--psi", "1,2", "--runs", "60", "--rounds", "3000", "--policies", "Oracle,Random", "--threads", "1"]


def test_a_second_study_in_a_folder_is_refused_and_harms_nothing(tmp_path: Path) -> None:
    def start() -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "undertow", *WORDS, "--out", str(tmp_path / "out")]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)

    first = start()
    assert first.stderr is not None
    assert first.stderr.readline().startswith("0 of")  # it is at work
    (chunks,) = (tmp_path / "out").glob("*/chunks")
    half = chunks / ".part-0123456789ab"
    first.send_signal(signal.SIGSTOP)  # so that it cannot end before the second has come
    half.mkdir()  # what the first is about to complete, as far as a second can see
    _, errors = (second := start()).communicate(timeout=120)
    assert second.returncode == 2
    last = errors.splitlines()[-1]
    assert last.startswith(f"undertow: {chunks.parent}: another process is at work on this study; wait for it, or")
    first.kill()
    first.communicate()
    again = start()
    _, errors = again.communicate(timeout=300)  # the lock went with the process that held it
    assert again.returncode == 0, errors
    assert not list(chunks.glob("*.part-*"))


def test_the_lock_ends_with_the_study(plan: Plan, folder: Path) -> None:
    for _ in range(2):
        run_plan(plan, folder)


# Workers


def test_workers_that_die_cost_no_result(tmp_path: Path) -> None:
    tasks = [(number, str(tmp_path), number % 3 == 0) for number in range(7)]
    assert dict(on_processes(square, tasks, 2)) == {number: number**2 for number in range(7)}
    assert len(os.listdir(tmp_path)) == 3


def test_a_worker_that_is_killed_while_it_starts_costs_no_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[int] = []
    begin = multiprocessing.get_context("spawn").Process.start

    def start(self: Any) -> None:
        begin(self)
        if not killed:
            killed.append(self.pid)
            self.kill()

    monkeypatch.setattr(multiprocessing.get_context("spawn").Process, "start", start)
    assert dict(on_processes(square, [(3, str(tmp_path), False)] * 4, 2)) == dict.fromkeys(range(4), 9)
    assert killed


def test_an_error_of_the_work_arrives_with_the_place_where_it_was_raised(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no 2 today") as caught:
        list(on_processes(refuses, [(number,) for number in range(5)], 2))
    assert "in refuses" in caught.value.__notes__[0]
    assert not multiprocessing.active_children()


def test_workers_end_when_nobody_asks_for_more(tmp_path: Path) -> None:
    results = on_processes(square, [(number, str(tmp_path), False) for number in range(9)], 2)
    assert next(results)[0] in {0, 1}
    assert len(multiprocessing.active_children()) == 2
    results.close()
    assert not multiprocessing.active_children()


def test_workers_that_always_die_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("undertow.support.workers.TRIES", 2)
    with pytest.raises(UndertowError, match=r"workers: they died 2 times in a row .* use fewer of them \(--threads\)"):
        list(on_processes(always_dies, [()], 1))


def test_local_workers_listen_to_nobody(plan: Plan, tmp_path: Path) -> None:
    seen: list[int] = []
    before, others = set(sys.modules), psutil.Process().children(recursive=True)  # those are servers of other tests

    def look(done: int, total: int) -> None:
        children = psutil.Process().children(recursive=True)
        family = [psutil.Process(), *(child for child in children if child not in others)]
        seen.append(len(family))
        assert not [link for one in family for link in one.net_connections() if link.status == psutil.CONN_LISTEN]

    run_plan(plan, open_folder(plan, tmp_path), threads=2, cluster="local", progress=look)
    assert max(seen) > 2
    assert "distributed.scheduler" not in set(sys.modules) - before


LEADER = """
import sys
from deadly import waits
from undertow.support.workers import on_processes
if __name__ == "__main__":
    list(on_processes(waits, [(sys.argv[1],)], 1))
"""


def test_workers_end_with_the_process_that_started_them(tmp_path: Path) -> None:
    (tmp_path / "leader.py").write_text(LEADER)
    paths = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
    leader = subprocess.Popen(
        [sys.executable, tmp_path / "leader.py", tmp_path], env=os.environ | {"PYTHONPATH": paths}
    )
    until = time.monotonic() + 60
    while not (tmp_path / "begun").exists() and time.monotonic() < until:
        time.sleep(0.05)
    worker = psutil.Process(int((tmp_path / "begun").read_text()))
    leader.kill()
    leader.wait()
    worker.wait(timeout=20)
