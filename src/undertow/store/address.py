"""The address of a store."""

from urllib.parse import unquote

from undertow.errors import InvalidInputError
from undertow.store.base import Store

__all__ = ["store_at"]


def store_at(url: str) -> Store:
    """Return the store at an address: sqlite:///relative.db, sqlite:////absolute.db, or postgresql://….

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store_at(f"sqlite:///{folder}/shop.db").names()
    []
    """
    scheme, separator, rest = url.partition("://") if isinstance(url, str) else ("", "", "")
    if scheme == "sqlite" and rest.startswith("/") and len(rest) > 1:
        from undertow.store.sqlite import SqliteStore

        return SqliteStore(unquote(rest[1:]))
    if scheme in ("postgresql", "postgres") and separator:
        from undertow.store.postgres import PostgresStore

        return PostgresStore(url)
    shown = scheme + separator if separator else "something else" if "@" in scheme else repr(url)[:40]  # no password
    raise InvalidInputError(f"url: expected sqlite:///file.db or postgresql://user@host/database, got {shown}")
