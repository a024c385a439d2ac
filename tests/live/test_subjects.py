"""The same visitor gets the same arm again."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import undertow
from undertow import InvalidInputError
from undertow.live.events import Decided, Event, Keyed, decode, encode
from undertow.policies import LinUCB, Random, StructuralKalman

MONDAY = datetime(2026, 11, 16, tzinfo=UTC)


def test_a_subject_gets_its_arm_again() -> None:
    policy, log = Random(arms=5, rng=0), list[Event]()
    before = policy.to_bytes()
    policy.events(log.append)
    first = {n: policy.decide(subject=f"user {n}") for n in range(20)}
    for n, decision in first.items():
        again = policy.decide(subject=f"user {n}")
        assert (again.again, decision.again) == (True, False)
        assert again._replace(again=False) is not decision
        assert (again.id, again.arm, again.propensity) == (decision.id, decision.arm, decision.propensity)
    assert policy.round == 20 == policy.pending
    policy.learn(policy.decide(subject="user 3"), 1.0)
    policy.learn(policy.decide(subject="user 3"), 1.0)  # the same reward once more
    assert policy.pending == 19
    content = b"".join(map(encode, log)) + policy.to_bytes()
    assert b"user" not in content
    assert sum(isinstance(event, Keyed) for event in log) == 1
    assert len({event.subject for event in log if isinstance(event, Decided)}) == 20
    for other in (undertow.fold(before, map(decode, map(encode, log))), undertow.from_bytes(policy.to_bytes())):
        assert other.to_bytes() == policy.to_bytes()
        assert other.decide(subject="user 7").id == first[7].id


def test_it_lasts_as_long_as_is_said() -> None:
    policy = LinUCB(arms=["a", "b", "c"])
    how: dict[str, Any] = {"subject": "anna", "sticky": "7 days"}
    first = policy.decide(at=MONDAY, **how)
    assert policy.decide(at=MONDAY + timedelta(days=6.9), **how).id == first.id
    second = policy.decide(at=MONDAY + timedelta(days=7), **how)
    assert second.id != first.id
    assert policy.decide(at=MONDAY + timedelta(days=13), **how).id == second.id
    assert policy.decide(subject="anna").id == second.id
    for _ in range(2):
        policy.decide()
    assert policy.decide(subject="anna", sticky=3).id == second.id
    third = policy.decide(subject="anna", sticky=2)
    assert third.id != second.id
    others = [name for name in policy.names if name != third.name]
    assert policy.decide(subject="anna", available=[third.name, others[0]]).id == third.id
    assert policy.decide(subject="anna", available=others).name != third.name
    fourth = policy.decide(subject="anna")
    policy.retire_arm(fourth.name)
    fifth = policy.decide(subject="anna")
    assert fifth.name != fourth.name
    policy.pin(next(name for name in policy.names if name not in (fourth.name, fifth.name)))
    assert policy.decide(subject="anna").name == policy.pinned


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"sticky": "7 days"}, "sticky: expected a subject with it"),
        ({"subject": 7}, "subject: expected a string of 1 to 1000 characters, got 7"),
        ({"subject": ""}, "subject: expected a string"),
        ({"subject": "a", "sticky": "7 days"}, "sticky: '7 days' is a time, so decisions need one"),
        ({"subject": "b", "sticky": 0}, "sticky: expected at least 1|sticky"),
        ({"subject": "b", "sticky": "soon"}, "sticky: expected a time such as"),
    ],
)
def test_odd_subjects_are_refused(how: dict[str, Any], message: str) -> None:
    policy = undertow.UCB(arms=2)
    policy.decide(subject="b")
    before = policy.to_bytes()
    with pytest.raises(InvalidInputError, match=message):
        policy.decide(**how)
    assert policy.to_bytes() == before


def test_subjects_are_forgotten_by_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same at any time, whether a checkpoint was taken or not, and after an interrupt."""
    often, seldom = Random(arms=3, max_pending=10, rng=0), Random(arms=3, max_pending=10, rng=0)
    for t in range(60):
        for policy in (often, seldom):
            if policy is often:
                policy.to_bytes()
                policy._checkpoint()  # noqa: SLF001
            elif t % 7 == 3:
                with monkeypatch.context() as patch:
                    patch.setattr(type(policy), "_commit", lambda *_, **__: 1 / 0)
                    with pytest.raises(ZeroDivisionError):
                        policy.decide(subject=f"user {t + 1000}")
        one, two = (policy.decide(subject=f"user {t * t % 17}") for policy in (often, seldom))
        assert (one.again, one.arm, one.round) == (two.again, two.arm, two.round)


def test_a_learner_has_subjects_too() -> None:
    policy = StructuralKalman(arms=2, context_dim=1, context_first=True, refit="inline", rng=0)
    decision = policy.decide(context=[1.0], subject="anna")
    assert policy.decide(context=[2.0], subject="anna").id == decision.id
    assert policy.parts.contexts_seen == 1  # the second one is of no round


def test_any_worker_knows_the_subjects_of_a_store(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/shop.db"
    one, two = (undertow.open(url, "banner", Random(arms=9, rng=0)) for _ in range(2))
    decision = one.decide(subject="anna", id="visit 1")
    again = two.decide(subject="anna", id="visit 2")
    assert (again.id, again.arm, again.again) == ("visit 1", decision.arm, True)
    two.learn(again, 1.0)
    assert (one.pending, one.round) == (0, 1)
    assert undertow.open(url, "banner").decide(subject="anna").id == "visit 1"
