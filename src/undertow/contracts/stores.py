"""The rules for every store, for authors of stores.

    check_store(lambda: MyStore(address))

The first broken rule raises `BrokenContractError`. Bandits with new random names are created, and stay.
"""

import secrets
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

from undertow.contracts.trial import BrokenContractError
from undertow.errors import InvalidInputError, StoreBusyError, StoreError
from undertow.store.base import Answer, Checkpoint, Claim, Locked, Overview, Row, Store, bucket_name

__all__ = ["check_store"]

_ALL = bytes(range(256))  # every byte must survive
_RULES: list[tuple[str, Callable[[Store, Store], None]]] = []


def check_store(make: Callable[[], Store]) -> list[str]:
    """Try every rule on a store; return their names.

    Parameters
    ----------
    make
        Opens the store. It is called twice, to test two processes side by side.

    Examples
    --------
    >>> import tempfile
    >>> from undertow.store.sqlite import SqliteStore
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     "a bandit is locked by one" in check_store(lambda: SqliteStore(f"{folder}/a.db"))
    True
    """
    one, other = make(), make()
    for name, attempt in _RULES:
        try:
            attempt(one, other)
        except Exception as error:
            raise BrokenContractError(f"{name}: {error}") from error
    one.close()
    other.close()
    return [name for name, _ in _RULES]


def _rule(name: str) -> Callable[[Callable[[Store, Store], None]], Callable[[Store, Store], None]]:
    def add(attempt: Callable[[Store, Store], None]) -> Callable[[Store, Store], None]:
        _RULES.append((name, attempt))
        return attempt

    return add


def _expect(found: object, wanted: object, what: str) -> None:
    if found != wanted:
        raise BrokenContractError(f"{what}: expected {wanted!r:.100}, got {found!r:.100}")


def _created(store: Store) -> str:
    """Create a bandit, and return its name."""
    name = f"tried {secrets.token_hex(8)}"
    _expect(store.create(name, b"spec" + _ALL, b"policy" + _ALL), True, "create of a new name")
    return name


def _rows(first: int, last: int) -> list[Row]:
    return [Row(n, secrets.token_bytes(8), 1e9 + n / 3, b"event" + _ALL) for n in range(first, last + 1)]


def _refused(kind: type[Exception], call: Callable[[], object], what: str) -> None:
    try:
        call()
    except kind:
        return
    except Exception as error:
        raise BrokenContractError(f"{what}: expected {kind.__name__}, got {error!r:.200}") from error
    raise BrokenContractError(f"{what}: expected {kind.__name__}, and nothing was raised")


def _append(store: Store, name: str, rows: Sequence[Row]) -> None:
    with store.lock(name, 5.0) as locked:
        locked.append(rows)


def _read(store: Store, name: str, first: int = 1) -> list[Row]:
    with store.lock(name, 5.0) as locked:
        return list(locked.read(first))


@_rule("a name is created once")
def _create(one: Store, other: Store) -> None:
    name = _created(one)
    _expect(other.create(name, b"other", b"other"), False, "create of a name in use")
    _expect(other.spec(name), b"spec" + _ALL, "spec")
    _expect(other.spec(name + "?"), None, "spec of no bandit")
    _expect(name in other.names() and other.names() == sorted(other.names()), True, "names, sorted")
    _refused(InvalidInputError, lambda: _read(one, name + "?"), "lock of no bandit")


@_rule("committed events are read in order")
def _order(one: Store, other: Store) -> None:
    name, rows = _created(one), _rows(1, 25)
    _expect(_read(other, name), [], "events of a new bandit")
    _append(one, name, rows[:20])
    _append(other, name, rows[20:])
    _expect(_read(one, name), rows, "events")
    _expect(_read(one, name, 18), rows[17:], "events from 18 on")
    _expect(_read(one, name, 26), [], "events behind the last one")
    _expect(_read(other, _created(one)), [], "events of another bandit")


@_rule("committed events are read while others hold the lock")
def _pages(one: Store, other: Store) -> None:
    name, rows = min(_created(one), _created(one)), _rows(1, 25)
    _append(one, name, rows[:20])
    with one.lock(name, 5.0) as locked:
        locked.append(rows[20:])
        _expect(list(other.events(name, 0, 100)), rows[:20], "events that are committed")
    _expect(list(other.events(name, 3, 4)), rows[3:7], "four events after the third")
    _expect(list(other.events(name, 25, 4)), [], "events after the last one")
    _expect(list(other.events(name + "?", 0, 4)), [], "events of no bandit")
    with one.lock(name, 5.0) as locked:
        locked.keep_answers([Answer(f"{n}", n, b"%d" % n, None) for n in range(1200)])
    kept = {answer.id: answer.n for answer in other.answers(name, [f"{n}" for n in range(100, 1300)])}
    _expect(kept, {f"{n}": n for n in range(100, 1200)}, "answers of many ids")
    names = [each for each, _ in one.page("", 10_000)]
    _expect(names, sorted(one.names()), "names, sorted")
    after = names[names.index(name) + 1 :][:2]
    _expect(list(other.page(name, 2)), [(each, other.spec(each)) for each in after], "two bandits after a name")


