"""undertow: choosing well while the rewards drift.

Contextual multi-armed bandits whose contexts and rewards are moved by a hidden linear Gaussian dynamical system.
"""

from undertow import kalman, policies, theory, window
from undertow.errors import (
    InvalidInputError,
    NoStationaryLawError,
    NoSteadyStateError,
    OutOfTurnError,
    UndertowError,
    UnknownDecisionError,
)
from undertow.kalman import KalmanFilter
from undertow.policies import load, make
from undertow.simulation import Run, simulate
from undertow.system import LinearGaussianSystem, paper_system, random_system
from undertow.trajectory import Trajectory

__all__ = [
    "InvalidInputError",
    "KalmanFilter",
    "LinearGaussianSystem",
    "NoStationaryLawError",
    "NoSteadyStateError",
    "OutOfTurnError",
    "Run",
    "Trajectory",
    "UndertowError",
    "UnknownDecisionError",
    "kalman",
    "load",
    "make",
    "paper_system",
    "policies",
    "random_system",
    "simulate",
    "theory",
    "window",
]
__version__ = "0.1.0"
