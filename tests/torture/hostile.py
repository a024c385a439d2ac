"""Save files that were tampered with: `load` refuses them, or returns a policy that plays.

Files of every policy are changed, one or a few things at a time: numbers of the header and of every array, arrays that
are missing, new, reshaped or of another kind, flipped bits, ends cut off, archives that unpack to far more than they
are. A child process loads them and plays a few rounds with what it gets, since what goes wrong may end the process.
"""

import copy
import io
import itertools
import json
import math
import os
import resource
import select
import subprocess
import sys
import tempfile
import time
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import undertow
from helpers import make_policy
from torture.interrupts import SYSTEM, attempt, next_call, variants
from undertow.policies import Health, LivePolicy

PATIENCE = 30.0  # seconds that one file may take
MEMORY = 256.0  # megabytes by which one file may raise the peak
EXTREMES = [0, 1, -1, -141, 0.5, 2, 3, 9, 64, 1e3, 1e6, 1e8, 1e12, 2**31, 2**53, 2**63, 1e152, 1e300, -1e300]
ODD: list[Any] = [
    *EXTREMES,
    math.nan,
    math.inf,
    -math.inf,
    10**30,
    None,
    "never",
    "",
    [],
    {},
    [1] * 5,
    True,
    "auto",
    10**400,
]
Arrays = dict[str, npt.NDArray[Any]]


class Counts(NamedTuple):
    """How many files were tried, how many of them were loaded, and what went wrong."""

    files: int
    loaded: int
    wrong: tuple[str, ...]


def honest(folder: Path) -> list[Path]:
    """Save every policy in every form, some rounds old, with decisions that wait."""
    files = []
    for number, (name, form) in enumerate(variants()):
        rng = np.random.default_rng(number)
        policy = make_policy(name, SYSTEM, rng=number, **form)
        while policy.round < 12 + number % 9:
            attempt(next_call(policy, rng)[1], policy)
        files.append(folder / f"{number}.honest")
        policy.save(files[-1])
    return files


def _index_map(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Go through all places of a JSON object."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, entry in entries:
        yield (*path, key)
        yield from _index_map(entry, (*path, key))


def _spoil_header(header: dict[str, Any], rng: np.random.Generator) -> None:
    places = list(_index_map(header))
    if rng.random() < 0.5:  # parameters matter most
        places = [place for place in places if place[0] in ("parameters", "decisions", "forgotten", "due")]
    *path, last = places[int(rng.integers(len(places)))]
    target: Any = header
    for key in path:
        target = target[key]
    if rng.random() < 0.1 and isinstance(target, dict):
        del target[last]
    else:
        target[last] = copy.deepcopy(ODD[int(rng.integers(len(ODD)))])


def _spoil_numbers(arrays: Arrays, rng: np.random.Generator) -> None:
    name = str(rng.choice([name for name, values in arrays.items() if values.size] or ["state"]))
    values = arrays[name] = arrays[name].copy()
    early = values.size if rng.random() < 0.5 else min(values.size, 60)  # where sizes, rounds and orders are
    for _ in range(int(rng.integers(1, 4))):
        number = float([*EXTREMES, math.nan, math.inf, -math.inf][int(rng.integers(len(EXTREMES) + 3))])
        if values.dtype.kind == "u":  # text
            number = float(rng.choice([0, 10, 32, 45, 65, 127, 195, 255]))
        fits = values.dtype.kind == "f" or (math.isfinite(number) and abs(number) < 2**63)
        values.reshape(-1)[int(rng.integers(early))] = number if fits else -1


def _spoil_shape(arrays: Arrays, rng: np.random.Generator) -> None:
    name = str(rng.choice(list(arrays)))
    values = np.atleast_1d(arrays[name])
    match int(rng.integers(8)):
        case 0:
            del arrays[name]
        case 1:
            arrays[f"more_{name}"] = values
        case 2:
            arrays[name] = values.reshape(-1, 1)
        case 3:
            arrays[name] = values[..., : int(rng.integers(values.shape[-1] + 1))]
        case 4:
            kinds = ["<f4", ">f8", "<i8", "<c16", "|b1", "|S3"]
            with np.errstate(all="ignore"):
                arrays[name] = np.nan_to_num(values).astype(kinds[int(rng.integers(6))])
        case 5:
            arrays[name] = np.concatenate([values] * 2)
        case 6:
            arrays[name] = values[:0]
        case _:
            arrays[name] = np.zeros(tuple(int(n) for n in rng.integers(0, 9, int(rng.integers(4)))))


def _write(header: dict[str, Any], arrays: Arrays) -> bytes:
    target = io.BytesIO()
    np.savez(target, header=np.frombuffer(json.dumps(header).encode(), dtype=np.uint8), **arrays)  # type: ignore[arg-type]
    return target.getvalue()


def _spoil_bytes(content: bytes, rng: np.random.Generator) -> bytes:
    changed = bytearray(content)
    match int(rng.integers(3)):
        case 0:
            for place in rng.integers(0, len(changed), int(rng.integers(1, 9))):
                changed[place] ^= 1 << int(rng.integers(8))
        case 1:
            del changed[int(rng.integers(len(changed))) :]
        case _:
            begin = int(rng.integers(len(changed)))
            changed[begin : begin + 64] = rng.bytes(int(rng.integers(128)))
    return bytes(changed)


def _bomb(header: dict[str, Any], arrays: Arrays, rng: np.random.Generator) -> bytes:
    """An archive that claims, or unpacks to, far more than it is."""
    target, name = io.BytesIO(), str(rng.choice(list(arrays)))
    kind = int(rng.integers(3))
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED if kind == 0 else zipfile.ZIP_STORED) as archive:
        everything = arrays | {"header": np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)}
        for key, values in everything.items():
            member = io.BytesIO()
            np.save(member, values)
            content = member.getvalue()
            if key == name and kind == 0:
                content += bytes(2**27)
            elif key == name:
                content = content.replace(b"'shape': (", b"'shape': (9999999999, ")
            archive.writestr(f"{key}.npy", content)
    return target.getvalue()


