"""The command line: `undertow study`, `replay`, `diagnose` and others, one file per group of commands.

Importing a group enters its commands into the application, in the order in which they are listed.
"""

from undertow.cli.common import app, main  # isort: skip  # first: it says what to install where something is missing
from undertow.cli import studies, tables, live, facts  # isort: skip  # noqa: F401

__all__ = ["app", "main"]
