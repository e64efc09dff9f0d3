"""Half messages on a real broker in process: invisible, then all or nothing (R11)."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import ternmq
from ternmq import Rollback, TransactionCheck, TransactionEnded, Verdict
from ternmq.testing import node
from tests.waiting import until

FAST: dict[str, Any] = {"half_first_check_ms": 50, "half_check_interval_ms": 50}


@pytest.fixture
async def url(tmp_path: Path) -> AsyncIterator[str]:
    async with node(data_dir=tmp_path, **FAST) as address:
        yield address


@pytest.fixture
async def mq(url: str) -> AsyncIterator[ternmq.Client]:
    async with ternmq.connect(url, app="shop") as client:
        yield client


async def bodies(mq: ternmq.Client, topic: str) -> list[bytes]:
    if topic not in [known.name for known in await mq.admin.topics()]:
        return []
    return [message.body async for message in mq.read(topic)]


def unknown(check: TransactionCheck) -> Verdict:
    return Verdict.UNKNOWN


async def test_nothing_is_seen_before_the_block_ends_and_everything_after(
    mq: ternmq.Client,
) -> None:
    """R11: invisible until commit; several topics, all or nothing."""
    mq.transaction_checker(unknown)
    await mq.send("orders", b"before")
    async with mq.transaction() as tx:
        first = await tx.send("orders", b"one", key="k", tag="t", properties={"n": 1})
        await tx.send_many("bills", [b"a", b"b"])
        await mq.send("orders", b"between")
        assert await bodies(mq, "orders") == [b"before", b"between"]
        assert await bodies(mq, "bills") == []
        [line] = [line for line in await mq.admin.half_lines() if line.topic == "bills"]
        assert (line.open, line.dropped) == (2, 0)
        assert first.sequence is None
    assert tx.state == "committed"
    assert [receipt.sequence for receipt in tx.receipts] == [2, 0, 1]
    assert await bodies(mq, "orders") == [b"before", b"between", b"one"]
    assert await bodies(mq, "bills") == [b"a", b"b"]
    assert await mq.admin.half_lines() == []
    [found] = await mq.find(id=tx.receipts[0].id)
    assert (found.message.body, found.message.sequence) == (b"one", 2)
    [found] = await mq.find("orders", key="k")
    assert (found.message.properties, found.message.tag) == ({"n": 1}, "t")


async def test_consumers_get_what_was_committed_like_any_message(mq: ternmq.Client) -> None:
    mq.transaction_checker(unknown)
    async with mq.consumer(["orders"], group="billing") as consumer:
        waiting = asyncio.ensure_future(anext(aiter(consumer)))
        async with mq.transaction() as tx:
            await tx.send_many("orders", [b"%d" % number for number in range(50)])
        message = await asyncio.wait_for(waiting, 5)
        assert (message.body, message.sequence) == (b"0", 0)
        message.ack()
        for number in range(1, 50):
            message = await asyncio.wait_for(anext(aiter(consumer)), 5)
            assert (message.body, message.sequence) == (b"%d" % number, number)
            message.ack()
        await consumer.flush()
    [line] = await mq.admin.ledger("orders", "billing")
    assert (line.total, line.acked) == (50, 50)


async def test_a_rolled_back_transaction_leaves_nothing(mq: ternmq.Client) -> None:
    mq.transaction_checker(unknown)
    async with mq.transaction() as tx:
        await tx.send("orders", b"no")
        raise Rollback
    assert tx.state == "rolled_back"
    async with mq.transaction() as tx:
        await tx.send("orders", b"neither")
        await tx.rollback()
    assert await bodies(mq, "orders") == []
    assert await mq.admin.half_lines() == []
    await mq.send("orders", b"yes")
    assert [message.sequence async for message in mq.read("orders")] == [0]


async def test_an_exception_leaves_it_to_the_checker(mq: ternmq.Client) -> None:
    """R11: UNKNOWN until the checker says; it gets the first message's properties."""
    asked: list[TransactionCheck] = []

    @mq.transaction_checker
    async def check(question: TransactionCheck) -> Verdict:
        asked.append(question)
        if len(asked) == 2:
            raise RuntimeError("the database is away")
        return Verdict.UNKNOWN if len(asked) == 1 else Verdict.COMMIT

    with pytest.raises(ValueError, match="boom"):
        async with mq.transaction() as tx:
            await tx.send("orders", b"paid", key="o-1", properties={"order": 17})
            raise ValueError("boom")
    assert tx.state == "unknown"

    async def seen() -> bool:
        return await bodies(mq, "orders") == [b"paid"]

    await until(seen, "the checker committed it")
    assert [question.attempt for question in asked[:3]] == [1, 2, 3]
    assert (asked[0].id, asked[0].topics, asked[0].key) == (tx.id, ["orders"], "o-1")
    assert asked[0].properties == {"order": 17}


