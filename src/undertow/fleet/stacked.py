"""Compiled loops over many states: one row of a matrix for each key, and one step of the policy's own loop at a time.

Each key has a row of `book`: the call that is due, its newest and oldest pending decision, and their number. Pending
decisions are rows of `waiting`, doubly linked for each key in order; free rows are linked by `OLDER`: `spare` holds the
first of them, and their number. The numbers for learning a reward are the same row of `memories`.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from undertow.compiled import Common, Layout, count_open
from undertow.compiled.address import take_step
from undertow.compiled.kernel import inlined, kernel
from undertow.compiled.loop import DECIDE, LEARN, OBSERVE
from undertow.compiled.views import view
from undertow.fleet.keys import Integers
from undertow.support.checks import FloatArray

__all__ = [
    "ARM",
    "BOOK",
    "COUNT",
    "DUE",
    "LIFE",
    "NEWEST",
    "OLDER",
    "OLDEST",
    "ROUND",
    "SLOT",
    "WAITING",
    "Book",
    "decide_rows",
    "find_waiting",
    "learn_rows",
    "link_rows",
    "observe_rows",
    "play_rows",
    "turn_rows",
]

Book = npt.NDArray[np.int32]

DUE, NEWEST, OLDEST, COUNT = range(4)  # columns of a key; DUE is 1 if the context is due
SLOT, ROUND, ARM, LIFE, OLDER, NEWER = range(6)  # columns of a pending decision
BOOK, WAITING = 4, 6
NONE = -1


class _Begins(NamedTuple):
    """The beginning of every policy's state."""

    common: Common


open_common = Layout(_Begins).open_in_kernels


@inlined
def link(book: Book, waiting: Integers, spare: Integers, s: int, t: int, arm: int, life: int) -> int:
    """Add a pending decision, as the newest of its key; return its row."""
    e = int(spare[0])
    spare[0], spare[1] = waiting[e, OLDER], spare[1] - 1
    waiting[e, SLOT], waiting[e, ROUND], waiting[e, ARM], waiting[e, LIFE] = s, t, arm, life
    waiting[e, OLDER], waiting[e, NEWER] = book[s, NEWEST], NONE
    if book[s, NEWEST] != NONE:
        waiting[book[s, NEWEST], NEWER] = e
    else:
        book[s, OLDEST] = e
    book[s, NEWEST] = e
    book[s, COUNT] += 1
    return e


@inlined
def unlink(book: Book, waiting: Integers, spare: Integers, e: int) -> None:
    """Remove a pending decision."""
    s, older, newer = waiting[e, SLOT], waiting[e, OLDER], waiting[e, NEWER]
    if older != NONE:
        waiting[older, NEWER] = newer
    else:
        book[s, OLDEST] = newer
    if newer != NONE:
        waiting[newer, OLDER] = older
    else:
        book[s, NEWEST] = older
    book[s, COUNT] -= 1
    waiting[e, SLOT], waiting[e, OLDER] = NONE, spare[0]
    spare[0], spare[1] = e, spare[1] + 1


@inlined
def learn_one(
    play: int,
    states: FloatArray,
    waiting: Integers,
    memories: FloatArray,
    row: FloatArray,
    before: int,
    out: FloatArray,
    e: int,
    reward: float,
) -> None:
    """Learn the reward of a pending decision; `before` is the first place of rewards in a row."""
    length, p, arm = states.shape[1], memories.shape[1], waiting[e, ARM]
    state = view(states, waiting[e, SLOT] * length, (length,))
    common = open_common(state, 0).common
    out[0, 0], row[before + arm] = arm, reward
    age = int(common.head.rounds) - 1 - waiting[e, ROUND]
    width = before + len(common.order)
    take_step(play, state, row, width, LEARN, view(memories, e * p, (p,)), age, out, 0)


