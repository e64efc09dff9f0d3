"""Half batches on their way: what transactions and detached transactions share.

One `HalfSender` per client numbers and encodes messages for half batches (its producer id is its
own, so its numbers never meet those of `send`) and repeats requests until they are answered. The
broker recognises a batch that comes again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from ternmq.batch.encoder import (
    Columns,
    Origin,
    Outgoing,
    encode_columns,
    encode_messages,
    split_rows,
)
from ternmq.batch.half import ID_SIZE, HalfInfo, pack_info
from ternmq.client.codec import find_codec
from ternmq.client.config import ClientConfig
from ternmq.client.links import Links
from ternmq.client.outgoing import (
    SendOptions,
    adopt_outgoing,
    call_codec,
    make_body,
    make_outgoing,
)
from ternmq.client.patience import Patience
from ternmq.client.waiting import row_size
from ternmq.core.clock import Clock
from ternmq.core.errors import BadRequest, TooLarge
from ternmq.core.ids import check_name, explicit_id_text, id_to_text, new_producer_id
from ternmq.wire.commands import Command, Record, T
from ternmq.wire.halves import HalfFind, HalfPlace, HalfStored


@dataclass(slots=True, kw_only=True)
class HalfReceipt:
    """One message is safe, and nobody sees it before its transaction commits."""

    id: str
    topic: str
    broker_group: str
    number: int
    """The producer's own, by which a commit says where it is."""
    sequence: int | None = None
    """Known once the transaction is committed."""


class HalfSender:
    """Stores half batches on one broker group."""

    def __init__(self, links: Links, config: ClientConfig, clock: Clock) -> None:
        self._links = links
        self.config = config
        self._clock = clock
        self._codec = find_codec(config.codec)
        self._producer = new_producer_id(clock.now_ms())
        self._number = 0

    async def group(self, wanted: str | None) -> str:
        """The broker group that a transaction lives on."""
        return wanted or (await self._links.some_masters())[0]

    async def ask(self, group: str, command: int, record: Record, answer: type[T]) -> T:
        """Ask until it is answered; only for what may be asked again."""
        patience = Patience(self.config, f"{Command(command).name} to {group!r}")
        return await patience.ask_record(self._links.broker(group), command, record, answer)

    def rows(self, bodies: Sequence[Any], options: SendOptions) -> list[Outgoing]:
        """Check everything before anything is sent."""
        now_ms = self._clock.now_ms()
        codec = call_codec(options, self._codec)
        made: list[Outgoing] = []
        for body in bodies:
            if isinstance(body, Outgoing):
                row = adopt_outgoing(body, now_ms)
            else:
                row = make_outgoing(make_body(body, codec), options, now_ms)
            if row.due_at_ms is not None or row.delay_ms is not None:
                raise BadRequest("a transaction cannot hold delayed messages: send them after it")
            made.append(row)
        return made

    async def store(
        self, group: str, topic: str, messages: list[Outgoing], info: HalfInfo
    ) -> list[HalfReceipt]:
        """Store messages as half batches; returns when all are safe."""
        check_name("topic", topic)
        receipts: list[HalfReceipt] = []
        sizes = [row_size(message) for message in messages]
        limits = (self.config.batch_rows_max, self.config.batch_size_max)
        for first, end in split_rows(sizes, rows_max=limits[0], size_max=limits[1]):
            receipts += await self._store(group, topic, messages[first:end], info)
        return receipts

    async def _store(
        self, group: str, topic: str, messages: list[Outgoing], info: HalfInfo
    ) -> list[HalfReceipt]:
        number = self._number
        try:
            batch = encode_messages(
                messages,
                origin=Origin(topic=topic, app=self.config.app, producer=self._producer),
                first_sequence=number,
                encoding=self.config.encoding,
                transaction=pack_info(info),
            )
        except TooLarge:
            if len(messages) == 1:
                raise
            middle = len(messages) // 2
            before = await self._store(group, topic, messages[:middle], info)
            return before + await self._store(group, topic, messages[middle:], info)
        self._number += len(messages)
        patience = Patience(self.config, f"a half message to {topic!r}")
        await patience.ask(self._links.broker(group), Command.HALF, batch, HalfStored)
        return [
            HalfReceipt(
                id=self._id(message, number + row), topic=topic, broker_group=group,
                number=number + row,
            )
            for row, message in enumerate(messages)
        ]  # fmt: skip

    async def store_columns(
        self, group: str, topic: str, columns: Columns, info: HalfInfo
    ) -> HalfStored:
        """Store one half batch of columns; numbered at once, so many may be under way."""
        check_name("topic", topic)
        batch = encode_columns(
            columns,
            origin=Origin(topic=topic, app=self.config.app, producer=self._producer),
            first_sequence=self._number,
            transaction=pack_info(info),
        )
        self._number += columns.count
        patience = Patience(self.config, f"a half message to {topic!r}")
        return await patience.ask(self._links.broker(group), Command.HALF, batch, HalfStored)

    def _id(self, message: Outgoing, number: int) -> str:
        if message.explicit_id is not None:
            return explicit_id_text(message.explicit_id)
        return id_to_text(self._producer.message_id(number))


def fill_in(receipts: list[HalfReceipt], placed: list[HalfPlace]) -> None:
    """Tell receipts where a commit put their messages."""
    for receipt in receipts:
        for place in placed:
            row = receipt.number - place.first_sequence
            if place.topic == receipt.topic and 0 <= row < place.count:
                receipt.sequence = place.sequence + row


class HalfWanted(TypedDict, total=False):
    """Which open transactions to list."""

    transaction: str
    name: str
    app: str
    dropped_only: bool
    limit: int


def half_id(text: str) -> bytes:
    """A transaction's id from its hex."""
    try:
        found = bytes.fromhex(text)
    except (TypeError, ValueError):
        found = b""
    if len(found) != ID_SIZE:
        raise BadRequest(f"{text!r} is not a transaction: it has {2 * ID_SIZE} hex digits")
    return found


def make_half_find(wanted: HalfWanted) -> HalfFind:
    transaction = wanted.get("transaction", "")
    return HalfFind(
        transaction=half_id(transaction) if transaction else b"",
        name=wanted.get("name", ""),
        app=wanted.get("app", ""),
        dropped_only=wanted.get("dropped_only", False),
        limit=wanted.get("limit", 1_000),
    )