async def test_a_checker_is_asked_about_a_message_with_a_number_that_no_wire_takes(
    mq: ternmq.Client,
) -> None:
    """Such a question could not be sent, and the transaction stayed open for ever."""
    asked: list[TransactionCheck] = []

    def check(question: TransactionCheck) -> str:
        asked.append(question)
        return "rollback"

    mq.transaction_checker(check)
    with pytest.raises(ValueError, match="boom"):
        async with mq.transaction() as tx:
            await tx.send("wide", b"x", properties={"n": 10**30})
            raise ValueError("boom")

    async def seen() -> bool:
        return bool(asked)

    await until(seen, "the checker was asked")
    assert asked[0].properties == {"n": "1" + "0" * 30}


async def test_a_checker_rolls_back(mq: ternmq.Client) -> None:
    mq.transaction_checker(lambda question: "rollback")
    with pytest.raises(ValueError, match="boom"):
        async with mq.transaction() as tx:
            await tx.send("orders", b"never")
            raise ValueError("boom")

    async def gone() -> bool:
        return await mq.admin.half_lines() == []

    await until(gone, "the checker rolled it back")
    assert await bodies(mq, "orders") == []
    with pytest.raises(TransactionEnded) as late:
        await tx.commit()
    assert late.value.details["state"] == "rolled_back"


async def test_ending_twice_is_harmless_and_another_wish_gets_the_true_state(
    mq: ternmq.Client,
) -> None:
    mq.transaction_checker(unknown)
    async with mq.transaction() as tx:
        await tx.send("orders", b"one")
    again = await mq.admin.end_half(tx.id, "commit")
    assert (again.state, again.repeated, again.placed[0].sequence) == ("committed", True, 0)
    with pytest.raises(TransactionEnded, match="committed already"):
        await mq.admin.end_half(tx.id, "rollback")
    with pytest.raises(ternmq.TransactionNotFound):
        await mq.admin.end_half("00" * 16, "commit")
    assert await bodies(mq, "orders") == [b"one"]


async def test_two_who_end_it_at_once_agree(mq: ternmq.Client) -> None:
    mq.transaction_checker(unknown)
    for _ in range(20):
        tx = mq.transaction()
        await tx.send("orders", b"one")
        wishes = ["commit", "rollback", "commit", "rollback"]
        calls = [mq.admin.end_half(tx.id, wish) for wish in wishes]  # type: ignore[arg-type]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        states = {
            answer.details["state"] if isinstance(answer, TransactionEnded) else answer.state  # type: ignore[union-attr]
            for answer in answers
        }
        assert len(states) == 1, answers


async def test_a_transaction_needs_a_checker_and_holds_no_delayed_messages(
    mq: ternmq.Client,
) -> None:
    with pytest.raises(ternmq.BadRequest, match="transaction_checker"):
        mq.transaction()
    mq.transaction_checker(unknown)
    with pytest.raises(ternmq.BadRequest, match="first_check"):
        mq.transaction(first_chek=3)  # type: ignore[call-arg]
    async with mq.transaction() as tx:
        with pytest.raises(ternmq.BadRequest, match="delayed"):
            await tx.send("orders", b"later", delay=10)
    assert tx.state == "committed"
    with pytest.raises(ternmq.BadRequest, match="committed"):
        await tx.send("orders", b"too late")


