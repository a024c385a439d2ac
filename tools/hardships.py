"""Hardships that undertow must survive: each is a function that makes one trial and returns its outcome.

    python tools/hardships.py chunks --seed 1 --seconds 20    # prints one JSON object: the number of trials by outcome

A trial that goes wrong raises; its number and the seed reproduce it. `tools/torture.py` runs them all.
"""

import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import undertow
from undertow import Decision, InvalidInputError, paper_system
from undertow.contenders import Contender
from undertow.replay import read_table
from undertow.study.chunks import open_folder, run_plan
from undertow.study.folder import is_whole
from undertow.study.plan import Plan, SystemSpec, read_plan
from undertow.support.workers import on_processes

Trial = Callable[[random.Random, Path], str]  # makes one trial in a persistent folder, and returns its outcome


def small_plan() -> Plan:
    """Two systems, two policies, four chunks."""
    systems = [SystemSpec(f"psi = {psi}", paper_system(psi)) for psi in (1, 2)]
    policies = [Contender("Oracle", "context-oracle"), Contender("Random", "random")]
    return Plan("torture", systems, policies, rounds=100, runs=12, checkpoints=5)


def mutated(draw: random.Random, content: bytes) -> bytes:
    """Flip, cut, double, insert or remove something."""
    at, end = sorted(draw.randrange(len(content) + 1) for _ in range(2))
    at = min(at, len(content) - 1)
    odd = draw.choice([b"\0", b"\xff", b'"', b"\n", b"[" * 3000, b"1e999", b"nan", b"=", b"{x:>999999999}", b"-", b","])
    return draw.choice(
        [
            content[:at] + bytes([content[at] ^ 1 << draw.randrange(8)]) + content[at + 1 :],
            content[:at],
            content[:at] + content[end:],
            content[:end] + content[at:],
            content[:at] + odd + content[at:],
        ]
    )


def chunks(draw: random.Random, folder: Path) -> str:
    """Damage a file of a chunk: it is noticed; occasionally the study runs, and its tables are as before."""
    plan = small_plan()
    place = open_folder(plan, folder)
    if not (place / "regret.parquet").exists():
        run_plan(plan, place)
    before = (place / "regret.parquet").read_bytes()
    index = draw.randrange(4)
    file = draw.choice(sorted((place / "chunks" / f"{index:05}").iterdir()))
    content = file.read_bytes()
    damaged = mutated(draw, content)
    if damaged == content:
        return "unchanged"
    file.write_bytes(damaged)
    assert is_whole(place, index) is False, f"not noticed: {file}"
    if draw.random() < 0.05:
        said: list[str] = []
        run_plan(plan, place, say=said.append)
        assert len(said) == 1, said
        assert (place / "regret.parquet").read_bytes() == before
        return "computed again"
    file.write_bytes(content)
    assert is_whole(place, index)
    return "noticed"


SAVING = (
    "import sys, undertow\npolicy = undertow.UCB(arms=3)\nprint(flush=True)\nwhile True:\n    policy.save(sys.argv[1])"
)


