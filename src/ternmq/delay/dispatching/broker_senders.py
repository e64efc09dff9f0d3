"""Sends dispatched batches to the broker groups: one sender each, which never waits for another.

A batch has a synced intent for one broker group, so its sender keeps it until that group answers,
for days if need be, always with the same producer and numbers, so that a repeat is recognised:

1. No answer, connection lost: sent again, with back-off. The sender takes nothing new meanwhile.
2. Refused for now or for good, on the first try: certainly not stored, because a broker looks first
   whether it has the batch. The rows are released and may go to another group. If the group itself
   cannot store (full disk), its sender pauses; otherwise the topic does. After a try that got no
   answer, also one of an earlier life, a refusal proves nothing, since that try may still be on its
   way: sent again.
3. A sender never runs so far ahead of its oldest batch that the broker could forget that one. Where
   only a refused repeat is so old, the sender goes on under a new producer number.
"""

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import dataclass

from ternmq.client.transport.attempts import Attempts
from ternmq.client.transport.cluster import Cluster
from ternmq.core.clock import Clock
from ternmq.core.errors import (
    BufferFull,
    Closed,
    DiskFailed,
    DiskFull,
    Fenced,
    Moved,
    NotMaster,
    PutAside,
    ReadOnly,
    SequenceTooOld,
    TernError,
    TopicNotFound,
    Unavailable,
)
from ternmq.core.ids import RANDOM_BITS, START_BITS, ProducerId
from ternmq.core.lifecycle import Background
from ternmq.core.log import get_logger
from ternmq.core.retry import doubled
from ternmq.core.units import MIB
from ternmq.delay.formats.decision import Decision
from ternmq.discovery.cluster_access import ClusterAccess
from ternmq.storage.messages.producers import durable_start
from ternmq.wire.messages.hello import DISPATCHER
from ternmq.wire.numbers import Command

log = get_logger()

ANSWER_WITHIN_S = 10.0
AHEAD_MAX = 256  # Batches sent beyond the oldest unanswered one; a broker remembers the last 512.
UNDER_WAY_SIZE = 32 * MIB  # Unanswered bytes of one sender; old intents may be more.
REFRESH_S = 5.0
PAUSE_MIN_S = 0.5
PAUSE_MAX_S = 5.0
OF_THE_GROUP = (BufferFull, DiskFailed, DiskFull, Fenced, NotMaster, ReadOnly)
"""Refusals that another group may not have."""

OnEnd = Callable[[int, Decision, TernError | None], None]
"""(hour, intent, why not): the broker has the rows, or it certainly has not."""


@dataclass(slots=True)
class _DispatchBatch:
    """A batch that is not answered yet."""

    hour: int
    intent: Decision
    batch: bytearray
    serial: int
    on_end: OnEnd
    again: bool
    """It was sent in an earlier life, maybe: what a killed process has sent still arrives."""
    refused: bool = False
    """The group answers, and does not want it; an earlier try got no answer."""


