"""Fixtures of the tests in this folder; a module that has its own of the same name uses that."""

from stored import name, url

__all__ = ["name", "url"]