@inlined
def decide_one(
    play: int,
    states: FloatArray,
    book: Book,
    s: int,
    draws: FloatArray,
    features: FloatArray,
    closed: FloatArray,
    m: int,
    waiting: Integers,
    memories: FloatArray,
    spare: Integers,
    life: int,
    most: int,
    wait: int,
    default: float,
    row: FloatArray,
    out: FloatArray,
    shut: FloatArray,
    wanted: int,
    kept: FloatArray,
) -> int:
    """Decide a round of the key in row s; decisions pending for `wait` ≥ 0 rounds get the default reward before.

    Closed arms are given for this round, or not at all. `row` holds the context, m numbers after the random ones. The
    decision becomes the newest pending one of its key, in the returned row; `out` holds arm, forecasts and widths. If
    an arm is `wanted` (≥ 0), it is played whatever the policy would choose; `kept` has room for its state then.
    """
    length, p, d, k, given = states.shape[1], memories.shape[1], len(draws), len(shut), len(features)
    state, nothing = view(states, s * length, (length,)), view(row, 0, (0,))
    common = open_common(state, 0).common
    t, e = int(common.head.rounds), book[s, OLDEST]
    while wait >= 0 and e != NONE and waiting[e, ROUND] <= t - 1 - wait:
        learn_one(play, states, waiting, memories, row, d + m, out, e, default)
        unlink(book, waiting, spare, e)
        e = book[s, OLDEST]
    for j in range(given):
        row[d + m + k + j] = features[j]
    for j in range(d):
        row[j] = draws[j]
    for a in range(k):
        shut[a] = common.closed[a]
        common.closed[a] = closed[a] if len(closed) > 0 else shut[a]
    for j in range(len(kept)):
        kept[j] = state[j]
    take_step(play, state, row, d + m + k + given, DECIDE, nothing, 0, out, given)
    if wanted >= 0 and int(out[0, 0]) != wanted:  # another processor rounds otherwise
        for j in range(length):
            state[j] = kept[j]
        for a in range(k):
            common.closed[a] = 0.0 if a == wanted else 1.0
        take_step(play, state, row, d + m + k + given, DECIDE, nothing, 0, out, given)
    arm, ε = int(out[0, 0]), common.head.explore
    out[0, 1 + 2 * k] = 1.0
    if ε > 0.0:
        out[0, 1 + 2 * k] = (1.0 - ε) * (arm == int(common.head.proposed)) + ε / count_open(common.closed)
    for a in range(k):
        common.closed[a] = shut[a]
    e = link(book, waiting, spare, s, t, arm, life)
    for j in range(p):
        memories[e, j] = common.memory[j]
    if book[s, COUNT] > most:
        unlink(book, waiting, spare, book[s, OLDEST])
    if m > 0:
        book[s, DUE] = 1
    return e


@inlined
def observe_one(
    play: int,
    states: FloatArray,
    book: Book,
    s: int,
    context: FloatArray,
    first: int,
    k: int,
    row: FloatArray,
    out: FloatArray,
) -> None:
    """Observe a context of the key in row s; contexts begin at number `first` of a row."""
    length, m = states.shape[1], len(context)
    for j in range(m):
        row[first + j] = context[j]
    state = view(states, s * length, (length,))
    take_step(play, state, row, first + m + k, OBSERVE, view(row, 0, (0,)), 0, out, 0)
    book[s, DUE] = 0


@kernel
def decide_rows(
    play: int,
    states: FloatArray,
    book: Book,
    rows: Integers,
    slots: Integers,
    draws: FloatArray,
    contexts: FloatArray,
    features: FloatArray,
    closed: FloatArray,
    wanted: Integers,
    waiting: Integers,
    memories: FloatArray,
    spare: Integers,
    life: int,
    most: int,
    wait: int,
    default: float,
    row: FloatArray,
    out: FloatArray,
    arms: Integers,
    rounds: Integers,
    chances: FloatArray,
    forecasts: FloatArray,
    widths: FloatArray,
) -> None:
    """Decide a round of each key: `slots[i]` is the state of row `rows[i]` of the inputs and outputs.

    `draws` has a row for each decision; `contexts`, `features`, `closed` and `wanted` arms have one for each row of the
    data, or none.
    """
    m, k = contexts.shape[1], forecasts.shape[1]
    shut, kept = np.zeros(k), np.zeros(states.shape[1] if len(wanted) > 0 else 0)
    for i in range(len(rows)):
        r, s = rows[i], slots[i]
        if len(contexts) > 0:
            observe_one(play, states, book, s, contexts[r], draws.shape[1], k, row, out)
        limits = closed[r] if len(closed) > 0 else closed[:0].reshape(-1)
        places = waiting, memories, spare, life, most, wait, default
        arm = wanted[r] if len(wanted) > 0 else NONE
        e = decide_one(play, states, book, s, draws[i], features[r], limits, m, *places, row, out, shut, arm, kept)
        arms[r], rounds[r], chances[r] = waiting[e, ARM], waiting[e, ROUND], out[0, 1 + 2 * k]
        for a in range(k):
            forecasts[r, a], widths[r, a] = out[0, 1 + a], out[0, 1 + k + a]


