"""`tern outbox`: the relay as a process of its own, and what an operator does with rows.

The database is given as an SQLAlchemy URL. Rows are named by their numbers. Nothing here is needed
while all is well: an application sends its own rows.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from ternmq.cli.jobs.outbox_database import complaint, open_engine, translated
from ternmq.cli.terminal.options import URL, AlreadyJson, Json, Url, Yes, confirm, until_there, use
from ternmq.cli.terminal.output import (
    flush,
    note,
    preview,
    say,
    show_json,
    show_table,
    text_or_base64,
    utc,
)
from ternmq.core.errors import BadRequest, TernError

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection, Engine

    from ternmq.client.client import Client
    from ternmq.outbox import OutboxRow, OutboxRows
    from ternmq.outbox.database import Database as Shard

app = typer.Typer(
    help="Outbox of an application: relay what is left, list, show, retry, delete, move rows.",
    no_args_is_help=True,
)
NUMBER_MAX = 2**63 - 1
T = TypeVar("T")

Database = Annotated[
    str,
    typer.Option(
        "--database",
        "-d",
        envvar="TERN_DATABASE",
        metavar="DB_URL",
        help="SQLAlchemy URL, e.g. postgresql+psycopg://user@host/name.",
    ),
]
TableName = Annotated[str, typer.Option("--table", help="Name of the outbox table.")]
Schema = Annotated[str | None, typer.Option("--schema", help="Schema of the table.")]
Rows = Annotated[list[int] | None, typer.Argument(metavar="ROW", help="Row numbers.")]
TABLE = "tern_outbox"


@app.command()
def relay(
    database: Annotated[
        list[str],
        typer.Option(
            "--database",
            "-d",
            envvar="TERN_DATABASE",
            metavar="DB_URL",
            help="SQLAlchemy URL; may be repeated for sharded databases.",
        ),
    ],
    table: TableName = TABLE,
    schema: Schema = None,
    rows_max: Annotated[int, typer.Option(min=1, max=100_000, help="Rows sent at once.")] = 1_000,
    poll: Annotated[float, typer.Option(min=0.01, help="Seconds between two looks.")] = 1.0,
    lease: Annotated[
        float, typer.Option(min=1, max=3600, help="Seconds until another relay may take its rows.")
    ] = 60.0,
    once: Annotated[bool, typer.Option("--once", help="Send what is due, then end.")] = False,
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Send rows that applications left behind; several relays may run."""
    from ternmq.outbox import Outbox, RelaySettings

    engines = [open_engine(one) for one in database]
    settings = RelaySettings(rows_max=rows_max, poll=poll, lease=lease, timeout=lease / 2)

    async def job(mq: "Client") -> Any:
        outbox = Outbox(engines, mq, table=table, schema=schema, settings=settings)
        if once:
            for shard in outbox.relay.databases:
                while await outbox.relay.sweep_once(mq, shard):
                    pass
        else:
            for shard, engine in zip(outbox.relay.databases, engines, strict=True):
                await _there(shard, engine, outbox.relay.rows)
            await _until_asked(outbox.relay.run(mq))
        return outbox.counts

    counts = translated(lambda: use(url, job, waits=not once), engines, table, schema)
    result = {name: getattr(counts, name) for name in counts.__slots__}
    if as_json:
        show_json(result)
    else:
        say("  ".join(f"{name} {value}" for name, value in result.items()))


async def _there(shard: "Shard", engine: "Engine", rows: "OutboxRows") -> None:
    """Wait for the database; a table that is missing is a mistake, and ends the relay."""
    from sqlalchemy.exc import SQLAlchemyError

    async def look() -> None:
        try:
            await shard.run(rows.count)
        except SQLAlchemyError as error:
            raise complaint(error, [engine], rows.table.name, rows.table.schema) from error

    await until_there(look, f"the database {shard.name}")


async def _until_asked(work: Any) -> None:
    """Run it until SIGTERM or Ctrl-C."""
    import asyncio

    from ternmq.cli.processes.shutdown import Stopper

    stopper = Stopper()
    stopper.install()
    running = asyncio.ensure_future(work)
    asked = asyncio.ensure_future(stopper.asked.wait())
    say("ready outbox relay")
    flush()
    await asyncio.wait([running, asked], return_when=asyncio.FIRST_COMPLETED)
    for task in (running, asked):
        task.cancel()
    await asyncio.gather(running, asked, return_exceptions=True)
    stopper.done()


