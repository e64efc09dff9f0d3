"""Two years of a delay server on a disk that tears, fails and loses power (Q7, Q8, R7, D12).

Every seed is one life of a data directory: sends, cancels, new times, two broker groups that come,
go and lose answers, a clock that is turned and set, kills between any two steps and power cuts in
the middle of any write. At every delivery and at the end:

- no message reaches a broker twice, whichever group and however often it is repeated;
- none before it is due, none that was cancelled;
- none that was acknowledged is missing when two years are over;
- the ledger adds up after every step and every start.
"""

import os
from pathlib import Path
from random import Random

import numpy as np
import pytest

from ternmq.batch.check import check_incoming
from ternmq.batch.encoder import Origin, Outgoing, encode_messages
from ternmq.batch.view import BatchView
from ternmq.core.errors import DiskFailed, DiskFull, TernError
from ternmq.core.ids import ProducerId
from ternmq.core.units import DAY_MS, HOUR_MS, MINUTE_MS
from ternmq.delay.dispatching.collect import collect
from ternmq.delay.formats.decision import Decision, DecisionKind
from ternmq.delay.formats.paths import DelayPaths
from ternmq.delay.hours.decision_book import CANCELLED, PENDING
from ternmq.delay.hours.hour import NEVER, Hour
from ternmq.delay.operations.listing import search
from ternmq.delay.store.hour_owners import FollowingStore, LeadingStore
from ternmq.delay.store.journal import Deciding
from ternmq.delay.store.store import DelayStore
from ternmq.delay.timing.engine import Engine
from ternmq.delay.timing.scheduler import look_ahead_ms
from ternmq.storage.log.append import Append
from ternmq.storage.messages.producers import durable_start
from ternmq.testing import TurnedClock
from ternmq.testing.disk import PowerCut, SimulatedDisk
from tests.simulation.delay.delay_model import Group, Message, Model

STEPS = 70
START_MS = 1_798_700_000_000  # A few hours before the end of 2026.
TWO_YEARS_MS = 731 * DAY_MS


class Killed(BaseException):
    """The process ends here; the operating system keeps what was written."""


