"""The version of undertow, for whoever may not import the package itself."""

__all__ = ["VERSION"]

VERSION = "0.3.0"
