"""undertow: choosing well while the rewards drift.

Contextual multi-armed bandits whose contexts and rewards follow a hidden linear Gaussian dynamical system.
"""

import importlib
from typing import TYPE_CHECKING, Any

from undertow.errors import (
    InvalidInputError,
    NoStationaryLawError,
    NoSteadyStateError,
    OutOfTurnError,
    StoreBusyError,
    StoreError,
    StoreUnavailableError,
    UndertowError,
    UnknownDecisionError,
)
from undertow.support.renamed import renamed
from undertow.support.version import VERSION

if TYPE_CHECKING:
    from undertow import contracts, fleet, identify, kalman, policies, theory, window
    from undertow.comparison import Comparison, compare
    from undertow.compiled.machine import fingerprint
    from undertow.example_systems import paper_system, random_system
    from undertow.kalman import KalmanFilter
    from undertow.policies import (
        ARES,
        IDEA,
        LARL,
        PIES,
        UBSS,
        UCB,
        Autopilot,
        BetaThompson,
        ContextOracle,
        Decision,
        DiscountedLinUCB,
        DiscountedUCB,
        FullInformationOracle,
        KalmanGreedy,
        KalmanUCB,
        LearnedKalman,
        LevelsKalman,
        LinTS,
        LinUCB,
        PrintedARES,
        Random,
        Rexp3,
        SlidingWindowLinUCB,
        SlidingWindowUCB,
        StructuralKalman,
        fold,
        from_bytes,
        load,
        make,
    )
    from undertow.precompiling import precompile
    from undertow.simulation import Run, simulate
    from undertow.store import open
    from undertow.system import LinearGaussianSystem
    from undertow.trajectory import Trajectory
    from undertow.tuner import Tuner

__all__ = [
    "ARES",
    "IDEA",
    "LARL",
    "PIES",
    "UBSS",
    "UCB",
    "Autopilot",
    "BetaThompson",
    "Comparison",
    "ContextOracle",
    "Decision",
    "DiscountedLinUCB",
    "DiscountedUCB",
    "FullInformationOracle",
    "InvalidInputError",
    "KalmanFilter",
    "KalmanGreedy",
    "KalmanUCB",
    "LearnedKalman",
    "LevelsKalman",
    "LinTS",
    "LinUCB",
    "LinearGaussianSystem",
    "NoStationaryLawError",
    "NoSteadyStateError",
    "OutOfTurnError",
    "PrintedARES",
    "Random",
    "Rexp3",
    "Run",
    "SlidingWindowLinUCB",
    "SlidingWindowUCB",
    "StoreBusyError",
    "StoreError",
    "StoreUnavailableError",
    "StructuralKalman",
    "Trajectory",
    "Tuner",
    "UndertowError",
    "UnknownDecisionError",
    "compare",
    "contracts",
    "fingerprint",
    "fleet",
    "fold",
    "from_bytes",
    "identify",
    "kalman",
    "load",
    "make",
    "open",
    "paper_system",
    "policies",
    "precompile",
    "random_system",
    "simulate",
    "theory",
    "window",
]
__version__ = VERSION

# Imported on first use, so that a command starts fast and loads only its own modules.
_MODULES = ("contracts", "fleet", "identify", "kalman", "policies", "theory", "window")
_HOMES = {  # or policies
    "Comparison": "comparison",
    "KalmanFilter": "kalman",
    "LinearGaussianSystem": "system",
    "Run": "simulation",
    "Trajectory": "trajectory",
    "Tuner": "tuner",
    "compare": "comparison",
    "fingerprint": "compiled.machine",
    "open": "store",
    "paper_system": "example_systems",
    "random_system": "example_systems",
    "simulate": "simulation",
    "precompile": "precompiling",
}
_renamed = renamed("undertow", {"warm_up": "precompile"})


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"undertow.{name}")
    if name in __all__:
        value = getattr(importlib.import_module(f"undertow.{_HOMES.get(name, 'policies')}"), name)
        globals()[name] = value
        return value
    return _renamed(name)


def __dir__() -> list[str]:
    return sorted(__all__)
