"""Policies on your own table: the reward of each, and whether there is anything to win.

    table = read_table("data.csv")
    print(diagnose(table))
    print(replay_table(table).summary)

`replay_log` estimates rewards on a log.
"""

from undertow.support import checks

with checks.needing("undertow.replay", "study"):
    import polars  # noqa: F401  # the core installs without it

from undertow.replay.columns import Columns
from undertow.replay.contenders import parse_policies
from undertow.replay.diagnosis import Diagnosis, diagnose
from undertow.replay.full import Replay, replay_table
from undertow.replay.logged import LogReplay, replay_log
from undertow.replay.table import Log, Table, read_table

__all__ = [
    "Columns",
    "Diagnosis",
    "Log",
    "LogReplay",
    "Replay",
    "Table",
    "diagnose",
    "parse_policies",
    "read_table",
    "replay_log",
    "replay_table",
]
