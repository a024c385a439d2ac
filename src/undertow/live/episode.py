"""Complete episodes in blocks: the steps of the live object at compiled speed."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from undertow.compiled.loop import DECIDE, LEARN, OBSERVE
from undertow.live.parts import Parts
from undertow.live.units import Columns, Units
from undertow.support.checks import FloatArray
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
    """Play through a path; write the chosen arms and, if there is room, forecasts, widths and windows.

    `played` is called after each block with its number of rounds.
    """
    player, columns, timeline = parts.player, parts.columns, parts.timeline
    sizes = (columns.context_dim, path.arm_count, player.features.shape[1])
    m, k, q = sizes
    player.rows = k if path.arm_features else 1
    features = path.features[..., :q].reshape(path.rounds, player.rows * q)
    head = player.common.head
    heard = np.full_like(path.rewards, np.nan) if head.pinned >= 0 and head.unlearned else path.rewards
    seen = (path.contexts[:, :m], heard, features)
    shift = parts.turns.order[0]
    first = (LEARN - shift) % 3  # the step in which the first reward is learned
    kept = int(len(records) > 0)
    for start in range(0, path.rounds, _BLOCK):
        block = slice(start, min(start + _BLOCK, path.rounds))
        length = block.stop - block.start
        raw = np.hstack([column[block] for column in seen])
        data = np.hstack([draws(length), raw])
        rows = data[:, data.shape[1] - raw.shape[1] :]
        out = np.zeros((length, 1 + 3 * k))
        flat, step = data.ravel(), 0
        columns.begin(context=raw[:, :m], features=_by_row(raw[:, m + k :], q))
        rows[:] = _inward(columns.units, raw, *sizes)
        while step < 3 * length:
            begun = step
            pause = 3 * (columns.pause - start) + (DECIDE - shift) % 3  # the units change before that decision
            stop = _first_reward(raw[:, m : m + k], step, first) if columns.awaits_reward else 3 * length
            last = int(min(pause, stop))
            step = player.play(flat, data.shape[1], step, last, shift, out, kept)
            timeline.recorded(rows, out[:, 0], begun, step)
            _take_note(columns, raw, out, kept, begun, step, shift)
            if step == pause:
                rescale()
                rows[step // 3 :] = _inward(columns.units, raw[step // 3 :], *sizes)
            elif step == stop < 3 * length:
                t = step // 3
                columns.begin(reward=raw[t : t + 1, m + int(out[t, 0]), None])
                rows[t:] = _inward(columns.units, raw[t:], *sizes)
            elif step < 3 * length:
                timeline.attend()
        arms[block] = out[:, 0]
        if kept:
            records[block] = out[:, 1:].reshape(length, records.shape[1], -1)
        played(length)


def _first_reward(rewards: FloatArray, step: int, first: int) -> int:
    """Return the next step in which a reward may be learned, depending on the arm played then."""
    length, t = len(rewards), (step - first) // 3 + 1
    paying = ~np.isnan(rewards[t:]).all(axis=1)
    return 3 * (t + int(paying.argmax())) + first if paying.any() else 3 * length


def _calls(call: int, step: int, shift: int) -> int:
    """Return the number of leading steps of one kind."""
    return (step + 2 - (call - shift) % 3) // 3


def _by_row(features: FloatArray, q: int) -> FloatArray:
    """Return the features of rounds, one row or k of them for each, one row after another, (…, q)."""
    return features.reshape(-1, q) if q else features


def _inward(units: Units | None, raw: FloatArray, m: int, k: int, q: int) -> FloatArray:
    """Return contexts, rewards and features in the units of a policy."""
    if units is None:
        return raw
    contexts, rewards, features = np.split(raw, [m, m + k], axis=1)
    known = units.inward(_by_row(features, q), m).reshape(features.shape)
    return np.hstack([units.inward(contexts, 0), units.rewards(rewards), known])


def _take_note(
    columns: Columns, raw: FloatArray, out: FloatArray, kept: int, begun: int, step: int, shift: int
) -> None:
    """Record the observed values in the columns' own units, and convert forecasts to the rewards' units."""
    units = columns.units
    if units is None:
        return
    k, m, q = (out.shape[1] - 1) // 3, columns.context_dim, columns.feature_dim
    decided, learned, observed = (
        range(_calls(call, begun, shift), _calls(call, step, shift)) for call in (DECIDE, LEARN, OBSERVE)
    )
    paid = raw[learned, m + out[learned, 0].astype(np.int64)]
    columns.note(context=raw[observed, :m], features=_by_row(raw[decided, m + k :], q), reward=paid[:, None])
    rows, forecasts, widths = slice(decided.start, decided.stop), slice(1, 1 + k), slice(1 + k, 1 + 2 * k)
    if kept:
        out[rows, forecasts], out[rows, widths] = units.outward(out[rows, forecasts], out[rows, widths])
