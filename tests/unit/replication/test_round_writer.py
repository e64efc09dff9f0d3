"""Bugs in a turn of the writer thread are noticed and told; nobody waits in vain."""

import asyncio

import pytest

from ternmq.core.errors import (
    DiskFailed,
    DiskFull,
    TernError,
    Unavailable,
)
from ternmq.replication.group_commit import (
    Offered,
)
from tests.unit.replication.commit_logs import Log, Others, committing
from tests.waiting import until

MESSAGES, DECISIONS = 0, 1


async def test_a_bug_in_a_write_is_told_and_nothing_is_written_after_it() -> None:
    log, others = Log(), Others(alone=True)
    commit = committing(others, log)
    log.fails = ZeroDivisionError("a bug")
    log.may_write.clear()
    commit.put(log, "a")
    await asyncio.sleep(0.01)
    commit.put(log, "b")
    log.may_write.set()
    await until(lambda: len(log.told) == 2)
    log.fails = None
    commit.put(log, "c")
    await commit.close()
    assert [type(error) for _, error in log.told] == [DiskFailed] * 3
    assert isinstance(commit.broken, DiskFailed) and log.rounds == []


async def test_a_bug_in_staging_costs_only_its_round() -> None:
    log, others = Log(), Others(alone=True)
    commit = committing(others, log)
    log.stage_fails = ZeroDivisionError("a bug")
    commit.put(log, "a")
    await until(lambda: len(log.told) == 1)
    log.stage_fails = None
    commit.put(log, "b")
    await commit.close()
    assert type(log.told[0][1]) is TernError and log.told[1:] == [("b", None)]


async def test_a_log_that_goes_on_after_a_bug_is_written_and_the_others_are_not() -> None:
    """A bug in a checkpoint must not keep acks from the disk."""
    messages, records, others = Log(), Log(DECISIONS), Others(alone=True)
    records.after_bug = True
    commit = committing(others, messages, records)

    def broken() -> None:
        raise ZeroDivisionError("a bug")

    with pytest.raises(DiskFailed):
        await commit.alone(broken)
    records.items.append("a")
    commit.kick()
    await until(lambda: records.told == [("a", None)])
    commit.put(messages, "b")
    await commit.close()

    assert isinstance(messages.told[0][1], DiskFailed) and messages.rounds == []


async def test_a_bug_while_a_round_becomes_visible_is_no_refusal_and_stops_the_rest() -> None:
    log, others = Log(), Others(alone=True)
    commit = committing(others, log)
    log.count_fails = ZeroDivisionError("a bug")
    commit.put(log, "a")
    await until(lambda: len(log.told) == 1)
    commit.put(log, "b")
    await commit.close()

    assert [type(error) for _, error in log.told] == [Unavailable, DiskFailed]
    assert log.rounds == ["a"] and log.counted == []


async def test_a_bug_while_a_round_begins_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    log, others = Log(), Others(alone=True)
    commit = committing(others, log)

    def broken(staged: str) -> Offered | None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(log, "offered", broken)
    commit.put(log, "a")
    await until(lambda: commit.broken is not None)
    commit.put(log, "b")
    await commit.close()

    assert log.rounds == [] and isinstance(log.told[-1][1], DiskFailed)


async def test_alone_a_log_may_keep_its_bytes_to_itself() -> None:
    """Else a full disk would end the leadership of a server whose replicas are not needed."""
    log, others = Log(), Others(alone=True)
    log.offers_alone = False
    commit = committing(others, log)
    for item in "ab":
        commit.put(log, item)
        await until(lambda: log.told and log.told[-1] == (item, None))  # noqa: B023
    log.fails = DiskFull("no room")
    commit.put(log, "c")
    await commit.close()

    assert others.offered == [] and others.undone_by == []
    assert isinstance(log.told[-1][1], DiskFull)


async def test_a_job_that_comes_after_the_end_is_refused() -> None:
    commit = committing(Others(alone=True), Log())
    await commit.close()

    with pytest.raises(Unavailable):
        await commit.alone(lambda: None)
