"""Bandits that live in a database: `undertow.open`."""

from undertow.store.base import Answer, Checkpoint, Claim, Locked, Overview, Row, Store
from undertow.store.durable import DurablePolicy
from undertow.store.fleets import DurableFleet
from undertow.store.opening import open

__all__ = [
    "Answer",
    "Checkpoint",
    "Claim",
    "DurableFleet",
    "DurablePolicy",
    "Locked",
    "Overview",
    "Row",
    "Store",
    "open",
]
