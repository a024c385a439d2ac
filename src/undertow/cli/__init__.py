"""The command line: `undertow study`, `replay`, `diagnose` and more, one file per group of commands.

Importing a group adds its commands to the application, in this order.
"""

from undertow.cli.common import app, main  # isort: skip  # first: it says what to install if something is missing
from undertow.cli import study, experiments, tables, policies, bandits, serving, theory  # isort: skip  # noqa: F401

__all__ = ["app", "main"]