def saves(draw: random.Random, folder: Path) -> str:
    """Kill a process that saves all the time: the file is complete, and the next save removes leftovers."""
    file = folder / "saved"
    with subprocess.Popen([sys.executable, "-c", SAVING, file], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(draw.uniform(0.01, 0.2))
        process.kill()
    if file.exists():
        undertow.load(file)
    left = len(os.listdir(folder)) - file.exists()
    undertow.UCB(arms=3).save(file)
    assert os.listdir(folder) == ["saved"]
    return "something was left, and removed" if left else "nothing was left"


KERNEL = (
    "import undertow; print(undertow.simulate(undertow.UCB(arms=2), undertow.paper_system(1).sample(9, rng=0)).arms)"
)


def kernels(draw: random.Random, folder: Path) -> str:
    """Damage a file of compiled kernels: the result is the same, and one line reports it."""
    environment = os.environ | {"NUMBA_CACHE_DIR": str(folder)}
    command = [sys.executable, "-c", KERNEL]
    files = sorted(file for kind in ("*.nbi", "*.nbc") for file in folder.rglob(kind))
    if files:
        file = draw.choice(files)
        file.write_bytes(mutated(draw, file.read_bytes()))
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (folder / "answer").touch()
    known = (folder / "answer").read_text() or done.stdout
    (folder / "answer").write_text(known)
    assert done.stdout == known, done.stdout
    assert len(done.stderr.splitlines()) <= 1, done.stderr
    return "dropped, and compiled again" if done.stderr else "unharmed"


def studies(draw: random.Random, folder: Path) -> str:
    """Kill a study repeatedly, and damage its files: in the end its tables are the same."""
    words = ["study", "--psi", "1", "--runs", "30", "--rounds", "2000", "--policies", "Oracle,Random", "--threads", "2"]
    command = [sys.executable, "-m", "undertow", *words, "--out"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    if not (folder / "whole").exists():
        subprocess.run([*command, folder / "whole"], check=True, **quiet)  # type: ignore[call-overload]
    shutil.rmtree(folder / "killed", ignore_errors=True)
    kills = draw.randrange(1, 4)
    for _ in range(kills):
        process = subprocess.Popen([*command, folder / "killed"], **quiet)  # type: ignore[call-overload]
        time.sleep(draw.uniform(0.5, 4.0))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        for file in (folder / "killed").glob("*/chunks/*/*"):
            if draw.random() < 0.1 and file.stat().st_size:
                file.write_bytes(mutated(draw, file.read_bytes()))
    done = subprocess.run([*command, folder / "killed"], **quiet)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stderr
    tables = [next((folder / name).glob("*/regret.parquet")).read_bytes() for name in ("whole", "killed")]
    assert tables[0] == tables[1]
    return f"killed {kills} times, same tables"


def squared(number: int, death: float) -> int:
    """Die with some probability, in the middle of the work."""
    if random.random() < death:
        os.kill(os.getpid(), signal.SIGKILL)
    return number**2


def workers(draw: random.Random, folder: Path) -> str:
    """Let workers die at random: every result comes, once."""
    tasks = [(number, 0.05) for number in range(draw.randrange(1, 20))]
    found = dict(on_processes(squared, tasks, 2))
    assert found == {number: number**2 for number in range(len(tasks))}
    return "all results"


AT_ONCE = "from undertow.compiled.cache import cache_folder; print(cache_folder('undertow.ridge'))"


def starts(draw: random.Random, folder: Path) -> str:
    """Start several processes together with an empty cache: all of them use the same folder."""
    place = folder / str(draw.random())
    environment = os.environ | {"NUMBA_CACHE_DIR": str(place)}
    command = [sys.executable, "-c", AT_ONCE]
    begun = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(6)]
    answers = {process.communicate()[0] for process in begun}
    assert len(answers) == 1, answers
    assert str(place) in answers.pop()
    return "one cache"


PLAN = """name = "odd"
rounds = 10
runs = 1
[[systems]]
kind = "random"
label = "s {seed}"
state_dim = 2
context_dim = 1
arm_count = 2
grid.seed = [1, 2]
[[policies]]
policy = "linucb"
label = "p {window}"
window = 2
"""


ODD = (
    "-1",
    "0",
    "3",
    "1e9",
    "1_000_000_000",
    "9" * 4000,
    "inf",
    "nan",
    "true",
    '""',
    '"x"',
    '"\\u0000"',
    "[]",
    "[[1], {}]",
)


def plans(draw: random.Random, folder: Path) -> str:
    """Mutate a plan: it is read, or refused with one line."""
    text = mutated(draw, PLAN.encode())
    if draw.random() < 0.5:  # a plan in form, with an odd value
        old = draw.choice(re.findall(r"= (.+)", PLAN))
        text = PLAN.replace(f"= {old}", f"= {draw.choice(ODD)}", 1).encode()
    (folder / "plan.toml").write_bytes(text)
    return _read_or_refuse(lambda: read_plan(folder / "plan.toml"))


def tables(draw: random.Random, folder: Path) -> str:
    """Mutate a table: it is read, or refused with one line."""
    rows = "".join(f"2024-01-{t + 1:02},{t % 3},{t % 5 / 4},0.5,x{t}\n" for t in range(25))
    head = draw.choice(["time,reward_a,reward_b,context_c,note", "time,arm,reward,propensity,note"])
    (folder / "table.csv").write_bytes(mutated(draw, f"{head}\n{rows}".encode()))
    phases = draw.choice([[], ["hour", "weekday"]])
    return _read_or_refuse(lambda: read_table(folder / "table.csv", phases=phases))


def decisions(draw: random.Random, folder: Path) -> str:
    """Mutate a decision: it is read, or refused with one line."""
    text = undertow.UCB(arms=2).decide().to_json()
    return _read_or_refuse(lambda: Decision.from_json(mutated(draw, text.encode()).decode("utf-8", "replace")))


def _read_or_refuse(read: Callable[[], Any]) -> str:
    try:
        read()
    except InvalidInputError as refused:
        message = str(refused)
    else:
        return "read"
    assert len(message) < 1000, message[:200]
    return "refused"


TRIALS: dict[str, Trial] = {
    trial.__name__: trial for trial in (chunks, saves, kernels, studies, workers, starts, plans, tables, decisions)
}


def run(trial: Trial, seed: int, seconds: float, least: int = 1) -> dict[str, Any]:
    """Make trials until the time is over, but at least `least`, and count their outcomes; stop at the first failure."""
    counts: Counter[str] = Counter()
    end = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder:
        while time.monotonic() < end or counts.total() < least:
            number = counts.total()
            try:
                counts[trial(random.Random(f"{seed} {number}"), Path(folder))] += 1
            except Exception:
                return {
                    "trials": number,
                    "ended": counts,
                    "failed": f"trial {number}: {traceback.format_exc()[-1500:]}",
                }
    return {"trials": counts.total(), "ended": counts, "failed": None}


def main(trials: dict[str, Trial] = TRIALS) -> int:
    """Run one hardship, and print the outcome."""
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=trials)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--least", type=int, default=1, help="minimum number of trials, however long they take")
    given = parser.parse_args()
    found = run(trials[given.name], given.seed, given.seconds, given.least)
    print(json.dumps(found))
    return int(found["failed"] is not None)


if __name__ == "__main__":
    raise SystemExit(main())