@app.command("list")
def list_rows(
    database: Database,
    topic: Annotated[str | None, typer.Option(help="Of this topic.")] = None,
    parked: Annotated[bool, typer.Option("--parked", help="Only parked ones.")] = False,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="At most so many.")] = 100,
    table: TableName = TABLE,
    schema: Schema = None,
    as_json: Json = False,
) -> None:
    """List rows that are not sent yet, oldest first."""

    def work(rows: "OutboxRows", connection: "Connection") -> "tuple[list[OutboxRow], int]":
        chosen = [_parked(rows)] if parked else []
        if topic is not None:
            chosen.append(rows.table.c.topic == topic)
        found = rows.listed(connection, chosen=chosen, count=count)
        return found, rows.count(connection, *chosen)

    found, total = _with_rows(database, table, schema, work)
    if as_json:
        show_json([_fields(row) for row in found])
        return
    columns = ["#row", "topic", "created", "state", "broker group", "#attempts", "error"]
    lines = []
    for row in found:
        shown = _fields(row)
        reason = preview((row.error or "").encode())
        lines.append(
            (
                row.id,
                row.topic,
                shown["created_at"],
                shown["state"],
                row.broker_group or "",
                row.attempts,
                reason,
            )
        )
    show_table(columns, lines)
    if total > len(found):
        note(f"{total - len(found)} more; --count shows them")


@app.command()
def show(
    row: int,
    database: Database,
    table: TableName = TABLE,
    schema: Schema = None,
    _: AlreadyJson = False,
) -> None:
    """Show one row with its message, as JSON."""
    from ternmq.batch.properties import value_from_text
    from ternmq.client.model.stored_message import read

    def work(rows: "OutboxRows", connection: "Connection") -> "list[OutboxRow]":
        return rows.listed(connection, chosen=[rows.table.c.id == _number(row)], count=1)

    found = _with_rows(database, table, schema, work)
    if not found:
        raise BadRequest(f"there is no row {row} in this outbox: it is sent, or never was")
    fields = _fields(found[0])
    try:
        content = read(found[0].content, found[0].message_id)
    except TernError as error:
        show_json({**fields, "content": text_or_base64(found[0].content), "problem": error.message})
        return
    properties = {
        name: value_from_text(kind, value) for name, kind, value in content.properties or ()
    }
    show_json(
        {
            **fields,
            "key": content.key,
            "tag": content.tag,
            "order_key": content.order_key,
            "properties": properties,
            "priority": content.priority,
            "body": content.body,
            "expires_at": utc(content.expire_at_ms) if content.expire_at_ms else None,
            "due_at": utc(content.due_at_ms) if content.due_at_ms else None,
        }
    )


@app.command()
def retry(
    database: Database,
    rows: Rows = None,
    parked: Annotated[bool, typer.Option("--parked", help="All parked ones.")] = False,
    table: TableName = TABLE,
    schema: Schema = None,
    as_json: Json = False,
) -> None:
    """Make rows due now, counted from the start again."""

    def work(of: "OutboxRows", connection: "Connection") -> int:
        chosen = _parked(of) if parked and not rows else _chosen(of, rows)
        return of.retry(connection, chosen, now_ms=_now_ms())

    _report("due", _with_rows(database, table, schema, work), rows, as_json=as_json)


@app.command()
def delete(
    database: Database,
    rows: Annotated[list[int], typer.Argument(metavar="ROW")],
    yes: Yes = False,
    table: TableName = TABLE,
    schema: Schema = None,
    as_json: Json = False,
) -> None:
    """Remove rows without sending them."""
    confirm(f"Delete {len(rows)} messages that were never sent?", yes=yes)

    def work(of: "OutboxRows", connection: "Connection") -> int:
        return of.remove(connection, _chosen(of, rows), now_ms=_now_ms())

    _report("deleted", _with_rows(database, table, schema, work), rows, as_json=as_json)