async def test_after_the_last_check_it_is_dropped_for_a_person(mq: ternmq.Client, url: str) -> None:
    """R11: at most so many checks, then dropped with a count; a person may still commit."""
    asked = 0

    def check(question: TransactionCheck) -> Verdict:
        nonlocal asked
        asked += 1
        return Verdict.UNKNOWN

    mq.transaction_checker(check)
    tx = mq.transaction(checks_max=2)
    await tx.send("orders", b"one")

    async def dropped() -> bool:
        found = await mq.admin.halves(dropped_only=True)
        return [one.transaction.hex() for one in found.transactions] == [tx.id]

    await until(dropped, "it was dropped")
    assert asked == 2
    assert (await mq.admin.halves()).dropped == 1
    [line] = await mq.admin.half_lines()
    assert (line.open, line.dropped) == (0, 1)
    assert await bodies(mq, "orders") == []
    with pytest.raises(TransactionEnded, match="dropped"):
        await tx.send("orders", b"two")
    await mq.admin.end_half(tx.id, "commit")
    assert await bodies(mq, "orders") == [b"one"]


async def test_without_a_live_producer_the_question_waits_and_another_may_answer(
    url: str, mq: ternmq.Client
) -> None:
    """R11: any live producer of the application is asked; none live: it waits, uncounted."""
    async with ternmq.connect(url, app="other") as first:
        first.transaction_checker(unknown)
        tx = first.transaction(first_check=0.5)
        await tx.send("orders", b"one")
    mq.transaction_checker(lambda question: "commit")  # Of another application: never asked.

    async def due() -> bool:
        [one] = (await mq.admin.halves()).transactions
        assert (one.state, one.app, one.checks) == ("open", "other", 0)
        return one.next_at_ms + 100 < time.time() * 1000

    await until(due, "somebody should have been asked")
    async with ternmq.connect(url, app="other") as second:
        second.transaction_checker(lambda question: "commit")

        async def seen() -> bool:
            return await bodies(second, "orders") == [b"one"]

        await until(seen, "the second instance answered")


async def test_a_message_may_be_immune_against_questions(mq: ternmq.Client) -> None:
    mq.transaction_checker(lambda question: "rollback")
    tx = mq.transaction()
    await tx.send("orders", b"one", immunity=60)
    other = mq.transaction()
    await other.send("orders", b"two")

    async def asked() -> bool:
        return len((await mq.admin.halves()).transactions) == 1

    await until(asked, "the other was asked about")
    [left] = (await mq.admin.halves()).transactions
    assert left.transaction.hex() == tx.id
    await tx.commit()
    assert await bodies(mq, "orders") == [b"one"]


async def test_everything_survives_a_restart(tmp_path: Path) -> None:
    """Open halves, outcomes and what was committed are the same after a stop and a start."""
    async with node(data_dir=tmp_path) as url, ternmq.connect(url, app="shop") as mq:
        mq.transaction_checker(unknown)
        ended = mq.transaction()
        await ended.send("orders", b"one", key="k")
        await ended.commit()
        gone = mq.transaction()
        await gone.send("orders", b"two")
        await gone.rollback()
        left = mq.transaction()
        await left.send("orders", b"three")
        staged = mq.detached("job", attempt=1)
        await staged.send("orders", b"four")
    async with node(data_dir=tmp_path) as url, ternmq.connect(url, app="shop") as mq:
        assert await bodies(mq, "orders") == [b"one"]
        assert (await mq.admin.end_half(ended.id, "commit")).repeated
        with pytest.raises(TransactionEnded, match="rolled back"):
            await mq.admin.end_half(gone.id, "commit")
        assert len((await mq.admin.halves()).transactions) == 2
        await mq.admin.end_half(left.id, "commit")
        await mq.commit_detached("job", [1])
        assert await bodies(mq, "orders") == [b"one", b"three", b"four"]
        assert [message.sequence async for message in mq.read("orders")] == [0, 1, 2]
        [found] = await mq.find(key="k")
        assert found.message.sequence == 0


