"""`mq.send_once`: messages with ids of their own, stored at most once however often they are sent.

The broker looks for the ids in everything it keeps. Rows that it has already are answered with the
place of the first; the others are sent again without them. Only one broker group is asked, since
ids are known per group: who sends the same rows later names the same group.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from ternmq.batch.encoder import Origin, Outgoing, encode_messages, split_rows, with_seals
from ternmq.batch.layout import Encoding
from ternmq.client.config import ClientConfig
from ternmq.client.model.arguments import check_value
from ternmq.client.model.outgoing import adopt_outgoing
from ternmq.client.model.times import time_from_ms
from ternmq.client.producing.accumulator import row_size
from ternmq.client.transport.cluster import Cluster
from ternmq.client.transport.link import Link
from ternmq.client.transport.retrying_request import RetryingRequest
from ternmq.core.clock import Clock
from ternmq.core.errors import BadRequest, SendUnknown, TooLarge
from ternmq.core.ids import check_name, explicit_id_text, new_producer_id
from ternmq.wire.messages.publish import PublishedOnce
from ternmq.wire.numbers import Command

ID_SIZE_MAX = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class OnceReceipt:
    """One message is safe, by this call or by one before it."""

    id: str
    topic: str
    broker_group: str
    sequence: int
    stored_at_ms: int
    duplicate: bool
    """It was there already."""

    @property
    def stored_at(self) -> datetime:
        return time_from_ms(self.stored_at_ms)


class OnceSender:
    """Sends rows that have ids."""

    def __init__(self, cluster: Cluster, config: ClientConfig, clock: Clock) -> None:
        self._cluster = cluster
        self._config = config
        self._clock = clock
        self._producer = new_producer_id(clock.now_ms())
        self._number = 0

    async def send(
        self, topic: str, rows: Sequence[Outgoing], broker_group: str | None
    ) -> list[OnceReceipt]:
        """One receipt per row, in the order of the rows."""
        check_name("topic", topic)
        check_value("rows", rows, Sequence[Outgoing])
        check_value("broker_group", broker_group, str | None)
        wanted: dict[bytes, Outgoing] = {}
        ids: list[bytes] = []
        now_ms = self._clock.now_ms()
        for row in rows:
            made = adopt_outgoing(row, now_ms)
            if made.due_at_ms is not None or made.delay_ms is not None:
                raise BadRequest("send_once is for messages for now: leave due_at_ms, delay_ms out")
            if not made.explicit_id or len(made.explicit_id) > ID_SIZE_MAX:
                raise BadRequest(f"send_once needs explicit_id, 1 to {ID_SIZE_MAX} bytes, per row")
            wanted.setdefault(made.explicit_id, made)
            ids.append(made.explicit_id)
        if not ids:
            return []
        group = broker_group or (await self._cluster.some_masters())[0]
        link = self._cluster.broker(group)
        found: dict[bytes, OnceReceipt] = {}
        messages = list(wanted.values())
        sizes = [row_size(message) for message in messages]
        limits = (self._config.batch_rows_max, self._config.batch_size_max)
        for first, end in split_rows(sizes, rows_max=limits[0], size_max=limits[1]):
            await self._send_part(link, group, topic, messages[first:end], found)
        return _in_order(ids, found)

    async def _send_part(
        self,
        link: Link,
        group: str,
        topic: str,
        messages: list[Outgoing],
        found: dict[bytes, OnceReceipt],
    ) -> None:
        """Send what is not known until nothing is left."""
        keyring = self._cluster.keyring
        while messages:
            if keyring.topics and keyring.lacks(topic, messages):
                await keyring.prepare(topic, messages)
            try:
                batch = self._encode(topic, messages)
            except TooLarge:
                if len(messages) == 1:
                    raise
                middle = len(messages) // 2
                await self._send_part(link, group, topic, messages[:middle], found)
                messages = messages[middle:]
                continue
            retrying = RetryingRequest(self._config, f"send_once to {topic!r}")
            try:
                answer = await retrying.ask(link, Command.PUBLISH_ONCE, batch, PublishedOnce)
            except SendUnknown as error:
                ids = [explicit_id_text(one.explicit_id or b"") for one in messages]
                raise error.about(ids) from error
            places = {known.row: (known.sequence, known.stored_at_ms) for known in answer.known}
            if not places:
                base = answer.base_sequence
                stored = {row: (base + row, answer.stored_at_ms) for row in range(len(messages))}
            else:
                stored = places
            for row, (sequence, stored_at_ms) in stored.items():
                explicit = messages[row].explicit_id or b""
                found[explicit] = OnceReceipt(
                    id=explicit_id_text(explicit),
                    topic=topic,
                    broker_group=group,
                    sequence=sequence,
                    stored_at_ms=stored_at_ms,
                    duplicate=bool(places),
                )
            messages = [one for row, one in enumerate(messages) if row not in stored]

    def _encode(self, topic: str, messages: list[Outgoing]) -> bytearray:
        encoding, keyring = self._config.encoding, self._cluster.keyring
        rows, sealed = messages, topic in keyring.topics
        origin = Origin(topic=topic, app=self._config.app, producer=self._producer, sealed=sealed)
        if sealed:
            numbers = (self._producer, self._number)
            rows = with_seals(messages, *keyring.seal(topic, messages, numbers, encoding))
            encoding = Encoding.PLAIN
        batch = encode_messages(
            rows,
            origin=origin,
            first_sequence=self._number,
            encoding=encoding,
        )
        self._number += len(messages)
        return batch


def _in_order(ids: list[bytes], found: dict[bytes, OnceReceipt]) -> list[OnceReceipt]:
    """Of rows with the same id the first was stored, the others are its duplicates."""
    receipts: list[OnceReceipt] = []
    seen: set[bytes] = set()
    for one in ids:
        receipt = found[one]
        if one in seen and not receipt.duplicate:
            receipt = OnceReceipt(
                id=receipt.id,
                topic=receipt.topic,
                broker_group=receipt.broker_group,
                sequence=receipt.sequence,
                stored_at_ms=receipt.stored_at_ms,
                duplicate=True,
            )
        seen.add(one)
        receipts.append(receipt)
    return receipts