@_rule("a bandit is created with what it begins with, or not at all")
def _begin(one: Store, other: Store) -> None:
    name, rows, answers = _created(one) + "!", _rows(1, 3), [Answer("a", 0, _ALL, None), Answer("b", 2, b"", 0.1)]

    def begin(locked: Locked) -> None:
        locked.append(rows)
        locked.keep_answers(answers)
        locked.keep_checkpoint(Checkpoint(3, b"later"))

    def fail(locked: Locked) -> None:
        begin(locked)
        raise KeyError("a caller's")

    _refused(KeyError, lambda: one.create(name, b"", b"", fail), "create that fails")
    _expect(other.spec(name), None, "spec of a bandit whose creation failed")
    _expect(one.create(name, b"", b"", begin), True, "create after one that failed")
    _expect(other.create(name, b"", b"", fail), False, "create of a name in use")
    _expect(_read(other, name), rows, "events that a bandit was created with")
    with other.lock(name, 5.0) as locked:
        _expect(list(locked.answers("", 9)), answers, "answers that a bandit was created with")
        _expect(list(locked.checkpoints()), [0, 3], "checkpoints that a bandit was created with")


@_rule("an exception rolls back the whole transaction")
def _rollback(one: Store, other: Store) -> None:
    name, rows = _created(one), _rows(1, 2)
    with one.lock(name, 5.0) as locked:
        locked.append(rows[:1])
        locked.keep_answers([Answer("a", 1, b"", None)])
    for error in (KeyError("a caller's"), KeyboardInterrupt()):
        try:
            with one.lock(name, 5.0) as locked:
                locked.append(rows[1:])
                locked.keep_answers([Answer("b", 2, b"", None)])
                locked.keep_rewards([("a", 1.0)])
                locked.keep_checkpoint(Checkpoint(2, b"later"))
                raise error
        except (KeyError, KeyboardInterrupt):
            pass
        with other.lock(name, 5.0) as locked:
            _expect(list(locked.read(1)), rows[:1], "events")
            _expect((locked.answer("b"), locked.answer("a")), (None, Answer("a", 1, b"", None)), "answers")
            _expect(locked.checkpoint().n, 0, "number of the checkpoint")


@_rule("a bandit is locked by one")
def _lock(one: Store, other: Store) -> None:
    name = _created(one)
    with one.lock(name, 5.0):
        _refused(StoreBusyError, lambda: other.lock(name, 0.1).__enter__(), "a second lock")
    _append(other, name, _rows(1, 1))


@_rule("several bandits are locked in one transaction")
def _several(one: Store, other: Store) -> None:
    first, second = _created(one), _created(one)
    with one.lock(first, 5.0) as locked:
        locked.also(second).append(_rows(1, 1))
        _refused(StoreBusyError, lambda: other.lock(second, 0.1).__enter__(), "a lock of the second one")
        _refused(InvalidInputError, lambda: locked.also(second + "?"), "a lock of no bandit")
    with suppress(KeyError), one.lock(first, 5.0) as locked:
        locked.append(_rows(1, 1))
        locked.also(second).append(_rows(2, 2))
        raise KeyError("a caller's")
    _expect([len(_read(other, name)) for name in (first, second)], [0, 1], "numbers of events")


@_rule("buckets of fleets are in no list")
def _hidden(one: Store, other: Store) -> None:
    name = bucket_name(_created(one), 3)
    _expect(one.create(name, b"bucket", b""), True, "create of a bucket")
    _expect((other.spec(name), len(other.overview(name))), (b"bucket", 1), "spec and overview of a bucket")
    listed = [*other.names(), *(each for each, _ in other.page("", 10_000)), *(row.name for row in other.overview())]
    _expect(name in listed, False, "a bucket in a list")


@_rule("a number is given once")
def _fence(one: Store, other: Store) -> None:
    name, rows = _created(one), _rows(1, 1)
    _append(one, name, rows)
    _refused(StoreError, lambda: _append(other, name, _rows(1, 1)), "another event 1")
    _expect(_read(other, name), rows, "events")


