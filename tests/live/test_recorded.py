"""Long sequences of calls lead where recorded.npz says, in both forms of a round; see recorded.py."""

import numpy as np
import pytest

from frozen import EVERY, fingerprint, read
from recorded import TABLE, cases, play

CASES = cases()


def test_every_case_is_recorded() -> None:
    missing = CASES.keys() - read(TABLE).cases.keys()
    assert not missing, f"python tests/recorded.py --write writes down {sorted(missing)}"


@pytest.mark.parametrize("name", CASES)
def test_calls_lead_where_they_led(name: str) -> None:
    """To the bit where the table was written; elsewhere to 1e-9, and to 1e-6 where models are fitted."""
    case, recorded = CASES[name], read(TABLE).cases[name]
    played = [play(case, one_call=form) for form in case.forms]
    assert len({each.digest() for each in played}) == 1, "decide(context=…) is not observe and decide"
    assert not np.flatnonzero(played[0].arms != recorded.arms).size
    close = 1e-6 if case.learns else 1e-9
    np.testing.assert_allclose(played[0].numbers[::EVERY], recorded.numbers, rtol=close, atol=close / 1000)
    if recorded.digest and not case.learns and read(TABLE).fingerprint == fingerprint():
        assert played[0].digest() == recorded.digest
