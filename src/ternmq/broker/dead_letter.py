"""Dead letters: a row that is refused for good is copied, made safe, and only then marked dead.

The copy goes to the group's hidden dead-letter topic with its id, key, tag and properties, and with
where it came from, how often it was tried and why it was refused as properties that begin with
'%'. If the copy cannot be stored the row is ready again: better twice than lost.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from ternmq.batch.check import check_incoming
from ternmq.batch.encoder import Origin, Outgoing, encode_messages
from ternmq.batch.properties import PropertyValue
from ternmq.batch.view import BatchView
from ternmq.broker.commit import Committer
from ternmq.broker.fetch import Fetcher
from ternmq.broker.groups import Group, Groups
from ternmq.broker.lane import Piece
from ternmq.broker.topics import Topics
from ternmq.core.clock import Clock
from ternmq.core.errors import Corrupt, TernError
from ternmq.core.ids import ProducerId, id_from_text, new_producer_id
from ternmq.storage.consume_log import ConsumeLog
from ternmq.storage.message_log import Append

REASON_SIZE_MAX = 4096
ROWS_AT_ONCE = 256
APP = "%broker"
T = TypeVar("T")


class Undertaker:
    """Copies refused rows into dead-letter topics."""

    def __init__(
        self,
        *,
        topics: Topics,
        groups: Groups,
        consume: ConsumeLog,
        fetcher: Fetcher,
        committer: Committer,
        clock: Clock,
    ) -> None:
        self._topics = topics
        self._groups = groups
        self._consume = consume
        self._fetcher = fetcher
        self._committer = committer
        self._clock = clock
        self._producer: ProducerId = new_producer_id(clock.now_ms())
        self._sequence = 0

    async def bury(
        self, group: Group, pieces: list[Piece], reason: str, fed: Callable[[Group], None]
    ) -> None:
        """Copy, wait until the copies are safe, then mark the originals dead, safely."""
        for first, end, attempt in pieces:
            for at in range(first, end, ROWS_AT_ONCE):
                stop = min(end, at + ROWS_AT_ONCE)
                try:
                    await self._copy(group, at, stop, attempt, reason)
                except TernError:
                    self._groups.write(group, group.lane.survived(at, end))
                    fed(group)
                    raise
                changes = group.lane.died(at, stop)
                await self._committer.decide(
                    [self._groups.to_record(group, change) for change in changes]
                )

    async def _copy(self, group: Group, first: int, end: int, attempt: int, reason: str) -> None:
        letters: list[Outgoing] = []
        at = first
        while at < end:
            entries = self._consume.entries(group.topic_id, at, rows_max=1, size_max=1)
            if not entries or entries[0].base_sequence > at:
                raise Corrupt(f"message {at} of {group.topic!r} cannot be read any more")
            entry = entries[0]
            batches = self._fetcher.now([entry]) or await self._fetcher.later([entry])
            view = BatchView(batches[0])
            stop = min(end, entry.base_sequence + entry.count)
            for sequence in range(at, stop):
                row = sequence - entry.base_sequence
                letters.append(self._letter(group, view, row, attempt, reason))
            at = stop
        topic = await self._topics.dead_letters_of(group.name)
        origin = Origin(topic=topic.name, app=APP, producer=self._producer)
        for (
            letter
        ) in letters:  # One batch each: a large body must not make its neighbours too large.
            await self._store(topic.id, origin, letter)

    def _letter(
        self, group: Group, view: BatchView, row: int, attempt: int, reason: str
    ) -> Outgoing:
        text = view.message_id(row)
        explicit = (
            id_from_text(text).to_bytes(16, "big") if len(text) == 26 else bytes.fromhex(text)
        )
        damage: list[str] = []

        def readable(field: Callable[[int], T], otherwise: T) -> T:
            """A producer may have lied about a field; its message must not come back for ever."""
            try:
                return field(row)
            except Corrupt as error:
                damage.append(error.message)
                return otherwise

        properties: dict[str, PropertyValue] = readable(view.properties, {})
        properties |= {
            "%topic": group.topic,
            "%sequence": view.base_sequence + row,
            "%attempt": attempt,
            "%reason": reason[:REASON_SIZE_MAX],
            "%died_at": self._clock.now_ms(),
        }
        letter = Outgoing(
            body=readable(view.body, b""),
            key=readable(view.key, None),
            tag=readable(view.tag, None),
            properties=properties,
            order_key=readable(view.order_key, None),
            priority=view.priority(row),
            born_at_ms=view.born_at_ms(row),
            explicit_id=explicit,
        )
        if damage:
            properties["%damaged"] = "; ".join(damage)
        return letter

    async def _store(self, topic_id: int, origin: Origin, letter: Outgoing) -> None:
        self._sequence += 1
        batch = encode_messages([letter], origin=origin, first_sequence=self._sequence)
        incoming = check_incoming(batch)
        safe: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def told(_: Append, error: TernError | None) -> None:
            if not safe.done():
                safe.set_result(None) if error is None else safe.set_exception(error)

        append = Append(
            batch=batch, topic_id=topic_id, count=1, received_at_ms=self._clock.now_ms(),
            client_ip=bytes(16), client_port=0, server_ip=bytes(16), server_port=0,
            tag_bloom=incoming.tag_bloom, priority=incoming.priority,
            producer=incoming.producer, first_sequence=incoming.first_sequence,
        )  # fmt: skip
        self._committer.append(append, told)
        await safe