@kernel
def play_rows(
    play: int,
    states: FloatArray,
    book: Book,
    rows: Integers,
    slots: Integers,
    draws: FloatArray,
    contexts: FloatArray,
    features: FloatArray,
    rewards: FloatArray,
    full: bool,
    first: bool,
    oldest: int,
    waiting: Integers,
    memories: FloatArray,
    spare: Integers,
    life: int,
    most: int,
    wait: int,
    default: float,
    row: FloatArray,
    out: FloatArray,
    arms: Integers,
    rounds: Integers,
    chances: FloatArray,
) -> int:
    """Apply events of many keys in order; return the first row whose reward cannot be learned, or their number.

    An event whose round is −1 is a decision, with a context that comes `first` or after it. If rewards are `full`, its
    row has every arm's reward, NaN if unknown. Any other event is a reward, the first of its row, of the decision of a
    round, at most `oldest` rounds old. Arms, rounds and probabilities of decisions are written.
    """
    m, k, d = contexts.shape[1], (out.shape[1] - 1) // 3, draws.shape[1]
    shut, free, decided, refused = np.zeros(k), np.zeros(0), 0, len(rows)
    for i in range(len(rows)):
        r, s = rows[i], slots[i]
        if rounds[r] >= 0:
            e = book[s, NEWEST]
            while e != NONE and waiting[e, ROUND] > rounds[r]:
                e = waiting[e, OLDER]
            now = int(open_common(view(states, s * states.shape[1], (states.shape[1],)), 0).common.head.rounds)
            if e == NONE or waiting[e, ROUND] != rounds[r] or now - 1 - rounds[r] > oldest:
                refused = min(refused, i)
                continue
            learn_one(play, states, waiting, memories, row, d + m, out, e, rewards[r, 0])
            unlink(book, waiting, spare, e)
            continue
        if m > 0 and first:
            observe_one(play, states, book, s, contexts[r], d, k, row, out)
        places = waiting, memories, spare, life, most, wait, default, row, out, shut, NONE, free
        e = decide_one(play, states, book, s, draws[decided], features[r], free, m, *places)
        decided += 1
        arms[r], rounds[r], chances[r] = waiting[e, ARM], waiting[e, ROUND], out[0, 1 + 2 * k]
        if full and not np.isnan(rewards[r, arms[r]]):
            learn_one(play, states, waiting, memories, row, d + m, out, e, rewards[r, arms[r]])
            unlink(book, waiting, spare, e)
        if m > 0 and not first:
            observe_one(play, states, book, s, contexts[r], d, k, row, out)
    return refused


@kernel
def link_rows(
    book: Book,
    waiting: Integers,
    spare: Integers,
    slots: Integers,
    rounds: Integers,
    arms: Integers,
    lives: Integers,
    given: FloatArray,
    memories: FloatArray,
) -> None:
    """Add pending decisions, each key's oldest first, with the numbers for learning their rewards."""
    for i in range(len(slots)):
        e = link(book, waiting, spare, slots[i], rounds[i], arms[i], lives[i])
        memories[e] = given[i]


@kernel
def find_waiting(
    book: Book, waiting: Integers, slots: Integers, rounds: Integers, lives: Integers, found: Integers
) -> None:
    """Write the pending decision of each pair of key and round, −1 for one that is not pending or repeated.

    A life of −1 stands for any.
    """
    for i in range(len(slots)):
        e = book[slots[i], NEWEST] if slots[i] >= 0 else NONE
        while e != NONE and max(waiting[e, ROUND], -1 - waiting[e, ROUND]) > rounds[i]:
            e = waiting[e, OLDER]
        right = e != NONE and waiting[e, ROUND] == rounds[i] and (lives[i] == NONE or waiting[e, LIFE] == lives[i])
        found[i] = e if right else NONE
        if right:
            waiting[e, ROUND] = -1 - waiting[e, ROUND]  # during the search for the others
    for i in range(len(slots)):
        if found[i] != NONE:
            waiting[found[i], ROUND] = -1 - waiting[found[i], ROUND]


@kernel
def learn_rows(
    play: int,
    states: FloatArray,
    book: Book,
    entries: Integers,
    rewards: FloatArray,
    waiting: Integers,
    memories: FloatArray,
    spare: Integers,
    before: int,
    row: FloatArray,
    out: FloatArray,
) -> None:
    """Learn the rewards of pending decisions, those of one key in order."""
    for i in range(len(entries)):
        learn_one(play, states, waiting, memories, row, before, out, entries[i], rewards[i])
        unlink(book, waiting, spare, entries[i])


@kernel
def observe_rows(
    play: int,
    states: FloatArray,
    book: Book,
    rows: Integers,
    slots: Integers,
    contexts: FloatArray,
    first: int,
    k: int,
    row: FloatArray,
    out: FloatArray,
) -> None:
    """Observe a context of each key; they begin at number `first` of a row, before k rewards."""
    for i in range(len(rows)):
        observe_one(play, states, book, slots[i], contexts[rows[i]], first, k, row, out)


@kernel
def turn_rows(book: Book, slots: Integers, due: int, after: int) -> int:
    """Return the first row whose key is not due for `due`, if `after` is due then; their number if none."""
    done = 0
    while done < len(slots) and book[slots[done], DUE] == due:
        book[slots[done], DUE], done = after, done + 1
    for i in range(done):
        book[slots[i], DUE] = due
    return done
