"""`tern export` and `tern import`: topics with their messages as JSON lines.

An import stores every message at most once, by the id that it had: one that was interrupted is
simply begun again, and what is there already is counted as such. Which broker group a message goes
to depends on its id and the groups alone (of an order key: on its slot), so that the second time it
is looked for where it went the first time. Groups, their progress and dead letters are not part of
it; those move with a backup.
"""

import hashlib
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

from ternmq.cli.terminal.options import URL, Json, Url, use
from ternmq.cli.terminal.output import note, show_json
from ternmq.cli.terminal.printable import json_text
from ternmq.client.reading import written_start as starts
from ternmq.core.errors import BadRequest

if TYPE_CHECKING:
    from ternmq.batch.encoder import Outgoing
    from ternmq.client.client import Client
    from ternmq.client.model.start import StartLike

ROWS_MAX = 500


def export(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC...", help="Names of topics.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="A file; without it standard output.")
    ] = None,
    start: Annotated[str, typer.Option("--from", help=starts.HELP)] = "earliest",
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Write the messages of topics as JSON lines, for `tern import` elsewhere.

    What is stored when it begins, of all broker groups, by the time it was stored. Counts are told
    at the end, on stderr.
    """
    from datetime import UTC, datetime

    point = starts.parse_start(start, now=datetime.now(UTC))

    async def job(mq: "Client") -> Counter[str]:
        with _opened(out) as file:
            return await _export(mq, topics, point, file)

    counts = use(url, job)
    if as_json:
        note(json_text({topic: counts[topic] for topic in topics}))
        return
    for topic in topics:
        note(f"{topic}: {counts[topic]} messages")


async def _export(
    mq: "Client", topics: list[str], start: "StartLike", file: "IO[bytes]"
) -> Counter[str]:
    from ternmq.cli.messages.export_line import end_line, head_line, message_line

    file.write(head_line({name: (await mq.admin.topic(name)).settings for name in topics}))
    counts: Counter[str] = Counter()
    for topic in topics:
        erased = 0
        async for message in mq.read(topic, start=start):
            if message.erased:
                erased += 1
                continue
            file.write(message_line(message))
            counts[topic] += 1
        if erased:
            note(f"{topic}: {erased} erased messages are left out")
    file.write(end_line({name: counts[name] for name in topics}))
    file.flush()
    return counts


def import_(
    source: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="Of `tern export`; else standard input.")
    ] = None,
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Store the messages of an export, each at most once; run it again if it was interrupted.

    Topics that are not there are made, with the settings that they had. Ids, keys, tags, properties
    and times of birth stay; sequences are new.
    """

    async def job(mq: "Client") -> "_Import":
        work = _Import(mq)
        with source.open("rb") if source is not None else _stdin() as file:
            await work.run(file)
        return work

    done = use(url, job)
    lines = {
        topic: {"imported": done.stored[topic], "there_already": done.known[topic]}
        for topic in sorted(done.topics | done.stored.keys() | done.known.keys())
    }
    if as_json:
        show_json(lines)
        return
    for topic, line in lines.items():
        note(f"{topic}: {line['imported']} imported, {line['there_already']} there already")


class _Import:
    """One run over the lines of a file."""

    def __init__(self, mq: "Client") -> None:
        self._mq = mq
        self._waiting: dict[tuple[str, str], list[Outgoing]] = {}
        self.stored: Counter[str] = Counter()
        self.known: Counter[str] = Counter()
        self.topics: set[str] = set()

    async def run(self, file: "IO[bytes]") -> None:
        from ternmq.cli.messages.export_line import (
            ExportEnd,
            ExportHead,
            at_home_anywhere,
            outgoing,
            read_line,
        )

        number, whole = 0, False
        for number, line in enumerate(file, 1):
            found = read_line(number, line)
            if isinstance(found, ExportHead):
                for name, settings in found.topics.items():
                    await self._mq.admin.create_topic(name, at_home_anywhere(settings))
                    self.topics.add(name)
            elif isinstance(found, ExportEnd):
                whole = True
            else:
                await self._put(found.topic, outgoing(number, found))
        for topic, group in list(self._waiting):
            await self._flush(topic, group)
        if not whole:
            raise BadRequest(
                f"the export ends after line {number}, before its end: it was interrupted. What is "
                "in it is imported; export and import once more, nothing is stored twice"
            )

    async def _put(self, topic: str, message: "Outgoing") -> None:
        group = await self._group(topic, message)
        waiting = self._waiting.setdefault((topic, group), [])
        waiting.append(message)
        if len(waiting) >= ROWS_MAX:
            await self._flush(topic, group)

    async def _group(self, topic: str, message: "Outgoing") -> str:
        cluster = self._mq.cluster
        groups = sorted(await cluster.some_masters())
        if message.order_key is not None:
            return cluster.slot_owner(topic, message.order_key) or groups[0]
        return max(groups, key=lambda each: _weight(each, message.explicit_id or b""))

    async def _flush(self, topic: str, group: str) -> None:
        rows = self._waiting.pop((topic, group))
        for receipt in await self._mq.send_once(topic, rows, broker_group=group):
            (self.known if receipt.duplicate else self.stored)[topic] += 1


def _weight(group: str, id: bytes) -> bytes:
    """Of all groups the same one for an id, whichever others come or go."""
    return hashlib.blake2b(group.encode() + b"\0" + id, digest_size=8).digest()


@contextmanager
def _opened(out: Path | None) -> "Iterator[IO[bytes]]":
    """A file that is there when it is whole; standard output as it comes."""
    if out is None:
        yield sys.stdout.buffer
        return
    beside = out.with_name(out.name + ".tmp")
    with beside.open("wb") as file:
        yield file
    beside.replace(out)


@contextmanager
def _stdin() -> "Iterator[IO[bytes]]":
    yield sys.stdin.buffer
