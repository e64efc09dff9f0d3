"""Sends rows with order keys: to the broker group of their slot, one batch at a time.

The slot of an order key says where it lies (`Placement.owner`). Per topic there is one line for
each broker group, with one batch under way at a time: the next one goes when the last is answered,
so nothing overtakes, whatever is repeated or refused. Batches are numbered for themselves, and a
broker stores none behind a later one.

A slot has one place at a time. Its rows wait aside, in no group's line, while it moves, while rows
of it are under way to the group that had it before, and for a moment after a broker has said that
it has it no more (`Moved`: certainly not stored; those rows come first). What waits behind a batch
ends at its own deadline, unsent (`Deadlines`). So whatever a producer
knows of a move, and whenever it learns it, the rows of a key are stored in the order of the calls.

Belongs to one event loop. Messages without order keys never come here.
"""

import asyncio
from functools import partial
from typing import Protocol

from ternmq.batch.encoder import Outgoing
from ternmq.client.config import ClientConfig
from ternmq.client.producing.accumulator import Accumulator, OpenBatch, Row, Waiter, row_size
from ternmq.client.producing.deadlines import Deadlines
from ternmq.client.producing.producer_batch import OnDone, ProducerBatch, SendWindow
from ternmq.client.producing.producer_id import ProducerIdentity
from ternmq.client.transport.attempts import Attempts
from ternmq.client.transport.cluster import Cluster
from ternmq.core.clock import Clock
from ternmq.core.errors import Closed, Moved, TernError, Unavailable
from ternmq.core.lifecycle import Background
from ternmq.core.slots import slot_of
from ternmq.wire.messages.order_keys import PlaceChange, Placed, Placement
from ternmq.wire.numbers import Command

PAUSE_S = 0.1
"""Until a slot is tried again that a broker says it does not have."""
TOPICS_KEPT_MAX = 4096


class Sends(Protocol):
    """What a producer does with batches."""

    loop: asyncio.AbstractEventLoop
    clock: Clock
    config: ClientConfig
    background: Background

    def make_batch(
        self,
        topic: str,
        open_batch: OpenBatch,
        on_done: OnDone,
        identity: ProducerIdentity | None = None,
    ) -> ProducerBatch: ...

    def window(self, open_batch: OpenBatch) -> SendWindow: ...

    def post_to(self, batch: ProducerBatch, broker_group: str) -> None: ...

    def answer(self, batch: ProducerBatch, error: TernError | None) -> None: ...


class Queue(Accumulator):
    """Rows of one topic that wait for one broker group; without one, aside."""

    __slots__ = ("group", "lines")

    def __init__(self, lines: "Lines", group: str) -> None:
        super().__init__(lines.topic)
        self.lines = lines
        self.group = group


class Lines:
    """The queues of one topic."""

    __slots__ = ("aside", "flying", "identity", "paused", "queues", "topic", "waiting")

    def __init__(self, topic: str, identity: ProducerIdentity) -> None:
        self.topic = topic
        self.identity = identity
        self.queues: dict[str, Queue] = {}
        self.aside = Queue(self, "")
        self.waiting: set[int] = set()
        """Slots of rows that wait aside."""
        self.flying: dict[int, str] = {}
        """Slots with rows under way, and to whom."""
        self.paused: dict[int, int] = {}
        """Slots that a broker has just refused; how many times this moment."""

    @property
    def all(self) -> list[Queue]:
        return [self.aside, *self.queues.values()]

    @property
    def idle(self) -> bool:
        return all(queue.idle for queue in self.all)


