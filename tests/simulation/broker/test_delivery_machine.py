"""Order, retry, reset and crash together: Hypothesis plays consumers, operators and power cuts
against the real broker, and after every step the books are checked.

Two groups of one topic: `plain`, and `ordered`. A failure prints the steps that lead to it.
"""

import asyncio
import os
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ternmq.wire.messages.groups import GroupReset, GroupResetDone, Start
from ternmq.wire.messages.hello import Empty
from ternmq.wire.messages.pull import (
    Acked,
    Done,
    Extend,
    LeaseKey,
    Leave,
    Renew,
    Renewed,
    Settle,
)
from ternmq.wire.messages.read import GroupRetried, GroupRetry
from ternmq.wire.numbers import Command
from tests.simulation.broker.delivery_world import GRACE_MS, TOPIC, Caller, Consumer, Row, World

EXAMPLES = int(os.environ.get("SEEDS", "100"))
GROUPS = ("plain", "ordered")
CONSUMERS_MAX = 3
DRAIN_ROUNDS_MAX = 300

keys = st.lists(st.sampled_from(["a", "b", "c", None]), min_size=1, max_size=6)
picks = st.integers(0, 50)
names = st.sampled_from(GROUPS)


class Book:
    """What one group may not forget."""

    def __init__(self) -> None:
        self.buried: set[int] = set()  # Rejected, and answered.
        self.acked: set[int] = set()  # Counted as acked, in this generation and life.
        self.due: dict[int, int] = {}  # Retried: not before this moment.
        self.attempts: dict[int, int] = {}  # Retried: as which attempt.


