"""Group commit with others who have to have it: what is told, written and passed on."""

import asyncio
from functools import partial

import pytest

from ternmq.core.errors import (
    DiskFailed,
    DiskFull,
    NotMaster,
    ReadOnly,
    Unavailable,
)
from ternmq.replication.group_commit import (
    Need,
    careful_after,
    is_undone,
    round_is_due,
)
from tests.unit.replication.commit_logs import Log, Others, committing, stored
from tests.waiting import until

MESSAGES, DECISIONS = 0, 1


def test_a_round_begins_for_what_is_wanted_now_and_at_the_end_for_what_rides() -> None:
    assert not round_is_due([Need.RIDE, Need.NOTHING], closing=False)
    assert round_is_due([Need.RIDE, Need.NOW], closing=False)
    assert round_is_due([Need.RIDE], closing=True)
    assert not round_is_due([Need.NOTHING], closing=True)


def test_care_ends_with_a_round_that_proves_the_disk() -> None:
    assert careful_after(True, failed=False, proved=False)
    assert not careful_after(True, failed=False, proved=True)
    assert not careful_after(False, failed=False, proved=False)
    assert careful_after(False, failed=True, proved=True)


def test_a_full_disk_undoes_only_what_was_offered_and_a_failed_one_everything() -> None:
    assert is_undone(DiskFull("x"), offered=True)
    assert not is_undone(DiskFull("x"), offered=False)
    assert is_undone(DiskFailed("x"), offered=False)


async def test_what_comes_while_the_disk_works_is_one_round() -> None:
    log, others = Log(), Others(alone=True)
    commit = committing(others, log)
    log.may_write.clear()
    commit.put(log, "a")
    await asyncio.sleep(0.01)
    for item in "bcd":
        commit.put(log, item)
        await asyncio.sleep(0)
    log.may_write.set()
    await commit.close()
    assert log.rounds == ["a", "bcd"]
    assert log.told == [(item, None) for item in "abcd"]


async def test_a_message_is_told_when_it_counts_and_the_next_waits_for_it() -> None:
    log, others = Log(), Others()
    commit = committing(others, log)
    commit.put(log, "a")
    await until(lambda: others.has(1))
    commit.put(log, "b")
    await asyncio.sleep(0.01)
    assert log.told == [] and log.rounds == ["a"]
    others.let(1)
    await until(lambda: others.has(2))
    assert log.told == [("a", None)] and others.offered == [b"a", b"b"]
    others.let(2)
    assert log.told[1:] == [("b", None)]
    await commit.close()


async def test_decisions_go_on_while_messages_wait() -> None:
    messages, decisions, others = Log(), Log(DECISIONS), Others()
    commit = committing(others, messages, decisions)
    commit.put(messages, "a")
    await until(lambda: others.has(1))
    commit.put(messages, "b")
    commit.put(decisions, "x")
    await until(lambda: others.has(1, DECISIONS))
    others.let(1, DECISIONS)
    assert decisions.told == [("x", None)] and messages.told == [] and messages.rounds == ["a"]
    await commit.close()


async def test_both_logs_are_one_round_and_one_without_anything_takes_no_part() -> None:
    messages, decisions, others = Log(), Log(DECISIONS, rides=True), Others(alone=True)
    commit = committing(others, messages, decisions)
    decisions.items.append("X")
    commit.kick()
    await asyncio.sleep(0.01)
    assert decisions.rounds == []
    commit.put(messages, "a")
    await until(lambda: len(messages.told) == 1)
    assert decisions.rounds == ["X"]
    commit.put(messages, "b")
    await commit.close()
    assert messages.rounds == ["a", "b"] and decisions.rounds == ["X"]


