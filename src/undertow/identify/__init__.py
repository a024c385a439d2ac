"""Systems estimated from logs: one shared hidden system, or levels of the arms' own with known features."""

from undertow.identify.levels import FittedLevels, fit_levels
from undertow.identify.search import Attempt
from undertow.identify.system_fit import FittedSystem, fit

__all__ = ["Attempt", "FittedLevels", "FittedSystem", "fit", "fit_levels"]
