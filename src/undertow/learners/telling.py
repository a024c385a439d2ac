"""What a learner tells the program that it runs in: lines in its log, and a warning where a fit failed.

    logging.getLogger("undertow.fits")      fits with their time (INFO), and those that failed (WARNING)
    logging.getLogger("undertow.alarms")    alarms, and another model that decides (INFO)

Both are silent unless the program asks for them.
"""

import logging
import warnings
from typing import Any

from undertow.learners.model import Fit, Task

__all__ = ["Telling"]

_FITS, _ALARMS = (logging.getLogger(f"undertow.{name}") for name in ("fits", "alarms"))
for _log in (_FITS, _ALARMS):
    _log.addHandler(logging.NullHandler())


class Telling:
    """Lines and warnings that wait until the call has happened that they tell of."""

    def __init__(self) -> None:
        self.warnings: tuple[str, ...] = ()
        self.lines: tuple[tuple[logging.Logger, int, str], ...] = ()
        self.leader = ""  # the model that made the last decision

    def _note(self, log: logging.Logger, level: int, text: str) -> None:
        if log.isEnabledFor(level):
            self.lines = (*self.lines, (log, level, text))

    def failed(self, name: str, task: Task, error: Exception) -> None:
        """Take note of a fit that failed."""
        text = f"the fit of the {name} at round {task.round} failed ({error!r}); the old model continues"
        self.warnings = (*self.warnings, text)
        self._note(_FITS, logging.WARNING, text)

    def fitted(self, name: str, task: Task, fit: Fit) -> None:
        """Take note of a fit."""
        took = f"{1000 * fit.seconds:.1f} ms for {len(task.rows)} rounds"
        self._note(_FITS, logging.INFO, f"fitted the {name} at round {task.round}: order {fit.order}, {took}")

    def alarm(self, name: str, level: float, t: int) -> None:
        """Take note of an alarm, upon which a fit comes."""
        text = f"alarm at round {t}: the {name} predicts badly, its mean squared innovation is {level:.2f}"
        self._note(_ALARMS, logging.INFO, text)

    def leads(self, name: str, lead: float, t: int) -> None:
        """Take note of the model that decided, where it is another than before."""
        if name != self.leader:
            instead = f" in place of the {self.leader}" if self.leader else ""
            self._note(_ALARMS, logging.INFO, f"from round {t} on the {name} decides{instead}, by {lead:.1f} nats")
            self.leader = name
            self.write()

    def write(self) -> None:
        """Write the lines to the log."""
        lines, self.lines = self.lines, ()
        for log, level, text in lines:
            log.log(level, text)

    def report(self) -> None:
        """Write the lines, and warn."""
        self.write()
        texts, self.warnings = self.warnings, ()
        for text in texts:
            warnings.warn(text, RuntimeWarning, stacklevel=4)

    def keep(self) -> Any:
        """Return what `put_back` needs to undo all that comes after."""
        return self.warnings, self.lines

    def put_back(self, kept: Any) -> None:
        """Be again as when `keep` was called."""
        self.warnings, self.lines = kept
