"""The broker as its own producer: reading single stored rows, and storing copies of them.

Copies keep their id, so they are the same message wherever they lie. Each goes into a batch of its
own (a large body must not make its neighbours too large); all of a call share the next sync.
"""

import asyncio
from collections.abc import Sequence

from ternmq.batch.check import check_incoming
from ternmq.batch.encoder import Origin, Outgoing, encode_messages
from ternmq.batch.layout import STORED_SIZE_MAX
from ternmq.batch.view import BatchView
from ternmq.broker.commit import Committer
from ternmq.broker.fetch import Fetcher
from ternmq.core.clock import Clock
from ternmq.core.errors import Corrupt, TernError
from ternmq.core.ids import new_producer_id
from ternmq.storage.consume_entry import Entry
from ternmq.storage.consume_log import ConsumeLog
from ternmq.storage.message_log import Append
from ternmq.wire.commands import Topic

APP = "%broker"


class LetterWriter:
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

    async def look(self, topic_id: int, sequence: int) -> tuple[Entry, BatchView]:
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

    async def store(self, topic: Topic, letters: Sequence[Outgoing]) -> None:
        """Store copies; returns when all are safe, raises the first error."""
        origin = Origin(topic=topic.name, app=APP, producer=self._producer)
        waiting = [self._append(topic.id, origin, letter) for letter in letters]
        results = await asyncio.gather(*waiting, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    def _append(self, topic_id: int, origin: Origin, letter: Outgoing) -> asyncio.Future[None]:
        self._sequence += 1
        batch = encode_messages(
            [letter], origin=origin, first_sequence=self._sequence, size_max=STORED_SIZE_MAX
        )
        incoming = check_incoming(batch, size_max=STORED_SIZE_MAX)
        safe: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def told(_: Append, error: TernError | None) -> None:
            if safe.done():
                return
            if error is None:
                safe.set_result(None)
            else:
                safe.set_exception(error)

        append = Append(
            batch=batch, topic_id=topic_id, count=1, received_at_ms=self._clock.now_ms(),
            tag_bloom=incoming.tag_bloom, priority=incoming.priority,
            producer=incoming.producer, first_sequence=incoming.first_sequence,
        )  # fmt: skip
        self._committer.append(append, told)
        return safe