class BrokerSender:
    """Sends to one broker group."""

    def __init__(self, group: str, cluster: Cluster, clock: Clock) -> None:
        self.group = group
        self._link = cluster.broker(group)
        self._clock = clock
        self.producer = self._new_producer()
        self.next_sequence = 0
        self.healthy = False
        self._refusals = 0
        self._paused_until = 0.0
        self._serial = 0
        self._open: dict[int, _DispatchBatch] = {}
        self._size = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._background = Background("a dispatch", lambda error: None)  # It is open after a start.

    def _new_producer(self) -> ProducerId:
        start = durable_start(self._clock.now_ms() & (2 ** (START_BITS - 1) - 1))
        return ProducerId(start, secrets.randbits(RANDOM_BITS))

    @property
    def has_room(self) -> bool:
        well = self.healthy and self._clock.monotonic() >= self._paused_until
        return well and self._ahead() < AHEAD_MAX and self._size < UNDER_WAY_SIZE

    def _ahead(self) -> int:
        """How far the producer is ahead of its oldest open batch."""
        mine = (self.producer.start_ms, self.producer.random)
        own = (each for each in self._open.values() if each.intent.producer == mine)
        oldest = next(own, None)
        if oldest is None:
            return 0
        if oldest.refused and self._serial - oldest.serial >= AHEAD_MAX:
            self.producer, self.next_sequence = self._new_producer(), 0
            return 0
        return self._serial - oldest.serial

    @property
    def under_way(self) -> int:
        return len(self._open)

    def numbers(self, count: int) -> int:
        """The producer's next numbers; not all of them need be used."""
        first = self.next_sequence
        self.next_sequence += count
        return first

    def send(
        self,
        hour: int,
        intent: Decision,
        batch: bytearray,
        on_end: OnEnd,
        *,
        again: bool = False,
    ) -> None:
        """Send until answered; `again`: what an earlier life may have sent."""
        sent = _DispatchBatch(hour, intent, batch, self._serial, on_end, again)
        self._serial += 1
        self._open[sent.serial] = sent
        self._size += len(batch)
        task = self._background.task(self._deliver(sent), name="tern-dispatch")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _deliver(self, sent: _DispatchBatch) -> None:
        error: TernError | None = None
        attempts = Attempts()
        while True:
            try:
                await self._try(sent)
                break
            except Unavailable as lost:
                sent.refused = False
                if self.healthy:
                    log.warning(
                        "a broker group does not answer", group=self.group, reason=lost.message
                    )
                self.healthy = False
            except PutAside:
                break  # Over a limit, and the topic's owner wants such messages kept apart: it is.
            except Closed:
                return  # This server stops; the intent stays open.
            except TernError as refused:
                first = not sent.again and not attempts.failures
                sure = first and not isinstance(refused, SequenceTooOld)
                # Nothing of such slots is stored there; with a topic its messages are gone.
                if sure or isinstance(refused, Moved | TopicNotFound):
                    error = refused
                    self._pause(refused)
                    break
                sent.refused = True
                log.warning(
                    "a broker group refuses a repeat", group=self.group, reason=refused.message
                )
            except Exception as bug:  # Sent or not: nobody knows, so the same again.
                sent.refused = False
                log.error("a dispatch failed by a bug", group=self.group, exc_info=bug)
            await attempts.wait()
        del self._open[sent.serial]
        self._size -= len(sent.batch)
        sent.on_end(sent.hour, sent.intent, error)

    async def _try(self, sent: _DispatchBatch) -> None:
        connection = await self._link.get()
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                await connection.call(Command.PUBLISH, sent.batch)
        except TimeoutError:
            raise Unavailable(f"no answer within {ANSWER_WITHIN_S:g} s") from None
        except RuntimeError as closed:
            raise Unavailable(f"the connection is closing: {closed}") from closed
        except TernError as error:
            if connection.closed and not isinstance(error, Unavailable):
                raise Unavailable(error.message) from error
            raise
        self.healthy = True
        self._refusals = 0

    def _pause(self, refused: TernError) -> None:
        """A group that cannot store now is left alone for a moment."""
        if isinstance(refused, OF_THE_GROUP):
            wait = doubled(self._refusals, first=PAUSE_MIN_S, most=PAUSE_MAX_S)
            self._refusals += 1
            self._paused_until = self._clock.monotonic() + wait

    async def probe(self) -> None:
        """Ask whether the group is there; for a sender that got no answer last."""
        try:
            await self._link.get()
            self.healthy = True
        except TernError:
            self.healthy = False

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)


class BrokerSenders:
    """One sender for each broker group; that of a group which is away keeps what it has to send."""

    def __init__(self, access: ClusterAccess, *, clock: Clock, timeout: float = 5.0) -> None:
        self._cluster = Cluster.of_server(access, app=DISPATCHER, timeout=timeout)
        self._clock = clock
        self._senders: dict[str, BrokerSender] = {}
        self._turn = 0
        self.changed = asyncio.Event()

    def to(self, group: str) -> BrokerSender:
        """The sender of a group, also of one that is away."""
        if group not in self._senders:
            self._senders[group] = BrokerSender(group, self._cluster, self._clock)
        return self._senders[group]

    def slot_owner(self, topic: str, order_key: str) -> str | None:
        """Which group stores this order key now; None while its slot moves."""
        return self._cluster.slot_owner(topic, order_key)

    def takes(self, group: str | None) -> bool:
        """Does this group take messages now?"""
        known = None if group is None else self._senders.get(group)
        return known is not None and known.has_room and group in self._cluster.masters()

    @property
    def assigned(self) -> bool:
        """Are order keys tied to groups, and are there several?"""
        placement = self._cluster.placement()
        return placement is not None and len(set(placement.owners)) > 1

    def pick(self, wanted: str | None = None) -> BrokerSender | None:
        """A group that takes messages now, in turn or the one wanted; None while there is none."""
        writable = {*self._cluster.writable_groups(), wanted}
        able = [
            sender
            for sender in self._senders.values()
            if sender.has_room and sender.group in writable
        ]
        if not able:
            return None
        for sender in able:
            if sender.group == wanted:
                return sender
        self._turn += 1
        return able[self._turn % len(able)]

    async def run(self) -> None:
        """Ask for routes and look after senders whose group does not answer."""
        while True:
            try:
                await self._cluster.refresh()
            except TernError as error:
                log.debug("routes are not refreshed", reason=error.message)
            for group in self._cluster.masters():
                self.to(group)
            idle = [sender for sender in self._senders.values() if not sender.healthy]
            await asyncio.gather(*(sender.probe() for sender in idle))
            self.changed.set()
            well = bool(self._senders) and all(sender.healthy for sender in self._senders.values())
            await asyncio.sleep(REFRESH_S if well else 0.2)

    async def close(self) -> None:
        for sender in self._senders.values():
            await sender.stop()
        await self._cluster.close()
