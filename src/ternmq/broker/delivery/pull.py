"""Handing out: a pull gets rows of its groups, now or when there are some.

Theory of operation
-------------------
A pull names how many rows and bytes it wants at most. Whole batches are handed out as they lie in
the log; only the one that does not fit is cut. Rows that came back (a lost consumer, a retry) go
first but take at most half of a pull while new ones wait, so a failing message cannot starve the
rest. Without rows the pull waits; `grew` serves the waiting pulls of a topic in the order they
came, so consumers share a backlog at once and any number may come and go (Q5).

Rows are leased before their bytes are read. Bytes that are not in memory are read by a thread and
the answer follows; rows whose bytes turn out to be damaged are counted as expired and said so.
Where replicas give old messages (`cold_below`) and the consumer can do that, the answer is the
lease alone, and it reads the bytes from a replica; rows that it cannot get come back untouched and
are sent from here.

A lease of an ordered group is sent when a new leader would know of it (`progress_durable`). So
after a restart or a promotion no key is given to somebody else while one works on it, and nothing
of it comes again but its first unsettled row. Other groups do not wait: repeats do them no harm.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from secrets import randbits
from typing import Any

import msgspec

from ternmq.batch.layout import Buffer
from ternmq.batch.rows.expiry import expired_rows, may_expire
from ternmq.batch.view import BatchView
from ternmq.broker.delivery.consume_limits import ConsumeLimits
from ternmq.broker.delivery.envelopes import Envelopes
from ternmq.broker.delivery.failure_texts import FailureTexts
from ternmq.broker.delivery.handout import Handout, Slice
from ternmq.broker.delivery.lookup import BatchLookup
from ternmq.broker.delivery.pick import RowPicker
from ternmq.broker.delivery.pick_ordered import HeldSlots
from ternmq.broker.delivery.poison_isolation import PoisonIsolation, admit, note_alone
from ternmq.broker.groups.consumer_group import ConsumerGroup, ConsumerSession, WaitingPull
from ternmq.broker.groups.failure_notes import Failed, FailureNote
from ternmq.broker.groups.groups import ConsumerGroups
from ternmq.broker.groups.lease import detached_ms
from ternmq.broker.log.fetch import Fetcher
from ternmq.core.errors import (
    Corrupt,
    DiskFailed,
    GroupNotFound,
    OverLimit,
    TernError,
    Unavailable,
)
from ternmq.core.log import get_logger
from ternmq.core.range_set import RangeSet
from ternmq.core.units import MIB
from ternmq.rpc.bug_log import BUGS
from ternmq.storage.consume.consume_log import ConsumeLog
from ternmq.storage.consume.entry import ConsumeEntry
from ternmq.wire.messages.pull import DELIVERED, LeftOut, Pull
from ternmq.wire.numbers import Command

log = get_logger()

_PULL = int(Command.PULL)
NOTHING = DELIVERED.pack(0, 0, 0)
NOT_ANSWERED = "messages could not be handed out: a bug of the broker, whose log says more"
SIZE_MAX = 3 * MIB  # With one more batch of 4 MiB an answer still fits into a frame.
ROWS_MAX = 50_000  # One record of the pull log names so many single rows.
WAIT_MAX_MS = 30_000
PULLS_MAX = 8  # Pulls of one consumer that may wait at one time.
DETACHED_PULLS_MAX = 1_000  # Each is of somebody else, who waits at a gateway.
DETACHED_ROWS_MAX = 1_000
DETACHED_LEASES_MAX = 10_000  # Of one lane.
KEY_BITS = 62


@dataclass(frozen=True, slots=True, kw_only=True)
class PullHooks:
    """What the broker around it decides for the delivery of rows."""

    progress_durable: Callable[[], Awaitable[None]]
    """Completes once a new leader would see all progress recorded so far."""
    on_expired: Callable[[ConsumerGroup, int, list[tuple[int, int]]], None]
    """Takes rows of a lease whose time to live is over."""
    cold_below: Callable[[], int | None]
    """The offset below which bytes are left to replicas; None: nothing is."""
    held_slots: HeldSlots
    """Order-key slots of which an ordered group gets nothing yet."""


class PullHandler:
    """The PULL command."""

    def __init__(
        self,
        *,
        groups: ConsumerGroups,
        consume: ConsumeLog,
        fetcher: Fetcher,
        consume_limits: ConsumeLimits,
        failure_texts: FailureTexts,
        lease_ms: int,
        hooks: PullHooks,
    ) -> None:
        self._groups = groups
        self._hooks = hooks
        self._consume_limits = consume_limits
        self._fetcher = fetcher
        self._failure_texts = failure_texts
        self._picker = RowPicker(
            groups=groups,
            lookup=BatchLookup(groups=groups, consume=consume, fetcher=fetcher, feed=self.feed),
            lease_ms=lease_ms,
            held_slots=hooks.held_slots,
        )
        self._loop = asyncio.get_running_loop()
        self._reading: set[asyncio.Task[None]] = set()
        self._fed_later: dict[ConsumerGroup, asyncio.TimerHandle] = {}

    def pull(self, consumer: ConsumerSession, correlation: int, request: Pull) -> None:
        """Answer now if there are rows, else when there are, else after `wait_ms` with nothing."""
        pulls_max = DETACHED_PULLS_MAX if consumer.detached else PULLS_MAX
        if consumer.pulls >= pulls_max:
            raise OverLimit(f"{pulls_max} pulls of this consumer are waiting already")
        for group in consumer.groups:
            if group.deleted:
                raise GroupNotFound(f"group {group.name!r} of {group.topic!r} was deleted")
        waiting = self._waiting(consumer, correlation, request)
        consumer.pulls += 1
        if self._serve(waiting):
            return
        if request.wait_ms <= 0:
            self._expire(waiting)
            return
        for group in consumer.groups:
            group.waiting_pulls.append(waiting)
        wait_s = min(request.wait_ms, WAIT_MAX_MS) / 1000
        waiting.wait(self._loop.call_later(wait_s, self._expire, waiting))

    def _waiting(self, consumer: ConsumerSession, correlation: int, request: Pull) -> WaitingPull:
        """What is wanted, within bounds."""
        detached = consumer.detached
        if detached:
            self._check_detached(consumer, request)
        rows_max = DETACHED_ROWS_MAX if detached else ROWS_MAX
        return WaitingPull(
            consumer,
            correlation,
            rows_max=min(max(request.rows_max, 1), rows_max),
            size_max=min(max(request.size_max, 1), SIZE_MAX),
            cold=request.cold and not detached,
            lease_ms=request.lease_ms if detached else 0,
            key=randbits(KEY_BITS) if detached else 0,
        )

    def _check_detached(self, consumer: ConsumerSession, request: Pull) -> None:
        out = max(len(group.lane.leases) for group in consumer.groups)
        if out >= DETACHED_LEASES_MAX:
            raise OverLimit(f"{out} leases of the group are out: settle some of them first")
        detached_ms(self._groups.now(), request.lease_ms)

    def grew(self, topic_id: int, end: int) -> None:
        """More messages of a topic are safe."""
        groups = self._groups.by_topic.get(topic_id)
        if groups is None:
            return
        for group in groups.values():
            group.lane.grow(end)
            if group.waiting_pulls:
                self.feed(group)

    def feed(self, group: ConsumerGroup) -> None:
        """Give a group's ready rows to whoever waits, in order."""
        while group.waiting_pulls and group.lane.ready():
            for waiting in list(group.waiting_pulls):
                if self._serve(waiting):
                    break
                if self._consume_limits.allowance(group, waiting.consumer, 1, 1).alone:
                    continue
                if (
                    admit(waiting.consumer) is PoisonIsolation.ANYTHING
                    and not group.lane.poison.rows
                ):
                    return  # What looked ready could not be read; it was accounted for.
            else:
                return

    def also(self, consumer: ConsumerSession, group: ConsumerGroup) -> None:
        """A consumer takes part in one more group: its waiting pulls wait for that one too."""
        waiting = {id(w): w for other in consumer.groups for w in other.waiting_pulls}
        group.waiting_pulls.extend(w for w in waiting.values() if w.consumer is consumer)

    def forget(self, consumer: ConsumerSession) -> None:
        """The consumer is gone: its pulls wait no more."""
        for group in consumer.groups:
            for waiting in [w for w in group.waiting_pulls if w.consumer is consumer]:
                self._finish(waiting)

    def refuse(self, group: ConsumerGroup, error: TernError) -> None:
        """The group is gone: tell everybody who waits for it."""
        self._consume_limits.forget(group)
        for waiting in list(group.waiting_pulls):
            self._finish(waiting)
            waiting.consumer.peer.fail(_PULL, waiting.correlation, error)

    def stop(self) -> None:
        """Answer every waiting pull: nothing more comes from here."""
        for group in self._groups:
            for waiting in list(group.waiting_pulls):
                self._finish(waiting)
                error = Unavailable("the broker is stopping; connect again in a moment")
                waiting.consumer.peer.fail(_PULL, waiting.correlation, error)

    # -- choosing rows

    def _serve(self, waiting: WaitingPull) -> bool:
        """Is this pull answered, or going to be? Whatever happens it does not stay unanswered,
        and the pulls behind it get their turn."""
        try:
            return self._serve_rows(waiting)
        except Exception as bug:
            self._failed_by(bug, waiting)
            return True

    def _failed_by(self, bug: Exception, waiting: WaitingPull) -> None:
        BUGS.report(bug, command="PULL")
        self._finish(waiting)
        waiting.consumer.peer.fail(_PULL, waiting.correlation, Unavailable(NOT_ANSWERED))

    def _serve_rows(self, waiting: WaitingPull) -> bool:
        consumer = waiting.consumer
        admission = admit(consumer)
        if admission is PoisonIsolation.NOTHING:
            return False
        if isinstance(admission, ConsumerGroup):
            return self._serve_suspect(waiting, admission)
        rows_left, size_left = waiting.rows_max, waiting.size_max
        handouts: list[Handout] = []
        groups = consumer.groups
        for step in range(len(groups)):
            group = groups[(consumer.turn + step) % len(groups)]
            if group.deleted or not group.lane.ready():
                continue
            if rows_left <= 0 or size_left <= 0:
                break
            allowed = self._consume_limits.allowance(group, consumer, rows_left, size_left)
            if allowed.rows <= 0:
                self._feed_later(group, allowed.wait_s)
                continue
            handout, rows, size = self._picker.take(group, waiting, allowed.rows, allowed.size)
            if handout is not None:
                self._consume_limits.took(group, consumer, rows, handout.slices)
                handouts.append(handout)
                rows_left -= rows
                size_left -= size
        if not handouts:
            return False
        consumer.turn += 1
        self._finish(waiting)
        self._answer(waiting, handouts)
        return True

    def _serve_suspect(self, waiting: WaitingPull, group: ConsumerGroup) -> bool:
        handout = self._picker.take_suspect(group, waiting)
        if handout is None:
            return False
        note_alone(waiting.consumer, group, handout.lease)
        self._consume_limits.took(group, waiting.consumer, 1, handout.slices)
        self._finish(waiting)
        self._answer(waiting, [handout])
        return True

    def _feed_later(self, group: ConsumerGroup, wait_s: float) -> None:
        """A limit is used up until then; whoever waits shall not have to ask again."""
        if wait_s <= 0:
            return
        known = self._fed_later.get(group)
        if known is not None:
            if known.when() <= self._loop.time() + wait_s:
                return
            known.cancel()
        self._fed_later[group] = self._loop.call_later(wait_s, self._feed_now, group)

    def limited(self, group: ConsumerGroup) -> bool:
        """Does a pull wait until there is room below a limit?"""
        return bool(group.waiting_pulls) and group in self._fed_later

    def _feed_now(self, group: ConsumerGroup) -> None:
        self._fed_later.pop(group, None)
        if not group.deleted:
            self.feed(group)

    # -- answering

    def _answer(self, waiting: WaitingPull, handouts: list[Handout]) -> None:
        if any(handout.group.order is not None for handout in handouts):
            self._spawn(waiting, self._answer_known(waiting, handouts))
        else:
            self._answer_read(waiting, handouts)

    async def _answer_known(self, waiting: WaitingPull, handouts: list[Handout]) -> None:
        """When these leases cannot be forgotten any more, those that are not over by then."""
        try:
            await self._hooks.progress_durable()
        except TernError as error:
            waiting.consumer.peer.fail(_PULL, waiting.correlation, error)
            return
        self._answer_read(waiting, [h for h in handouts if h.lease in h.group.lane.leases])

    def _answer_read(self, waiting: WaitingPull, handouts: list[Handout]) -> None:
        entries = [piece.entry for handout in handouts for piece in handout.slices]
        below = self._hooks.cold_below() if waiting.cold else None
        if below is not None and not _plain(handouts):
            below = None
        if below is not None and entries and entries[0].offset < below:
            self._spawn(waiting, self._answer_cold(waiting, handouts))
            return
        batches = None
        failed_before = any(handout.failure_notes for handout in handouts)
        texts = self._failure_texts
        try:
            if not failed_before or all(texts.at_hand(h.failures()) for h in handouts):
                batches = self._fetcher.now(entries)
        except Corrupt:
            pass  # The thread finds out which ones.
        if batches is not None:
            if failed_before:
                handouts = [_explained(h, texts.in_memory(h.failures())) for h in handouts]
            self._send(waiting, handouts, batches)
            return
        if below is not None:
            self._spawn(waiting, self._answer_cold(waiting, handouts))
        else:
            self._spawn(waiting, self._answer_later(waiting, handouts, entries))

    def _spawn(self, waiting: WaitingPull, work: Coroutine[Any, Any, None]) -> None:
        async def answered() -> None:
            try:
                await work
            except Exception as bug:
                self._failed_by(bug, waiting)

        task = self._loop.create_task(answered())
        self._reading.add(task)
        task.add_done_callback(self._reading.discard)

    async def _answer_cold(self, waiting: WaitingPull, handouts: list[Handout]) -> None:
        """The leases now; the bytes are a replica's business."""
        handouts = [_explained(h, await self._failure_texts.read(h.failures())) for h in handouts]
        left: list[LeftOut] = []
        for handout in handouts:
            envelopes = Envelopes(handout.lease, handout.group.topic_id, errors=handout.errors)
            left += [envelopes.left_out(piece) for piece in handout.slices]
        head = DELIVERED.pack(0, len(left), 0)
        waiting.consumer.peer.answer(_PULL, waiting.correlation, head, msgspec.msgpack.encode(left))

    async def _answer_later(
        self, waiting: WaitingPull, handouts: list[Handout], entries: list[ConsumeEntry]
    ) -> None:
        handouts = [_explained(h, await self._failure_texts.read(h.failures())) for h in handouts]
        try:
            batches = self._fetcher.now(entries) or await self._fetcher.later(entries)
        except (Unavailable, DiskFailed) as error:
            self._cannot_read(waiting, error)
            return
        except TernError as error:
            log.error("stored messages cannot be read", reason=error.message)
            await self._answer_readable(waiting, handouts)
            return
        self._send(waiting, handouts, batches)

    async def _answer_readable(self, waiting: WaitingPull, handouts: list[Handout]) -> None:
        """Read one by one; what is damaged is lost and counted, the rest is handed out."""
        batches: list[Buffer] = []
        kept: list[Handout] = []
        for handout in handouts:
            slices: list[Slice] = []
            for piece in handout.slices:
                try:
                    batches += await self._fetcher.later([piece.entry])
                    slices.append(piece)
                except (Unavailable, DiskFailed) as error:
                    self._cannot_read(waiting, error)
                    return
                except TernError as error:
                    self._lose(handout.group, piece, error)
            kept.append(handout._replace(slices=slices))
        self._send(waiting, kept, batches)

    def _cannot_read(self, waiting: WaitingPull, error: TernError) -> None:
        """Not lost: another server has them, or the disk answered with an error and may read them
        the next time. They come again when the lease is over."""
        if isinstance(error, DiskFailed):
            log.error("stored messages cannot be read now", reason=error.message)
            error = Unavailable(f"stored messages cannot be read now, try again: {error.message}")
        waiting.consumer.peer.fail(_PULL, waiting.correlation, error)

    def _lose(self, group: ConsumerGroup, piece: Slice, error: TernError) -> None:
        base = piece.entry.base_sequence
        log.error(
            "messages lost to damage",
            topic=group.topic,
            group=group.name,
            sequence=base,
            reason=error.message,
        )
        for first, end in piece.selection:
            self._groups.write(group, group.lane.lose(base + first, base + end))

    def _send(self, waiting: WaitingPull, handouts: list[Handout], batches: list[Buffer]) -> None:
        if waiting.key and waiting.consumer.peer.closed:
            self._take_back(handouts)
            return
        buffers: list[Buffer] = [NOTHING]
        count = 0
        index = 0
        for handout in handouts:
            envelopes = Envelopes(
                handout.lease,
                handout.group.topic_id,
                alone=handout.alone,
                errors=handout.errors,
                picks=waiting.consumer.picks,
            )
            for piece in handout.slices:
                batch = batches[index]
                index += 1
                kept = self._unexpired(handout, piece, batch) if may_expire(batch) else piece
                if kept is not None:
                    buffers += envelopes.wrap(kept, batch)
                    count += 1
        buffers[0] = DELIVERED.pack(count, 0, waiting.key)
        waiting.consumer.peer.answer(_PULL, waiting.correlation, *buffers)

    def _take_back(self, handouts: list[Handout]) -> None:
        """Nobody will ever hear of these leases."""
        for handout in handouts:
            lease = handout.group.lane.leases.get(handout.lease)
            if lease is not None:
                back = handout.group.lane.give_back(lease.id, *lease.rows.bounds())
                self._groups.write(handout.group, back.changes)
                self.feed(handout.group)

    def _unexpired(self, handout: Handout, piece: Slice, batch: Buffer) -> Slice | None:
        """Without the rows whose time is over; those die instead of being handed out."""
        over = RangeSet(expired_rows(BatchView(batch), self._groups.now_ms()))
        gone = [part for first, end in piece.selection for part in over.overlap(first, end)]
        if not gone:
            return piece
        base = piece.entry.base_sequence
        self._hooks.on_expired(
            handout.group, handout.lease, [(base + a, base + b) for a, b in gone]
        )
        rows = [row for first, end in piece.selection for row in range(first, end)]
        kept = RangeSet((row, row + 1) for row in rows if row not in over)
        attempts = piece.attempts and [
            attempt for row, attempt in zip(rows, piece.attempts, strict=True) if row not in over
        ]
        return Slice(piece.entry, list(kept), attempts) if kept.count else None

    # -- waiting

    def _expire(self, waiting: WaitingPull) -> None:
        if not waiting.done:
            self._finish(waiting)
            waiting.consumer.peer.answer(_PULL, waiting.correlation, NOTHING)

    def _finish(self, waiting: WaitingPull) -> None:
        """The pull is answered, one way or the other."""
        if waiting.done:
            return
        waiting.done = True
        waiting.consumer.pulls -= 1
        if waiting.timer is not None:
            waiting.timer.cancel()
            for group in waiting.consumer.groups:
                if waiting in group.waiting_pulls:
                    group.waiting_pulls.remove(waiting)


def _plain(handouts: list[Handout]) -> bool:
    """Nobody has to look into the messages here, and READ finds them by the name of their topic."""
    return not any(
        handout.alone
        or handout.group.filter is not None
        or handout.group.order is not None
        or handout.group.ranks is not None
        or handout.group.beside
        for handout in handouts
    )


def _explained(handout: Handout, known: dict[FailureNote, Failed]) -> Handout:
    """With why its rows failed before, as far as that is known."""
    if not known:
        return handout
    errors = [(a, b, *known[note]) for a, b, note in handout.failure_notes if note in known]
    return handout._replace(errors=errors)