@app.command()
def move(
    database: Database,
    to: Annotated[str, typer.Option("--to", help="Broker group to send to.")],
    rows: Rows = None,
    gone: Annotated[
        str | None, typer.Option("--from", help="All rows of this broker group.")
    ] = None,
    yes: Yes = False,
    table: TableName = TABLE,
    schema: Schema = None,
    as_json: Json = False,
) -> None:
    """Send rows to another broker group: their own is gone for good."""
    from ternmq.core.ids import check_name

    check_name("broker group", to)
    what = f"all rows of broker group {gone}" if gone else f"{len(rows or [])} rows"
    confirm(f"Move {what} to {to}? What the old group has stored will be stored again.", yes=yes)

    def work(of: "OutboxRows", connection: "Connection") -> int:
        chosen = of.table.c.broker_group == gone if gone and not rows else _chosen(of, rows)
        return of.move(connection, chosen, to, now_ms=_now_ms())

    _report("moved", _with_rows(database, table, schema, work), rows, as_json=as_json)


@app.command()
def create(
    database: Database, table: TableName = TABLE, schema: Schema = None, as_json: Json = False
) -> None:
    """Make the outbox table if it is not there."""
    from ternmq.outbox import make_table

    engine = open_engine(database, must_exist=False)
    made = make_table(table, schema)
    translated(lambda: made.metadata.create_all(engine), (), table, schema)
    engine.dispose()
    if as_json:
        show_json({"table": table, "schema": schema})
    else:
        say(f"table {table} is there")


@app.command()
def sql(
    kind: Annotated[str, typer.Argument(help="postgresql, mariadb or sqlite.")],
    inbox: Annotated[bool, typer.Option("--inbox", help="The inbox table instead.")] = False,
    as_json: Json = False,
) -> None:
    """Print the SQL that makes the table."""
    from ternmq.inbox.migrations import inbox_sql
    from ternmq.outbox.migrations import outbox_sql

    text = (inbox_sql if inbox else outbox_sql)(kind).rstrip("\n")
    if as_json:
        show_json({"kind": kind, "sql": text})
    else:
        say(text)


# Parts.


def _with_rows(
    database: str, table: str, schema: str | None, work: "Callable[[OutboxRows, Connection], T]"
) -> T:
    from ternmq.outbox import OutboxRows, make_table

    engine = open_engine(database)

    def job() -> T:
        with engine.begin() as connection:
            return work(OutboxRows(make_table(table, schema)), connection)

    try:
        return translated(job, [engine], table, schema)
    finally:
        engine.dispose()


def _number(row: int) -> int:
    if not 0 <= row <= NUMBER_MAX:
        raise BadRequest(f"{row} is no row number")
    return row


def _chosen(rows: "OutboxRows", numbers: Sequence[int] | None) -> "ColumnElement[bool]":
    if not numbers:
        raise BadRequest("say which rows: their numbers, or see --help")
    return rows.table.c.id.in_([_number(one) for one in numbers])


def _parked(rows: "OutboxRows") -> "ColumnElement[bool]":
    return rows.table.c.ready_ms == NUMBER_MAX


def _now_ms() -> int:
    from ternmq.core.clock import SystemClock

    return SystemClock().now_ms()


def _fields(row: "OutboxRow") -> dict[str, Any]:
    now_ms = _now_ms()
    if row.parked:
        state = "parked"
    elif row.claimed_by is not None and row.ready_ms > now_ms:
        state = f"with {row.claimed_by}"
    else:
        state = "due" if row.ready_ms <= now_ms else f"waits until {utc(row.ready_ms)}"
    return {
        "row": row.id,
        "id": row.message_id,
        "topic": row.topic,
        "state": state,
        "broker_group": row.broker_group,
        "created_at": utc(row.created_ms),
        "attempts": row.attempts,
        "error": row.error,
    }


def _report(done: str, count: int, asked: Sequence[int] | None, *, as_json: bool) -> None:
    missed = max(0, len(asked or ()) - count)
    if as_json:
        show_json({done: count, "missed": missed})
    else:
        say(f"{count} rows {done}")
    if missed:
        note(f"{missed} are not there or are being sent right now")
        raise typer.Exit(1)
