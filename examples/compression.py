"""Codec choice: how to compress what goes over a slow link while both the files and the link change.

Measured and simulated. Pieces of 64 kB come from the files of this Python installation: sources, compiled modules,
libraries, and numbers and noise that NumPy writes. Each piece was compressed by every codec, and its seconds and bytes
were measured. A world is a stream of pieces that goes from one kind of file to another, over a link whose speed drifts;
the stream and the link are simulated. The cost is the seconds of compressing and sending. The feature is how well the
fastest codec compresses a sample of the piece, every sixteenth block of 64 bytes.
"""

import bz2
import lzma
import sysconfig
import time
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from scipy.signal import lfilter

from costs import FOLDER, FloatArray, Recording, draw, here, options, play_all, print_table

CODECS: dict[str, Callable[[bytes], bytes]] = {
    "none": bytes,
    "zlib 1": lambda piece: zlib.compress(piece, 1),
    "zlib 9": lambda piece: zlib.compress(piece, 9),
    "bz2": bz2.compress,
    "lzma": lzma.compress,
}
PIECE, BLOCK, SAMPLED = 65_536, 64, 16
KINDS = ("sources", "bytecode", "libraries", "numbers", "noise")
PER_KIND = 80  # pieces that are measured
STAY = 0.98  # probability that the next piece is of the same kind
LINK, SPREAD, PERSISTENCE = np.log(1e6), 1.0, 0.99  # bytes a second: an autoregression of the logarithm


def pieces(rng: np.random.Generator, kind: str, count: int) -> list[bytes]:
    """Return pieces of a kind of file."""
    folders = sysconfig.get_path("stdlib"), sysconfig.get_path("platlib")
    if kind == "numbers":
        walks = np.cumsum(rng.standard_normal((count, PIECE // 8)), axis=1).round(2)
        return [walk.tobytes() for walk in walks]
    if kind == "noise":
        return [rng.bytes(PIECE) for _ in range(count)]
    ending = {"sources": "*.py", "bytecode": "*.pyc", "libraries": "*.so*"}[kind]
    files = [file for folder in folders for file in sorted(Path(folder).rglob(ending)) if file.stat().st_size >= PIECE]
    found = []
    for place in rng.integers(len(files), size=count):
        content = files[place].read_bytes()
        begin = int(rng.integers(len(content) - PIECE + 1))
        found.append(content[begin : begin + PIECE])
    return found


def sample_of(piece: bytes) -> float:
    """Return the logarithm of a sample's compression ratio: the feature."""
    blocks = np.frombuffer(piece, np.uint8).reshape(-1, BLOCK)
    sample = blocks[::SAMPLED].tobytes()
    return float(np.log(len(zlib.compress(sample, 1)) / len(sample)))


def record(seed: int, per_kind: int = PER_KIND) -> Recording:
    """Measure every codec on every piece.

    The recording has a world of seconds and one of bytes, in rounds by kind; features are those of `sample_of`.
    """
    rng = np.random.default_rng(seed)
    seconds, sizes, samples = [], [], []
    for kind in KINDS:
        for piece in pieces(rng, kind, per_kind):
            samples.append([sample_of(piece)])
            times, lengths = [], []
            for codec in CODECS.values():
                begun = time.thread_time()
                lengths.append(len(codec(piece)))
                times.append(max(time.thread_time() - begun, 1e-7))
            seconds.append(times)
            sizes.append(lengths)
    costs, features = np.array([seconds, sizes], dtype=np.float64), np.array([samples, samples])
    return Recording(list(CODECS), costs, features, here())


def streams(recording: Recording, worlds: int, rounds: int, first: int = 0) -> Recording:
    """Return worlds: the pieces, and the cost of each codec over the link at the time."""
    per_kind = recording.costs.shape[1] // len(KINDS)
    costs, features = [], []
    for seed in range(first, first + worlds):
        rng = np.random.default_rng(seed)
        kinds = np.empty(rounds, np.int64)
        for t in range(rounds):
            kinds[t] = kinds[t - 1] if t and rng.random() < STAY else rng.integers(len(KINDS))
        piece = kinds * per_kind + rng.integers(per_kind, size=rounds)
        seconds, sizes = recording.costs[:, piece]
        costs.append(seconds + sizes / link(rng, rounds)[:, None])
        features.append(recording.features[0, piece])
    return recording._replace(costs=np.stack(costs), features=np.stack(features))


def link(rng: np.random.Generator, rounds: int) -> FloatArray:
    """Return the speed of the link, in bytes a second."""
    noise = rng.standard_normal(rounds)
    noise[1:] *= np.sqrt(1 - PERSISTENCE**2)
    return np.asarray(np.exp(LINK + SPREAD * lfilter([1], [1, -PERSISTENCE], noise)))


def main(arguments: Sequence[str] | None = None) -> None:
    chosen = options(__doc__, out="compression.png", arguments=arguments)
    if chosen.record:
        record(chosen.first_seed).save(chosen.record)
        return
    recording = Recording.load(chosen.recording or FOLDER / "compression.npz")
    worlds = streams(recording, chosen.worlds, chosen.rounds)
    played = play_all(worlds.worlds())
    title = f"Five codecs: {chosen.rounds} pieces of 64 kB, {chosen.worlds} worlds; measured {recording.machine}"
    print_table(title, played, own=True)
    draw("Five codecs over a slow link", played, chosen.out, own=True)


if __name__ == "__main__":
    main()
