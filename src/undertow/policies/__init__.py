"""The policies, one short file each, and their registry."""

from undertow.policies.ares import ARES
from undertow.policies.autopilot import Autopilot
from undertow.policies.base import LivePolicy
from undertow.policies.candidate import Candidate, CandidateForecast
from undertow.policies.catalogue import Entry, make, register, registry
from undertow.policies.decision import Claims, Decision, Outlook, Policy
from undertow.policies.files import load
from undertow.policies.forgetting import DiscountedLinUCB, SlidingWindowLinUCB
from undertow.policies.known import IDEA, ContextOracle, FullInformationOracle, KalmanGreedy, KalmanUCB
from undertow.policies.learned import LearnedKalman
from undertow.policies.linear import PIES, LinTS, LinUCB
from undertow.policies.randomised import Random, Rexp3
from undertow.policies.structural import StructuralKalman
from undertow.policies.ucb import UCB, DiscountedUCB, SlidingWindowUCB

__all__ = [
    "ARES",
    "IDEA",
    "PIES",
    "UCB",
    "Autopilot",
    "Candidate",
    "CandidateForecast",
    "Claims",
    "ContextOracle",
    "Decision",
    "DiscountedLinUCB",
    "DiscountedUCB",
    "Entry",
    "FullInformationOracle",
    "KalmanGreedy",
    "KalmanUCB",
    "LearnedKalman",
    "LinTS",
    "LinUCB",
    "LivePolicy",
    "Outlook",
    "Policy",
    "Random",
    "Rexp3",
    "SlidingWindowLinUCB",
    "SlidingWindowUCB",
    "StructuralKalman",
    "load",
    "make",
    "register",
    "registry",
]
