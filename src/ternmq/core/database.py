"""What outbox and inbox share: both work in a database of the application, sync or async.

`Ready` makes one name serve blocking and async callers; `lacks_table` recognises the error of a
table that was not made yet. Imports no driver and no SQLAlchemy.
"""

from collections.abc import Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")

_PG_NO_TABLE = "42P01"
_MARIADB_NO_TABLE = 1146


class Ready(Generic[T]):
    """An awaitable whose result is there already: the call has happened when it returns, and may be
    awaited all the same. Awaiting it costs nothing."""

    __slots__ = ("result",)

    def __init__(self, result: T) -> None:
        self.result = result

    def __await__(self) -> Generator[Any, None, T]:
        return self.result
        yield


def lacks_table(error: Exception) -> bool:
    """Is this SQLAlchemy's error about a table that is missing? Each database has its own text."""
    cause = getattr(error, "orig", None)
    number = cause.args[0] if cause is not None and cause.args else None
    return (
        getattr(cause, "sqlstate", None) == _PG_NO_TABLE
        or number == _MARIADB_NO_TABLE
        or str(number).startswith("no such table")
    )
