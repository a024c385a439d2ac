"""Which variant of a function to call while what they cost drifts."""

from undertow.tuner.report import Report
from undertow.tuner.tuner import Tuner

__all__ = ["Report", "Tuner"]
