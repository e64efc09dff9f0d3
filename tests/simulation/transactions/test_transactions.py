"""Half messages and detached transactions on a disk that tears and loses power (R11, Q9).

Every seed is one life of a data directory: transactions over several topics begin, commit, roll
back, are forgotten by their producers, asked about, dropped, ended by people; detached ones have
attempts that overtake each other and expire; requests are repeated, late and crossing; segments
roll and go. The broker's own `HalfBatches`, `HalfEndings`, `CheckBack` and
`Store` run; the test decides when a
round reaches the disk, and the power goes before any write of any round, checkpoint or start.
At every look:

- a committed message is visible once, at the place that was answered, with all of its transaction;
- one that was rolled back, or that nobody committed, is never visible;
- what was answered is true after every start: stored halves, outcomes, drops;
- nobody is told two different ends, and a commit by name has one answer.
"""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest

from ternmq.batch.check import check_incoming
from ternmq.batch.encoder import Origin, Outgoing, encode_messages
from ternmq.batch.half import HalfInfo, pack_info
from ternmq.batch.view import BatchView
from ternmq.broker.transactions.check_back import CheckBack, HalfSettings
from ternmq.broker.transactions.half_batches import HalfBatches
from ternmq.broker.transactions.half_endings import HalfEndings
from ternmq.broker.transactions.under_way import SafeHalf
from ternmq.core.clock import Clock
from ternmq.core.errors import Fenced, TernError, TransactionEnded, TransactionNotFound
from ternmq.core.ids import ProducerId
from ternmq.storage.config import StorageConfig
from ternmq.storage.log.append import Append
from ternmq.storage.messages.transactions import TransactionOutcome
from ternmq.storage.store import Store
from ternmq.testing import TurnedClock
from ternmq.testing.disk import PowerCut, SimulatedDisk
from ternmq.wire.frame import Frame
from ternmq.wire.messages.hello import Empty
from ternmq.wire.messages.transactions import DetachedEnd, HalfAction, HalfEnd
from ternmq.wire.numbers import Command
from ternmq.wire.record import pack
from tests.simulation.transactions.transaction_model import Half, Model, Place, Told
from tests.simulation.transactions.transaction_parts import (
    TOPICS,
    Door,
    Names,
    Producer,
    Rounds,
    Shelf,
)

STEPS = 90
CHECKS_MAX = 3
PARKED_MS, EXPIRES_MS = 600_000, 1_200_000


async def answered(start: Callable[[SafeHalf], Coroutine[Any, Any, Any] | None]) -> Any:
    """What a request is answered with, whichever way it takes."""
    safe = SafeHalf(asyncio.get_running_loop().create_future())
    return await (start(safe) or asyncio.shield(safe.future))


