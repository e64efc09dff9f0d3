"""Sends half batches, for transactions and detached transactions.

Messages with order keys lie where their keys' slots do, as those of `send`; the others on the group
that the transaction has chosen.

One `HalfSender` per client numbers and encodes messages for half batches (its producer id is its
own, so its numbers never meet those of `send`) and repeats requests until they are answered. The
broker recognises a batch that comes again.
"""

import asyncio
import random
from collections.abc import Sequence
from typing import Any, NamedTuple, TypedDict

from ternmq.batch.encoder import (
    Columns,
    Origin,
    Outgoing,
    encode_bodies,
    encode_columns,
    encode_messages,
    encode_sealed,
    split_rows,
    with_seals,
)
from ternmq.batch.half import ID_SIZE, HalfInfo, pack_info
from ternmq.batch.layout import Encoding
from ternmq.client.codecs.codec import find_codec
from ternmq.client.config import ClientConfig
from ternmq.client.model.half_receipt import HalfBatch, HalfReceipts
from ternmq.client.model.outgoing import (
    SendOptions,
    adopt_outgoing,
    call_codec,
    listed_bodies,
    make_body,
    make_outgoing,
    refuse_idle_options,
)
from ternmq.client.producing.accumulator import ROW_COST, row_size
from ternmq.client.transactions.seal_batch import seal_batch
from ternmq.client.transport.cluster import Cluster
from ternmq.client.transport.fan_out import FanOut
from ternmq.client.transport.retrying_request import RetryingRequest
from ternmq.core.clock import Clock
from ternmq.core.errors import BadRequest, Moved, TooLarge, Unavailable
from ternmq.core.ids import check_name, new_producer_id
from ternmq.wire.messages.transactions import (
    HalfEnd,
    HalfEnded,
    HalfFind,
    HalfOpens,
    HalfStored,
)
from ternmq.wire.numbers import Command
from ternmq.wire.record import Record, T, pack

MOVED_S = 0.1
"""Until a slot is looked for again that is on its way."""

HalfRows = list[Outgoing] | list[bytes]
"""Bodies alone where that is all there is to them."""


class HalfTarget(NamedTuple):
    """Where half batches go."""

    group: str
    topic: str
    info: HalfInfo