def hostile(content: bytes, seed: tuple[int, int]) -> bytes:
    """Return what becomes of an honest file; the same for the same seed."""
    rng = np.random.default_rng(seed)
    kind = rng.random()
    if kind < 0.1:
        return _spoil_bytes(content, rng)
    with np.load(io.BytesIO(content)) as archive:
        arrays = {name: archive[name] for name in archive.files}
    header = json.loads(arrays.pop("header").tobytes().decode())
    if kind < 0.11:
        return _bomb(header, arrays, rng)
    for _ in range(int(rng.integers(1, 3))):
        if kind < 0.4:
            _spoil_header(header, rng)
        elif kind < 0.85:
            _spoil_numbers(arrays, rng)
        else:
            _spoil_shape(arrays, rng)
    return _write(header, arrays)


def play(policy: LivePolicy, file: Path) -> None:
    """Use a policy in every way; what it refuses, it may refuse."""
    rng = np.random.default_rng(0)
    for id in list(policy.parts.pending.waiting)[:2]:
        attempt(lambda p, id=id: p.learn(id, 1.0), policy)  # type: ignore[misc]
    for _ in range(12):
        attempt(next_call(policy, rng)[1], policy)
    attempt(lambda p: Health.from_json(p.health().to_json()), policy)
    attempt(lambda p: copy.deepcopy(p).save(file), policy)


def trial(content: bytes, file: Path) -> tuple[bool, str]:
    """Load a file and play; return whether it was loaded, and what went wrong."""
    file.write_bytes(content)
    before, step, loaded = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, "load", False
    try:
        policy = undertow.load(file)
        step, loaded = "play", True
        play(policy, file)
    except undertow.InvalidInputError:
        pass
    except Exception as error:
        return loaded, f"{step}: {error!r:.200}"
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    return loaded, f"{step}: {grown:.0f} MB" if grown > MEMORY else ""


def child(folder: Path, seed: int, first: int) -> None:
    """Try files from number `first` on for ever; say which is next, and what came of it."""
    warnings.simplefilter("ignore")
    originals = [file.read_bytes() for file in sorted(folder.glob("*.honest"), key=lambda file: int(file.stem))]
    for content in originals:
        loaded, wrong = trial(content, folder / "file")  # loads every kernel
        if wrong or not loaded:
            raise AssertionError(f"an honest file: {wrong}")
    for number in itertools.count(first):
        print(f"begin {number}", flush=True)
        loaded, wrong = trial(hostile(originals[number % len(originals)], (seed, number)), folder / "file")
        print(f"end {int(loaded)} {wrong}", flush=True)


def _lines(process: "subprocess.Popen[bytes]", end: float) -> Iterator[str]:
    """Yield what a child says until it ends, says nothing for too long, or time is up."""
    assert process.stdout is not None
    patience, rest = 10 * PATIENCE, b""  # it has to start first
    while time.monotonic() < end:
        if not select.select([process.stdout], [], [], min(patience, max(end - time.monotonic(), 0.1)))[0]:
            if time.monotonic() < end:
                yield "silence"
            return
        if not (read := os.read(process.stdout.fileno(), 1 << 16)):
            return
        *lines, rest = (rest + read).split(b"\n")
        for line in lines:
            if line.startswith(b"begin"):
                patience = PATIENCE
            yield line.decode()


def run(seed: int, *, seconds: float, files: float = math.inf) -> Counts:
    """Try files until there were enough of them, or time is up."""
    number, tried, loaded, wrong = 0, 0, 0, []
    end = time.monotonic() + seconds
    paths = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        honest(folder)
        while tried < files and time.monotonic() < end:
            command = [sys.executable, "-m", "torture.hostile", str(folder), str(seed), str(number)]
            outcome, ended = "", None
            with subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": paths}) as process:
                for line in _lines(process, end):
                    outcome, _, rest = line.partition(" ")
                    if outcome == "begin":
                        number = int(rest)
                    elif outcome == "end":
                        tried, loaded = tried + 1, loaded + int(rest[0])
                        wrong += [f"file {number}: {rest[2:]}"] if rest[2:] else []
                        if tried >= files:
                            break
                if outcome != "silence" and tried < files and time.monotonic() < end:  # it ended by itself
                    ended = process.wait(PATIENCE)
                process.kill()
            if outcome == "silence" or ended is not None:
                wrong.append(f"file {number}: {'hangs' if ended is None else f'ends the process with {ended}'}")
            number += 1
    return Counts(tried, loaded, tuple(wrong))


if __name__ == "__main__":
    child(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
