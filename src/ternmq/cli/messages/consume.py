"""`tern consume` takes messages for a group and acks them; `tern browse` only looks.

A message is acked after it was written to stdout, so what a pipe did not get comes again. Writing
happens in a thread: a reader that is slow must not keep the leases from being renewed.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ternmq.cli.terminal.options import URL, Create, Json, Url, Wide, must_exist, use
from ternmq.cli.terminal.output import (
    UNREADABLE,
    message_fields,
    note,
    readable,
    say,
    show_table,
    shown_body,
    utc,
)
from ternmq.cli.terminal.partial_answers import BrokerGroup, end_incomplete
from ternmq.cli.terminal.printable import json_text, printable_lines
from ternmq.client.reading import written_start as starts
from ternmq.core.ids import check_name
from ternmq.discovery.hidden_topics import DEAD_PREFIX
from ternmq.wire.messages.groups import Start

if TYPE_CHECKING:
    from ternmq.client.client import Client
    from ternmq.client.consuming.subscription_plan import ConsumerOptions
    from ternmq.client.reading.reader import ReadOptions

PREFETCH_MAX = 1_000
QUIET_S = 0.3  # Without --follow: silent for so long, then the ledger is asked whether that is all.


class BodyFormat(StrEnum):
    """How a message is written."""

    TEXT = "text"
    JSON = "json"
    RAW = "raw"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeRequest:
    """What to consume, and when to stop."""

    topic: str
    group: str
    start: starts.StartPoint | None
    count: int | None
    follow: bool
    ack: bool
    form: BodyFormat
    tag: str | None = None
    filter: str | None = None
    ordered: bool = False


def consume(
    topic: Annotated[str, typer.Argument(help="Name of the topic.")],
    group: Annotated[str, typer.Option("--group", "-g", help="Name of the consumer group.")],
    start: Annotated[
        str | None,
        typer.Option("--from", help=f"Where a new group starts: {starts.HELP}; default earliest."),
    ] = None,
    count: Annotated[
        int | None, typer.Option("--count", "-n", min=1, help="Stop after so many messages.")
    ] = None,
    follow: Annotated[bool, typer.Option(help="Wait for more when all is consumed.")] = True,
    ack: Annotated[bool, typer.Option(help="Ack what was shown; else it is given back.")] = True,
    form: Annotated[
        BodyFormat, typer.Option("--format", help="Bodies as text lines, JSON lines, or raw bytes.")
    ] = BodyFormat.TEXT,
    tag: Annotated[str | None, typer.Option(help="Only these tags, for example 'a || b'.")] = None,
    where: Annotated[
        str | None, typer.Option("--filter", help='Only what passes, e.g. "amount > 10".')
    ] = None,
    ordered: Annotated[
        bool, typer.Option("--ordered", help="One message of each order key at a time, in order.")
    ] = False,
    create: Create = False,
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Consume messages for a group and write them to stdout. Ctrl-C or SIGTERM stops."""
    check_name("topic", topic)
    check_name("group", group)
    request = ConsumeRequest(
        topic=topic,
        group=group,
        start=None if start is None else starts.parse_start(start, now=datetime.now(UTC)),
        count=count,
        follow=follow,
        ack=ack,
        form=BodyFormat.JSON if as_json else form,
        tag=tag,
        filter=where,
        ordered=ordered,
    )

    async def job(mq: "Client") -> int:
        if not create:
            await must_exist(mq, topic)
        return await _consume(mq, request)

    shown = use(url, job, leaves=True)
    note(f"{shown} message{'' if shown == 1 else 's'} {'consumed' if ack else 'shown, not acked'}")


