"""A broker group as its stores see it: who has which bytes, who may lead, what was acknowledged.

The rules are those of replication, without network and timers: an acknowledgement needs every
member in sync, only a member in sync may lead, an epoch is one leadership. Disks tear and lose
power in the middle of any call.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

from ternmq.batch.encoder import Origin, Outgoing, encode_messages
from ternmq.batch.half import HalfInfo, pack_info
from ternmq.core.errors import DiskFailed, DiskFull
from ternmq.core.ids import ProducerId
from ternmq.storage.bootstrap import install_base
from ternmq.storage.config import StorageConfig
from ternmq.storage.log.append import Append, Ending, HalfMark, StagedBatches
from ternmq.storage.log.leader_epochs import common_end
from ternmq.storage.pull.record import PullKind, PullRecord
from ternmq.storage.store import Store
from ternmq.testing.disk import PowerCut, SimulatedDisk
from tests.unit.storage.builders import DATA, Maker, TurnedClock, open_store

TOPICS = (1, 2, 7)
GROUPS = (5, 6)


class Down(Exception):
    """The member cannot go on until it is started again."""


class Member:
    """One data directory, and the store on it while it is up."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.disk = SimulatedDisk(room=1_000)
        self.clock = TurnedClock(1_700_000_000_000 + random.randint(-5000, 5000))
        self.config = StorageConfig(
            segment_batches_max=random.choice((2, 3, 10, 1000)),
            pull_segment_size=64 * 1024,
            producer_batches_max=100_000,
            min_free=0,
        )
        self.store: Store | None = None
        self.based = False
        self.dropping = False
        self.follows = 0  # The epoch whose master it follows; 0: none since it was opened.

    @property
    def up(self) -> bool:
        return self.store is not None

    @property
    def failed(self) -> bool:
        store = self.opened()
        return store.messages.failed is not None or store.pulls.failed is not None

    def opened(self) -> Store:
        assert self.store is not None
        return self.store

    @contextmanager
    def perils(self) -> Iterator[None]:
        """Whatever happens in here may end in the middle."""
        try:
            yield
        except PowerCut:
            self.store = None
            self.disk.crash(self.random.randrange(2**32))
            raise Down from None
        except (DiskFull, DiskFailed):
            self.stop()
            raise Down from None

    def plan_fault(self) -> None:
        faults, chance = self.disk.faults, self.random.random()
        if chance < 0.2:
            faults.fail_write(self.random.randint(1, 3), self.random.choice(("full", "failed")))
        elif chance < 0.35:
            faults.fail_write(self.random.randint(1, 3), "short")
        elif chance < 0.5:
            faults.fail_sync(self.random.randint(1, 4))
        else:
            faults.cut_power(self.random.randint(1, 14))

    def stop(self) -> None:
        """Closed, killed, or without power."""
        how = self.random.choice(("close", "kill", "power"))
        store, self.store = self.store, None
        if how == "close" and store is not None:
            try:
                store.close()
            except PowerCut:
                how = "power"
        if how == "power":
            self.disk.crash(self.random.randrange(2**32))
        else:
            self.disk.restart()

    def start(self, *, suffix: bool, base: bytes = b"") -> Store:
        assert self.store is None
        self.follows = 0
        installed = False
        while True:
            self.disk.faults.clear()
            if self.random.random() < 0.2:
                self.disk.faults.cut_power(self.random.randint(1, 25))
            try:
                if base and not installed:
                    install_base(self.disk, DATA, base)
                    installed = True
                store = open_store(self.disk, self.config, clock=self.clock, epoch=0, suffix=suffix)
                break
            except PowerCut:
                self.disk.crash(self.random.randrange(2**32))
        self.disk.faults.clear()
        assert store.report.sound, store.report
        self.store = store
        return store


