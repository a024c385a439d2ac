"""Policies in live use: objects around compiled steps."""

from undertow.live.contextual import ContextPolicy, LaggedPolicy, RidgePolicy
from undertow.live.decision import Capabilities, Decision, Outlook, Policy, Why
from undertow.live.health import FitRecord, Health
from undertow.live.policy import LivePolicy
from undertow.live.registry import Entry, make, register, register_candidate, registry
from undertow.support.renamed import renamed

__all__ = [
    "Capabilities",
    "ContextPolicy",
    "Decision",
    "Entry",
    "FitRecord",
    "Health",
    "LaggedPolicy",
    "LivePolicy",
    "Outlook",
    "Policy",
    "RidgePolicy",
    "Why",
    "make",
    "register",
    "register_candidate",
    "registry",
]

__getattr__ = renamed("undertow.live", {"Claims": "Capabilities"})
