"""`tern find`: messages by id or key, and where they are."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from ternmq.cli.terminal.options import URL, Json, StoredBefore, StoredSince, Url, Wide, use
from ternmq.cli.terminal.output import (
    message_fields,
    note,
    readable,
    show_json,
    show_table,
    shown_body,
    utc,
)
from ternmq.cli.terminal.partial_answers import end_incomplete
from ternmq.client.reading.written_start import parse_moment
from ternmq.core.errors import BadRequest

if TYPE_CHECKING:
    from ternmq.client.client import Client
    from ternmq.client.reading.find import Finding, FindOptions

EXIT_NOTHING = 1


def find(
    message_id: Annotated[
        str | None, typer.Option("--id", help="The message id: 26 characters, or hex.")
    ] = None,
    key: Annotated[str | None, typer.Option(help="The message's key.")] = None,
    topic: Annotated[str | None, typer.Option(help="Only in this topic.")] = None,
    since: StoredSince = None,
    until: StoredBefore = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="Show at most so many.")] = 100,
    wide: Wide = False,
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Find messages by id or by key, those stored last first."""
    if (message_id is None) == (key is None):
        raise BadRequest("say --id ID or --key KEY")
    now = datetime.now(UTC)
    options: FindOptions = {
        "id": message_id,
        "key": key,
        "start": None if since is None else parse_moment("--from", since, now=now),
        "end": None if until is None else parse_moment("--to", until, now=now),
        "limit": limit,
    }

    missing: dict[str, str] = {}
    options["missing"] = missing

    async def job(mq: "Client") -> "list[Finding]":
        return await mq.find(topic, **options)

    found = use(url, job)
    if as_json:
        show_json([_fields(one) for one in found])
    else:
        _show(found, wide=wide)
    end_incomplete(missing)
    if not found:
        note("no message found")
        raise typer.Exit(EXIT_NOTHING)


def _fields(found: "Finding") -> dict[str, object]:
    stored = {"broker_group": found.broker_group, "offset": found.offset, "lane": found.lane}
    return message_fields(found.message) | stored


def _show(found: "list[Finding]", *, wide: bool) -> None:
    if not found:
        return
    more = ["app", "tag", "order key"] if wide else []
    show_table(
        [
            "topic",
            "lane",
            "#sequence",
            "broker group",
            "#offset",
            "stored",
            "id",
            "key",
            *more,
            "body",
        ],
        [
            (
                one.message.topic,
                one.lane,
                one.message.sequence,
                one.broker_group,
                one.offset,
                utc(one.message.stored_at),
                readable(one.message, "id"),
                readable(one.message, "key"),
                *(readable(one.message, name.replace(" ", "_")) for name in more),
                shown_body(one.message),
            )
            for one in found
        ],
    )
