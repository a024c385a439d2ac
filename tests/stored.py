"""What the tests of stores and of their fleets share: an address on both stores, a new name, a store that fails."""

import os
from pathlib import Path
from typing import Any

import pytest

from undertow.store.sqlite import SqliteStore


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty SQLite file, or of a server that has other bandits, too."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/shop.db"
    return str(request.getfixturevalue("postgres").url)


@pytest.fixture
def name(tmp_path: Path) -> str:
    """A name that no other bandit of the server has."""
    return tmp_path.name + os.urandom(3).hex()


class Broken(SqliteStore):
    """Fails at the `at`-th commit; with `after`, once it has happened."""

    at, after = -1, False

    def _commit(self, connection: Any) -> None:
        self.at -= 1
        if self.at == 0 and not self.after:
            connection.execute("ROLLBACK")
            raise OSError(5, "Input/output error")
        super()._commit(connection)
        if self.at == 0:
            raise OSError(5, "Input/output error")
