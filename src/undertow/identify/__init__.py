"""Models estimated from logs: one shared hidden system, or a level for each arm with known features."""

from undertow.identify.levels.fit import FittedLevels, fit_levels
from undertow.identify.system.fit import FittedSystem, fit
from undertow.identify.system.search import Attempt

__all__ = ["Attempt", "FittedLevels", "FittedSystem", "fit", "fit_levels"]