async def test_decisions_do_not_wait_for_each_other_and_ends_are_told_at_once() -> None:
    log, others = Log(DECISIONS, late_offer=True), Others()
    commit = committing(others, log)
    for upto, item in enumerate(("a", "b", "C"), start=1):
        commit.put(log, item)
        await until(partial(others.has, upto, DECISIONS))
    assert log.told == [("C", None)]
    others.let(2, DECISIONS)
    assert log.told[1:] == [("a", None), ("b", None)]
    await commit.close()


async def test_what_nobody_waits_for_is_synced_after_a_while_and_said_to_be_safe_only_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ternmq.replication.group_commit.SYNC_S", 0.02)
    log, others = Log(DECISIONS), Others()
    commit = committing(others, log)
    commit.put(log, "A")
    await until(lambda: others.has(1, DECISIONS))
    assert others.durable[DECISIONS] == 0
    await until(lambda: others.durable[DECISIONS] == 1)
    assert log.syncs == 1
    await asyncio.sleep(0.05)
    assert log.syncs == 1
    await commit.close()


async def test_a_late_sync_that_fails_is_not_tried_again_and_ends_the_leadership(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ternmq.replication.group_commit.SYNC_S", 0.02)
    log, others = Log(DECISIONS), Others()
    commit = committing(others, log)
    commit.put(log, "A")
    await until(lambda: others.has(1, DECISIONS))
    log.fails = DiskFailed("no more")
    await until(lambda: len(others.undone_by) == 1)
    await asyncio.sleep(0.05)
    assert others.durable[DECISIONS] == 0 and len(others.undone_by) == 1
    await commit.close()


async def test_a_job_that_is_alone_may_have_synced_what_was_late() -> None:
    log, others = Log(DECISIONS), Others()
    commit = committing(others, log)
    commit.put(log, "A")
    await until(lambda: others.has(1, DECISIONS))
    await commit.alone(log.sync)
    assert others.durable[DECISIONS] == 1
    await commit.close()


@pytest.mark.parametrize("late_offer", [False, True])
async def test_bytes_are_passed_on_before_the_disk_has_them_but_for_the_first(
    late_offer: bool,
) -> None:
    log, others = Log(late_offer=late_offer), Others()
    commit = committing(others, log)
    log.may_write.clear()
    commit.put(log, "a")
    await asyncio.sleep(0.02)
    assert others.offered == []
    log.may_write.set()
    await until(lambda: others.has(1))
    assert others.offered == [b"a"]
    others.let(1)
    log.may_write.clear()
    commit.put(log, "b")
    await until(lambda: others.offered == [b"a", b"b"])
    assert log.rounds == ["a"]
    log.may_write.set()
    await commit.close()


@pytest.mark.parametrize("late_offer", [False, True])
async def test_after_a_failed_write_bytes_are_passed_on_when_they_are_on_disk(
    late_offer: bool,
) -> None:
    log, others = Log(late_offer=late_offer), Others(alone=True)
    commit = committing(others, log)
    await stored(commit, others, log, "a")
    log.fails = DiskFull("no room")
    commit.put(log, "b")
    await until(lambda: len(log.told) == 2)
    assert isinstance(log.told[1][1], DiskFull)
    log.fails, others.alone, others.offered = None, False, []
    log.may_write.clear()
    commit.put(log, "c")
    await asyncio.sleep(0.02)
    assert others.offered == []
    log.may_write.set()
    await until(lambda: others.has(2))
    assert others.offered == [b"c"]
    await commit.close()


async def test_the_log_that_may_use_reserved_space_does_not_end_care() -> None:
    messages, decisions, others = Log(), Log(DECISIONS), Others()
    commit = committing(others, messages, decisions)
    commit.put(decisions, "a")
    await until(lambda: others.has(1, DECISIONS))
    others.let(1, DECISIONS)
    decisions.fails = DiskFull("no room")
    commit.put(decisions, "b")
    await until(lambda: len(decisions.told) == 2)
    assert isinstance(decisions.told[1][1], DiskFull) and others.undone_by == []
    await commit.close()


@pytest.mark.parametrize("late_offer", [False, True])
async def test_what_others_may_have_is_not_told_as_refused_and_nothing_follows_it(
    late_offer: bool,
) -> None:
    log, others = Log(late_offer=late_offer), Others()
    commit = committing(others, log)
    await stored(commit, others, log, "a")
    log.fails = DiskFull("no room")
    commit.put(log, "b")
    await until(lambda: len(log.told) == 2)
    assert isinstance(log.told[1][1], Unavailable) and others.offered == [b"a", b"b"]
    log.fails = None
    commit.put(log, "c")
    await asyncio.sleep(0)
    assert isinstance(log.told[2][1], NotMaster)
    others.refusal = None
    commit.put(log, "d")
    await commit.close()
    assert isinstance(log.told[3][1], Unavailable) and log.rounds == ["a"]


async def test_one_log_that_fails_does_not_take_the_other_one_with_it() -> None:
    messages, decisions, others = Log(), Log(DECISIONS), Others(alone=True)
    commit = committing(others, messages, decisions)
    messages.fails = DiskFull("no room")
    commit.put(messages, "a")
    commit.put(decisions, "x")
    await commit.close()
    assert isinstance(messages.told[0][1], DiskFull) and decisions.told == [("x", None)]


async def test_alone_a_full_disk_is_said_as_it_is_and_the_next_message_is_taken() -> None:
    log, others = Log(), Others(alone=True)
    log.fails = DiskFull("no room")
    commit = committing(others, log)
    commit.put(log, "a")
    await until(lambda: len(log.told) == 1)
    assert isinstance(log.told[0][1], DiskFull) and others.offered == []
    log.fails = None
    commit.put(log, "b")
    await commit.close()
    assert log.told[1:] == [("b", None)]


async def test_messages_are_refused_while_replicas_lack_and_decisions_are_not() -> None:
    for number in (MESSAGES, DECISIONS):
        log, others = Log(number), Others()
        commit = committing(others, log)
        others.refusal = ReadOnly("a replica is away")
        commit.put(log, "a")
        await until(lambda: bool(log.told or log.rounds))  # noqa: B023 - of this turn
        assert log.rounds == ([] if log.in_turn else ["a"])
        await commit.close()
        error = log.told[0][1]
        assert isinstance(error, ReadOnly if log.in_turn else Unavailable)


async def test_messages_wait_while_another_is_about_to_lead() -> None:
    log, others = Log(), Others()
    commit = committing(others, log)
    others.paused = True
    commit.put(log, "a")
    await asyncio.sleep(0.01)
    assert log.rounds == [] and log.told == []
    others.paused = False
    others.moved()
    await until(lambda: log.rounds == ["a"])
    await commit.close()
    assert log.told == []  # It may count later, so nobody is told that it is not stored.


async def test_closing_writes_what_can_be_written_and_refuses_the_rest() -> None:
    messages, decisions, others = Log(), Log(DECISIONS, rides=True), Others()
    commit = committing(others, messages, decisions)
    commit.put(messages, "a")
    await until(lambda: others.has(1))
    commit.put(messages, "b")
    decisions.items.append("x")
    job = commit.alone(lambda: None)
    await commit.close()
    assert job.done()
    assert messages.rounds == ["a"] and decisions.rounds == ["x"]
    assert [item for item, _ in messages.told] == ["b"]
    assert all(isinstance(error, Unavailable) for _, error in messages.told + decisions.told)
    commit.put(messages, "c")
    await asyncio.sleep(0.01)
    assert isinstance(messages.told[-1][1], Unavailable) and messages.rounds == ["a"]


async def test_flush_waits_for_what_has_come_so_far() -> None:
    log, others = Log(), Others()
    commit = committing(others, log)
    commit.put(log, "a")
    flushing = asyncio.ensure_future(commit.flush())
    await until(lambda: others.has(1))
    assert not flushing.done()
    others.let(1)
    await asyncio.wait_for(flushing, 5)
    await commit.close()
