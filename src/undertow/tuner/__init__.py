"""Choose the fastest of several variants of a function while their costs drift."""

from undertow.tuner.results import Report
from undertow.tuner.tuner import Tuner

__all__ = ["Report", "Tuner"]