class Life:
    """One data directory, the broker on it, and what its clients were told."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.disk = SimulatedDisk(room=1_000)
        self.clock = TurnedClock()
        self.config = StorageConfig(
            flush="sync", segment_batches_max=self.random.choice((4, 12, 1000)), min_free=0
        )
        self.model = Model()
        self.epoch = self.number = 0
        self.tasks: set[asyncio.Task[None]] = set()
        self.start()

    # Lives

    def start(self) -> None:
        while True:
            self.epoch += 1
            if self.random.random() < 0.2:
                self.disk.faults.cut_power(self.random.randint(1, 12))
            try:
                self.store = Store.open(
                    self.disk,
                    Path("/data"),
                    clock=self.clock,
                    epoch=self.epoch,
                    config=self.config,
                )
                break
            except PowerCut:
                self.disk.crash(self.random.randrange(2**32))
        self.disk.faults.clear()
        assert self.store.report.sound, self.store.report
        self.rounds, self.producer, names = Rounds(self.store), Producer(), cast(Any, Names())
        self.endings = HalfEndings(
            names, self.store.halves, cast(Any, self.rounds), cast(Clock, self.clock)
        )
        self.transactions = HalfBatches(
            publisher=cast(Any, Door()),
            topics=names,
            under_way=self.endings.under_way,
            halves=self.store.halves,
            clock=cast(Clock, self.clock),
            slots=cast(Any, None),
            open_max=1_000,
        )
        self.check_back = CheckBack(
            half_endings=self.endings,
            halves=self.store.halves,
            fetcher=cast(Any, Shelf(self.store)),
            directory=names,
            now_ms=self.clock.now_ms,
            settings=HalfSettings(
                checks_max=CHECKS_MAX, parked_ms=PARKED_MS, expires_ms=EXPIRES_MS
            ),
        )
        self.ticking = False
        self.look()

    async def end(self, how: str) -> None:
        """The broker is closed or killed, or the power goes; then it starts again."""
        halves = self.store.halves
        open_before = {
            key: ({half.offset for half in one.halves}, one.dropped_at_ms)
            for key, one in halves.open.items()
        }
        outcomes = dict(halves.outcomes)
        for task in self.tasks:
            task.cancel()
        if self.tasks:
            await asyncio.wait(self.tasks)
        self.tasks.clear()
        if how == "close":
            try:
                self.store.close()
            except PowerCut:
                how = "power"
        if how == "power":
            self.disk.crash(self.random.randrange(2**32))
        else:
            self.disk.restart()
        self.start()
        self.compare(open_before, outcomes)

    def compare(
        self,
        open_before: dict[bytes, tuple[set[int], int]],
        outcomes: dict[bytes, TransactionOutcome],
    ) -> None:
        """A start knows everything that was safe; of the last round it may know more."""
        after = self.store.halves
        for key, outcome in outcomes.items():
            assert after.outcomes.get(key) == outcome
        for key, (offsets, dropped) in open_before.items():
            info = self.model.told[key].info
            if key in after.outcomes or isinstance(
                after.attempts(info.name).get(info.attempt), TransactionOutcome
            ):
                continue
            one = after.open[key]
            assert offsets <= {half.offset for half in one.halves}
            assert one.dropped_at_ms == dropped or not dropped

    # Steps

    async def step(self) -> None:
        if self.random.random() < 0.12:
            self.disk.faults.cut_power(self.random.randint(1, 8))
        try:
            self.act()
            await self.turns()
            if self.random.random() < 0.6:
                self.rounds.run()
                await self.turns()
            if self.random.random() < 0.1:
                self.look()
        except PowerCut:
            await self.end("power")
            return
        if self.store.messages.failed or self.random.random() < 0.06:
            await self.end(self.random.choice(("close", "kill", "power")))

    async def turns(self) -> None:
        """Let everybody go as far as they can without the disk."""
        for _ in range(self.random.choice((1, 3, 12))):
            await asyncio.sleep(0)
        for task in [task for task in self.tasks if task.done()]:
            self.tasks.discard(task)
            task.result()

    def act(self) -> None:
        chance = self.random.random()
        if chance < 0.3:
            self.begin(self.stage())
        elif chance < 0.5:
            self.begin(self.finish())
        elif chance < 0.62:
            self.begin(self.finish_detached())
        elif chance < 0.7:
            self.begin(self.repeat())
        elif chance < 0.76:
            self.begin(self.publish())
        elif chance < 0.9:
            self.pass_time()
        elif chance < 0.96:
            self.store.checkpoint()
        else:
            self.drop()

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.add(asyncio.get_running_loop().create_task(work))

    def pass_time(self) -> None:
        """Time passes; somebody of the application may be there, and may know."""
        self.clock.turn(self.random.choice((1, 7, 31, 300, 700)))
        peer = cast(Any, self.producer)
        if self.random.random() < 0.7:
            self.check_back.here(peer, Empty())
        else:
            self.check_back.lost(peer)
        if not self.ticking:
            self.ticking = True
            self.begin(self.tick())
        for question in self.producer.questions:
            one = self.model.told[b"T" + question.transaction]
            assert question.attempt <= CHECKS_MAX
            assert question.topics
            if self.random.random() < 0.5:
                self.begin(self.finish(one, source="check"))
        self.producer.questions.clear()

    async def tick(self) -> None:
        try:
            await self.check_back.tick()
        except TransactionEnded:
            pass  # Somebody else was faster.
        finally:
            self.ticking = False

    # What clients do

    def some(self, *, named: bool) -> Told | None:
        known = [one for one in self.model.told.values() if bool(one.info.name) == named]
        if known and self.random.random() < 0.7:
            return self.random.choice(known[-4:])
        return self.random.choice(known) if known else None

    def new(self) -> Told:
        if self.random.random() < 0.5:
            name = f"job-{self.random.randrange(4 + self.number // 40)}"
            info = HalfInfo(name=name, attempt=self.random.randint(0, 3))
        else:
            info = HalfInfo(
                transaction=self.random.randbytes(16),
                first_check_ms=self.random.choice((0, 0, 60_000)),
                checks_max=self.random.choice((0, 1)),
            )
        return self.model.told.setdefault(info.key, Told(info))

    async def stage(self) -> None:
        one = self.some(named=self.random.random() < 0.5) if self.random.random() < 0.5 else None
        one = one or self.new()
        topic = self.random.choice(list(TOPICS))
        first, rows = self.number, self.random.randint(1, 3)
        self.number += rows
        bodies = [b"%d" % number for number in range(first, first + rows)]
        batch = encode_messages(
            [Outgoing(body=body, born_at_ms=1, key="k") for body in bodies],
            origin=Origin(topic=topic, app="shop", producer=ProducerId(1, 2)),
            first_sequence=first,
            transaction=pack_info(one.info),
        )
        half = Half(topic, bodies, bytes(batch))
        one.halves.append(half)
        await self.send(one, half)

    async def repeat(self) -> None:
        """The same batch again: its answer was lost, or the network doubled it."""
        one = self.some(named=self.random.random() < 0.5)
        if one is not None and one.halves:
            await self.send(one, self.random.choice(one.halves))

    async def send(self, one: Told, half: Half) -> None:
        name, attempt = one.info.name, one.info.attempt
        ended = one.state or (name and self.model.is_committed(name))
        fenced = bool(name) and self.model.highest(name) > attempt
        frame = Frame(int(Command.HALF), 0, 0, bytearray(half.batch))
        try:
            await answered(partial(self.transactions.stage, cast(Any, self.producer), frame))
        except TransactionEnded as error:
            if one.info.name and self.model.is_committed(name):
                return
            one.said(str(error.details["state"]))
        except Fenced:
            assert name
        except TernError:
            assert self.store.messages.failed
        else:
            assert not ended, "a batch was taken by what had ended"
            assert not fenced, "a batch was taken from an attempt that is over"
            half.answered = True

    async def finish(self, one: Told | None = None, source: Any = "client") -> None:
        one = one or self.some(named=False)
        if one is None:
            return
        action: HalfAction = self.random.choice(("commit", "rollback"))
        one.commit_asked |= action == "commit"
        stored = bool(one.answered)
        end = HalfEnd(transaction=one.info.transaction, action=action, source=source)
        try:
            frame = Frame(int(Command.HALF_END), 0, 0, bytearray(pack(end)))
            answer = await answered(partial(self.endings.end, cast(Any, self.producer), frame))
        except TransactionEnded as error:
            assert error.details["state"] != _STATES[action], "refused what it is"
            one.said(str(error.details["state"]))
        except TransactionNotFound:
            assert not stored, "an answered half message is not known"
        except TernError:
            assert self.store.messages.failed
        else:
            one.said(answer.state)
            assert answer.state == _STATES[action]
            if action == "commit":
                one.committed(answer.placed)

    async def finish_detached(self) -> None:
        one = self.some(named=True)
        if one is None:
            return
        name, known = one.info.name, self.model.attempts(one.info.name)
        wanted = self.random.choice(([], [one.info.attempt], sorted(known)))
        action: HalfAction = self.random.choice(("commit", "commit", "rollback"))
        for attempt in wanted or range(4):
            if action == "commit":
                key = HalfInfo(name=name, attempt=attempt).key
                self.model.told.setdefault(
                    key, Told(HalfInfo(name=name, attempt=attempt))
                ).commit_asked = True
        highest, before = self.model.highest(name), self.model.is_committed(name)
        try:
            answer = await self.endings.end_detached(
                DetachedEnd(name=name, attempts=wanted, action=action)
            )
        except (TransactionEnded, TransactionNotFound, Fenced):
            return
        except TernError:
            assert self.store.messages.failed
            return
        if action == "rollback":
            assert not before or answer.state == "committed"
            return
        assert before or max(answer.attempts) >= highest, "a commit by an attempt that is over"
        self.model.name_committed(name, answer.attempts)
        for attempt in answer.attempts:
            self.model.attempts(name)[attempt].committed(answer.placed)

    async def publish(self) -> None:
        topic, body = self.random.choice(list(TOPICS)), b"%d" % self.number
        origin = Origin(topic=topic, app="shop", producer=ProducerId(1, 3))
        batch = encode_messages(
            [Outgoing(body=body, born_at_ms=1)], origin=origin, first_sequence=self.number
        )
        self.number += 1
        self.model.plain[body] = None
        append = Door().to_append(None, batch, check_incoming(batch), TOPICS[topic].id)

        def told(done: Append, error: TernError | None) -> None:
            if error is None:
                self.model.plain[body] = (topic, done.base_sequence)

        self.rounds.append(append, told)

    def drop(self) -> None:
        """Retention: the oldest segment goes, unless open transactions need it."""
        self.look()
        sealed = self.store.consume.sealed()
        hold = self.store.halves.hold_offset()
        if not sealed or (hold is not None and hold < sealed[0].end):
            return
        self.store.consume.trim(self.store.firsts_without(sealed[0]))
        self.store.drop_oldest(sealed[0].base)

    # What must be true

    def look(self) -> None:
        """Everything anybody can read, and the lines about what nobody can."""
        visible: dict[Place, bytes] = {}
        firsts: dict[str, int] = {}
        consume, messages = self.store.consume, self.store.messages
        for topic in TOPICS.values():
            at, end = consume.bounds(topic.id)
            firsts[topic.name] = at
            while at < end:
                entry = consume.entries(topic.id, at, rows_max=1, size_max=1)[0]
                assert entry.base_sequence == at
                view = BatchView(messages.read(entry.offset, entry.size))
                for row in range(entry.count):
                    visible[topic.name, at + row] = view.body(row)
                at += entry.count
        self.model.look(visible, firsts)
        rows = sum(one.rows for one in self.store.halves.open.values())
        assert sum(line.open + line.dropped for line in self.check_back.lines()) == rows
        for key, one in self.store.halves.open.items():
            told = self.model.told[key]
            assert not told.state, "it has ended, and it is open"
            assert sum(len(half.bodies) for half in told.halves if half.answered) <= one.rows


_STATES = {"commit": "committed", "rollback": "rolled_back"}


async def live(seed: int) -> None:
    try:
        life = Life(seed)
        for _ in range(STEPS):
            await life.step()
        await life.end("close")
    except Exception as error:
        raise AssertionError(f"seed {seed}: {error!r}") from error


@pytest.mark.parametrize("first", range(0, 100, 20))
async def test_transactions_keep_their_promises_through_crashes(first: int) -> None:
    """R11, Q9: 20 seeds a test; a failing seed is in the message."""
    for seed in range(first, first + 20):
        await live(seed)


@pytest.mark.long
@pytest.mark.timeout(1800)
async def test_transactions_keep_their_promises_through_many_more_crashes() -> None:
    for seed in range(1_000, 4_000):
        await live(seed)
