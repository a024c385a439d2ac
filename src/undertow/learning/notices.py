"""A learner's reports to its program: log lines, and a warning if a fit failed.

    logging.getLogger("undertow.fits")      fits with their time (INFO), and those that failed (WARNING)
    logging.getLogger("undertow.alarms")    alarms, and another model that decides (INFO)

Both are silent unless the program asks for them.
"""

import logging
import warnings
from typing import ClassVar

from undertow.live.fields import Field
from undertow.models.model import Fit, Task

__all__ = ["Notices"]

_FITS, _ALARMS = (logging.getLogger(f"undertow.{name}") for name in ("fits", "alarms"))
for _log in (_FITS, _ALARMS):
    _log.addHandler(logging.NullHandler())


class Notices:
    """Log lines and warnings, held back until their call has succeeded."""

    remembers: ClassVar[tuple[Field, ...]] = (Field("leader"),)

    def __init__(self) -> None:
        self.quiet = False
        self.warnings: tuple[str, ...] = ()
        self.lines: tuple[tuple[logging.Logger, int, str], ...] = ()
        self.leader = ""  # the model that made the last decision

    def _note(self, log: logging.Logger, level: int, text: str) -> None:
        if log.isEnabledFor(level) and not self.quiet:
            self.lines = (*self.lines, (log, level, text))

    def failed(self, name: str, task: Task, error: str) -> None:
        """Record a failed fit."""
        text = f"the fit of the {name} at round {task.round} failed ({error}); the old model continues"
        self.warnings = () if self.quiet else (*self.warnings, text)
        self._note(_FITS, logging.WARNING, text)

    def fitted(self, name: str, task: Task, fit: Fit) -> None:
        """Record a fit."""
        took = f"{1000 * fit.seconds:.1f} ms for {len(task.rows)} rounds"
        self._note(_FITS, logging.INFO, f"fitted the {name} at round {task.round}: order {fit.order}, {took}")

    def alarm(self, name: str, level: float, t: int) -> None:
        """Record an alarm, which is followed by a fit."""
        text = f"alarm at round {t}: the {name} predicts badly, its mean squared innovation is {level:.2f}"
        self._note(_ALARMS, logging.INFO, text)

    def leads(self, name: str, lead: float, t: int) -> None:
        """Record a change of the deciding model."""
        instead = f" in place of {self.leader}" if self.leader else ""
        self._note(_ALARMS, logging.INFO, f"from round {t} on, decisions by {name}{instead} (lead {lead:.1f} nats)")
        self.leader = name

    def write(self) -> None:
        """Write the lines to the log."""
        lines, self.lines = self.lines, ()
        for log, level, text in lines:
            log.log(level, text)

    def forget(self) -> None:
        """Drop lines and warnings."""
        self.lines = self.warnings = ()

    def report(self) -> None:
        """Write the lines, and warn."""
        self.write()
        texts, self.warnings = self.warnings, ()
        for text in texts:
            warnings.warn(text, RuntimeWarning, stacklevel=5)
