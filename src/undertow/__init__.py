"""undertow: choosing well while the rewards drift.

Contextual multi-armed bandits whose contexts and rewards are moved by a hidden linear Gaussian dynamical system.
"""

from undertow import kalman, theory, window
from undertow.errors import InvalidInputError, NoStationaryLawError, NoSteadyStateError, UndertowError
from undertow.kalman import KalmanFilter
from undertow.system import LinearGaussianSystem, paper_system, random_system
from undertow.trajectory import Trajectory

__all__ = [
    "InvalidInputError",
    "KalmanFilter",
    "LinearGaussianSystem",
    "NoStationaryLawError",
    "NoSteadyStateError",
    "Trajectory",
    "UndertowError",
    "kalman",
    "paper_system",
    "random_system",
    "theory",
    "window",
]
__version__ = "0.1.0"
