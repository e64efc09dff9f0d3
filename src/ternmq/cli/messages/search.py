"""`tern search`: messages of a topic by what is in them."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from ternmq.cli.terminal.options import URL, Json, StoredBefore, StoredSince, Url, use
from ternmq.cli.terminal.output import (
    message_fields,
    note,
    readable,
    show_json,
    show_table,
    shown_body,
    utc,
)
from ternmq.cli.terminal.partial_answers import BrokerGroup, end_incomplete
from ternmq.cli.terminal.progress import progress
from ternmq.client.reading.written_start import parse_start
from ternmq.core.errors import BadRequest

if TYPE_CHECKING:
    from ternmq.client.client import Client
    from ternmq.client.reading.search import SearchOptions, SearchProgress, SearchResult

EXIT_NOTHING = 1


def search(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")],
    text: Annotated[
        str, typer.Argument(help="In the body, the key, the tag or a property; case is ignored.")
    ] = "",
    where: Annotated[str, typer.Option(help="A condition on properties: amount > 10.")] = "",
    tag: Annotated[str, typer.Option(help="Only with this tag: vip, or vip || gold.")] = "",
    since: StoredSince = None,
    until: StoredBefore = None,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="At most so many.")] = 20,
    look_at: Annotated[
        int, typer.Option("--look-at", min=1, help="Look at so many messages at most.")
    ] = 1_000_000,
    broker_group: BrokerGroup = "",
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Search the messages of a topic; says when it has not looked at all of them."""
    now = datetime.now(UTC)
    missing: dict[str, str] = {}
    options: SearchOptions = {
        "text": text,
        "where": where,
        "tag": tag,
        "limit": count,
        "rows_max": look_at,
        "missing": missing,
        "broker_group": broker_group,
    }
    if since is not None:
        options["start"] = parse_start(since, now=now)
    if until is not None:
        end = parse_start(until, now=now)
        if isinstance(end, str):
            raise BadRequest(f"--to is {until!r}; write a time, or how long ago")
        options["end"] = end
    found = use(url, lambda mq: _run(mq, topic, options))
    if as_json:
        show_json(
            {
                "messages": [message_fields(message) for message in found.messages],
                "looked_at": found.looked_at,
                "complete": found.complete,
                "following": dict(found.following),
            }
        )
    else:
        _show(found)
    end_incomplete(missing)
    if not found.messages:
        raise typer.Exit(EXIT_NOTHING)


async def _run(mq: "Client", topic: str, options: "SearchOptions") -> "SearchResult":
    looked_at = [0]

    def on_progress(so_far: "SearchProgress") -> None:
        looked_at[0] = so_far.looked_at

    options["on_progress"] = on_progress
    async with progress("search", None, lambda: looked_at[0]):
        return await mq.search(topic, **options)


def _show(found: "SearchResult") -> None:
    if found.messages:
        show_table(
            ["#sequence", "stored", "id", "key", "tag", "body"],
            [
                (
                    message.sequence,
                    utc(message.stored_at),
                    readable(message, "id"),
                    readable(message, "key"),
                    readable(message, "tag"),
                    shown_body(message),
                )
                for message in found.messages
            ],
        )
    note(f"{len(found.messages)} found, {found.looked_at} looked at")
    if not found.complete:
        places = ", ".join(f"{name} {at}" for name, at in sorted(found.following.items()))
        note(f"not all was looked at: go on from {places}, or with --count, --look-at, --from")
