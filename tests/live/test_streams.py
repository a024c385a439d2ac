"""Draws are made ahead for many decisions, and no decision, file or copy knows."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import undertow
from helpers import LIVE, full_system, live_round, make_policy, unnamed
from undertow.live import streams
from undertow.live.files import snapshot
from undertow.live.streams import Streams
from undertow.policies import LivePolicy, registry

SYSTEM = full_system(3, 2, 3, seed=1)
PATH = SYSTEM.sample(200, rng=1)
ROUNDS = 100  # more than are drawn for at once


def drawing(name: str) -> LivePolicy:
    inline = {"refit": "inline"} if "refit" in registry()[name].parameters else {}
    return make_policy(name, SYSTEM, rng=0, explore=0.3, **inline)


DRAWING = [name for name in LIVE if name not in ("learned-kalman", "structural-kalman")]  # which draw as autopilot does


@pytest.mark.parametrize("name", LIVE)
def test_a_block_of_draws_is_what_single_draws_are(name: str) -> None:
    policy, twin = (make_policy(name, SYSTEM, rng=0, explore=explore) for explore in (0.3, 0.0))
    for one in (policy, twin):
        many, few = np.random.default_rng(7), np.random.default_rng(7)
        draw = one._draw  # noqa: SLF001 (a policy of somebody's own has to do as ours)
        block = draw(many, 64)
        assert np.array_equal(block, np.vstack([draw(few, 1) for _ in range(64)]))
        assert many.bit_generator.state == few.bit_generator.state


@pytest.mark.parametrize("name", DRAWING)
def test_decisions_and_files_do_not_depend_on_how_many_are_drawn_for_at_once(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After 5, 64 and 100 rounds; a file that is written changes nothing that comes after."""
    policy, single = drawing(name), drawing(name)
    for t in range(ROUNDS):
        decision = live_round(policy, PATH, t)
        with monkeypatch.context() as patch:
            patch.setattr(streams, "_ROWS", 1)
            assert unnamed(live_round(single, PATH, t)) == unnamed(decision)
            kept = copy.deepcopy(single) if t in (4, 63, 99) else None
        if kept is not None:
            assert snapshot(policy)[0] == snapshot(kept)[0]


@pytest.mark.parametrize("name", DRAWING)
def test_a_file_written_within_a_block_continues_bit_for_bit(name: str) -> None:
    policy = drawing(name)
    for t in range(40):
        live_round(policy, PATH, t)
    content = policy.to_bytes()
    again, copied = undertow.from_bytes(content), copy.deepcopy(policy)
    for t in range(40, ROUNDS):
        decision = unnamed(live_round(policy, PATH, t))
        assert unnamed(live_round(again, PATH, t)) == decision
        assert unnamed(live_round(copied, PATH, t)) == decision


class Stop(Exception):
    """What a handler of somebody's may raise."""


def halting(draw: Callable[[int], Any]) -> Callable[[int], Any]:
    def halt(rounds: int) -> Any:
        draw(rounds)
        raise Stop

    return halt


@pytest.mark.parametrize("decision", [0, 10, 64])
def test_to_draw_may_be_interrupted(decision: int) -> None:
    """Before the first decision, within a block, and where the next one begins."""
    stream = Streams(3)
    expected = Streams(3).own.random((200, 2))

    def draw(rounds: int) -> Any:
        return stream.own.random((rounds, 2))

    for number in range(decision):
        assert np.array_equal(stream.row(number, draw, 2), expected[number])
    for _ in range(2):
        if decision != 10:
            with pytest.raises(Stop):
                stream.row(decision, halting(draw), 2)
        if decision:
            with pytest.raises(Stop):
                stream.rewind_to(decision, halting(draw))
    stand = Streams(3)
    stand.own.random((decision, 2))
    stream.rewind_to(decision, draw)
    assert stream.header()["own"] == stand.header()["own"]
    for number in range(decision, 150):
        assert np.array_equal(stream.row(number, draw, 2), expected[number])


def test_few_rows_are_drawn_where_they_are_long() -> None:
    one, asked = Streams(0), list[int]()

    def draw(rounds: int) -> Any:
        asked.append(rounds)
        return one.own.random((rounds, 5000))

    for number in range(3):
        one.row(number, draw, 5000)
    assert asked == [1, 1, 1]


def test_one_more_arm_within_a_block_draws_on_where_the_decisions_stand() -> None:
    policy = make_policy("lints", SYSTEM, rng=0)
    states = []
    for rounds in (1, 64):
        twin = copy.deepcopy(policy)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(streams, "_ROWS", rounds)
            for t in range(10):
                live_round(twin, PATH, t)
            twin.add_arm("one more")
            twin.decide()
            twin.parts.settle()
        states.append(twin.parts.streams.header())
    assert states[0] == states[1]
