"""The broker as its own producer: reading single stored rows, and storing copies of them.

Copies keep their id and who sent them first, so they are the same message wherever they lie. Dead
letters go into a batch each (a large body must not make its neighbours too large), copies of many
rows share batches; all of a call share the next sync.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from ternmq.batch.check import check_incoming
from ternmq.batch.encoder import Origin, Outgoing, RowOrigin, encode_messages, split_rows
from ternmq.batch.layout import DUE_MAX_MS, STORED_SIZE_MAX
from ternmq.batch.properties import PropertyValue
from ternmq.batch.readability import read_or, reason_of
from ternmq.batch.view import BatchView
from ternmq.broker.log.commit import Committer
from ternmq.broker.log.fetch import Fetcher
from ternmq.core.clock import Clock
from ternmq.core.errors import Corrupt, TernError, TooLarge
from ternmq.core.ids import ProducerId, new_producer_id
from ternmq.intake.pending_batches import append_of
from ternmq.rpc.address import NOWHERE
from ternmq.storage.consume.consume_log import ConsumeLog
from ternmq.storage.consume.entry import ConsumeEntry
from ternmq.storage.messages.message_log import Append
from ternmq.wire.messages.topics import Topic

APP = "%broker"
ROWS_TOGETHER = 256
SIZE_TOGETHER = 1024 * 1024  # Of bodies; the notes of so many rows leave a batch well in bounds.

PROPERTY_SIZE_MAX = 4096

T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class CopiedMessage(Outgoing):
    """A message that is stored once more, and who sent it first."""

    origin: RowOrigin


class InternalProducer:
    """Looks at rows and stores copies."""

    def __init__(
        self, *, consume: ConsumeLog, fetcher: Fetcher, committer: Committer, clock: Clock
    ) -> None:
        self._consume = consume
        self._fetcher = fetcher
        self._committer = committer
        self._clock = clock
        self._producer = new_producer_id(clock.now_ms())
        self._sequence = 0

    async def look(self, topic_id: int, sequence: int) -> tuple[ConsumeEntry, BatchView]:
        """The batch that holds a row; raises `Corrupt` if it cannot be read any more."""
        entries = self._consume.entries_nowait(topic_id, sequence, rows_max=1, size_max=1)
        if entries is None:
            entries = await self._fetcher.run(
                lambda: self._consume.entries(topic_id, sequence, rows_max=1, size_max=1)
            )
        if not entries or entries[0].base_sequence > sequence:
            raise Corrupt(f"message {sequence} cannot be read any more")
        batches = self._fetcher.now(entries[:1]) or await self._fetcher.later(entries[:1])
        return entries[0], BatchView(batches[0])

    async def store(self, topic: Topic, messages: Sequence[Outgoing]) -> None:
        """Store copies; returns when all are safe, raises the first error."""
        batches: list[bytearray] = []
        for message in messages:
            batches.append(self.fitting(topic, message))
            self._sequence += 1
        await self.store_batches(topic, batches)

    async def store_rows(self, topic: Topic, messages: Sequence[Outgoing]) -> None:
        """Store many rows, which may share batches."""
        batches: list[bytearray] = []
        for first, end in split(messages):
            part = messages[first:end]
            batches.append(self.batch(topic, part, self._producer, self._sequence))
            self._sequence += end - first
        await self.store_batches(topic, batches)

    def fitting(self, topic: Topic, message: Outgoing) -> bytearray:
        """A copy, or as much of it as a batch holds: a producer may pack tighter than we do, and
        what never fits would come back for ever."""
        for shorter in (message, without_body(message)):
            try:
                return self.batch(topic, [shorter], self._producer, self._sequence)
            except TooLarge:
                continue
        least = without_properties(without_body(message))
        return self.batch(topic, [least], self._producer, self._sequence)

    @staticmethod
    def batch(
        topic: Topic, messages: Sequence[Outgoing], producer: ProducerId, first_sequence: int
    ) -> bytearray:
        sealed = any(one.seal is not None for one in messages)
        origin = Origin(topic=topic.name, app=APP, producer=producer, sealed=sealed)
        copies = [one.origin for one in messages if isinstance(one, CopiedMessage)]
        return encode_messages(
            messages,
            origin=origin,
            first_sequence=first_sequence,
            size_max=STORED_SIZE_MAX,
            origins=copies if len(copies) == len(messages) else (),
        )

    async def store_batches(self, topic: Topic, batches: Sequence[bytearray]) -> None:
        """In this order; returns when all are safe, raises the first error."""
        waiting = [self._append(topic.id, batch) for batch in batches]
        results = await asyncio.gather(*waiting, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    def _append(self, topic_id: int, batch: bytearray) -> asyncio.Future[None]:
        incoming = check_incoming(batch, size_max=STORED_SIZE_MAX)
        safe: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def on_done(_: Append, error: TernError | None) -> None:
            if safe.done():
                return
            if error is None:
                safe.set_result(None)
            else:
                safe.set_exception(error)

        append = append_of(batch, incoming, topic_id, self._clock.now_ms(), NOWHERE)
        self._committer.append(append, on_done)
        return safe


def copy_of(view: BatchView, row: int, properties: dict[str, PropertyValue]) -> Outgoing:
    """A copy of a message under its id, with more properties. It does not expire again. What
    nobody can read of it is left out and named in `%damaged`: it must not come back for ever."""
    damage: list[str] = []

    def readable(field: Callable[[int], T], otherwise: T) -> T:
        try:
            return field(row)
        except Exception as error:
            damage.append(reason_of(error))
            return otherwise

    none: dict[str, PropertyValue] = {}
    named = readable(view.properties, none) | properties
    copy = CopiedMessage(
        body=readable(view.body, b""),
        key=readable(view.key, None),
        tag=readable(view.tag, None),
        properties=named,
        order_key=readable(view.order_key, None),
        priority=readable(view.priority, 0),
        born_at_ms=min(max(readable(view.born_at_ms, 0), 0), DUE_MAX_MS),
        explicit_id=readable(view.id_bytes, b"") or view.own_id(row),
        seal=readable(view.seal, None),
        trace=readable(view.trace, None),
        origin=RowOrigin(readable(view.origin_app, ""), readable(view.origin_address, b"")),
    )
    if damage:
        named["%damaged"] = "; ".join(damage)
    return copy


def without_body(copy: Outgoing) -> Outgoing:
    """Says what is missing; the message itself stays where `%topic` and `%sequence` say."""
    size = f"its body of {len(copy.body)} bytes does not fit beside what is said about it"
    return replace(
        copy, body=b"", seal=None, properties={**(copy.properties or {}), "%damaged": size}
    )


def without_properties(copy: Outgoing) -> Outgoing:
    """Ours are kept, cut to a length."""
    ours = {n: v for n, v in (copy.properties or {}).items() if n.startswith("%")}
    cut = {n: v[:PROPERTY_SIZE_MAX] if isinstance(v, str) else v for n, v in ours.items()}
    return replace(copy, properties=cut)


def properties_of(view: BatchView, row: int) -> dict[str, PropertyValue]:
    """None where they cannot be read."""
    return read_or(view.properties, row, {})


def split(messages: Sequence[Outgoing]) -> list[tuple[int, int]]:
    """Rows that share a batch; a large one stands alone."""
    sizes = [len(message.body) for message in messages]
    return split_rows(sizes, rows_max=ROWS_TOGETHER, size_max=SIZE_TOGETHER)
