"""Logs and a commit gate in memory, for tests of group commit."""

import threading
from collections.abc import Callable

from ternmq.core.errors import (
    NotMaster,
    TernError,
)
from ternmq.replication.group_commit import (
    GroupCommit,
    ListTarget,
    Need,
    Offer,
    Offered,
    Written,
)
from ternmq.storage.files.disk import Buffer
from ternmq.storage.log.write_plan import WritePlan
from tests.waiting import until

MESSAGES, DECISIONS = 0, 1


class Others:
    """A `CommitGate` that says what a test tells it."""

    def __init__(self, *, alone: bool = False) -> None:
        self.refusal: TernError | None = None
        self.paused = False
        self.lacks = ""
        self.alone = alone
        self.copied = False
        self.offered: list[bytes] = []
        self.wrote_to = {MESSAGES: 0, DECISIONS: 0}
        self.durable = {MESSAGES: 0, DECISIONS: 0}
        self.counts = {MESSAGES: 0, DECISIONS: 0}
        self.undone_by: list[TernError] = []
        self._watchers: list[Callable[[], None]] = []

    def offer(self, log: int, offset: int, buffers: list[Buffer], *, sync: bool) -> None:
        self.offered += [bytes(each) for each in buffers]

    def wrote(self, log: int, end: int, durable: int) -> None:
        self.wrote_to[log], self.durable[log] = end, durable

    def mark(self, log: int) -> int:
        return 2**63 if self.alone else self.counts[log]

    def undone(self, error: TernError) -> bool:
        self.undone_by.append(error)
        if not self.alone:
            self.refusal = NotMaster("over")
        return not self.alone

    def watch(self, moved: Callable[[], None]) -> None:
        self._watchers.append(moved)

    def moved(self) -> None:
        for moved in self._watchers:
            moved()

    def has(self, upto: int, log: int = MESSAGES) -> bool:
        return self.wrote_to[log] >= upto

    def let(self, upto: int, log: int = MESSAGES) -> None:
        self.counts[log] = upto
        self.moved()


class Log(ListTarget[str]):
    """A log in memory: one byte for each item. Upper case is synced late and waited for by none;
    lower case waits until it counts."""

    def __init__(
        self, number: int = MESSAGES, *, late_offer: bool = False, rides: bool = False
    ) -> None:
        super().__init__()
        self.number = number
        self.in_turn = number == MESSAGES
        self.offers_alone = not late_offer
        self.late_offer = late_offer
        self.rides = rides
        self.rounds: list[str] = []
        self.synced = 0
        self.syncs = 0
        self.told: list[tuple[str, TernError | None]] = []
        self.fails: Exception | None = None
        self.stage_fails: Exception | None = None
        self.count_fails: Exception | None = None
        self.counted: list[str] = []
        self.may_write = threading.Event()
        self.may_write.set()

    @property
    def end(self) -> int:
        return len("".join(self.rounds))

    @property
    def need(self) -> Need:
        return Need.RIDE if self.items and self.rides else super().need

    def heeds(self, refusal: TernError) -> bool:
        return self.in_turn or isinstance(refusal, NotMaster)

    def stage(self, load: list[str]) -> str:
        if self.stage_fails is not None:
            raise self.stage_fails
        return "".join(load)

    def _offered(self, staged: str) -> Offered:
        plan = WritePlan(base=0, end=self.end, count=0, segment_size=1_000, count_max=1_000)
        plan.place(staged.encode())
        return Offered(plan, sync=True)

    def offered(self, staged: str) -> Offered | None:
        return None if self.late_offer else self._offered(staged)

    def write(self, staged: str, offer: Offer) -> Written:
        if self.late_offer:
            offer(self._offered(staged))
        assert self.may_write.wait(10)
        if self.fails is not None:
            raise self.fails
        self.rounds.append(staged)
        if not staged.isupper():
            self.sync()
        return Written(self.end, waits=not staged.isupper())

    def sync(self) -> None:
        if self.fails is not None:
            raise self.fails
        self.syncs += 1
        self.synced = self.end

    def durable(self) -> int:
        return self.synced

    def written(self, load: list[str], staged: str) -> None:
        pass

    def abandon(self, staged: str) -> None:
        pass

    def advance(self, mark: int) -> None:
        pass

    def count(self, staged: str) -> None:
        if self.count_fails is not None:
            raise self.count_fails
        self.counted.append(staged)

    def finish(self, load: list[str], staged: str | None, error: TernError | None) -> None:
        self.told += [(item, error) for item in load]


def committing(gate: Others, *logs: Log) -> GroupCommit:
    return GroupCommit("the server", "test", logs, gate)


async def stored(commit: GroupCommit, others: Others, log: Log, item: str) -> None:
    """Something is written and counts, so that nothing is careful any more."""
    commit.put(log, item)
    await until(lambda: others.has(log.end) and log.end > 0)
    others.let(log.end, log.number)
