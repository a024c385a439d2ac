"""Models estimated from logs: one shared hidden system, or a level for each arm with known features."""

from undertow.models.levels.fit import FittedLevels, fit_levels
from undertow.models.shared_system.fit import FittedSystem, fit
from undertow.models.shared_system.search import Attempt

__all__ = ["Attempt", "FittedLevels", "FittedSystem", "fit", "fit_levels"]
