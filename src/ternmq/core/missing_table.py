"""What databases say when a table is not there; each has its own way to. Knows no driver."""

_PG_NO_TABLE = "42P01"
_MARIADB_NO_TABLE = 1146


def lacks_table(error: Exception) -> bool:
    """Is this SQLAlchemy's error about a table that is missing?"""
    cause = getattr(error, "orig", None)
    number = cause.args[0] if cause is not None and cause.args else None
    return (
        getattr(cause, "sqlstate", None) == _PG_NO_TABLE
        or number == _MARIADB_NO_TABLE
        or str(number).startswith("no such table")
    )
