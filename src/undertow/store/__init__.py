"""Bandits that live in a database: `undertow.open`."""

from undertow.store.base import Answer, Checkpoint, Locked, Row, Store
from undertow.store.durable import DurablePolicy
from undertow.store.opening import open

__all__ = ["Answer", "Checkpoint", "DurablePolicy", "Locked", "Row", "Store", "open"]
