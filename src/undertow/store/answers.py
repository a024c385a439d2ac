"""Stored next to a decision's event: its answer, and the numbers for learning its reward.

Another processor may compute other last bits, so the events alone would not give the same id the same answer.
"""

import math
from typing import Any

import msgspec
import numpy as np

from undertow.live import Decision, LivePolicy, Why
from undertow.store.base import Answer
from undertow.support.checks import FloatArray

__all__ = ["Answered", "answers_of", "read_answer", "write_answer"]

_KINDS = {1: np.dtype("<f8"), 2: np.dtype("<i8")}  # of arrays, stored as their bytes
_CODES = {kind: code for code, kind in _KINDS.items()}
_WHY = Decision._fields.index("why")


class _Stored(msgspec.Struct, frozen=True, array_like=True):
    """The content of an answer; later versions may only append fields, here and to decisions."""

    request: str
    fields: list[Any]  # of the decision, after its id; none if it is not known
    memory: Any
    learns: bool


class Answered(msgspec.Struct, frozen=True):
    """A stored answer: a digest of the call, the decision, and the numbers for learning its reward.

    Of what happened before the bandit was created, only the id and the reward may be known.
    """

    request: str
    decision: Decision | None
    memory: FloatArray | None
    learns: bool


def _as_bytes(array: Any) -> msgspec.msgpack.Ext:
    return msgspec.msgpack.Ext(_CODES[array.dtype], array.tobytes())


def _as_array(code: int, content: memoryview) -> Any:
    return np.frombuffer(content, dtype=_KINDS[code]).copy()


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_as_bytes)
_DECODER = msgspec.msgpack.Decoder(_Stored, ext_hook=_as_array)


def write_answer(request: str, decision: Decision | None, memory: FloatArray | None, *, learns: bool = True) -> bytes:
    """Return the content of an answer.

    Examples
    --------
    >>> import undertow
    >>> decision = undertow.UCB(arms=2).decide(id="order 7")
    >>> answer = Answer("order 7", 1, write_answer("", decision, np.zeros(2)), None)
    >>> read_answer(answer).decision.to_json() == decision.to_json()
    True
    """
    return _ENCODER.encode(_Stored(request, [] if decision is None else list(decision[1:]), memory, learns))


def read_answer(answer: Answer) -> Answered:
    """Parse the output of `write_answer`."""
    stored = _DECODER.decode(answer.content)
    if not stored.fields:
        return Answered(stored.request, None, stored.memory, stored.learns)
    fields = [answer.id, *stored.fields]
    if fields[_WHY] is not None:
        fields[_WHY] = Why(*fields[_WHY])
    return Answered(stored.request, Decision(*fields), stored.memory, stored.learns)


def answers_of(policy: LivePolicy) -> list[Answer]:
    """Return the ids that a policy remembers, with its answers and rewards, for the bandit that begins with it.

    They are those of calls with an id, of pending decisions and of learned rewards.
    """
    pending = policy.parts.pending
    waiting, rewards = pending.waiting, dict(pending.learned_rows())
    answers = []
    for id in dict.fromkeys([*pending.given, *waiting, *rewards]):
        known, entry, reward = pending.answers.get(id), waiting.get(id), rewards.get(id, math.nan)
        content = write_answer(
            "" if known is None else known.request,
            None if known is None else known.decision,
            None if entry is None else entry.memory,
            learns=entry is None or entry.learns,
        )
        answers.append(Answer(id, 0, content, None if math.isnan(reward) else reward))
    return answers