class Delivery(RuleBasedStateMachine):
    """The steps."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.stored: list[tuple[str | None, bytes]] = []
        self.consumers: list[Consumer] = []
        self.books = {name: Book() for name in GROUPS}
        self.sessions = 0
        self.handles: list[tuple[str, Row, int]] = []

    # -- producers

    def _rows(self, keys: list[str | None]) -> list[tuple[str | None, bytes]]:
        first = self.world.number
        return [(key, b"%d" % (first + row)) for row, key in enumerate(keys)]

    @rule(keys=keys)
    def publish(self, keys: list[str | None]) -> None:
        rows = self._rows(keys)
        first = self.world.run(self.world.publish(self.world.batch(keys)))
        assert first == len(self.stored), "a sequence with a gap, or given out twice"
        self.stored += rows

    # -- consumers

    @precondition(lambda self: len(self.consumers) < CONSUMERS_MAX)
    @rule(name=names)
    def join(self, name: str) -> None:
        self.sessions += 1
        session = b"%016d" % self.sessions
        consumer = Consumer(name, session, Caller(session))
        self.world.run(self.world.join(consumer, held=[]))
        self.consumers.append(consumer)

    @precondition(lambda self: self.consumers)
    @rule(pick=picks, rows_max=st.integers(1, 8))
    def pull(self, pick: int, rows_max: int) -> None:
        consumer = self.consumers[pick % len(self.consumers)]
        rows = self.world.run(self.world.pull(consumer, rows_max))
        assert len(rows) <= rows_max
        for row in rows:
            self._delivered(consumer, row)
        consumer.held += rows

    def _delivered(self, consumer: Consumer, row: Row) -> None:
        lane, book = self._group(consumer.group).lane, self.books[consumer.group]
        assert (row.key, row.body) == self.stored[row.sequence]
        assert row.sequence not in lane.done, "handed out although it is settled"
        assert self._now() >= book.due.pop(row.sequence, 0), "a retry came too early"
        attempt = book.attempts.pop(row.sequence, row.attempt)
        assert row.attempt == attempt, "not the attempt that it waited for"
        if consumer.group == "ordered" and row.key is not None:
            for earlier in range(lane.start, row.sequence):
                if self.stored[earlier][0] == row.key:
                    assert earlier in lane.done, f"{row.sequence} came before {earlier}"

    def _say(self, pick: int, kind: Any, after_ms: int = -1) -> tuple[Consumer, Row, int] | None:
        holders = [consumer for consumer in self.consumers if consumer.held]
        if not holders:
            return None
        consumer = holders[pick % len(holders)]
        row = consumer.held.pop(pick % len(consumer.held))
        done = Done(
            lease=row.lease,
            first=row.sequence,
            end=row.sequence + 1,
            kind=kind,
            after_ms=after_ms,
            reason="because",
        )
        return consumer, row, self.world.run(self.world.done(consumer, done))

    @rule(pick=picks)
    def ack(self, pick: int) -> None:
        said = self._say(pick, "ack")
        if said is not None and said[2]:
            consumer, row, _ = said
            book = self.books[consumer.group]
            assert row.sequence not in book.acked, "finished twice"
            assert row.sequence in self._group(consumer.group).lane.done
            book.acked.add(row.sequence)
            book.due.pop(row.sequence, None)  # Late, while it waited.
            book.attempts.pop(row.sequence, None)

    @rule(pick=picks, after_ms=st.sampled_from([-1, 0, 10, 100, 1_000, 90_000]))
    def retry(self, pick: int, after_ms: int) -> None:
        said = self._say(pick, "retry", after_ms)
        if said is not None and said[2]:
            consumer, row, _ = said
            book = self.books[consumer.group]
            book.due[row.sequence] = self._now() + max(after_ms, 0)
            book.attempts[row.sequence] = row.attempt + 1

    @rule(pick=picks)
    def reject(self, pick: int) -> None:
        said = self._say(pick, "reject")
        if said is not None and said[2]:
            self.books[said[0].group].buried.add(said[1].sequence)

    @rule(pick=picks)
    def give_back(self, pick: int) -> None:
        self._say(pick, "back")

    # -- gateways

    @rule(name=names, rows_max=st.integers(1, 8), lease_ms=st.sampled_from([1, 300, 5_000, 80_000]))
    def pull_detached(self, name: str, rows_max: int, lease_ms: int) -> None:
        """Somebody comes, takes rows along and is gone; only handles are left."""
        self.sessions += 1
        session = b"%016d" % self.sessions
        consumer = Consumer(name, session, Caller(session), detached=True)
        self.world.run(self.world.join(consumer, held=[]))
        rows = self.world.run(self.world.pull(consumer, rows_max, lease_ms))
        for row in rows:
            self._delivered(consumer, row)
        self.handles += [(name, row, self.world.key) for row in rows]
        self._lose(consumer)

    @precondition(lambda self: self.handles)
    @rule(
        pick=picks, kind=st.sampled_from(["ack", "retry", "reject", "back"]), forged=st.booleans()
    )
    def settle_detached(self, pick: int, kind: Any, forged: bool) -> None:
        """It counts if, and only if, that lease has the row at this moment and the key is right."""
        name, row, key = self.handles[pick % len(self.handles)]
        done = Done(lease=row.lease, first=row.sequence, end=row.sequence + 1, kind=kind)
        settle = Settle(
            topic=TOPIC,
            group=name,
            keys=[LeaseKey(lease=row.lease, key=key ^ forged)],
            done=[done],
        )
        held = self._holds(name, row) and not forged
        answer = self.world.run(self.world.ask(Caller(b"g" * 16), Command.SETTLE, settle, Acked))
        self.world.run(self.world.settle())
        assert answer.settled == held, "counted although it is late, or the other way round"
        assert answer.late_rows == ([] if held else [(row.lease, row.sequence, row.sequence + 1)])
        if held:
            self._note(self.books[name], row, kind)

    def _note(self, book: Book, row: Row, kind: str) -> None:
        if kind == "ack":
            assert row.sequence not in book.acked, "finished twice"
            book.acked.add(row.sequence)
        elif kind == "reject":
            book.buried.add(row.sequence)
        elif kind == "retry":
            book.attempts[row.sequence] = row.attempt + 1

    @precondition(lambda self: self.handles)
    @rule(pick=picks, lease_ms=st.sampled_from([1, 300, 5_000, 80_000]))
    def extend_detached(self, pick: int, lease_ms: int) -> None:
        name, row, key = self.handles[pick % len(self.handles)]
        extend = Extend(
            topic=TOPIC,
            group=name,
            keys=[LeaseKey(lease=row.lease, key=key)],
            rows=[(row.lease, row.sequence, row.sequence + 1)],
            lease_ms=lease_ms,
        )
        held = self._holds(name, row)
        answer = self.world.run(self.world.ask(Caller(b"g" * 16), Command.EXTEND, extend, Acked))
        assert answer.settled == held
        if held:
            self.world.clock.turn((lease_ms - 1) / 1000)
            self.world.run(self.world.tick())
            assert self._holds(name, row), "it came back before its time"

    def _holds(self, name: str, row: Row) -> bool:
        lease = self._group(name).lane.leases.get(row.lease)
        return lease is not None and lease.rows.get(row.sequence) is not None

    @precondition(lambda self: self.consumers)
    @rule(pick=picks)
    def renew(self, pick: int) -> None:
        consumer = self.consumers[pick % len(self.consumers)]
        leases = sorted({row.lease for row in consumer.held})
        renew = Renew(subscription=consumer.subscription, leases=leases)
        lost = self.world.run(self.world.ask(consumer.peer, Command.RENEW, renew, Renewed)).lost
        consumer.held = [row for row in consumer.held if row.lease not in lost]

    @precondition(lambda self: self.consumers)
    @rule(pick=picks)
    def leave(self, pick: int) -> None:
        consumer = self.consumers.pop(pick % len(self.consumers))
        leave = Leave(subscription=consumer.subscription)
        self.world.run(self.world.ask(consumer.peer, Command.LEAVE, leave, Empty))

    @precondition(lambda self: self.consumers)
    @rule(pick=picks, back=st.booleans(), later_ms=st.sampled_from([0, GRACE_MS - 1, GRACE_MS * 2]))
    def lose_connection(self, pick: int, back: bool, later_ms: int) -> None:
        """It comes back with what it holds, in time or not, or never does."""
        consumer = self.consumers.pop(pick % len(self.consumers))
        self._lose(consumer)
        if not back:
            return
        self.turn(later_ms)
        consumer.peer = Caller(consumer.session)
        held = sorted({row.lease for row in consumer.held})
        kept = self.world.run(self.world.join(consumer, held=held))
        consumer.held = [row for row in consumer.held if row.lease in kept]
        self.consumers.append(consumer)

    def _lose(self, consumer: Consumer) -> None:
        async def lose() -> None:
            consumer.peer.closed = True
            self.world.parts.consumers.lost(consumer.peer)  # type: ignore[arg-type]

        self.world.run(lose())

    # -- operators and time

    @rule(milliseconds=st.sampled_from([1, 10, 64, 200, 1_000, 6_000, 90_000]))
    def turn(self, milliseconds: int) -> None:
        self.world.clock.turn(milliseconds / 1000)
        self.world.run(self.world.tick())

    @rule(name=names, at=st.sampled_from(["earliest", "latest", "sequence", "time"]), value=picks)
    def reset(self, name: str, at: Any, value: int) -> None:
        if self.world.group(name) is None:
            return
        if at == "time":
            value = self.world.clock.now_ms() - value * 1_000
        request = GroupReset(topic=TOPIC, group=name, start=Start(at=at, value=value))
        done = self.world.run(
            self.world.ask(self.world.producer, Command.GROUP_RESET, request, GroupResetDone)
        )
        lane, book = self._group(name).lane, self.books[name]
        target = done.to_sequence
        assert lane.next >= target
        assert lane.done.first_gap(lane.start) >= target, "something below is left"
        if done.again or target < lane.start or lane.start == target:
            book.acked = {row for row in book.acked if row < target and row >= lane.start}
        book.buried = {row for row in book.buried if row < target or row in lane.done}
        self._forget(book)

    @rule(name=names)
    def retry_what_failed(self, name: str) -> None:
        if self.world.group(name) is None:
            return
        self.world.run(
            self.world.ask(
                self.world.producer,
                Command.GROUP_RETRY,
                GroupRetry(topic=TOPIC, group=name),
                GroupRetried,
            )
        )
        assert not self._group(name).lane.waiting.count
        self._forget(self.books[name])

    @rule()
    def checkpoint(self) -> None:
        self.world.run(self.world.parts.timers.checkpoint())

    def _forget(self, book: Book) -> None:
        book.due.clear()
        book.attempts.clear()

    # -- crashes

    @rule(seed=st.none() | st.integers(0, 2**16), keys=st.none() | keys, away_ms=picks)
    def crash(self, seed: int | None, keys: list[str | None] | None, away_ms: int) -> None:
        """Power cut or kill, perhaps while something is being stored; leases wait for sessions."""
        rows = self._rows(keys) if keys else []

        async def end() -> None:
            sending = None
            if keys:
                sending = asyncio.ensure_future(self.world.publish(self.world.batch(keys)))
                await asyncio.sleep(0)
            await self.world.end(seed)
            if sending is not None:
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)

        self.world.run(end())
        self.world.clock.turn(away_ms / 1000)
        self.world.run(self.world.open())
        self._compare(rows)
        self._rejoin()

    def _compare(self, maybe: list[tuple[str | None, bytes]]) -> None:
        """Everything that was acknowledged is there; what was not, wholly or not at all."""
        topic = self.world.names.topic(TOPIC)
        end = 0 if topic is None else self.world.parts.store.consume.bounds(topic.id)[1]
        assert end in (len(self.stored), len(self.stored) + len(maybe)), "lost, or half of a batch"
        if end > len(self.stored):
            self.stored += maybe
        for name, book in self.books.items():
            group = self.world.group(name)
            done = () if group is None else group.lane.done
            book.acked = {row for row in book.acked if row in done}
            self._forget(book)

    def _rejoin(self) -> None:
        for consumer in self.consumers:
            consumer.peer = Caller(consumer.session)
            held = sorted({row.lease for row in consumer.held})
            kept = self.world.run(self.world.join(consumer, held=held))
            consumer.held = [row for row in consumer.held if row.lease in kept]

    # -- what is always true

    def _group(self, name: str) -> Any:
        group = self.world.group(name)
        assert group is not None
        return group

    def _now(self) -> int:
        return self.world.parts.groups.now()

    @invariant()
    def the_books_balance(self) -> None:
        for name, book in self.books.items():
            group = self.world.group(name)
            if group is None:
                continue
            line = group.lane.ledger()  # Asserts the sum.
            assert line.end == len(self.stored)
            assert line.acked >= 0
            for row in book.buried | book.acked:
                assert row in group.lane.done or row < line.start, f"{row} came back to life"
            assert line.dead >= len([row for row in book.buried if row >= line.start]) or (
                line.generation > 1
            )

    @invariant()
    def one_of_a_key_is_out(self) -> None:
        group = self.world.group("ordered")
        if group is None or group.order is None:
            return
        out: set[str] = set()
        held = [piece for lease in group.lane.leases.values() for piece in lease.rows]
        for first, end, _ in [*held, *group.lane.moving]:
            for sequence in range(first, end):
                key = self.stored[sequence][0]
                assert key is None or key not in out, f"two of {key} are out"
                out.add(key or "")

    # -- the end

    def teardown(self) -> None:
        try:
            for consumer in list(self.consumers):
                self._lose(consumer)
            self.consumers.clear()
            for name in GROUPS:
                if self.world.group(name) is not None:
                    self._drain(name)
        finally:
            self.world.close()

    def _drain(self, name: str) -> None:
        """Everything that is not settled is handed out, and then nothing is left."""
        self.join(name)
        [consumer] = self.consumers
        for _ in range(DRAIN_ROUNDS_MAX):
            line = self._group(name).lane.ledger()
            if not line.ready + line.in_flight + line.waiting_retry:
                break
            self.pull(0, 8)
            while consumer.held:
                self.ack(0)
            self.turn(6_000)
            self.the_books_balance()
        else:
            raise AssertionError(f"rows are never handed out: {self._group(name).lane.ledger()}")
        self.leave(0)


Delivery.TestCase.settings = settings(
    max_examples=EXAMPLES,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.timeout(60 + 2 * EXAMPLES)
class TestDelivery(Delivery.TestCase):  # type: ignore[misc, valid-type]
    """R5, R6, R12, R13, D8, J16: whatever happens, in whatever order."""