async def test_a_deleted_topic_takes_its_halves_along(mq: ternmq.Client) -> None:
    """D7: and the commit says so, while the rest of the transaction counts."""
    mq.transaction_checker(unknown)
    with pytest.raises(ternmq.TopicNotFound, match="committed, but 1 of its 2 message") as caught:
        async with mq.transaction() as tx:
            await tx.send("orders", b"one")
            await tx.send("bills", b"two")
            await mq.admin.delete_topic("orders")
            await mq.admin.create_topic("orders")
    assert tx.state == "committed"
    assert caught.value.details == {"state": "committed", "gone": {"orders": 1}}
    assert [receipt.sequence for receipt in tx.receipts] == [None, 0]
    assert await bodies(mq, "orders") == []
    assert await bodies(mq, "bills") == [b"two"]
    await mq.send("orders", b"new")
    assert await bodies(mq, "orders") == [b"new"]


# Detached


async def test_a_detached_transaction_is_committed_by_name_once(mq: ternmq.Client) -> None:
    task = mq.detached("query-7", attempt=1)
    await task.send_many("orders", [b"a", b"b"])
    await task.send("bills", b"c")
    assert await bodies(mq, "orders") == []
    done = await mq.commit_detached("query-7", [1])
    assert (done.state, done.attempts, done.repeated) == ("committed", [1], False)
    assert [(one.topic, one.sequence, one.count) for one in done.placed] == [
        ("orders", 0, 2),
        ("bills", 0, 1),
    ]
    again = await mq.commit_detached("query-7", [1])
    assert (again.repeated, again.placed) == (True, done.placed)
    assert (await mq.commit_detached("query-7")).repeated
    aborted = await mq.abort_detached("query-7")
    assert (aborted.state, aborted.attempts) == ("committed", [1])
    assert await bodies(mq, "orders") == [b"a", b"b"]
    with pytest.raises(TransactionEnded, match="attempts"):
        await mq.commit_detached("query-7", [2])
    with pytest.raises(TransactionEnded):
        await mq.detached("query-7", attempt=2).send("orders", b"again")


async def test_a_higher_attempt_shuts_out_the_lower_ones(mq: ternmq.Client) -> None:
    lower, higher = mq.detached("job", attempt=1), mq.detached("job", attempt=2)
    await lower.send("orders", b"old")
    await higher.send("orders", b"new")
    with pytest.raises(ternmq.Fenced, match="attempt 2"):
        await lower.send("orders", b"late")
    with pytest.raises(ternmq.Fenced):
        await mq.commit_detached("job", [1])
    with pytest.raises(ternmq.TransactionNotFound):
        await mq.commit_detached("job", [2, 3])
    await mq.commit_detached("job", [2])
    assert await bodies(mq, "orders") == [b"new"]
    await mq.abort_detached("job")
    assert (await mq.admin.halves()).total == 0


async def test_several_attempts_are_published_together(mq: ternmq.Client) -> None:
    for attempt in (1, 2, 3):
        await mq.detached("job", attempt=attempt).send("orders", b"%d" % attempt)
    done = await mq.commit_detached("job", [1, 3])
    assert done.attempts == [1, 3]
    assert await bodies(mq, "orders") == [b"1", b"3"]
    [left] = (await mq.admin.halves(name="job")).transactions
    assert left.attempt == 2


async def test_a_detached_transaction_expires(mq: ternmq.Client) -> None:
    await mq.detached("job", expires=0.05).send("orders", b"one")

    async def gone() -> bool:
        return (await mq.admin.halves()).total == 0

    await until(gone, "it expired")
    with pytest.raises(TransactionEnded, match="gone"):
        await mq.commit_detached("job", [0])
