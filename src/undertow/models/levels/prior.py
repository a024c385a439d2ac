"""The prior of the structural model's hyper-parameters."""

import numpy as np

from undertow.models.levels.equations import GROUPS, HYPERS, Hyper
from undertow.support.checks import FloatArray

__all__ = ["levels_prior", "typical_levels"]

_PRIOR = {  # the centre of each, and the width around it on the unbounded scale; 0 if fixed
    "shared_persistence": (0.95, 1.0),
    "slow_persistence": (0.998, 0.7),
    "fast_persistence": (0.73, 0.8),
    "intercept_persistence": (1.0, 0.0),
    "weight_persistence": (0.9995, 0.8),
    "shared_weight_persistence": (0.9995, 0.8),
    "shared_variance": (0.2, 1.5),
    "slow_variance": (0.2, 1.5),
    "fast_variance": (0.2, 1.5),
    "intercept_variance": (0.2, 1.5),
    "weight_variance": (0.1, 1.5),
    "shared_weight_variance": (0.1, 1.5),
    "reward_noise": (0.3, 1.5),
}


def typical_levels() -> FloatArray:
    """Return the packed hyper-parameters (13,) at the prior's centre: the start and end of a fit without data."""
    return np.array([_PRIOR[name][0] for name in Hyper.names])


def levels_prior() -> FloatArray:
    """Return centre and width (2, 13) of the prior of atanh φ, log V and log σ²; width 0 marks fixed numbers."""
    typical, width = typical_levels(), np.array([_PRIOR[name][1] for name in Hyper.names])
    bounded = np.arange(HYPERS) < GROUPS
    centre = np.zeros(HYPERS)
    np.arctanh(typical, out=centre, where=bounded & (width > 0))
    np.log(typical, out=centre, where=~bounded)
    return np.array([centre, width])
