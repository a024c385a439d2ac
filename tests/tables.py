"""Tables that the tests of replay and diagnose share, and commands run in this process (the fixture `command`)."""

import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pytest

from undertow import paper_system
from undertow.cli import main
from undertow.replay import Columns, Log, Table


class Done(NamedTuple):
    """What a command printed, and its status."""

    status: int
    out: str
    err: str


class Terminal:
    """The command line in this process, where everything is imported and compiled already."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.monkeypatch, self.capsys = monkeypatch, capsys

    def __call__(self, *words: str | Path) -> Done:
        self.monkeypatch.setattr(sys, "argv", ["undertow", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        return Done(int(ended.value.code or 0), *self.capsys.readouterr())


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    """The command line: `command("replay", file)`."""
    return Terminal(monkeypatch, capsys)


def table_of(rewards: Any, contexts: Any = None, features: Any = None, log: Log | None = None) -> Table:
    """A table of arrays; with a log, the rewards only tell how many arms there are."""
    X = np.asarray(rewards, dtype=float)
    n, k = X.shape
    contexts, features = (np.empty((n, 0)) if part is None else np.asarray(part) for part in (contexts, features))
    names = tuple(f"arm {a}" for a in range(k))
    return Table("made", Columns(), names, contexts, features, (), None if log else X, log)


def paper_table(rounds: int = 300, psi: int = 1, seed: int = 0) -> Table:
    path = paper_system(psi=psi).sample(rounds, rng=seed)
    return table_of(path.rewards, path.contexts)


def log_of(table: Table, chances: Any, seed: int) -> Table:
    """What is left of a table when arms are drawn by `chances`, (n, k) or (k,), and only their rewards are kept."""
    assert table.rewards is not None
    n, k = table.rewards.shape
    chances = np.broadcast_to(chances, (n, k))
    arms = (np.random.default_rng(seed).random((n, 1)) > np.cumsum(chances, axis=1)[:, :-1]).sum(axis=1)
    rows = np.arange(n)
    log = Log(arms, table.rewards[rows, arms], chances[rows, arms])
    return table_of(table.rewards, table.contexts, table.features, log)


def write_csv(folder: Path, table: Table, name: str = "data.csv") -> Path:
    columns: dict[str, Any] = {f"context_{i}": table.contexts[:, i] for i in range(table.contexts.shape[1])}
    columns |= {f"feature_{i}": table.features[:, i] for i in range(table.features.shape[1])}
    if table.log is None:
        assert table.rewards is not None
        columns |= {f"reward_{name}": table.rewards[:, a] for a, name in enumerate(table.arms)}
    else:
        names = [table.arms[arm] for arm in table.log.arms]
        columns |= {"arm": names, "reward": table.log.rewards, "propensity": table.log.propensities}
    pl.DataFrame(columns).write_csv(folder / name)
    return folder / name
