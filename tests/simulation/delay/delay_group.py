"""A delay server and its replicas as their stores see it, on disks that tear and lose power.

The rules are those of replication, without network and timers: what is answered is on the disk of
every member in sync, only a member in sync may lead, an epoch is one leadership. Members have
lengths of an hour and clocks of their own.
"""

from random import Random

from ternmq.core.errors import DiskFailed, DiskFull, TernError
from ternmq.core.units import DAY_MS, HOUR_MS, MINUTE_MS
from ternmq.delay.formats.decision import Decision
from ternmq.delay.store.bootstrap import BootstrapFiles
from ternmq.delay.store.bootstrap_install import BootstrapInstall
from ternmq.delay.store.hour_owners import FollowingStore, LeadingStore
from ternmq.delay.store.journal import Deciding
from ternmq.testing.disk import PowerCut, SimulatedDisk
from tests.simulation.delay.test_delay_crashes import Killed, Life
from tests.unit.delay.replica_pair import advance, checkpoint, derive, follow, logs, parting, stream

SEGMENT_SIZE = 4096


class Member:
    """One data directory, and the store on it while it follows (`replica`)."""

    def __init__(self, random: Random) -> None:
        self.disk = SimulatedDisk(room=1_000)
        self.hour_ms = random.choice((MINUTE_MS, HOUR_MS, DAY_MS))
        self.replica: FollowingStore | None = None
        self.follows = 0
        """The epoch whose master it follows."""


