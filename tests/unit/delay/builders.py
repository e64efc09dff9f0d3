"""A delay server's store and engine without threads and sockets, on a simulated disk."""

from pathlib import Path

import numpy as np

from ternmq.batch.check import check_incoming, describe_stored
from ternmq.batch.encoder import Origin, Outgoing, encode_messages
from ternmq.batch.view import BatchView
from ternmq.core.ids import ProducerId
from ternmq.core.units import HOUR_MS
from ternmq.delay.dispatching.collect import BODIES_SIZE, Collected, collect
from ternmq.delay.formats.decision import Decision, DecisionKind
from ternmq.delay.formats.paths import DelayPaths
from ternmq.delay.store.hour_owners import FollowingStore
from ternmq.delay.store.journal import Deciding
from ternmq.delay.timing.dispatch_work import DispatchWork
from ternmq.delay.timing.engine import Engine
from ternmq.delay.timing.scheduler import look_ahead_ms
from ternmq.storage.log.append import Append
from ternmq.testing import TurnedClock
from ternmq.testing.disk import SimulatedDisk

START_MS = 1_800_000_000_000
TOPICS = {"t": 1, "u": 2, "v": 3}


class Bench:
    """One data directory; the test does what the threads would do."""

    def __init__(
        self, *, hour_ms: int = HOUR_MS, suffix: bool = False, disk: SimulatedDisk | None = None
    ) -> None:
        self.disk = disk or SimulatedDisk()
        self.clock = TurnedClock(START_MS)
        self.hour_ms = hour_ms
        self.suffix = suffix
        self._sent = 0
        self._numbers = 0
        self.start()

    def start(self) -> None:
        self.following = FollowingStore.open(
            self.disk,
            DelayPaths(Path("/delay")),
            clock=self.clock,
            hour_ms=self.hour_ms,
            segment_size=2**22,
            min_free=0,
            suffix=self.suffix,
        )
        self.store = self.following.store
        if not self.suffix:
            self.begin()

    def begin(self) -> None:
        """Serve what the store has; a member comes to lead before."""
        self.leading = self.following.lead()
        self.engine = Engine(self.leading, hour_ms=self.hour_ms, fragments=8)
        self.engine.tick(self.clock.now_ms(), self.clock.monotonic())  # Rates count from here.

    def kill(self) -> None:
        """kill -9, and a new start."""
        self.disk.restart()
        self.start()

    def send(self, dues: list[int], topic: str = "t", size: int = 0) -> None:
        """One batch; a body is its due time, as text, filled up with zeros."""
        rows = [Outgoing(body=b"%d" % due + bytes(size), due_at_ms=due) for due in dues]
        origin = Origin(topic=topic, app="shop", producer=ProducerId(START_MS, 1))
        batch = encode_messages(rows, origin=origin, first_sequence=self._sent)
        check_incoming(batch)
        self.store_batch(batch, topic)
        self._sent += len(rows)

    def store_batch(self, batch: bytearray, topic: str = "t") -> None:
        """As it is, whatever the door would say."""
        incoming = describe_stored(batch)
        append = Append(
            batch=batch,
            topic_id=TOPICS[topic],
            count=incoming.row_count,
            received_at_ms=self.clock.now_ms(),
            producer=incoming.producer,
            first_sequence=incoming.first_sequence,
        )
        messages = self.store.wal.messages
        staged = messages.stage([append])
        messages.write(staged)
        messages.commit(staged)

    def prepare(self) -> None:
        """Schedule what was sent, load what is near."""
        self.schedule()
        ahead = look_ahead_ms(self.hour_ms)
        near = self.engine.near
        while hour := near.wanted(self.clock.now_ms() + ahead):
            if hour.index is None:
                near.begin(hour, hour.book or self.leading.read_book(hour.start, hour.rows))
            assert hour.index is not None
            near.loaded(hour, self.leading.load(hour.start, hour.index.end))

    def schedule(self) -> None:
        """Everything that is safe lies in its hours."""
        while self.engine.hours.scheduled_to < self.store.messages.safe_offset:
            self.engine.scheduled(self.leading.schedule(self.engine.near.starts()))

    def tick(self, seconds: float = 0.1) -> int:
        self.clock.turn(seconds)
        return self.engine.tick(self.clock.now_ms(), self.clock.monotonic())

    def collect(self, work: DispatchWork, size_max: int = BODIES_SIZE) -> Collected:
        places = self.engine.places(work.hour, work.rows)
        found = collect(self.store, places, ProducerId(START_MS, 2), self._numbers, size_max)
        self._numbers += len(work.rows)
        if len(found.left):
            self.engine.leave(work, found.left)
        if len(found.unreadable):
            self.engine.set_aside(work, found.unreadable)
        return found

    def intend(self, work: DispatchWork, rows: np.ndarray) -> Decision:
        intent = Decision(
            kind=DecisionKind.INTENT,
            at_ms=self.clock.now_ms(),
            topic_id=work.topic_id,
            rows=rows,
            group="main",
        )
        self.decide(work.hour, intent)
        self.engine.ready.done(work.fragment)
        return intent

    def decide(self, hour: int, decision: Decision) -> None:
        item = Deciding(hour, decision)
        self.store.decide([item])
        assert item.error is None
        self.engine.decided(item, self.clock.now_ms())

    def next(self) -> DispatchWork | None:
        return self.engine.next_work(self.clock.now_ms())

    def send_out(self, size_max: int = BODIES_SIZE) -> list[int]:
        """Everything that is ready, to a broker that takes it: the due times, in order."""
        dues: list[int] = []
        while (work := self.next()) is not None:
            found = self.collect(work, size_max)
            if found.batch is None:
                self.engine.ready.done(work.fragment)
                continue
            view = BatchView(found.batch)
            dues += [int(view.body(row).rstrip(b"\0")) for row in range(view.count)]
            intent = self.intend(work, found.rows)
            done = Decision(kind=DecisionKind.DONE, at_ms=self.clock.now_ms(), value=intent.offset)
            self.decide(work.hour, done)
        return dues

    def checkpoint(self) -> None:
        for hour, gone in self.engine.leaving(self.clock.now_ms()):
            self.decide(hour, gone)
        self.leading.settle()
        now = self.engine.snapshot(self.clock.now_ms())
        self.store.checkpoint(now)
        self.engine.hours.dropped(self.leading.remove(now.dropping))

    def ledger(self) -> tuple[int, int, int, int]:
        """accepted, pending, dispatched, cancelled of all topics."""
        lines = self.engine.ledger().values()
        sums = [sum(line[at] for line in lines) for at in range(4)]
        assert sums[0] == sum(sums[1:])
        return sums[0], sums[1], sums[2], sums[3]
