"""Stores under fire, for a short while: `make torture` runs the same trials for minutes."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("module", "kind", "least"),
    [
        ("stores", "kills", 3),  # of eight processes each
        ("stores", "postgres-kills", 3),
        ("stores", "outages", 1),
        ("stores", "power-cuts", 20),
        pytest.param("stores", "disk-faults", 4, marks=pytest.mark.slow),
        ("fleets", "kills", 2),  # of five processes each
        ("fleets", "postgres-kills", 2),
    ],
)
def test_nothing_is_lost(module: str, kind: str, least: int, request: pytest.FixtureRequest) -> None:
    if kind in ("postgres-kills", "outages"):
        request.getfixturevalue("postgres")  # which says if there is none
    command = [sys.executable, "-m", f"torture.{module}", kind, "--seconds", "0", "--least", str(least), "--seed", "5"]
    paths = os.pathsep.join([str(ROOT / "tests"), str(ROOT)])
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": paths}, check=False)
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["failed"] is None, found["failed"]
    assert Counter(found["ended"]).total() == found["trials"] == least
