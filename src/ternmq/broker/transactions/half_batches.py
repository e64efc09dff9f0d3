"""HALF: half batches are stored, and seen by nobody before their transaction ends (`half_endings`).

A transaction lives on one broker group; its half batches are in the message log without sequences.
The commonest half batch, for a topic that is known and of a transaction of which nothing else is
under way that it had to wait for, is stored without a task: `stage` returns, and the request is
answered when the disk has it.

Never reads a body, never writes one twice.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, NamedTuple

from ternmq.batch.check import Incoming
from ternmq.batch.due import due_times
from ternmq.batch.half import HalfInfo, check_half
from ternmq.batch.view import BatchView
from ternmq.broker.publishing.publish import Publisher
from ternmq.broker.slots.slots import Slots
from ternmq.broker.topics import TopicNames
from ternmq.broker.transactions.half_endings import ended
from ternmq.broker.transactions.under_way import HalfKey, SafeHalf, StoredHalf, TransactionsUnderWay
from ternmq.core.clock import Clock
from ternmq.core.errors import (
    BadRequest,
    Fenced,
    Forbidden,
    OverLimit,
    TernError,
    Unauthorized,
)
from ternmq.core.log import get_logger
from ternmq.core.units import DAY_MS
from ternmq.intake.pending_batches import used_elsewhere
from ternmq.rpc.peer import Peer
from ternmq.security.access.rights import Rights
from ternmq.storage.log.append import Append, HalfMark
from ternmq.storage.messages.transactions import (
    OpenTransaction,
    TransactionOutcome,
    TransactionTable,
)
from ternmq.wire.actions import Action
from ternmq.wire.frame import Frame
from ternmq.wire.messages.topics import Topic
from ternmq.wire.messages.transactions import (
    HalfStored,
)

log = get_logger()

TIMES_MAX_MS = 30 * DAY_MS
DELAY_DAYS_MAX = 36_525
"""What `delay_max_days` of a delay server can be at most: it takes all that is committed."""
BATCHES_MAX = 1_000
"""Half batches of one transaction."""


class _Half(NamedTuple):
    """A half batch that came in, checked."""

    peer: Peer
    batch: bytearray
    incoming: Incoming
    info: HalfInfo

    @property
    def own(self) -> HalfKey:
        return (self.incoming.producer, self.incoming.first_sequence)

    @property
    def by_slot(self) -> bool:
        """What a named one stages is not sent by order keys: it lies where its name does."""
        return self.incoming.ordered and not self.info.name


class HalfBatches:
    """Half batches that come in."""

    def __init__(
        self,
        *,
        publisher: Publisher,
        topics: TopicNames,
        under_way: TransactionsUnderWay,
        halves: TransactionTable,
        clock: Clock,
        slots: Slots,
        open_max: int,
    ) -> None:
        self._open_max = open_max
        self._publisher = publisher
        self._slots = slots
        self._topics = topics
        self._halves = halves
        self._now_ms = clock.now_ms
        self._under_way = under_way

    # Staging

    def stage(
        self, peer: Peer, frame: Frame, request: StoredHalf
    ) -> Coroutine[Any, Any, HalfStored] | None:
        """Store one half batch; nobody sees it. A task is made only if something is missing."""
        batch = frame.payload
        incoming, info = check_half(batch)
        if max(info.first_check_ms, info.check_interval_ms, info.expires_ms) > TIMES_MAX_MS:
            raise BadRequest("a transaction is asked about, or expires, within 30 days")
        if incoming.delayed != bool(info.later):
            raise BadRequest("a transaction cannot hold delayed messages: send them after it")
        if info.later:
            latest = int(due_times(BatchView(batch), self._now_ms()).max())
            if latest > self._now_ms() + DELAY_DAYS_MAX * DAY_MS:
                raise BadRequest(f"due more than {DELAY_DAYS_MAX} days ahead")
        half = _Half(peer, batch, incoming, info)
        topic = self._topics.find(incoming.topic)
        if (
            topic is None
            or info.later
            or (half.by_slot and not self._slots.assigned)
            or self._under_way.busy(info.key, half.own)
        ):
            return self._stage_later(half)
        self._publisher.admit(peer, batch, incoming, topic)
        stored = self._store(half, topic, topic, request)
        if stored is not None:
            request.answer(lambda: stored)
        return None

    async def _stage_later(self, half: "_Half") -> HalfStored:
        """Wait for what is missing, then store it."""
        peer, batch, incoming, info = half
        topic = await self._topics.get_or_create(incoming.topic, peer)
        self._publisher.admit(peer, batch, incoming, topic)
        # Delayed rows lie in a topic of their delay server, and say themselves which they are for.
        place = await self._topics.later_of(info.later) if info.later else topic
        if half.by_slot and not self._slots.assigned:
            await self._slots.assign()
        while self._under_way.busy(info.key, half.own):
            await self._under_way.settled(info.key)
        safe = SafeHalf(asyncio.get_running_loop().create_future())
        stored = self._store(half, topic, place, safe)
        return stored if stored is not None else await asyncio.shield(safe.future)

    def _store(
        self, half: "_Half", topic: Topic, place: Topic, waiting: StoredHalf
    ) -> HalfStored | None:
        """Append it, and tell `waiting` when it is safe; or return what is known of it."""
        peer, batch, incoming, info = half
        self._check_name(peer.rights, info, incoming.topic)
        if self._published(info):
            return HalfStored(stored_at_ms=self._now_ms(), committed=True)
        one = self._writable(info, incoming.app)
        if one is not None and (known := one.find(*half.own)) is not None:
            if (known.topic_id, known.count) != (place.id, incoming.row_count):
                raise used_elsewhere(incoming)
            return HalfStored(stored_at_ms=one.last_at_ms, duplicate=True)
        self._check_owner(info, one, incoming.producer)
        if one is None:
            self._check_quota(peer)
        over = self._publisher.turn_away(peer, batch, incoming, topic)
        if over is not None:
            raise over
        ticket = self._slots.enter(topic, batch) if half.by_slot else 0
        append = self._publisher.to_append(peer, batch, incoming, place.id)
        append.special = HalfMark(info=info, app=incoming.app)

        def on_done(_: Append, error: TernError | None) -> None:
            if ticket:
                self._slots.leave(ticket)
            if error is not None:
                waiting.fail(error)
            else:
                waiting.answer(lambda: HalfStored(stored_at_ms=append.stored_at_ms))

        waiting.hold(len(batch))
        self._under_way.stage(info.key, half.own, append, on_done)
        return None

    def _check_name(self, rights: Rights | None, info: HalfInfo, topic: str) -> None:
        """The name of a detached transaction is the application's that used it first: others could
        fence its attempts, or publish under it what it then takes for its own."""
        if rights is None or not info.name:
            return
        users = {one.app for one in self._halves.attempts(info.name).values()}
        if any(app and not rights.is_app(app) for app in users):
            if rights.may(Action.OPERATE, "topic", topic):
                return
            raise Forbidden(
                f"the detached transaction {info.name!r} is another application's: take another "
                f"name, or: tern grant add {rights.name} operate {topic}",
                identity=rights.name,
            )

    def _writable(self, info: HalfInfo, app: str) -> OpenTransaction | None:
        """The transaction, if it may still take batches; None if this is its first."""
        outcome = self._halves.outcomes.get(info.key)
        if outcome is not None:
            raise ended(outcome.state)
        if info.name and info.fenced:
            self._check_fence(info)
        one = self._halves.open.get(info.key)
        if one is None:
            if len(self._halves.open) >= self._open_max:
                raise OverLimit(
                    f"{len(self._halves.open)} transactions are open, and halves_max is "
                    f"{self._open_max}; end some ('tern half list'), or raise it on the broker"
                )
            return None
        if one.dropped_at_ms:
            raise ended("dropped")
        if one.app != app:
            raise Unauthorized(f"this transaction belongs to application {one.app!r}")
        if len(one.halves) >= BATCHES_MAX:
            raise OverLimit(f"a transaction has at most {BATCHES_MAX} batches; send larger ones")
        return one

    def _check_quota(self, peer: Peer) -> None:
        """One more that is open, of all applications that this user may be."""
        use, rights = peer.use, peer.rights
        if use is None or rights is None or not use.quota.halves_max:
            return
        there = sum(n for app, n in self._halves.open_of.items() if rights.is_app(app))
        use.check_made("halves", there, use.quota.halves_max)

    def _published(self, info: HalfInfo) -> bool:
        """Whoever writes again what is published has nothing to do; only for unfenced names."""
        known = {} if info.fenced else self._halves.attempts(info.name)
        return any(
            isinstance(one, TransactionOutcome) and one.state == "committed"
            for one in known.values()
        )

    def _check_owner(
        self, info: HalfInfo, one: OpenTransaction | None, producer: tuple[int, int]
    ) -> None:
        """An unfenced attempt is one producer's: two that drew its number must not be mixed."""
        if info.fenced:
            return
        owners = self._under_way.producers(info.key)
        if one is not None:
            owners.add((one.halves[0].producer_start, one.halves[0].producer_random))
        if not owners <= {producer}:
            raise Fenced(f"attempt {info.attempt} of {info.name!r} is another's: take another")

    def _check_fence(self, info: HalfInfo) -> None:
        known = self._halves.attempts(info.name)
        if any(
            isinstance(one, TransactionOutcome) and one.state == "committed"
            for one in known.values()
        ):
            raise ended("committed")
        highest = max(known, default=0)
        if highest > info.attempt:
            raise Fenced(
                f"attempt {info.attempt} of {info.name!r} is over: attempt {highest} has begun"
            )
