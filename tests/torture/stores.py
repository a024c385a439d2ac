"""Trials of stores: processes that are killed, power that is cut, disks and servers that fail.

    PYTHONPATH=tests:. python -m torture.stores kills --seconds 60 --seed 3    # or of TRIALS, at the end, any other

Whatever happens, nothing that was acknowledged is lost, nothing is there twice, every later start succeeds, and the
policy is, bit for bit, the fold of its events.
"""

import atexit
import contextlib
import ctypes
import errno
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import services
import undertow
from tools import hardships
from undertow import StoreBusyError, StoreUnavailableError
from undertow.live.events import Decided, Rewarded, decode
from undertow.store import Answer, DurablePolicy, replica
from undertow.store.address import store_at
from undertow.store.answers import read_answer
from undertow.store.checkpoints import apply_row, policy_of
from undertow.store.operations import verify
from undertow.store.sqlite import SqliteStore

HERE = Path(__file__).parent
WORKERS = 8
NAME = "courier"


def courier() -> undertow.LinUCB:
    """Return the policy that a bandit begins with."""
    return undertow.LinUCB(arms=["bike", "van"], feature_dim=2, explore=0.1, rng=0)


def prepare() -> None:
    """Load what forked workers need, and have them write checkpoints often."""
    undertow.precompile("linucb")
    replica._LEAST = 1500  # noqa: SLF001


# What workers are told, and what has to be there then


def features(id: str) -> list[float]:
    """Return features that a repeated call has again."""
    return [1.0, float(sum(id.encode()) % 7)]


def reward(id: str) -> float:
    """Return the reward of a decision."""
    return float(sum(id.encode()) % 5)


def work(policy: DurablePolicy, worker: str, say: Callable[[str], None], rounds: int = 10**9) -> None:
    """Decide and learn, and say what was acknowledged; a call that fails is repeated with its id."""
    for t in range(rounds):
        id = f"{worker} {t}"
        decision = repeated(lambda id=id: policy.decide(features(id), id=id))  # type: ignore[misc]
        say(f"decided\t{id}\t{decision.arm}")
        repeated(lambda id=id: policy.learn(id, reward(id)))  # type: ignore[misc]
        say(f"learned\t{id}\t{reward(id)}")


def repeated(call: Callable[[], Any]) -> Any:
    """Repeat a call until it succeeds."""
    while True:
        try:
            return call()
        except (StoreBusyError, StoreUnavailableError):
            time.sleep(0.02)


def check(url: str, acknowledged: list[str]) -> int:
    """Check a bandit against what was acknowledged; return how many events it has."""
    store = store_at(url)
    policy = undertow.open(store, NAME, timeout=60)
    rows = list(store.events(NAME, 0, 10**9))
    events = [decode(row.body) for row in rows]
    assert [row.n for row in rows] == list(range(1, len(rows) + 1))
    decided = {event.id: event.arm for event in events if isinstance(event, Decided)}
    rewarded = {event.id: event.reward for event in events if isinstance(event, Rewarded)}
    assert len(decided) + len(rewarded) == len(events), "an event is there twice"
    for line in acknowledged:
        verb, id, value = line.split("\t")
        found = decided.get(id) if verb == "decided" else rewarded.get(id)
        assert found == float(value), f"acknowledged, and not there: {line}; found {found}"
    with store.lock(NAME, 60.0) as locked:
        answers = {answer.id: answer for answer in locked.answers("", 10**9)}
        first = policy_of(locked.checkpoint(0))
    assert answers.keys() == decided.keys(), "an answer is missing, or there is one to nothing"
    assert all(answers[id].reward == rewarded.get(id) for id in decided)
    assert all(answered_arm(answers[id]) == arm for id, arm in decided.items())
    for row in rows:
        apply_row(first, row, NAME)
    assert policy.to_bytes() == first.to_bytes(), "the policy is not the fold of its events"
    verify(store, NAME)
    policy.learn(policy.decide([1.0, 1.0]), 1.0)  # and it goes on
    store.close()
    return len(rows)