class OrderedSender:
    """Everything with order keys that one client sends."""

    def __init__(self, producer: Sends, cluster: Cluster) -> None:
        self._producer = producer
        self._cluster = cluster
        self._loop = producer.loop
        self._lines: dict[str, Lines] = {}
        self._forget_at = TOPICS_KEPT_MAX
        self._placement = Placement()
        self._asking: asyncio.Task[None] | None = None
        self._deadlines: Deadlines[Queue] = Deadlines(
            self._deadline, self._expired, producer.background
        )
        cluster.on_routes.append(producer.background.callback(self._look))

    def queue(self, topic: str, order_key: str) -> Queue:
        """Where the next row of this key waits."""
        lines = self._lines.get(topic)
        if lines is None:
            if len(self._lines) >= self._forget_at:
                self._lines = {name: kept for name, kept in self._lines.items() if not kept.idle}
                self._forget_at = max(TOPICS_KEPT_MAX, 2 * len(self._lines))
            lines = self._lines[topic] = Lines(topic, ProducerIdentity(self._producer.clock))
        self._look()
        return self._place(lines, slot_of(topic, order_key))

    def cut(self, queue: Queue) -> None:
        """Send the oldest open batch, if nothing of this queue is under way."""
        lines = queue.lines
        while queue.group and queue.open_batches and not queue.under_way:
            if self._deadline(queue.open_batches[0]) <= self._loop.time():
                self._expired(queue, queue.open_batches.popleft())
                continue
            open_batch = queue.open_batches.popleft()
            slots = {slot_of(lines.topic, key) for key in order_keys(open_batch)}
            lines.flying |= dict.fromkeys(slots, queue.group)
            queue.under_way += 1
            settled = partial(self._settled, queue, slots)
            batch = self._producer.make_batch(lines.topic, open_batch, settled, lines.identity)
            self._producer.post_to(batch, queue.group)
        if queue.open_batches:
            self._deadlines.watch(queue)

    # Where a slot's rows are.

    def _place(self, lines: Lines, slot: int) -> Queue:
        owner = self._placement.owner(slot)
        free = owner is not None and slot not in lines.paused
        if not free or owner is None or lines.flying.get(slot, owner) != owner:
            lines.waiting.add(slot)
            self._deadlines.watch(lines.aside)
            if not self._placement.owners:
                self._ask()
            return lines.aside
        queue = lines.queues.get(owner)
        if queue is None:
            queue = lines.queues[owner] = Queue(lines, owner)
        return queue

    def _look(self) -> None:
        """Routes are others: perhaps slots have moved."""
        placement = self._cluster.placement()
        if placement is not None and placement.version > self._placement.version:
            self._placement = placement
            for lines in self._lines.values():
                self._sort(lines, lines.all)

    def _sort(self, lines: Lines, queues: list[Queue]) -> None:
        """Every row of these queues to where its slot is now; of each slot in the same order."""
        open_batches = [open_batch for queue in queues for open_batch in queue.open_batches]
        for queue in queues:
            queue.open_batches.clear()
        lines.waiting.clear()
        for open_batch in open_batches:
            for key, row, waiter in zip(
                order_keys(open_batch), open_batch.rows, open_batch.waiters, strict=True
            ):
                queue = self._place(lines, slot_of(lines.topic, key))
                self._append(queue, open_batch, row, waiter)
        for queue in lines.queues.values():
            self.cut(queue)

    def _append(self, queue: Queue, before: OpenBatch, row: Row, waiter: Waiter) -> None:
        """Without changing since when it waits."""
        config, size = self._producer.config, row_size(row)
        open_batch = queue.open_batches[-1] if queue.open_batches else None
        if (
            open_batch is None
            or open_batch.opened_at != before.opened_at
            or len(open_batch.rows) >= config.batch_rows_max
            or open_batch.size + size > config.batch_size_max
        ):
            open_batch = OpenBatch(before.opened_at, before.born_at_ms, plain=False)
            queue.open_batches.append(open_batch)
        open_batch.rows.append(row)
        open_batch.waiters.append(waiter)
        open_batch.size += size
        open_batch.awaited = open_batch.awaited or waiter is not None

    # Answers.

    def _settled(
        self, queue: Queue, slots: set[int], batch: ProducerBatch, error: TernError | None
    ) -> None:
        lines = queue.lines
        queue.under_way -= 1
        for slot in slots:
            lines.flying.pop(slot, None)
        if isinstance(error, Moved) and self._loop.time() < batch.deadline:
            self._moved(lines, slots, batch.open_batch, error)
            return
        if batch.divisible(error):
            queue.open_batches.extendleft(reversed(batch.open_batch.halves()))
        else:
            self._producer.answer(batch, error)
        if slots & lines.waiting:
            self._sort(lines, [lines.aside])
        self.cut(queue)

    def _moved(self, lines: Lines, slots: set[int], open_batch: OpenBatch, error: Moved) -> None:
        """Not stored: these rows go first to wherever their slots are found to be."""
        for slot in slots:
            lines.paused[slot] = lines.paused.get(slot, 0) + 1
        lines.aside.open_batches.appendleft(open_batch)
        if error.version > self._placement.version:
            self._ask()
        self._sort(lines, lines.all)
        resume = self._producer.background.callback(self._resume)
        self._loop.call_later(PAUSE_S, resume, lines, slots)

    def _resume(self, lines: Lines, slots: set[int]) -> None:
        for slot in slots:
            lines.paused[slot] -= 1
            if not lines.paused[slot]:
                del lines.paused[slot]
        self._sort(lines, [lines.aside])

    # While rows wait.

    def _deadline(self, open_batch: OpenBatch) -> float:
        return self._producer.window(open_batch).deadline

    def _expired(self, queue: Queue, open_batch: OpenBatch) -> None:
        """A batch was never sent, and its time is over."""
        make = _behind if queue.group else _stuck
        self._give_up(queue.lines, open_batch, make(queue, len(open_batch.rows)))

    def _give_up(self, lines: Lines, open_batch: OpenBatch, error: TernError) -> None:
        done = partial(
            self._producer.make_batch, lines.topic, open_batch, lambda batch, error: None
        )
        self._producer.answer(done(lines.identity), error)

    def _ask(self) -> None:
        if self._asking is None or self._asking.done():
            self._asking = self._producer.background.task(self._ask_meta(), name="tern-slots")

    async def _ask_meta(self) -> None:
        """Ask which group has which slot; the first send with an order key assigns the slots."""
        attempts = Attempts()
        before = self._placement.version
        while self._placement.version <= before and any(
            lines.aside.open_batches or not attempts.failures for lines in self._lines.values()
        ):
            try:
                if not self._placement.owners:
                    await self._cluster.ask_meta(
                        Command.PLACE, PlaceChange(action="assign"), Placed
                    )
                await self._cluster.refresh()
                self._look()
            except TernError as error:
                if not error.retryable:
                    self._refuse_all(error)
            await attempts.wait()

    def _refuse_all(self, error: TernError) -> None:
        for lines in self._lines.values():
            open_batches = list(lines.aside.open_batches)
            lines.aside.open_batches.clear()
            for open_batch in open_batches:
                self._give_up(lines, open_batch, error)

    def give_up_all(self, error: TernError) -> None:
        """What is not under way."""
        for lines in self._lines.values():
            for queue in lines.all:
                while queue.open_batches:
                    self._give_up(lines, queue.open_batches.popleft(), error)

    async def stop(self) -> None:
        """Give up what is not under way."""
        self._deadlines.stop()
        if self._asking is not None and not self._asking.done():
            self._asking.cancel()
            await asyncio.wait([self._asking])
        self._refuse_all(Closed("the client was closed before the message was sent"))


def order_keys(open_batch: OpenBatch) -> list[str]:
    """Of its rows, which all have one."""
    return [row.order_key or "" for row in open_batch.rows if isinstance(row, Outgoing)]


def _stuck(queue: Queue, count: int) -> Unavailable:
    return Unavailable(
        f"{count} message(s) to {queue.topic!r} are not stored: the slots of their order keys are "
        "being moved and their broker group has not given them up in time; 'tern broker slots "
        "show' says which"
    )


def _behind(queue: Queue, count: int) -> Unavailable:
    return Unavailable(
        f"{count} message(s) to {queue.topic!r} are not stored: broker group {queue.group!r} has "
        "not answered in time about messages sent before them, and those with order keys go one "
        "batch after the other; 'tern broker list' says whether it runs",
        broker_group=queue.group,
    )
