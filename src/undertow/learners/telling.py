"""What a learner tells the program that it runs in: lines in its log, a warning where a fit failed, and installs.

    logging.getLogger("undertow.fits")      fits with their time (INFO), and those that failed (WARNING)
    logging.getLogger("undertow.alarms")    alarms, and another model that decides (INFO)

Both are silent unless the program asks for them.
"""

import logging
import warnings
from collections.abc import Callable
from typing import Any

from undertow.learners.fits import Install
from undertow.learners.model import Fit, Task

__all__ = ["Telling"]

_FITS, _ALARMS = (logging.getLogger(f"undertow.{name}") for name in ("fits", "alarms"))
for _log in (_FITS, _ALARMS):
    _log.addHandler(logging.NullHandler())


class Telling:
    """Lines, warnings and installs that wait until the call has happened that they tell of."""

    def __init__(self) -> None:
        self.quiet = False
        self.warnings: tuple[str, ...] = ()
        self.lines: tuple[tuple[logging.Logger, int, str], ...] = ()
        self.installs: tuple[Install, ...] = ()
        self.listener: Callable[[Install], object] | None = None  # to whom installs are told
        self.leader = ""  # the model that made the last decision

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"listener": None}  # whoever copies a policy listens to it or does not

    def _note(self, log: logging.Logger, level: int, text: str) -> None:
        if log.isEnabledFor(level) and not self.quiet:
            self.lines = (*self.lines, (log, level, text))

    def failed(self, name: str, task: Task, error: BaseException) -> None:
        """Take note of a fit that failed."""
        text = f"the fit of the {name} at round {task.round} failed ({error!r}); the old model continues"
        self.warnings = () if self.quiet else (*self.warnings, text)
        self._note(_FITS, logging.WARNING, text)

    def fitted(self, name: str, task: Task, fit: Fit) -> None:
        """Take note of a fit."""
        took = f"{1000 * fit.seconds:.1f} ms for {len(task.rows)} rounds"
        self._note(_FITS, logging.INFO, f"fitted the {name} at round {task.round}: order {fit.order}, {took}")

    def installed(self, install: Install) -> None:
        """Take note of a fit that has taken effect."""
        if self.listener is not None:
            self.installs = (*self.installs, install)

    def alarm(self, name: str, level: float, t: int) -> None:
        """Take note of an alarm, upon which a fit comes."""
        text = f"alarm at round {t}: the {name} predicts badly, its mean squared innovation is {level:.2f}"
        self._note(_ALARMS, logging.INFO, text)

    def leads(self, name: str, lead: float, t: int) -> None:
        """Take note of the model that decided, which is another than before."""
        instead = f" in place of {self.leader}" if self.leader else ""
        self._note(_ALARMS, logging.INFO, f"from round {t} on, decisions by {name}{instead} (lead {lead:.1f} nats)")
        self.leader = name
        self.write()

    def write(self) -> None:
        """Write the lines to the log."""
        lines, self.lines = self.lines, ()
        for log, level, text in lines:
            log.log(level, text)

    def report(self) -> None:
        """Write the lines, tell of installs, and warn."""
        self.write()
        while self.installs and self.listener is not None:
            install, *rest = self.installs
            self.installs = tuple(rest)  # first: it is told once, whatever the listener does
            try:
                self.listener(install)
            except Exception:  # the decision was made, and whoever asked for it gets it
                _FITS.exception("the listener of on_install failed at %r", install)
        texts, self.warnings = self.warnings, ()
        for text in texts:
            warnings.warn(text, RuntimeWarning, stacklevel=4)

    def keep(self) -> Any:
        """Return what `put_back` needs to undo all that comes after."""
        return self.warnings, self.lines, self.installs

    def put_back(self, kept: Any) -> None:
        """Be again as when `keep` was called."""
        self.warnings, self.lines, self.installs = kept
