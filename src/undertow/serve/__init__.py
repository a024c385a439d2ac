"""Decisions for any language: HTTP over `undertow.open`, and a client."""

from undertow.support.checks import needing

with needing("undertow.serve", "serve"):
    from undertow.serve.app import application
    from undertow.serve.client import AsyncClient, Client

__all__ = ["AsyncClient", "Client", "application"]
