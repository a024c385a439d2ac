"""Fleets: one bandit per key, thousands to millions of them, whose states are stacked."""

from undertow.fleet.decisions import Decisions
from undertow.fleet.engines import play
from undertow.fleet.fleet import Fleet
from undertow.fleet.kalman import FleetKalman
from undertow.fleet.keys import bucket_of

__all__ = ["Decisions", "Fleet", "FleetKalman", "bucket_of", "play"]
