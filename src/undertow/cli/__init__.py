"""The command line: `undertow study`, `replay`, `diagnose` and others, one file per group of commands.

Importing a group enters its commands into the application, in the order in which they are listed.
"""

from undertow.cli import studies, tables, live, facts  # noqa: F401, I001
from undertow.cli.common import app, main

__all__ = ["app", "main"]