class HalfSender:
    """Stores half batches on one broker group."""

    def __init__(self, cluster: Cluster, config: ClientConfig, clock: Clock) -> None:
        self._cluster = cluster
        self.config = config
        self._clock = clock
        self._codec = find_codec(config.codec)
        self._producer = new_producer_id(clock.now_ms())
        self._number = 0

    async def group(self, wanted: str | None) -> str:
        """The broker group that a new transaction lives on."""
        return (
            await self.known(wanted)
            if wanted
            else random.choice(await self._cluster.some_writable_groups())
        )

    async def known(self, wanted: str) -> str:
        """A broker group that was named: refused at once where there is none of this name. One
        that is away is waited for."""
        cluster = self._cluster
        if wanted not in (*cluster.masters(), *cluster.away("realtime")):
            await cluster.refresh()
        known = sorted({*cluster.masters(), *cluster.away("realtime")})
        if known and wanted not in known:
            raise BadRequest(f"there is no broker group {wanted!r}; there are: {', '.join(known)}")
        return wanted

    async def group_of(self, name: str) -> str:
        """The broker group where rows are staged under this name, else the first one."""
        groups = await self._cluster.some_masters()
        if len(groups) == 1:
            return groups[0]
        find = HalfFind(name=name, limit=1)
        answers = await FanOut(self._cluster, {}).ask(Command.HALF_LIST, find, HalfOpens, groups)
        there = [group for group, answer in answers.items() if answer.total]
        if len(there) > 1:
            raise BadRequest(
                f"transaction {name!r} is open on several broker groups ({', '.join(there)}): "
                "say which, by broker_group"
            )
        return there[0] if there else min(groups)

    async def ask(self, group: str, command: int, record: Record, answer: type[T]) -> T:
        """Ask until it is answered; only for what may be asked again."""
        retrying = RetryingRequest(self.config, f"{Command(command).name} to {group!r}", heals=True)
        return await retrying.ask_record(self._cluster.broker(group), command, record, answer)

    async def end(self, group: str, end: HalfEnd) -> HalfEnded:
        """End a transaction, by what this client made itself."""
        retrying = RetryingRequest(
            self.config, f"the end of a transaction on {group!r}", heals=True
        )
        return await retrying.ask(
            self._cluster.broker(group), Command.HALF_END, pack(end), HalfEnded
        )

    def rows(self, bodies: Sequence[Any], options: SendOptions) -> HalfRows:
        """Check everything before anything is sent."""
        bodies = listed_bodies(bodies)
        refuse_idle_options(bodies, options)
        now_ms = self._clock.now_ms()
        codec = call_codec(options, self._codec)
        if codec is None and not options and set(map(type, bodies)) == {bytes}:
            make_body(max(bodies, key=len), None)
            return list(bodies)
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

    async def store(self, group: str, topic: str, rows: HalfRows, info: HalfInfo) -> HalfReceipts:
        """Store messages as half batches on one group; returns when all are safe."""
        check_name("topic", topic)
        receipts = HalfReceipts()
        await self._store_all(HalfTarget(group, topic, info), rows, receipts)
        return receipts

    async def spread(
        self, target: HalfTarget, rows: HalfRows, touched: dict[str, None]
    ) -> HalfReceipts:
        """Send rows with order keys to where their slots are; `touched` gets to know every group
        that may have some, before it has."""
        check_name("topic", target.topic)
        receipts = HalfReceipts()
        if not _ordered(rows):
            touched[target.group] = None
            await self._store_all(target, rows, receipts)
            return receipts
        parts: list[tuple[list[int], HalfReceipts]] = []
        left = list(range(len(rows)))
        deadline = asyncio.get_running_loop().time() + self.config.delivery_timeout
        while left:
            home, mine = await self._home(target, rows, left)
            touched[home] = None
            part = HalfReceipts()
            try:
                own: HalfRows = [rows[at] for at in mine]  # type: ignore[assignment]
                await self._store_all(target._replace(group=home), own, part)
            except Moved:
                if asyncio.get_running_loop().time() > deadline:
                    raise
                await asyncio.sleep(MOVED_S)
                await self._cluster.refresh()
            parts.append((mine[: len(part)], part))
            done = set(mine[: len(part)])
            left = [at for at in left if at not in done]
        receipts.weave(parts)
        return receipts

    async def _home(
        self, target: HalfTarget, rows: HalfRows, left: list[int]
    ) -> tuple[str, list[int]]:
        """Where the first of these rows belongs, and which others do."""
        keys = [row.order_key if isinstance(row, Outgoing) else None for row in rows]

        def owner(at: int) -> str | None:
            key = keys[at]
            return target.group if key is None else self._cluster.slot_owner(target.topic, key)

        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.config.delivery_timeout
        while (home := owner(left[0])) is None:
            if loop.time() > deadline:
                raise Unavailable(
                    f"the slot of order key {keys[left[0]]!r} is being moved and its broker group "
                    "has not given it up in time; 'tern broker slots show' says which"
                )
            await asyncio.sleep(MOVED_S)
        return home, [at for at in left if owner(at) == home]

    async def _store_all(self, target: HalfTarget, rows: HalfRows, receipts: HalfReceipts) -> None:
        limits = self.config.batch_rows_max, self.config.batch_size_max
        for first, end in _parts(rows, *limits):
            await self._store(target, rows[first:end], receipts)

    async def _store(self, target: HalfTarget, rows: HalfRows, receipts: HalfReceipts) -> None:
        group, topic, info = target
        keyring = self._cluster.keyring
        if keyring.topics and keyring.lacks(topic, rows):
            await keyring.prepare(topic, rows)  # Before a number is taken: each is used once.
        stored = HalfBatch(
            topic=topic,
            broker_group=group,
            producer=self._producer,
            first=self._number,
            count=len(rows),
        )
        try:
            batch = self._encode(stored, rows, pack_info(info))
        except TooLarge:
            if len(rows) == 1:
                raise
            middle = len(rows) // 2
            await self._store(target, rows[:middle], receipts)
            await self._store(target, rows[middle:], receipts)
            return
        self._number += len(rows)
        retrying = RetryingRequest(self.config, f"a half message to {topic!r}")
        await retrying.ask(self._cluster.broker(group), Command.HALF, batch, HalfStored)
        receipts.add(stored)

    def _encode(self, stored: HalfBatch, rows: HalfRows, transaction: bytes) -> bytearray:
        encoding, keyring = self.config.encoding, self._cluster.keyring
        sealed = stored.topic in keyring.topics
        origin = Origin(
            topic=stored.topic, app=self.config.app, producer=self._producer, sealed=sealed
        )
        bodies: list[bytes] = []
        seals: list[bytes | None] = []
        if sealed:
            numbers = (self._producer, stored.first)
            bodies, seals = keyring.seal(stored.topic, rows, numbers, encoding)
            encoding = Encoding.PLAIN
        if isinstance(rows[0], bytes) and seals:
            return encode_sealed(
                bodies,
                seals,
                origin=origin,
                first_sequence=stored.first,
                born_at_ms=self._clock.now_ms(),
                transaction=transaction,
            )
        if isinstance(rows[0], bytes):
            return encode_bodies(
                rows,
                origin=origin,
                first_sequence=stored.first,
                born_at_ms=self._clock.now_ms(),
                encoding=encoding,
                transaction=transaction,
            )
        explicit = [message.explicit_id for message in rows]
        stored.explicit_ids = explicit if explicit.count(None) < len(explicit) else None
        return encode_messages(
            with_seals(rows, bodies, seals) if seals else rows,
            origin=origin,
            first_sequence=stored.first,
            encoding=encoding,
            transaction=transaction,
        )

    async def store_columns(
        self, group: str, topic: str, columns: Columns, info: HalfInfo
    ) -> HalfStored:
        """Store one half batch of columns; numbered at once, so many may be under way."""
        check_name("topic", topic)
        keyring = self._cluster.keyring
        if keyring.topics and keyring.lacks(topic, [b""]):
            await keyring.prepare(topic, [b""])
        batch = encode_columns(
            columns,
            origin=Origin(topic=topic, app=self.config.app, producer=self._producer),
            first_sequence=self._number,
            transaction=pack_info(info),
        )
        self._number += columns.count
        if topic in keyring.topics:
            batch = seal_batch(batch, keyring, self.config.encoding)
        retrying = RetryingRequest(self.config, f"a half message to {topic!r}")
        return await retrying.ask(self._cluster.broker(group), Command.HALF, batch, HalfStored)


def _parts(rows: HalfRows, rows_max: int, size_max: int) -> list[tuple[int, int]]:
    """Which rows go into one batch; bodies alone that fit are not looked at one by one."""
    if isinstance(rows[0], bytes):
        size = sum(map(len, rows)) + len(rows) * ROW_COST
        if len(rows) <= rows_max and size <= size_max:
            return [(0, len(rows))]
    return split_rows([row_size(row) for row in rows], rows_max=rows_max, size_max=size_max)


def _ordered(rows: HalfRows) -> bool:
    """Has any of them an order key?"""
    if isinstance(rows[0], bytes):
        return False
    return any(row.order_key is not None for row in rows)


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
