"""Whole episodes in blocks: the steps of the live object, as fast as they compile."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from undertow._checks import FloatArray
from undertow.compiled.loop import DECIDE, LEARN, OBSERVE
from undertow.live.rounds import Parts
from undertow.live.units import Columns, Units
from undertow.trajectory import Trajectory

__all__ = ["play_episode"]

_BLOCK = 1024  # rounds played between two returns from compiled code; no result depends on it


def play_episode(
    parts: Parts,
    draws: Callable[[int], FloatArray],
    rescale: Callable[[], None],
    path: Trajectory,
    arms: npt.NDArray[np.int64],
    records: FloatArray,
    played: Callable[[int], None],
) -> None:
    """Play through a path; write the chosen arms and, where there is room, forecasts, widths and windows.

    `played` is told after each block how many rounds it had.
    """
    player, columns, timeline = parts.player, parts.columns, parts.timeline
    m, q = columns.context_dim, columns.feature_dim
    seen = (path.contexts[:, :m], path.features[:, :q], path.rewards)
    shift = OBSERVE if parts.turns.context_first else DECIDE
    first = (LEARN - shift) % 3  # the step in which the first reward is learned
    kept = int(len(records) > 0)
    for start in range(0, path.rounds, _BLOCK):
        block = slice(start, min(start + _BLOCK, path.rounds))
        length = block.stop - block.start
        raw = np.hstack([column[block] for column in seen])
        data = np.hstack([raw, draws(length)])
        out = np.zeros((length, 1 + 3 * path.arm_count))
        flat, step = data.ravel(), 0
        columns.begin(context=raw[:, :m], features=raw[:, m : m + q])
        data[:, : raw.shape[1]] = _inward(columns.units, raw, m + q)
        while step < 3 * length:
            begun = step
            pause = 3 * (columns.pause - start) + (DECIDE - shift) % 3  # the units change before that decision
            stop = _first_reward(raw[:, m + q :], step, first) if columns.awaits_reward else 3 * length
            last = int(min(pause, stop))
            step = player.play(flat, data.shape[1], step, last, shift, out, kept)
            timeline.recorded(data, out[:, 0], begun, step)
            _take_note(columns, raw, out, kept, begun, step, shift)
            if step == pause:
                rescale()
                data[step // 3 :, : raw.shape[1]] = _inward(columns.units, raw[step // 3 :], m + q)
            elif step == stop < 3 * length:
                t = step // 3
                columns.begin(reward=raw[t : t + 1, m + q + int(out[t, 0]), None])
                data[t:, : raw.shape[1]] = _inward(columns.units, raw[t:], m + q)
            elif step < 3 * length:
                timeline.attend()
        arms[block] = out[:, 0]
        if kept:
            records[block] = out[:, 1:].reshape(length, records.shape[1], -1)
        played(length)


def _first_reward(rewards: FloatArray, step: int, first: int) -> int:
    """Return the next step in which a reward may be learned; which arm is played then, and so whether, is open."""
    length, t = len(rewards), (step - first) // 3 + 1
    paying = ~np.isnan(rewards[t:]).all(axis=1)
    return 3 * (t + int(paying.argmax())) + first if paying.any() else 3 * length


def _calls(call: int, step: int, shift: int) -> int:
    """Return how many of the first steps are of one kind."""
    return (step + 2 - (call - shift) % 3) // 3


def _inward(units: Units | None, raw: FloatArray, rewards: int) -> FloatArray:
    """Return contexts, features and, from column `rewards` on, rewards in the units of a policy."""
    if units is None:
        return raw
    return np.hstack([units.inward(raw[:, :rewards], 0), units.rewards(raw[:, rewards:])])


def _take_note(
    columns: Columns, raw: FloatArray, out: FloatArray, kept: int, begun: int, step: int, shift: int
) -> None:
    """Have the columns note what was seen, in their own units, and convert forecasts to those of the rewards."""
    units = columns.units
    if units is None:
        return
    k, m, q = (out.shape[1] - 1) // 3, columns.context_dim, columns.feature_dim
    decided, learned, observed = (
        range(_calls(call, begun, shift), _calls(call, step, shift)) for call in (DECIDE, LEARN, OBSERVE)
    )
    paid = raw[learned, m + q + out[learned, 0].astype(np.int64)]
    columns.note(context=raw[observed, :m], features=raw[decided, m : m + q], reward=paid[:, None])
    rows, forecasts, widths = slice(decided.start, decided.stop), slice(1, 1 + k), slice(1 + k, 1 + 2 * k)
    if kept:
        out[rows, forecasts], out[rows, widths] = units.outward(out[rows, forecasts], out[rows, widths])