@_rule("answers are kept with their rewards")
def _answers(one: Store, other: Store) -> None:
    name = _created(one)
    with one.lock(name, 5.0) as locked:
        locked.append(_rows(1, 2))
        locked.keep_answers([Answer("a", 1, _ALL, None), Answer("ä\t'\"%?", 2, b"", None)])
        locked.keep_rewards([("a", 0.1)])
    with other.lock(name, 5.0) as locked:
        _expect(locked.answer("a"), Answer("a", 1, _ALL, 0.1), "an answer with its reward")
        _expect(locked.answer("ä\t'\"%?"), Answer("ä\t'\"%?", 2, b"", None), "an answer without a reward")
        _expect(locked.answer("b"), None, "an answer to nothing")
        _expect([answer.id for answer in locked.answers("", 9)], ["a", "ä\t'\"%?"], "ids in order")
        _expect([answer.id for answer in locked.answers("a", 1)], ["ä\t'\"%?"], "ids after the first one")


@_rule("a fit is claimed by one until that expires")
def _claims(one: Store, other: Store) -> None:
    name = _created(one)
    mine, theirs = Claim("levels", 7, b"mine" + _ALL, 100.0), Claim("levels", 7, b"theirs", 200.0)
    with one.lock(name, 5.0) as locked:
        _expect(locked.claim(mine, 50.0), True, "a first claim")
        _expect(locked.claim(mine._replace(until=110.0), 50.0), True, "the same claim again, for longer")
    with other.lock(name, 5.0) as locked:
        _expect(locked.claim(theirs, 105.0), False, "a claim of what is claimed")
        _expect(locked.claim(theirs._replace(model="system"), 50.0), True, "a claim for another model")
        _expect(locked.claim(theirs._replace(requested=9), 50.0), True, "a claim of a later fit")
        _expect(locked.claim(mine._replace(requested=9), 150.0), False, "a claim of that")
        _expect(locked.claim(mine._replace(requested=9), 200.0), True, "a claim of it after it has expired")
    with other.lock(_created(other), 5.0) as locked:
        _expect(locked.claim(theirs, 0.0), True, "a claim for another bandit")


@_rule("an overview says how far each bandit is")
def _overview(one: Store, other: Store) -> None:
    name = _created(one)
    _expect(other.overview(name), [Overview(name, 0, None, None)], "overview of a new bandit")
    with one.lock(name, 5.0) as locked:
        locked.append(_rows(1, 3))
        locked.keep_times(1e9, None)
    with one.lock(name, 5.0) as locked:
        locked.keep_times(None, 2e9)
    _expect(other.overview(name), [Overview(name, 3, 1e9, 2e9)], "overview of a bandit")
    _expect(other.overview(name + "?"), [], "overview of no bandit")
    _expect([each.name for each in other.overview()], other.names(), "names of all bandits")


@_rule("the first checkpoint and the newest are kept")
def _checkpoints(one: Store, other: Store) -> None:
    name = _created(one)
    for n in (5, 9, 14):
        with one.lock(name, 5.0) as locked:
            locked.keep_checkpoint(Checkpoint(n, _ALL * n))
        with other.lock(name, 5.0) as locked:
            _expect(locked.checkpoint(), Checkpoint(n, _ALL * n), "the newest checkpoint")
            _expect(locked.checkpoint(0).content, b"policy" + _ALL, "the first checkpoint")
    with one.lock(name, 5.0) as locked:
        _expect(list(locked.checkpoints()), [0, 9, 14], "which checkpoints there are")


@_rule("what is trimmed is gone, and answers stay")
def _trim(one: Store, other: Store) -> None:
    name, rows = _created(one), _rows(1, 12)
    with one.lock(name, 5.0) as locked:
        locked.append(rows)
        locked.keep_answers([Answer("a", 1, _ALL, None)])
        locked.keep_checkpoint(Checkpoint(9, b"later"))
        locked.trim(9)
    with other.lock(name, 5.0) as locked:
        _expect(list(locked.read(1)), rows[8:], "events")
        _expect(list(locked.checkpoints()), [9], "which checkpoints there are")
        _expect(locked.answer("a"), Answer("a", 1, _ALL, None), "an answer")


@_rule("threads take turns")
def _turns(one: Store, other: Store) -> None:
    name, errors = _created(one), []

    def append(store: Store) -> None:
        try:
            for _ in range(10):
                with store.lock(name, 30.0) as locked:
                    locked.append(_rows(len(locked.read(1)) + 1, len(locked.read(1)) + 1))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=append, args=(store,)) for store in (one, other) * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    _expect(errors, [], "errors")
    _expect([row.n for row in _read(one, name)], list(range(1, 41)), "numbers of the events")
