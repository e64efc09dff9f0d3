"""PUBLISH_ONCE: a batch whose rows have ids of their own is stored only if no id is known.

Ids are claimed on the loop before anything is looked up, so of two requests with the same id the
second waits for the first. Then a thread asks the index for the whole retention. If some rows are
known nothing is stored; the answer says which and where, and the sender sends the others alone:
so the broker never makes batches out of batches. An id counts within its topic and broker group.
While it is stored its producer's numbers are taken, as those of every batch: nothing else is stored
under them.
"""

import asyncio

from ternmq.batch.layout import Column, ColumnPart
from ternmq.batch.view import BatchView
from ternmq.broker.log.commit import Committer
from ternmq.broker.log.fetch import Fetcher
from ternmq.broker.publishing.publish import Publisher, check_now
from ternmq.broker.slots.slots import Slots
from ternmq.broker.topics import TopicNames
from ternmq.core.errors import BadRequest, TernError
from ternmq.rpc.peer import Peer
from ternmq.storage.messages.message_log import Append
from ternmq.storage.messages.search import Search
from ternmq.wire.frame import Frame
from ternmq.wire.messages.publish import KnownRow, PublishedOnce

IdClaim = tuple[int, bytes]


class OncePublisher:
    """The PUBLISH_ONCE command."""

    def __init__(
        self,
        *,
        publisher: Publisher,
        slots: Slots,
        topics: TopicNames,
        committer: Committer,
        search: Search,
        fetcher: Fetcher,
    ) -> None:
        self._publisher = publisher
        self._pending = publisher.pending
        self._slots = slots
        self._topics = topics
        self._committer = committer
        self._search = search
        self._fetcher = fetcher
        self._claims: dict[IdClaim, asyncio.Future[None]] = {}

    async def publish(self, peer: Peer, frame: Frame) -> PublishedOnce:
        incoming = check_now(frame.payload)
        topic = await self._topics.get_or_create(incoming.topic, peer)
        self._publisher.admit(peer, frame.payload, incoming, topic)
        ids = row_ids(frame.payload)
        claims = [(topic.id, one) for one in ids]
        released = await self._claim(claims)
        try:
            known = await self._fetcher.run(lambda: self._search.known_ids(topic.id, ids))
            if known:
                rows = [
                    KnownRow(row=row, sequence=place.sequence, stored_at_ms=place.stored_at_ms)
                    for row, place in sorted(known.items())
                ]
                return PublishedOnce(known=rows)
            if incoming.ordered and not self._slots.assigned:
                await self._slots.assign()
            over = self._publisher.turn_away(peer, frame.payload, incoming, topic)
            if over is not None:
                raise over
            self._publisher.check_unused(peer, incoming, topic)
            append = self._publisher.to_append(peer, frame.payload, incoming, topic.id)
            ticket = self._slots.enter(topic, frame.payload) if incoming.ordered else 0
            return await self._store(append, ticket)
        finally:
            for claim in claims:
                self._claims.pop(claim, None)
            released.set_result(None)

    async def _claim(self, claims: list[IdClaim]) -> asyncio.Future[None]:
        """Wait until nobody else stores one of these, then take them all in one turn."""
        while others := {self._claims[claim] for claim in claims if claim in self._claims}:
            await asyncio.wait(others)
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._claims |= dict.fromkeys(claims, mine)
        return mine

    async def _store(self, append: Append, ticket: int) -> PublishedOnce:
        safe: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        pending = self._pending.begin_once(append)

        def on_done(_: Append, error: TernError | None) -> None:
            self._slots.leave(ticket)
            self._pending.end_once(pending, error)
            if error is None:
                safe.set_result(None)
            else:
                safe.set_exception(error.copy())

        self._committer.append(append, on_done)
        await safe
        return PublishedOnce(
            known=[], base_sequence=append.base_sequence, stored_at_ms=append.stored_at_ms
        )


def row_ids(batch: bytearray | memoryview) -> list[bytes]:
    """The explicit ids of all rows; refused unless every row has its own."""
    view = BatchView(batch)
    if view.buffer(Column.EXPLICIT_ID, ColumnPart.DATA) is None:
        raise BadRequest("rows that must be stored once need ids of their own (explicit_id)")
    ids = view.explicit_ids()
    if None in ids or b"" in ids:
        raise BadRequest("a row that must be stored once has no id of its own (explicit_id)")
    if len(set(ids)) < len(ids):
        raise BadRequest("two rows of one batch have the same id")
    return [one for one in ids if one is not None]
