"""`kill -9` of the service's workers; `python -m torture serving` runs for longer."""

import pytest

from services import Postgres
from torture import serving


def test_workers_are_killed() -> None:
    """Seed 0: ten of them, of four, on one SQLite file."""
    counts = serving.run(0, seconds=300, kills=10)
    assert counts.wrong == ()
    assert counts.kills == 10
    assert counts.answered > 20


@pytest.mark.slow
def test_workers_are_killed_on_postgres(postgres: Postgres) -> None:
    """Seed 1: forty of them, on PostgreSQL."""
    counts = serving.run(1, seconds=600, kills=40, url=postgres.url)
    assert counts.wrong == ()
    assert counts.kills == 40
