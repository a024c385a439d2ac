"""Every policy does what the table in frozen.npz says; see frozen.py."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from frozen import EVERY, Case, Frozen, Played, cases, fingerprint, read, write

CASES = cases()
KNOWN = [name for name in CASES if name in read().cases]
STEADY = [name for name in KNOWN if not CASES[name].learns]
LEARNED = [name for name in KNOWN if CASES[name].learns]


def compare(name: str, *, rtol: float, atol: float) -> tuple[Case, Frozen, Played]:
    case, frozen = CASES[name], read().cases[name]
    played = case.play()
    others = np.flatnonzero(played.arms != frozen.arms)
    assert not others.size, f"{name}: another arm in round {others[0]}"
    np.testing.assert_allclose(played.numbers[::EVERY], frozen.numbers, rtol=rtol, atol=atol, err_msg=name)
    return case, frozen, played


@pytest.mark.parametrize("policy", sorted({case.policy for case in CASES.values()}))
def test_every_policy_is_in_the_table(policy: str) -> None:
    missing = [name for name, case in CASES.items() if case.policy == policy and name not in read().cases]
    if missing:
        pytest.fail(f"no play is recorded of {missing}; run `python tests/frozen.py --add`", pytrace=False)


def test_the_table_holds_no_more() -> None:
    assert list(read().cases) == KNOWN, "run `python tests/frozen.py --add`: cases are gone, or in another order"


def test_a_table_is_read_as_it_was_written(tmp_path: Path) -> None:
    table, last = read(), list(CASES)[-1]
    added = replace(table.cases[last], digest="")
    write(table._replace(cases=table.cases | {last: added}), tmp_path / "table.npz")
    again = read(tmp_path / "table.npz")
    assert (again.fingerprint, list(again.cases), again.cases[last].digest) == (table.fingerprint, list(CASES), "")
    for name, one in again.cases.items():
        np.testing.assert_array_equal(one.arms, table.cases[name].arms)
        np.testing.assert_array_equal(one.numbers, table.cases[name].numbers)


@pytest.mark.parametrize("name", STEADY)
def test_policies_do_what_they_did(name: str) -> None:
    """To the bit where the table was written, to 1e-9 on every other machine."""
    _, frozen, played = compare(name, rtol=1e-9, atol=1e-12)
    if frozen.digest and read().fingerprint == fingerprint():
        assert played.digest() == frozen.digest


@pytest.mark.parametrize("name", LEARNED)
def test_learners_do_what_they_did(name: str) -> None:
    """To 1e-6: a fit is a search, which a sum in another order leads elsewhere in its last digits."""
    compare(name, rtol=1e-6, atol=1e-9)