class Group:
    """Members, the standing of the registry, and every byte that was acknowledged."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.members = [Member(self.random) for _ in range(self.random.choice((2, 2, 3)))]
        self.maker = Maker()
        self.epoch = 0
        self.master = 0
        self.in_sync = {0}
        self.acked = bytearray()  # The message log as far as anybody was told that it is safe.
        self.acked_pulls = bytearray()
        self.sent: list[Append] = []
        self.round: StagedBatches | None = None  # Written by the master, not committed.
        self.transactions = 0
        self.calm = False  # No more faults.
        self.lead(0)

    # Leading and following

    def lead(self, number: int) -> None:
        """This member, which is in sync, becomes the master."""
        assert number in self.in_sync
        member = self.members[number]
        if member.up:
            member.stop()
        if number != self.master:
            self.in_sync.discard(self.master)
        store = member.start(suffix=self.in_sync != {number})
        self.check_acked(store)
        self.epoch += 1
        self.master, self.round = number, None
        with member.perils():
            store.begin_epoch(self.epoch)
        member.follows = self.epoch
        if self.in_sync == {number}:
            self.note_acked(store)

    def follow(self, number: int) -> None:
        """Cut off what the master does not have."""
        member, master = self.members[number], self.members[self.master].opened()
        store = member.opened()
        if not self.calm and self.random.random() < 0.3:
            member.disk.faults.cut_power(self.random.randint(1, 30))
        with member.perils():
            ends = [
                common_end(store.tables()[log], mine.end, master.tables()[log], theirs.end)
                for log, mine, theirs in (
                    (0, store.messages, master.messages),
                    (1, store.pulls, master.pulls),
                )
            ]
            empty = store.messages.end == store.messages.start_offset
            if empty and store.pulls.end == store.pulls.start_offset:
                ends = [store.messages.end, store.pulls.end]
            starts = master.messages.start_offset, master.pulls.start_offset
            if ends[0] < starts[0] or ends[1] < starts[1]:
                self.begin_anew(number)
                store = member.opened()
            else:
                store.truncate(*ends)
            store.adopt_epochs({log: list(table) for log, table in master.tables().items()})
        member.follows = self.epoch

    def begin_anew(self, number: int) -> None:
        """Too far behind, or a new machine: an empty directory, and the master's base."""
        self.in_sync.discard(number)
        member = self.members[number]
        member.store = None
        member.disk = SimulatedDisk(room=1_000)
        member.start(suffix=True).close()
        member.store = None
        master = self.members[self.master].opened()
        member.based = master.messages.start_offset + master.pulls.start_offset > 0
        member.start(suffix=True, base=master.base_state() if member.based else b"")
        member.follows = 0

    def replicate(self, number: int) -> None:
        """Some of what the master has goes to a member, onto its disk."""
        member, master = self.members[number], self.members[self.master].opened()
        store = member.opened()
        if (
            store.messages.end < master.messages.start_offset
            or store.pulls.end < master.pulls.start_offset
        ):
            self.begin_anew(number)  # Overtaken by retention.
            return
        size = self.random.choice((50, 700, 5000, 1 << 20))
        with member.perils():
            for mine, theirs in ((store.messages, master.messages), (store.pulls, master.pulls)):
                for _ in range(self.random.randint(0, 3)):
                    data = theirs.read_raw(mine.received_end, size)
                    mine.receive(mine.received_end, data)
                group = mine.take()
                if group is not None:
                    mine.write_received(group, sync=True)

    def settle(self) -> None:
        """The master looks at who has what."""
        master = self.members[self.master].opened()
        required = [self.members[number] for number in self.in_sync - {self.master}]
        ends = [(master.messages.end, master.pulls.synced_offset)]
        for member in required:
            if not member.up or member.follows != self.epoch:
                return
            ends.append((member.opened().messages.end, member.opened().pulls.end))
        message_end, pull_end = (min(end) for end in zip(*ends, strict=True))
        if self.round is not None:
            if message_end >= self.round.plan.end:
                master.messages.commit(self.round)
                self.round = None
        elif message_end >= master.messages.end:
            while master.messages.advance(master.messages.end):
                pass
        master.pulls.advance(pull_end)
        self.note_acked(master)

    # What is written

    def publish(self) -> None:
        member = self.members[self.master]
        store = member.opened()
        if self.round is not None or store.messages.safe_offset != store.messages.end:
            return
        appends = [self.make(store) for _ in range(self.random.randint(1, 3))]
        staged = store.messages.stage(appends)
        self.sent += appends
        with member.perils():
            store.messages.write(staged)
        self.round = staged
        self.settle()

    def make(self, store: Store) -> Append:
        chance = self.random.random()
        if chance < 0.75:
            return self.maker.append(
                self.random.choice(TOPICS),
                rows=self.random.randint(1, 4),
                body=self.random.randbytes(self.random.choice((0, 20, 700))),
            )
        ended = {
            key
            for append in self.sent[-5:]
            if isinstance(append.special, Ending)
            for key in append.special.transactions
        }
        can_end = sorted(store.halves.open.keys() - ended)
        if chance < 0.9 or not can_end:
            return self.half(self.random.choice(can_end) if can_end and chance < 0.8 else b"")
        one = store.halves.open[self.random.choice(can_end)]
        kind = self.random.choice(("commit", "commit", "rollback", "drop"))
        halves = list(one.halves) if kind == "commit" else []
        ending = Ending(kind=kind, transactions=[one.key], halves=halves)  # type: ignore[arg-type]
        return Append(
            batch=bytearray(),
            topic_id=0,
            count=1,
            received_at_ms=1,
            producer=(0, 0),
            first_sequence=0,
            special=ending,
        )

    def half(self, key: bytes) -> Append:
        self.transactions += not key
        info = HalfInfo(transaction=key[1:] or self.transactions.to_bytes(16, "big"))
        first, self.maker.next_sequence = self.maker.next_sequence, self.maker.next_sequence + 2
        batch = encode_messages(
            [Outgoing(body=b"half", born_at_ms=33)] * 2,
            first_sequence=first,
            origin=Origin(topic="orders", app="shop", producer=ProducerId(11, 22)),
            transaction=pack_info(info),
        )
        return Append(
            batch=bytearray(batch),
            topic_id=self.random.choice(TOPICS),
            count=2,
            received_at_ms=1,
            producer=(11, 22),
            first_sequence=first,
            special=HalfMark(info=info, app="shop"),
        )

    def decide(self) -> None:
        member = self.members[self.master]
        store = member.opened()
        kinds = (
            PullKind.GROUP_MADE,
            PullKind.ACKED,
            PullKind.RETRY,
            PullKind.SNAPSHOT,
            PullKind.GROUP_DELETED,
        )
        records = [
            PullRecord(
                kind=self.random.choice(kinds),
                group_id=self.random.choice(GROUPS),
                lane_id=1,
                ranges=((number, number + 1, 1),),
                text=self.random.randbytes(self.random.choice((0, 3, 300, 20_000))),
            )
            for number in range(self.random.randint(1, 3))
        ]
        staged = store.pulls.stage(records)
        with member.perils():
            store.pulls.write(staged, self.random.random() < 0.5)
        store.pulls.commit(staged, safe=False)
        self.settle()

    # What must be true

    def note_acked(self, master: Store) -> None:
        for acked, log in (
            (self.acked, master.messages),
            (self.acked_pulls, master.pulls),
        ):
            while len(acked) < log.safe_offset:
                acked += log.read_raw(len(acked), log.safe_offset - len(acked))

    def check_acked(self, store: Store) -> None:
        """Whoever may lead has everything that was acknowledged, byte by byte."""
        for acked, log in ((self.acked, store.messages), (self.acked_pulls, store.pulls)):
            assert log.end >= len(acked), f"acknowledged {len(acked)}, but there are {log.end}"
            same(acked, log, len(acked))


def same(acked: bytearray, log: object, end: int) -> None:
    """The log has these bytes, from where it begins to `end`."""
    at = log.start_offset  # type: ignore[attr-defined]
    while at < end:
        data = log.read_raw(at, end - at)  # type: ignore[attr-defined]
        assert data, f"the log ends at {at}"
        assert data == acked[at : at + len(data)], f"other bytes at {at}"
        at += len(data)