def answered_arm(answer: Answer) -> int:
    """Return the arm of a stored answer."""
    decision = read_answer(answer).decision
    assert decision is not None
    return decision.arm


# Processes that are killed


def fork(program: Callable[[], None]) -> int:
    """Run a program in a forked process; return its id."""
    child = os.fork()
    if child:
        return child
    try:
        program()
    except BaseException as error:
        os.write(2, f"{error!r}\n".encode())
        os._exit(1)
    os._exit(0)


def lines_of(file: Path) -> list[str]:
    """Return the whole lines of a file."""
    text = file.read_text() if file.exists() else ""
    return text[: text.rfind("\n") + 1].splitlines()


def killed(draw: random.Random, url: str, folder: Path) -> list[str]:
    """Kill eight workers of one bandit at random moments; return what they were told."""
    files = [folder / f"said {n}" for n in range(WORKERS)]

    def program(number: int) -> None:
        with files[number].open("w", buffering=1) as said:
            work(undertow.open(url, NAME, timeout=60), str(number), lambda line: print(line, file=said, flush=True))

    children = [fork(lambda number=number: program(number)) for number in range(WORKERS)]  # type: ignore[misc]
    for child in children:
        time.sleep(draw.uniform(0.0, 0.06))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status), "a worker ended by itself"
    said = [line for file in files for line in lines_of(file)]
    for file in files:
        file.unlink(missing_ok=True)
    return said


def kills(draw: random.Random, folder: Path) -> str:
    """Kill eight processes on one SQLite file."""
    prepare()
    url = f"sqlite:///{folder}/{draw.randrange(10**9)}.db"
    undertow.open(url, NAME, courier())
    said = killed(draw, url, folder)
    check(url, said)
    return f"{WORKERS} kills"


@contextlib.contextmanager
def server() -> Iterator[services.Postgres]:
    """Start PostgreSQL for trials."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[4]))
    folder = Path(tempfile.mkdtemp(prefix="undertow-postgres-", dir="/tmp"))
    started = services.Postgres(found[-1].parent, folder)
    try:
        yield started
    finally:
        started.stop()
        shutil.rmtree(folder, ignore_errors=True)


_SERVER: list[services.Postgres] = []


def the_server() -> services.Postgres:
    """Return the one server of this process, which ends with it."""
    if not _SERVER:
        stack = contextlib.ExitStack()
        _SERVER.append(stack.enter_context(server()))
        own = os.getpid()
        atexit.register(lambda: stack.close() if os.getpid() == own else None)
    return _SERVER[0]


def emptied(postgres: services.Postgres) -> str:
    """Return the address of an empty database."""
    import psycopg

    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
    return postgres.url


def postgres_kills(draw: random.Random, folder: Path) -> str:
    """Kill eight processes on one bandit in PostgreSQL."""
    prepare()
    url = emptied(the_server())
    undertow.open(url, NAME, courier())
    said = killed(draw, url, folder)
    check(url, said)
    return f"{WORKERS} kills"


def outages(draw: random.Random, folder: Path) -> str:
    """Kill the server of PostgreSQL under load, and start it again: every call succeeds in the end, once."""
    prepare()
    postgres = the_server()
    url = emptied(postgres)
    undertow.open(url, NAME, courier())
    files = [folder / f"said {n}" for n in range(4)]

    def program(number: int) -> None:
        with files[number].open("w", buffering=1) as said:
            policy = repeated(lambda: undertow.open(url, NAME, timeout=60))
            while not (folder / "enough").exists():
                round = len(lines_of(files[number]))
                work(policy, f"{number}-{round}", lambda line: print(line, file=said, flush=True), rounds=5)

    children = [fork(lambda number=number: program(number)) for number in range(4)]  # type: ignore[misc]
    for _ in range(2):
        time.sleep(draw.uniform(0.1, 0.6))
        postgres.stop(kill=True)
        time.sleep(draw.uniform(0.0, 0.3))
        postgres.start()
    time.sleep(0.2)
    (folder / "enough").touch()
    for child in children:
        assert os.waitpid(child, 0)[1] == 0, "a worker failed"
    (folder / "enough").unlink()
    check(url, [line for file in files for line in lines_of(file)])
    return "2 outages"


# Power that is cut


class Operation(NamedTuple):
    """What was done to a file: w for a write, s for a sync, t for a new length, u for a deletion."""

    kind: str
    file: str
    at: int
    data: bytes


def library(folder: Path) -> Path:
    """Compile what is loaded before a process's own calls."""
    built = folder / "disk.so"
    if not built.exists():
        command = [os.environ.get("CC", "cc"), "-O1", "-shared", "-fPIC", "-o", str(built), str(HERE / "disk.c")]
        subprocess.run(command, check=True)
    return built