class GroupLife(Life):
    """The life of a group: `store`, `engine` and `disk` are those of who leads."""

    def __init__(self, seed: int) -> None:
        random = Random(seed)
        self.members = [Member(random) for _ in range(random.choice((2, 2, 3)))]
        self.master = 0
        self.in_sync = {0}
        self.epoch = 0
        self.bases = 0
        self.promotions = 0
        self.candidate: FollowingStore | None = None
        """Is about to lead."""
        super().__init__(seed)

    # Leading

    def open(self) -> LeadingStore:
        member = self.members[self.master]
        self.disk, self.hour_ms = member.disk, member.hour_ms
        self.candidate = following = self.open_member(member)
        self.store = store = following.store
        self.epoch += 1
        store.begin_epoch(self.epoch)
        for number in sorted(self.in_sync - {self.master}):
            # Whoever is required has it all before anything counts, or is required no more.
            self.mend(number)
        advance(following, store.messages.end, store.decisions.end)
        leading = following.lead()
        self.candidate = None
        self.hour_ms = store.derivation.schedule_log.hour_ms
        return leading

    def open_member(self, member: Member) -> FollowingStore:
        return FollowingStore.open(
            member.disk,
            self.paths,
            clock=self.clock,
            hour_ms=member.hour_ms,
            segment_size=2**22,
            min_free=0,
            suffix=True,
        )

    def end(self, *, power: bool) -> None:
        if power:
            self.disk.crash(self.random.randrange(2**32))
        else:
            self.disk.restart()
        if self.random.random() < 0.2:
            self.members[self.master].hour_ms = self.random.choice((MINUTE_MS, HOUR_MS, DAY_MS))
        self.unanswered.clear()
        others = sorted(self.in_sync - {self.master})
        if others and self.random.random() < 0.7:
            self.promote(self.random.choice(others))
        else:
            self.start()

    def promote(self, number: int) -> None:
        """The old master is out of the set, so that it comes back as a replica."""
        self.promotions += 1
        self.in_sync.discard(self.master)
        self.members[self.master].replica = None
        self.master = number
        member = self.members[number]
        member.replica = None
        member.disk.restart()
        self.disk = member.disk
        self.clock.jump(self.random.choice((-3_600, 0, 0, 3_600)))
        self.start()

    # Following

    def down(self, number: int) -> None:
        """A replica that is not there; whoever leads goes on without it."""
        self.members[number].replica = None
        self.members[number].disk.crash(self.random.randrange(2**32))
        self.in_sync.discard(number)

    def mend(self, number: int) -> None:
        """A replica starts, follows and gets everything, or fails on its way."""
        member = self.members[number]
        if self.unlucky(0.3):
            member.disk.faults.cut_power(self.random.randint(1, 40))
        try:
            if member.replica is None:
                member.disk.restart()
                member.replica = self.open_member(member)
                assert member.replica.store.report.sound
                member.follows = 0
            if member.follows != self.epoch or self.too_old(member.replica):
                self.follow(member)
            self.copy(member)
            self.in_sync.add(number)
        except (PowerCut, DiskFull, DiskFailed):
            self.down(number)
        member.disk.faults.clear()

    def follow(self, member: Member) -> None:
        replica = member.replica
        assert replica is not None
        empty = all(log.end == log.start_offset == 0 for log in logs(replica.store))
        if (
            self.too_old(replica)
            or (empty and self.random.random() < 0.5)
            or self.random.random() < 0.03
        ):
            replica = self.begin_anew(member)
        follow(self.store, replica)
        member.follows = self.epoch

    def too_old(self, replica: FollowingStore) -> bool:
        """The master has trimmed what comes next."""
        ends = zip(parting(self.store, replica), logs(self.store), strict=True)
        return any(end < theirs.start_offset for end, theirs in ends)

    def begin_anew(self, member: Member) -> FollowingStore:
        """An empty directory and a base."""
        self.bases += 1
        member.replica = None
        faults = member.disk.faults
        member.disk = SimulatedDisk(room=1_000)
        member.disk.faults = faults
        if self.store.known.hour_ms == 0:
            self.first_checkpoint()
        base = BootstrapFiles(self.store)
        try:
            while True:
                try:
                    installing = BootstrapInstall(member.disk, self.paths, base.manifest)
                    for kind, hour, length in installing.files:
                        installing.write(kind, hour, 0, base.read(kind, hour, 0, length))
                    installing.finish()
                    break
                except PowerCut:
                    member.disk.crash(self.random.randrange(2**32))
                    member.disk.faults.clear()
                    member.replica = self.open_member(member)
                    if member.replica.store.known.hour_ms:
                        break  # It was finished by the start.
        finally:
            base.close()
        member.replica = self.open_member(member)
        assert member.replica.store.report.sound
        return member.replica

    def first_checkpoint(self) -> None:
        """Of the master, which may be about to lead, or lead already."""
        if self.candidate is not None:
            checkpoint(self.candidate)
            return
        self.leading.settle()
        now = self.store.checkpoints.snapshot(self.engine.hours)
        self.store.checkpoint(now)
        if self.store.known is now:
            self.engine.hours.dropped(self.leading.remove(now.dropping))
            self.store.checkpoints.trim()

    def copy(self, member: Member) -> None:
        assert member.replica is not None
        stream(self.store, member.replica, size=self.random.choice((300, 5_000, 1 << 20)))

    def make_safe(self) -> None:
        """Every member in sync has it, or is out of the set before anything counts."""
        for number in sorted(self.in_sync - {self.master}):
            if self.unlucky(0.02):
                raise Killed
            member = self.members[number]
            if self.unlucky(0.05):
                member.disk.faults.cut_power(self.random.randint(1, 6))
            try:
                assert member.replica is not None
                assert member.follows == self.epoch
                self.copy(member)
            except (PowerCut, DiskFull, DiskFailed):
                self.down(number)
        if self.unlucky(0.02):
            raise Killed

    def unlucky(self, chance: float) -> bool:
        return not self.calm and self.random.random() < chance

    def decide(self, hour: int, decision: Decision) -> TernError | None:
        item, journal = Deciding(hour, decision), self.store.decisions
        try:
            staged = journal.stage([item], scheduled=self.store.derivation.scheduled_to, sync=True)
        except TernError as error:
            item.error = error
        else:
            try:
                journal.write(staged)
            except TernError as error:
                journal.abandon(staged)
                item.error = error
            else:
                journal.commit(staged, safe=False)
                self.make_safe()
                journal.advance(staged.plan.end)
        self.engine.decided(item, self.clock.now_ms())
        return item.error

    def act(self) -> None:
        super().act()
        for number, member in enumerate(self.members):
            if number != self.master:
                self.act_as_replica(number, member)

    def act_as_replica(self, number: int, member: Member) -> None:
        chance = self.random.random()
        if chance < 0.4 and number not in self.in_sync:
            self.mend(number)
        elif chance < 0.05:
            self.down(number)
        elif member.replica is not None and member.follows == self.epoch:
            if self.random.random() < 0.1:
                member.disk.faults.cut_power(self.random.randint(1, 25))
            try:
                if self.random.random() < 0.7:
                    safe = self.store.messages.safe_offset, self.store.decisions.safe_offset
                    advance(member.replica, *safe)
                if self.random.random() < 0.6:
                    derive(member.replica)
                    self.check_same(member.replica)
                if self.random.random() < 0.3:
                    checkpoint(member.replica)
            except (PowerCut, DiskFull, DiskFailed):
                self.down(number)
            member.disk.faults.clear()

    def check_same(self, replica: FollowingStore) -> None:
        """Both have made the same of the same logs."""
        scheduled, decided = self.engine.hours.scheduled_to, self.store.decisions.safe_offset
        files = replica.store.derivation
        if (files.scheduled_to, files.derived_to) == (scheduled, decided):
            ours = {start: hour.rows for start, hour in replica.hours.items()}
            assert ours == {start: hour.rows for start, hour in self.engine.hours.items()}

    # The end

    def finish(self) -> None:
        super().finish()
        for number, member in enumerate(self.members):
            if number == self.master:
                continue
            member.disk.faults.clear()
            while number not in self.in_sync:
                self.mend(number)
            assert member.replica is not None
            advance(member.replica, self.store.messages.end, self.store.decisions.end)
            derive(member.replica)
            assert not member.replica.hours
            assert not member.replica.store.derivation.undecided
            checkpoint(member.replica)
            checkpoint(member.replica)
            assert not member.replica.store.schedule_files.found()
            assert not member.replica.store.dispatch_files.found()
        before = self.engine.ledger()
        others = sorted(self.in_sync - {self.master})
        self.promote(self.random.choice(others))
        assert self.engine.ledger() == before