class Life:
    """One data directory and what must come out of it."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.disk = SimulatedDisk(room=1_000)
        self.clock = TurnedClock(START_MS + self.random.randrange(DAY_MS))
        self.paths = DelayPaths(Path("/delay"))
        self.hour_ms = self.random.choice((MINUTE_MS, HOUR_MS, DAY_MS))
        self.model = Model(self.clock)
        self.groups = [Group("a", self.model), Group("b", self.model)]
        self.producer = ProducerId(START_MS, seed)
        self.next_number = 0
        self.unanswered: list[tuple[int, Decision]] = []
        self.lives = 0
        self.calm = False
        """Nothing fails any more."""
        self.leading: LeadingStore
        self.store: DelayStore
        self.engine: Engine
        self.start()

    # Lives

    def start(self) -> None:
        while True:
            try:
                if self.random.random() < 0.2:
                    self.disk.faults.cut_power(self.random.randint(1, 12))
                self.leading = self.open()
                self.store = self.leading.store
                self.disk.faults.clear()
                break
            except PowerCut:
                self.disk.crash(self.random.randrange(2**32))
            except TernError:
                self.disk.restart()
        assert self.store.report.sound
        self.engine = Engine(self.leading, hour_ms=self.hour_ms, fragments=4)
        self.lives += 1
        self.sender = ProducerId(durable_start(self.lives), 99)
        self.sequence = 0
        self.unanswered.clear()
        self.model.restarted(self.store.wal.producers)
        self.check()

    def open(self) -> LeadingStore:
        following = FollowingStore.open(
            self.disk,
            self.paths,
            clock=self.clock,
            hour_ms=self.hour_ms,
            segment_size=2**22,
            min_free=0,
        )
        return following.lead()

    def end(self, *, power: bool) -> None:
        if power:
            self.disk.crash(self.random.randrange(2**32))
        else:
            self.disk.restart()
        if self.random.random() < 0.1:
            self.hour_ms = self.random.choice((MINUTE_MS, HOUR_MS, DAY_MS))
        self.start()

    def check(self) -> None:
        """The ledger adds up, and with what the hours hold."""
        accepted = sum(self.store.wal.counts.ends.values())
        lines = self.engine.ledger().values()
        assert sum(line.accepted for line in lines) == accepted
        assert all(line.pending >= 0 for line in lines)
        if self.engine.hours.scheduled_to == self.store.wal.messages.safe_offset:
            pending = sum(hour.pending for hour in self.engine.hours.values())
            assert sum(line.pending for line in lines) == pending
        assert accepted >= self.model.accepted
        assert self.store.schedule_files.files_open <= 64

    # Steps

    def step(self) -> None:
        chance = self.random.random()
        if chance < 0.2:
            self.disk.faults.cut_power(self.random.randint(1, 30))
        elif chance < 0.25:
            self.disk.faults.fail_write(self.random.randint(1, 6), "full")
        elif chance < 0.28:
            self.disk.faults.fail_sync(self.random.randint(1, 6))
        try:
            self.act()
            self.check()
            if self.random.random() < 0.08:
                raise Killed
        except PowerCut:
            self.end(power=True)
        except Killed:
            self.end(power=False)
        if self.store.failed is not None:
            self.end(power=self.random.random() < 0.5)

    def act(self) -> None:
        chance = self.random.random()
        if chance < 0.35:
            self.send()
        elif chance < 0.55:
            self.run()
        elif chance < 0.7:
            self.change()
        elif chance < 0.9:
            self.turn()
            self.run()
        else:
            self.checkpoint()
        for group in self.groups:
            if self.random.random() < 0.1:
                group.up = not group.up

    def turn(self) -> None:
        kind = self.random.random()
        if kind < 0.5:
            self.clock.turn(self.random.random() * 2 * self.hour_ms / 1000)
        elif kind < 0.9:
            self.clock.turn(self.random.random() * 20 * DAY_MS / 1000)
        else:
            self.clock.jump(self.random.choice((-86_400, -3_600, 3_600)))

    def send(self) -> None:
        now = self.clock.now_ms()
        relative = self.random.random() < 0.4
        spread = self.random.choice((2_000, self.hour_ms, 5 * self.hour_ms, TWO_YEARS_MS))
        rows: list[Outgoing] = []
        for _ in range(self.random.randint(1, 6)):
            ahead = self.random.randrange(spread)
            given = self.random.random() < 0.2
            rows.append(
                Outgoing(
                    body=self.random.randbytes(self.random.randrange(200)),
                    born_at_ms=now,
                    due_at_ms=None if relative else now + ahead - 1_000,
                    delay_ms=ahead if relative else None,
                    explicit_id=self.random.randbytes(self.random.choice((5, 16)))
                    if given
                    else None,
                )
            )
        origin = Origin(topic=self.random.choice(("t", "u")), app="shop", producer=self.producer)
        batch = encode_messages(rows, origin=origin, first_sequence=self.next_number)
        incoming = check_incoming(batch)
        append = Append(
            batch=batch,
            topic_id=1 + (origin.topic == "u"),
            count=len(rows),
            received_at_ms=now,
            producer=incoming.producer,
            first_sequence=self.next_number,
        )
        view = BatchView(batch)
        messages = [
            Message(
                view.id_bytes(at),
                (row.due_at_ms or 0) if not relative else now + (row.delay_ms or 0),
            )
            for at, row in enumerate(rows)
        ]
        key = (incoming.producer, self.next_number, len(rows))
        self.next_number += len(rows)
        log = self.store.wal.messages
        self.model.sending(key, messages)
        staged = log.stage([append])
        try:
            log.write(staged)
        except DiskFull:
            log.abandon(staged)
            self.model.refused(key)
            return
        except DiskFailed:
            log.abandon(staged)
            return  # Nobody knows; the next life does.
        self.make_safe()
        log.commit(staged)
        self.model.stored(key)

    def make_safe(self) -> None:
        """What is written is on every disk where it has to be."""

    def run(self) -> None:
        """Everything that waits: scheduling, loading, ticks, dispatch."""
        self.schedule()
        while hour := self.engine.near.wanted(self.clock.now_ms() + look_ahead_ms(self.hour_ms)):
            self.load(hour)
            if self.store.failed is not None:
                return
        for _ in range(4):
            self.clock.turn(0.2)
            self.model.ticked(self.clock.now_ms())
            self.engine.tick(self.clock.now_ms(), self.clock.monotonic())
            while self.dispatch():
                pass
        if self.random.random() < 0.2:
            self.engine.near.unload(self.clock.now_ms() + 2 * look_ahead_ms(self.hour_ms))

    def schedule(self) -> None:
        while self.engine.hours.scheduled_to < self.store.wal.messages.safe_offset:
            before = self.engine.hours.scheduled_to
            step = self.leading.schedule(self.engine.near.starts())
            self.engine.scheduled(step)
            stuck = self.store.failed is None and self.engine.hours.scheduled_to == before
            assert not stuck or step.error is not None, f"nothing is scheduled behind {before}"
            if self.store.failed is not None:
                return

    def load(self, hour: Hour) -> None:
        book = hour.book or self.leading.read_book(hour.start, hour.rows)
        if hour.index is None:
            self.engine.near.begin(hour, book)
        while not hour.loaded:
            assert hour.index is not None
            try:
                step = self.leading.load(hour.start, hour.index.end)
            except DiskFailed:
                return
            self.engine.near.loaded(hour, step)

    def decide(self, hour: int, decision: Decision) -> TernError | None:
        item = Deciding(hour, decision)
        self.store.decide([item])
        self.engine.decided(item, self.clock.now_ms())
        return item.error

    def dispatch(self) -> bool:
        """One work or one repeat; False when there is nothing to do or nobody to send to."""
        if self.store.failed is not None:
            return False
        repeats, self.unanswered = self.unanswered, []
        for hour, intent in [*repeats, *self.engine.near.unresolved]:
            self.repeat(hour, intent)
        self.engine.near.unresolved.clear()
        up = [group for group in self.groups if group.up]
        work = self.engine.next_work(self.clock.now_ms()) if up else None
        if work is None:
            return False
        group = self.random.choice(up)
        first, self.sequence = self.sequence, self.sequence + len(work.rows)
        found = collect(
            self.store,
            self.engine.places(work.hour, work.rows),
            self.sender,
            first,
            self.random.choice((100, 2**20)),
        )
        assert not len(found.unreadable)
        assert found.batch is not None
        if len(found.left):
            self.engine.leave(work, found.left)
        intent = Decision(
            kind=DecisionKind.INTENT,
            at_ms=self.clock.now_ms(),
            topic_id=work.topic_id,
            rows=found.rows,
            producer=(self.sender.start_ms, self.sender.random),
            first_sequence=first,
            group=group.name,
        )
        view = BatchView(found.batch)
        for row in range(view.count):
            self.model.message(view.id_bytes(row)).intended()
        error = self.decide(work.hour, intent)
        self.engine.ready.done(work.fragment)
        if error is not None:
            if self.store.failed is None:
                self.engine.give_back(work, found.rows, self.clock.now_ms())
            return False
        self.maybe_killed()
        self.hand_over(group, work.hour, intent, found.batch)
        return True

    def repeat(self, hour: int, intent: Decision) -> None:
        if not self.engine.is_open(hour, intent):
            return
        places = self.engine.places(hour, intent.rows)
        found = collect(
            self.store, places, ProducerId(*intent.producer), intent.first_sequence, None
        )
        assert found.batch is not None
        group = next(group for group in self.groups if group.name == intent.group)
        self.hand_over(group, hour, intent, found.batch)

    def hand_over(self, group: Group, hour: int, intent: Decision, batch: bytearray) -> None:
        chance = self.random.random()
        if not group.up:
            self.unanswered.append((hour, intent))
            return
        if chance < 0.05 and not group.knows(batch):
            if chance < 0.03:
                self.engine.paused.refused(intent.topic_id, self.clock.monotonic())
            if self.decide(
                hour, Decision(kind=DecisionKind.RELEASED, at_ms=0, value=intent.offset)
            ):
                self.unanswered.append((hour, intent))
            return
        group.publish(batch)
        self.engine.paused.taken(intent.topic_id)
        self.maybe_killed()
        if chance < 0.15:
            self.unanswered.append((hour, intent))  # The answer got lost.
            return
        if self.decide(hour, Decision(kind=DecisionKind.DONE, at_ms=0, value=intent.offset)):
            self.unanswered.append((hour, intent))  # Could not be written: again.

    def maybe_killed(self) -> None:
        if self.random.random() < 0.03:
            raise Killed

    def change(self) -> None:
        """Cancel or move some message, as the server does it."""
        message = self.model.any(self.random)
        if message is None:
            return
        self.schedule()
        for hour in list(self.engine.hours.values()):
            found = search(self.store, hour.start, hour.length, [message.id])
            for row in found[message.id].rows:
                self.engine.near.requested.add(hour.start)
                self.load(hour)
                self.engine.near.requested.clear()
                if hour.loaded:
                    self.change_row(hour, row.row, row.due_ms, row.topic_id, message)
                return
        if self.store.failed is None:
            assert message.delivered or message.cancel_asked

    def change_row(
        self, hour: Hour, row: int, due_ms: int, topic_id: int, message: Message
    ) -> None:
        book = hour.book
        assert book is not None
        if book.state(row) != PENDING:
            if book.state(row) == CANCELLED:
                assert message.cancel_asked
            return
        rows = book.hold(np.array([row], np.uint32), NEVER)
        cancel = self.random.random() < 0.5
        new_due = self.clock.now_ms() + self.random.choice((0, 5_000, 3 * DAY_MS, 300 * DAY_MS))
        decision = Decision(
            kind=DecisionKind.CANCELLED if cancel else DecisionKind.MOVED,
            at_ms=0,
            topic_id=topic_id,
            rows=rows,
            value=0 if cancel else new_due,
        )
        message.asked(None if cancel else new_due)
        error = self.decide(hour.start, decision)
        if error is None:
            message.done(None if cancel else new_due)
        elif self.store.failed is None:
            message.not_done()
            self.engine.undecided(hour, rows, book.due_of(row, due_ms))

    def checkpoint(self) -> None:
        self.schedule()
        for start, gone in self.engine.leaving(self.clock.now_ms()):
            self.decide(start, gone)
        try:
            self.leading.settle()
            now = self.engine.snapshot(self.clock.now_ms())
            self.store.checkpoint(now)
            if self.store.known is now:
                self.engine.hours.dropped(self.leading.remove(now.dropping))
                self.store.checkpoints.trim()
        except (DiskFull, DiskFailed):
            pass

    # The end

    def finish(self) -> None:
        """All brokers are there, no more faults: two years pass."""
        self.disk.faults.clear()
        for group in self.groups:
            group.up = True
        limit = self.clock.now_ms() + TWO_YEARS_MS + 310 * DAY_MS
        while True:
            try:
                self.disk.faults.clear()
                self.run()
                if self.random.random() < 0.2:
                    self.checkpoint()
                    self.check()
                left = [hour for hour in self.engine.hours.values() if hour.pending]
                if not left and not self.unanswered:
                    break
                assert self.clock.now_ms() < limit, "something never came"
                next_due = min((hour.next_due for hour in left), default=0)
                wheel_due = self.engine.wheel.next_due()
                next_due = min(next_due, NEVER if wheel_due is None else wheel_due)
                ahead = max(1_000, next_due - self.clock.now_ms())
                self.clock.turn(min(ahead, 40 * DAY_MS) / 1000)
            except Killed:
                self.end(power=self.random.random() < 0.5)
        self.model.all_came()
        self.calm = True
        last = max([*self.engine.hours, self.clock.now_ms()]) + 2 * DAY_MS
        self.clock.turn((last - self.clock.now_ms()) / 1000)
        self.checkpoint()
        self.checkpoint()
        self.checkpoint()
        assert not self.engine.hours
        assert not self.store.schedule_files.found()
        assert not self.store.dispatch_files.found()
        self.end(power=True)
        assert not self.engine.hours
        lines = self.engine.ledger().values()
        assert sum(line.pending for line in lines) == 0


@pytest.mark.parametrize("seed", range(64))
def test_each_message_goes_out_exactly_once_and_never_early(seed: int) -> None:
    life = Life(seed)
    for _ in range(STEPS):
        life.step()
    life.finish()


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1_000, 1_000 + int(os.environ.get("SEEDS", "600"))))
def test_each_message_goes_out_exactly_once_in_many_lives(seed: int) -> None:
    life = Life(seed)
    for _ in range(3 * STEPS):
        life.step()
    life.finish()