def recorded(log: Path) -> list[Operation]:
    """Read the log of what was done."""
    content, at, found = log.read_bytes(), 0, []
    while at < len(content):
        kind, name, _, length, place = struct.unpack_from("=cBHIq", content, at)
        at += 16
        file, at = content[at : at + name].decode(), at + name
        found.append(Operation(kind.decode(), file, place, content[at : at + length]))
        at += length
    return found


RECORDED = """
import os, sys
from torture import stores
stores.record(sys.argv[1], int(sys.argv[2]))
"""


def record(url: str, seed: int) -> None:
    """Have three processes play; what they are told is written to a file beside the database. Run with the library."""
    prepare()
    connect = SqliteStore._connect  # noqa: SLF001

    def connect_and_checkpoint_often(self: SqliteStore) -> Any:
        connection = connect(self)
        connection.execute("PRAGMA wal_autocheckpoint = 12")
        return connection

    SqliteStore._connect = connect_and_checkpoint_often  # type: ignore[method-assign]  # noqa: SLF001
    said = os.open(f"{url.removeprefix('sqlite:///')}-said", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    undertow.open(url, NAME, courier())
    os.write(said, b"opened\n")

    def program(number: int) -> None:
        policy = undertow.open(url, NAME, timeout=60)
        work(policy, f"{seed}-{number}", lambda line: void(os.write(said, f"{line}\n".encode())), rounds=25)

    children = [fork(lambda number=number: program(number)) for number in range(3)]  # type: ignore[misc]
    for child in children:
        assert os.waitpid(child, 0)[1] == 0


def void(_: Any) -> None:
    """Return nothing."""


def environment(folder: Path, **more: str) -> dict[str, str]:
    """Return the environment of a process that is watched."""
    paths = os.pathsep.join([str(HERE.parent), str(HERE.parent.parent)])
    return os.environ | {"LD_PRELOAD": str(library(folder)), "PYTHONPATH": paths} | more


def _recording(draw: random.Random, folder: Path) -> list[Operation]:
    """Return what some processes did to a store; the same one for 50 trials."""
    log = folder / "log"
    if not log.exists() or draw.random() < 0.02:
        log.unlink(missing_ok=True)
        place = folder / "recorded"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        settings = environment(folder, DISK_PREFIX=f"{place}/shop.db", DISK_LOG=str(log))
        command = [sys.executable, "-c", RECORDED, f"sqlite:///{place}/shop.db", str(draw.randrange(10**6))]
        subprocess.run(command, check=True, env=settings)
    return recorded(log)


def rebuilt(draw: random.Random, operations: list[Operation], cut: int) -> dict[str, bytearray]:
    """Return the files as they may be after the power was cut behind operation `cut`.

    What came before the last sync of a file is there. Of what came later, in pieces of 512 bytes, anything may be.
    """
    synced = {each.file: n for n, each in enumerate(operations[: cut + 1]) if each.kind == "s"}
    share = draw.choice([0.0, 0.2, 0.5, 0.8, 1.0])
    files: dict[str, bytearray] = {}
    for n, (kind, file, at, data) in enumerate(operations[: cut + 1]):
        if file not in ("", "-wal"):
            continue
        certain = n < synced.get(file, -1)
        if kind == "u" and (certain or draw.random() < share):
            files.pop(file, None)
        elif kind == "t" and (certain or draw.random() < share):
            held = files.setdefault(file, bytearray())
            held[at:] = bytes(max(at - len(held), 0))
        elif kind == "w":
            for begin in range(0, len(data), 512):
                if certain or draw.random() < share:
                    held, piece = files.setdefault(file, bytearray()), data[begin : begin + 512]
                    held.extend(bytes(max(at + begin - len(held), 0)))
                    held[at + begin : at + begin + len(piece)] = piece
    return files


def power_cuts(draw: random.Random, folder: Path) -> str:
    """Cut the power after a random sync, or a random moment later, and open what is there."""
    prepare()
    operations = _recording(draw, folder)
    opened = next(n for n, each in enumerate(operations) if each.file == "-said")
    syncs = [n for n, each in enumerate(operations) if each.kind == "s" and n > opened]
    cut = min(draw.choice(syncs) + draw.choice([0, 0, 1, 3, 10]), len(operations) - 1)
    told = b"".join(each.data for each in operations[: cut + 1] if each.file == "-said" and each.kind == "w")
    place = folder / f"cut {draw.randrange(10**9)}"
    place.mkdir()
    for file, content in rebuilt(draw, operations, cut).items():
        (place / f"shop.db{file}").write_bytes(content)
    url = f"sqlite:///{place}/shop.db"
    with store_at(url)._connection() as connection:  # type: ignore[attr-defined]  # noqa: SLF001
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    check(url, told.decode().splitlines()[1:])
    shutil.rmtree(place)
    return "opened"


# Disks that are full or fail

FAULTY = """
import sys
from torture import stores
print(stores.faulty(*sys.argv[1:]))
"""


def disk_faults(draw: random.Random, folder: Path) -> str:
    """Have every write of a short script fail, one after the other, in one process that is forked for each of them."""
    place = folder / f"faults {draw.randrange(10**9)}"
    place.mkdir()
    kind = draw.choice(["ENOSPC", "EIO"])
    times, shortly = str(draw.choice([1, 2, 5])), str(draw.randrange(2))
    settings = environment(folder, DISK_PREFIX=f"{place}/shop.db")
    command = [sys.executable, "-c", FAULTY, str(folder / "disk.so"), str(place), kind, times, shortly]
    done = subprocess.run(command, env=settings, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    shutil.rmtree(place)
    return f"{kind} at {done.stdout.split()[-1]} writes"


def faulty(disk: str, place: str, kind: str, times: str, shortly: str) -> int:
    """Run a script once for each of its writes, which fails; return how many there are. Run with the library."""
    prepare()
    watch = ctypes.CDLL(disk)
    watch.disk_calls.restype = ctypes.c_long
    at = 0
    while True:
        for file in Path(place).iterdir():
            file.unlink()
        said = Path(place) / "said"

        def program(at: int = at, said: Path = said) -> None:
            watch.disk_fail(ctypes.c_long(at), getattr(errno, kind), ctypes.c_long(int(times)), int(shortly))
            before = watch.disk_calls()
            with said.open("w", buffering=1) as file:
                store = repeated(lambda: store_at(f"sqlite:///{place}/shop.db"))
                policy = repeated(lambda: undertow.open(store, NAME, courier()))
                work(policy, "w", lambda line: print(line, file=file, flush=True), rounds=4)
                store.close()
            os._exit(0 if watch.disk_calls() - before > at else 7)

        _, status = os.waitpid(fork(program), 0)
        code = os.waitstatus_to_exitcode(status)
        assert code in (0, 7), f"failed with {kind} at write {at}"
        assert len(lines_of(said)) == 8
        check(f"sqlite:///{place}/shop.db", lines_of(said))
        if code == 7:
            return at
        at += 1


TRIALS: dict[str, hardships.Trial] = {
    "kills": kills,
    "postgres-kills": postgres_kills,
    "outages": outages,
    "power-cuts": power_cuts,
    "disk-faults": disk_faults,
}

if __name__ == "__main__":
    if os.access("/dev/shm", os.W_OK) and sys.argv[1:2] != ["outages"]:
        tempfile.tempdir = "/dev/shm"  # files that nobody waits for: what a real disk loses is simulated
    raise SystemExit(hardships.main(TRIALS))
