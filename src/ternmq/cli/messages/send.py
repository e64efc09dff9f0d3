"""`tern send`: messages from arguments, a file, or the lines of stdin."""

import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from ternmq.cli.terminal.options import URL, Json, Url, use
from ternmq.cli.terminal.output import note, say, show_json, utc
from ternmq.cli.terminal.times import parse_at, parse_delay
from ternmq.core.errors import BadRequest
from ternmq.core.ids import check_name

if TYPE_CHECKING:
    from ternmq.client.client import Client
    from ternmq.client.model.outgoing import SendOptions
    from ternmq.client.model.receipt import Receipt

CHUNK_MESSAGES_MAX = 1_000
READ_SIZE = 256 * 1024
STDIN = Path("-")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """What became of one call of `tern send`."""

    count: int
    first: "Receipt"
    last: "Receipt"


Subject = Annotated[
    str | None, typer.Option(help="Whom it is about: see `tern erase`; encrypted topics only.")
]
Priority = Annotated[
    int | None, typer.Option(help="0 to 255; groups with --priority on take higher ones first.")
]


def send(
    topic: Annotated[str, typer.Argument(help="Name of the topic.")],
    bodies: Annotated[
        list[str] | None, typer.Argument(metavar="[BODY]...", help="One message each.")
    ] = None,
    key: Annotated[str | None, typer.Option(help="Key that finds the message again.")] = None,
    tag: Annotated[str | None, typer.Option(help="Tag.")] = None,
    order_key: Annotated[str | None, typer.Option(help="Consumed in order with its like.")] = None,
    properties: Annotated[
        list[str] | None,
        typer.Option("--property", metavar="NAME=TEXT", help="Repeat it; NAME:=12 for a number."),
    ] = None,
    subject: Subject = None,
    priority: Priority = None,
    ttl: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Not handed out after this: 30s, 2h.")
    ] = None,
    delay: Annotated[
        str | None, typer.Option(metavar="DURATION", help="For later: 30m, 1h30m from now.")
    ] = None,
    at: Annotated[
        str | None, typer.Option(metavar="TIME", help="For later: 2026-12-24T18:00:00+01:00.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option(help="The whole file is one message; - is stdin.")
    ] = None,
    lines: Annotated[
        bool, typer.Option("--lines", help="Each line of stdin (or --file) is one message.")
    ] = False,
    count: Annotated[int, typer.Option(min=1, help="Send everything so many times.")] = 1,
    confirm_group: Annotated[
        str | None, typer.Option(help="Wait until this group has acked the messages.")
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(help="Seconds to wait for --confirm-group; 30 unless given.")
    ] = None,
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Send messages and wait until they are safe.

    Bodies come from the arguments, from --file, from the --lines of stdin, or else all of stdin is
    one message.
    """
    check_name("topic", topic)
    check_sources(bodies or [], file=file, lines=lines, count=count)
    extras = given(
        key=key,
        tag=tag,
        order_key=order_key,
        subject=subject,
        priority=priority,
        ttl=None if ttl is None else parse_delay(ttl),
        confirm_group=confirm_group,
        timeout=timeout,
        properties=dict(parse_property(text) for text in properties or ()) or None,
        **when(delay, at),
    )

    async def job(mq: "Client") -> Sent | None:
        if lines:
            chunks = _line_chunks(file)
        else:
            chunks = _body_chunks(_whole_bodies(bodies or [], file), count)
        return await _send_all(mq, topic, chunks, extras)

    started = time.monotonic()
    sent = use(url, job)
    seconds = time.monotonic() - started
    _report(topic, sent, seconds, confirmed_by=confirm_group, as_json=as_json)


def check_sources(bodies: list[str], *, file: Path | None, lines: bool, count: int) -> None:
    """Exactly one place that bodies come from."""
    if bodies and (file is not None or lines):
        raise BadRequest("give bodies as arguments, or --file, or --lines, not several of them")
    if lines and count != 1:
        raise BadRequest("--count does not go with --lines: a stream can be read once only")
    if not bodies and file is None and not lines and sys.stdin.isatty():
        raise BadRequest("nothing to send: give a BODY, --file FILE, or pipe something into stdin")


def given(**options: object) -> "SendOptions":
    """The options that were given, as `Client.send` takes them."""
    return cast("SendOptions", {name: each for name, each in options.items() if each is not None})


def when(delay: str | None, at: str | None) -> "SendOptions":
    """What --delay and --at ask for."""
    if delay is not None and at is not None:
        raise BadRequest("give --delay or --at, not both")
    if delay is not None:
        return {"delay": parse_delay(delay)}
    return {"at": parse_at(at)} if at is not None else {}


def parse_property(text: str) -> tuple[str, str | int | float | bool]:
    """`name=text`, or `name:=12`, `name:=true` for a value that is not text."""
    name, equals, value = text.partition("=")
    if not equals or not name or name == ":":
        raise BadRequest(f"{text!r} is not a property: write name=text, or name:=12 for a number")
    if not name.endswith(":"):
        return name, value
    try:
        typed = json.loads(value)
    except ValueError:
        typed = None
    if not isinstance(typed, str | int | float | bool):
        raise BadRequest(f"{text!r}: after := comes a number, true, false or a JSON string")
    return name[:-1], typed


async def _send_all(
    mq: "Client", topic: str, chunks: AsyncIterator[list[bytes]], extras: "SendOptions"
) -> Sent | None:
    count = 0
    first: Receipt | None = None
    last: Receipt | None = None
    async for chunk in chunks:
        receipts = await mq.send_many(topic, chunk, **extras)
        for _, error in receipts.failures:
            raise error
        first = first or receipts[0]
        last = receipts[-1]
        count += len(chunk)
    return Sent(count=count, first=first, last=last) if first and last else None


def _whole_bodies(bodies: list[str], file: Path | None) -> list[bytes]:
    """Arguments that are not UTF-8 arrive as surrogates; they are sent as the bytes they were."""
    if bodies:
        return [body.encode("utf-8", "surrogateescape") for body in bodies]
    if file is None or file == STDIN:
        return [sys.stdin.buffer.read()]
    try:
        return [file.read_bytes()]
    except OSError as error:
        raise BadRequest(f"cannot read {file}: {error.strerror}") from error


async def _body_chunks(bodies: list[bytes], count: int) -> AsyncIterator[list[bytes]]:
    everything = (body for _ in range(count) for body in bodies)
    for chunk in _chunked(everything):
        yield chunk


async def _line_chunks(file: Path | None) -> AsyncIterator[list[bytes]]:
    """Lines as they come: what one read returned is sent at once, so a slow pipe is not held up.

    A daemon thread reads, because a pipe that nobody writes to cannot be interrupted; the queue of
    one element is what keeps it from running ahead.
    """
    handle = _open_input(file)
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[bytes] = asyncio.Queue(maxsize=1)

    def read() -> None:
        while True:
            data = os.read(handle, READ_SIZE)
            try:
                asyncio.run_coroutine_threadsafe(queue.put(data), loop).result()
            except RuntimeError:
                return  # The loop is gone: somebody pressed Ctrl-C.
            if not data:
                return

    threading.Thread(target=read, name="stdin", daemon=True).start()
    rest = b""
    while data := await queue.get():
        *whole, rest = (rest + data).split(b"\n")
        for chunk in _chunked(whole):
            yield chunk
    if rest:
        yield [rest]


def _open_input(file: Path | None) -> int:
    if file is None or file == STDIN:
        return sys.stdin.fileno()
    try:
        return os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise BadRequest(f"cannot read {file}: {error.strerror}") from error


def _chunked(bodies: Iterable[bytes]) -> Iterator[list[bytes]]:
    rest = iter(bodies)
    while chunk := list(islice(rest, CHUNK_MESSAGES_MAX)):
        yield chunk


def _report(
    topic: str, sent: Sent | None, seconds: float, *, confirmed_by: str | None, as_json: bool
) -> None:
    by = f"  acked by {confirmed_by}" if confirmed_by else ""
    if sent is None:
        if as_json:
            show_json({"topic": topic, "count": 0})
        else:
            note("nothing to send: the input was empty")
        return
    if as_json:
        show_json(
            {
                "topic": topic,
                "count": sent.count,
                "id": sent.first.id,
                "sequence": sent.first.sequence,
                "last_id": sent.last.id,
                "last_sequence": sent.last.sequence,
                "stored_at": utc(sent.last.stored_at),
                "status": sent.last.status,
                "traced": sent.last.traced,
            }
            | ({"confirmed_by": confirmed_by} if confirmed_by else {})
            | ({"due_at": utc(sent.last.due_at)} if sent.last.due_at is not None else {})
        )
    elif sent.count == 1:
        due = sent.first.due_at
        place = f"sequence {sent.first.sequence}" if due is None else f"due {utc(due)}"
        say(f"{sent.first.id}  {topic}  {place}{by}")
    elif sent.last.due_at is not None:
        say(f"{sent.count} messages  {topic}  due {utc(sent.last.due_at)}  {seconds:.2f} s")
    else:
        say(
            f"{sent.count} messages  {topic}  sequences {sent.first.sequence}"
            f" to {sent.last.sequence}  {seconds:.2f} s{by}"
        )
