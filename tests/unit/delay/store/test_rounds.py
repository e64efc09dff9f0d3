"""Group commit with others who have to have it: what is told, written and passed on."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from ternmq.core.errors import DiskFull, NotMaster, ReadOnly, TernError, Unavailable
from ternmq.delay.store.rounds import Pass, Rounds, Written
from ternmq.storage.files.disk import Buffer
from ternmq.storage.log.write_plan import WritePlan
from tests.waiting import until


class Others:
    """A `Safety` that says what a test tells it."""

    def __init__(self, *, alone: bool = False) -> None:
        self.refusal: TernError | None = None
        self.paused = False
        self.alone = alone
        self.offered: list[bytes] = []
        self.wrote_to = 0
        self.counts = 0
        self.moved: Callable[[], None] = lambda: None

    def offer(self, log: int, offset: int, buffers: list[Buffer], *, sync: bool) -> None:
        self.offered += [bytes(each) for each in buffers]

    def wrote(self, log: int, end: int, durable: int) -> None:
        self.wrote_to = durable

    def mark(self, log: int) -> int:
        return 2**63 if self.alone else self.counts

    def undone(self, error: TernError) -> bool:
        self.refusal = NotMaster("over")
        return not self.alone

    def watch(self, moved: Callable[[], None]) -> None:
        self.moved = moved

    def has(self, upto: int) -> bool:
        return self.wrote_to >= upto

    def let(self, upto: int) -> None:
        self.counts = upto
        self.moved()


@dataclass(slots=True)
class Log:
    """A way that keeps what is written in memory: one byte of the log for each item."""

    in_turn: bool = True
    number: int = 0
    lines: list[str] = field(default_factory=list)
    told: list[tuple[str, TernError | None]] = field(default_factory=list)
    full: bool = False

    def stage(self, items: list[str]) -> list[str]:
        return items

    def write(self, staged: list[str], passing: Pass) -> Written:
        plan = WritePlan(base=0, end=len(self.lines), count=0, segment_size=1_000, count_max=1_000)
        plan.place("".join(staged).encode())
        passing(plan, True)
        if self.full:
            raise DiskFull("no room")
        self.lines += staged
        return Written(len(self.lines), sync=not staged[0].isupper())

    def sync(self) -> None:
        pass

    def durable(self) -> int:
        return len(self.lines)

    def advance(self, mark: int) -> None:
        pass

    def finish(self, items: list[str], staged: list[str] | None, error: TernError | None) -> None:
        self.told += [(item, error) for item in items]


async def test_a_message_is_told_when_it_counts_and_the_next_waits_for_it() -> None:
    log, others = Log(), Others()
    rounds = Rounds("test", log, others)
    rounds.put("a")
    await until(lambda: others.wrote_to == 1)
    rounds.put("b")
    await asyncio.sleep(0.01)
    assert log.told == [] and log.lines == ["a"]
    others.let(1)
    await until(lambda: others.wrote_to == 2)
    assert log.told == [("a", None)] and others.offered == [b"a", b"b"]
    others.let(2)
    assert log.told[1:] == [("b", None)]
    await rounds.close()


async def test_decisions_do_not_wait_for_each_other_and_ends_are_told_at_once() -> None:
    log, others = Log(in_turn=False), Others()
    rounds = Rounds("test", log, others)
    for upto, item in enumerate(("a", "b", "C"), start=1):
        rounds.put(item)
        await until(partial(others.has, upto))
    assert log.told == [("C", None)]
    others.let(2)
    assert log.told[1:] == [("a", None), ("b", None)]
    await rounds.close()


async def test_what_others_may_have_is_not_told_as_refused_and_nothing_follows_it() -> None:
    log, others = Log(), Others()
    rounds = Rounds("test", log, others)
    rounds.put("a")
    await until(lambda: others.wrote_to == 1)
    others.let(1)
    log.full = True
    rounds.put("b")
    await until(lambda: len(log.told) == 2)
    assert isinstance(log.told[1][1], Unavailable) and others.offered == [b"a", b"b"]
    log.full = False
    rounds.put("c")
    await rounds.close()
    assert isinstance(log.told[2][1], NotMaster) and log.lines == ["a"]


async def test_alone_a_full_disk_is_said_as_it_is_and_the_next_message_is_taken() -> None:
    log, others = Log(full=True), Others(alone=True)
    rounds = Rounds("test", log, others)
    rounds.put("a")
    await until(lambda: len(log.told) == 1)
    assert isinstance(log.told[0][1], DiskFull) and others.offered == []
    log.full = False
    rounds.put("b")
    await rounds.close()
    assert log.told[1:] == [("b", None)]


async def test_messages_are_refused_while_replicas_lack_and_decisions_are_not() -> None:
    for in_turn in (True, False):
        log, others = Log(in_turn=in_turn), Others()
        rounds = Rounds("test", log, others)
        others.refusal = ReadOnly("a replica is away")
        rounds.put("a")
        await until(lambda: bool(log.told or log.lines))  # noqa: B023 - of this turn
        assert log.lines == ([] if in_turn else ["a"])
        await rounds.close()
        error = log.told[0][1]
        assert isinstance(error, ReadOnly if in_turn else Unavailable)


async def test_messages_wait_while_another_is_about_to_lead() -> None:
    log, others = Log(), Others()
    rounds = Rounds("test", log, others)
    others.paused = True
    rounds.put("a")
    await asyncio.sleep(0.01)
    assert log.lines == [] and log.told == []
    others.paused = False
    others.moved()
    await until(lambda: log.lines == ["a"])
    await rounds.close()
    assert log.told == []  # It may count later, so nobody is told that it is not stored.
