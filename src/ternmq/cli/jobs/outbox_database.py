"""The application's database as `tern outbox` reaches it: engines from URLs, short complaints.

Never shows a password, and never makes a database: a SQLite file that is not there is a mistake in
the URL.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ternmq.core.errors import BadRequest, TernError, Unavailable

if TYPE_CHECKING:
    from sqlalchemy import URL, Engine

T = TypeVar("T")
_EXAMPLE = "postgresql+psycopg://user@host/name or sqlite:///file.db"
BLOCKING = {
    "postgresql+asyncpg": "postgresql+psycopg",
    "postgresql+psycopg_async": "postgresql+psycopg",
    "mysql+asyncmy": "mysql+pymysql",
    "mysql+aiomysql": "mysql+pymysql",
    "mariadb+asyncmy": "mariadb+pymysql",
    "sqlite+aiosqlite": "sqlite",
}
"""What an application's URL names, and what reads the same tables without a loop."""


def open_engine(url: str, *, must_exist: bool = True) -> "Engine":
    """The engine for a URL; an asynchronous driver is taken for its blocking brother.

    `must_exist`: a SQLite file that is not there is a mistake; SQLite itself would make it.
    """
    from sqlalchemy import create_engine, make_url
    from sqlalchemy.exc import ArgumentError, NoSuchModuleError

    from ternmq.outbox.database import shown_url

    try:
        address = make_url(url)
        shown = shown_url(address)
    except ArgumentError as error:  # Not shown: there may be a password in it.
        raise BadRequest(f"this is no database URL; one looks like {_EXAMPLE}") from error
    blocking = BLOCKING.get(address.drivername)
    if blocking is not None:
        address = address.set(drivername=blocking)
    if must_exist:
        _check_file(address)
    try:
        engine = create_engine(address)
    except (ArgumentError, NoSuchModuleError) as error:
        raise BadRequest(f"{shown!r} is no database URL: {error}") from error
    except ModuleNotFoundError as error:
        raise BadRequest(
            f"the driver of {shown!r} is not installed ({error.name}); 'ternmq[postgres]' brings "
            "postgresql+psycopg://…, 'ternmq[mysql]' brings mysql+pymysql://…"
        ) from error
    if engine.dialect.is_async:
        raise BadRequest("give the URL of a blocking driver (psycopg, pymysql, sqlite) here")
    return engine


def _check_file(address: "URL") -> None:
    name = address.database
    if address.get_backend_name() != "sqlite" or not name or name == ":memory:":
        return
    if not name.startswith("file:") and not Path(name).exists():
        raise BadRequest(
            f"there is no file {name!r}: is the path right? 'tern outbox create' makes the database"
        )


def translated(
    job: "Callable[[], T]", engines: "Sequence[Engine]", table: str, schema: str | None
) -> T:
    """The database's complaints as ours: one line, no stack trace."""
    from sqlalchemy.exc import SQLAlchemyError

    try:
        return job()
    except SQLAlchemyError as error:
        raise complaint(error, engines, table, schema) from error


def complaint(
    error: Exception, engines: "Sequence[Engine]", table: str, schema: str | None
) -> TernError:
    """What a database said, for people."""
    from ternmq.outbox.database import shown_url

    for engine in engines:
        if _lacks_table(engine, table, schema):
            return BadRequest(
                f"there is no table {table!r} in {shown_url(engine.url)}: 'tern outbox "
                "create' makes it, or a migration; --table and --schema name another"
            )
    cause = str(getattr(error, "orig", None) or error).strip().partition("\n")[0]
    return Unavailable(f"the database refused: {cause}")


def _lacks_table(engine: "Engine", table: str, schema: str | None) -> bool:
    from sqlalchemy import inspect
    from sqlalchemy.exc import SQLAlchemyError

    try:
        return not inspect(engine).has_table(table, schema=schema)
    except SQLAlchemyError:
        return False  # Then it cannot be asked, which the first error says better.
