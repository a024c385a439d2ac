"""The policies, one short file each."""

from undertow.learning.candidate import Candidate, CandidateForecast
from undertow.learning.health import ModelInUse
from undertow.live import (
    Capabilities,
    Decision,
    Entry,
    FitRecord,
    Health,
    LivePolicy,
    Outlook,
    Policy,
    Why,
    make,
    register,
    register_candidate,
    registry,
)
from undertow.live.files import fold, from_bytes, load
from undertow.policies.ares import ARES
from undertow.policies.ares_as_printed import PrintedARES
from undertow.policies.autopilot import Autopilot
from undertow.policies.forgetting import DiscountedLinUCB, SlidingWindowLinUCB
from undertow.policies.larl import LARL
from undertow.policies.learned import LearnedKalman
from undertow.policies.levels import LevelsKalman
from undertow.policies.linear import PIES, LinTS, LinUCB
from undertow.policies.oracles import IDEA, ContextOracle, FullInformationOracle, KalmanGreedy, KalmanUCB
from undertow.policies.randomised import Random, Rexp3
from undertow.policies.structural import StructuralKalman
from undertow.policies.thompson import BetaThompson
from undertow.policies.ubss import UBSS
from undertow.policies.ucb import UCB, DiscountedUCB, SlidingWindowUCB
from undertow.support.renamed import renamed

__all__ = [
    "ARES",
    "IDEA",
    "LARL",
    "PIES",
    "UBSS",
    "UCB",
    "Autopilot",
    "BetaThompson",
    "Candidate",
    "CandidateForecast",
    "Capabilities",
    "ContextOracle",
    "Decision",
    "DiscountedLinUCB",
    "DiscountedUCB",
    "Entry",
    "FitRecord",
    "FullInformationOracle",
    "Health",
    "KalmanGreedy",
    "KalmanUCB",
    "LearnedKalman",
    "LevelsKalman",
    "LinTS",
    "LinUCB",
    "LivePolicy",
    "ModelInUse",
    "Outlook",
    "Policy",
    "PrintedARES",
    "Random",
    "Rexp3",
    "SlidingWindowLinUCB",
    "SlidingWindowUCB",
    "StructuralKalman",
    "Why",
    "fold",
    "from_bytes",
    "load",
    "make",
    "register",
    "register_candidate",
    "registry",
]

__getattr__ = renamed("undertow.policies", {"Claims": "Capabilities"})