def browse(
    topic: Annotated[str, typer.Argument(help="Name of the topic.")],
    start: Annotated[
        str | None, typer.Option("--from", help=f"{starts.HELP}; without it the last ones.")
    ] = None,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="How many at most.")] = 20,
    broker_group: BrokerGroup = "",
    replica: Annotated[bool, typer.Option("--replica", help="Read from a replica.")] = False,
    wide: Wide = False,
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Look at messages without consuming them; no group is involved.

    Those of several broker groups are shown by the time they were stored. The dead letters of a
    group are the topic %dead.GROUP.
    """
    check_name("topic", topic.removeprefix(DEAD_PREFIX))
    point = None if start is None else starts.parse_start(start, now=datetime.now(UTC))

    missing: dict[str, str] = {}

    async def job(mq: "Client") -> list[Any]:
        found: list[Any] = []
        options: ReadOptions = {"broker_group": broker_group, "missing": missing}
        options["from_"] = "replica" if replica else "master"
        if point is None:
            options["start"] = await _last(mq, topic, count, broker_group)
        else:
            options["start"] = point
        async for message in mq.read(topic, **options):
            found.append(message)
            if len(found) == count and point is not None:
                break
        return found[-count:]

    messages = use(url, job)
    if as_json:
        for message in messages:
            say(json_text(message_fields(message)))
        end_incomplete(missing)
        return
    _show(messages, wide=wide)
    end_incomplete(missing)


def _show(messages: list[Any], *, wide: bool) -> None:
    several = len({message.broker_group for message in messages}) > 1
    more = ["app", "order key"] if wide else []
    show_table(
        [
            "#sequence",
            *(["broker group"] if several else []),
            "stored",
            "id",
            "key",
            "tag",
            *more,
            "#size",
            "body",
        ],
        [
            (
                message.sequence,
                *([message.broker_group] if several else []),
                utc(message.stored_at),
                readable(message, "id"),
                readable(message, "key"),
                readable(message, "tag"),
                *(readable(message, name.replace(" ", "_")) for name in more),
                len(readable(message, "body", b"")),
                shown_body(message),
            )
            for message in messages
        ],
    )


async def _last(mq: "Client", topic: str, count: int, broker_group: str) -> dict[str, int]:
    """So many before the end of each broker group; of those that do not answer reading tells."""
    admin, end = mq.admin.tolerant(), Start(at="latest")
    ends = await admin.seek_all(topic, end)
    if broker_group:
        ends = {group: one for group, one in ends.items() if group == broker_group}
    return {group: max(one.first, one.sequence - count) for group, one in ends.items()}


async def _consume(mq: "Client", request: ConsumeRequest) -> int:
    prefetch = min(request.count or PREFETCH_MAX, PREFETCH_MAX)
    shown = 0
    options: ConsumerOptions = {
        "prefetch": prefetch,
        "tag": request.tag,
        "filter": request.filter,
        "ordered": request.ordered,
    }
    if request.start is not None:  # Only then a group that is there already is worth a warning.
        options["start"] = request.start
    async with mq.consumer(request.topic, group=request.group, **options) as consumer:
        async for batch in _batches(mq, consumer, request, prefetch):
            left = len(batch) if request.count is None else request.count - shown
            rows = min(len(batch), left)
            messages = [batch[row] for row in range(rows)]
            await asyncio.to_thread(_write, b"".join(render(one, request.form) for one in messages))
            shown += rows
            if request.ack:
                if rows == len(batch):
                    batch.ack()
                else:
                    for message in messages:
                        message.ack()
            if shown == request.count:
                break
        await consumer.flush()
    return shown


async def _batches(
    mq: "Client", consumer: Any, request: ConsumeRequest, prefetch: int
) -> AsyncIterator[Any]:
    """Batches as they come; without --follow until the group has nothing ready."""
    coming = aiter(consumer.batches())
    handed = 0
    while True:
        waiting = asyncio.ensure_future(anext(coming, None))
        try:
            while not request.follow and not waiting.done():
                await asyncio.wait({waiting}, timeout=QUIET_S)
                if waiting.done():
                    break
                full = not request.ack and handed >= prefetch
                if full or await _nothing_ready(mq, request):
                    return
            batch = await waiting
        finally:
            waiting.cancel()
        if batch is None:
            return
        handed += len(batch)
        yield batch


async def _nothing_ready(mq: "Client", request: ConsumeRequest) -> bool:
    groups = await mq.admin.groups(request.topic, request.group)
    topic = request.topic
    if any(group.settings.paused for group in groups):
        note(f"the group is paused; 'tern group resume {topic} {request.group}' lets it go on")
        return True
    if (await mq.admin.topic(topic)).settings.consume_paused:
        note(f"the topic is paused; 'tern topic resume {topic} --consuming' lets it go on")
        return True
    return all(group.ledger.ready == 0 for group in groups)


def render(message: Any, form: BodyFormat) -> bytes:
    match form:
        case BodyFormat.JSON:
            return json_text(message_fields(message)).encode() + b"\n"
        case BodyFormat.RAW:
            return bytes(readable(message, "body", b""))
        case BodyFormat.TEXT:
            body = readable(message, "body", UNREADABLE.encode())
            text = bytes(body).decode("utf-8", "backslashreplace")
            shown = printable_lines(text) if sys.stdout.isatty() else text
            return shown.encode() + b"\n"


def _write(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
