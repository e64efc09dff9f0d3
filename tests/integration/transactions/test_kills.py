"""Half messages with real processes: producers and brokers that die at every step (R11, Q9)."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

import ternmq
from ternmq import TransactionCheck, TransactionEnded, Verdict
from tests.integration.processes import Node, NodeFactory, clean_environment, tern
from tests.integration.turned_clock import SharedClock
from tests.waiting import until, wait_until

DURING = ["committing-0", "committing-1", "committing-2", "committing-4"]
FAST = {"TERN_HALF_FIRST_CHECK_MS": "200", "TERN_HALF_CHECK_INTERVAL_MS": "200"}


@pytest.fixture
def quick(node_factory: NodeFactory) -> Node:
    return node_factory(environment=FAST)


async def bodies(mq: ternmq.Client, topic: str) -> list[bytes]:
    if topic not in [known.name for known in await mq.admin.topics()]:
        return []
    return [message.body async for message in mq.read(topic)]


async def kill_and_start(node: Node, mq: ternmq.Client) -> None:
    """A broker that was killed is back, and the client has noticed."""
    node.kill()
    node.start()

    async def answers() -> bool:
        try:
            await mq.admin.topics()
            await mq.admin.halves()
        except ternmq.Unavailable:
            return False
        return True

    await until(answers, "the broker is back")


def die_at(step: str, url: str, work: Path) -> str:
    """Run a producer up to a step and kill it; the transaction's id."""
    command = [
        sys.executable,
        "-m",
        "tests.integration.transactions.stopping_producer",
        url,
        step,
        str(work),
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=clean_environment())
    try:
        assert process.stdout is not None
        said = process.stdout.readline().decode().strip()
        if step.startswith("committing"):
            process.wait(20)
        return said
    finally:
        process.kill()
        process.wait(10)
        if process.stdout is not None:
            process.stdout.close()


async def test_another_producer_answers_for_one_that_died_at_any_step(
    quick: Node, tmp_path: Path
) -> None:
    """R11: exactly the messages whose work was done are seen, whenever the producer died."""
    steps = ["half", "work", "commit", *DURING]
    for step in steps:
        assert len(await asyncio.to_thread(die_at, step, quick.url, tmp_path / step)) == 32
    asked: list[TransactionCheck] = []

    def check(question: TransactionCheck) -> Verdict:
        asked.append(question)
        done = (tmp_path / (question.key or "")).exists()
        return Verdict.COMMIT if done else Verdict.ROLLBACK

    async with ternmq.connect(quick.url, app="shop") as mq:
        seen = [message.key async for message in mq.read("orders")]
        assert "commit" in seen
        assert not {"half", "work"} & set(seen)
        mq.transaction_checker(check)

        async def ended() -> bool:
            return (await mq.admin.halves()).total == 0

        await until(ended, "both open ones were asked about")
        keys = [message.key async for message in mq.read("orders")]
        assert sorted(key or "" for key in keys) == sorted({*steps} - {"half"})
        assert await bodies(mq, "bills") == [b"1", b"2"] * (len(steps) - 1)
        assert {"half", "work"} <= {question.key for question in asked}
        assert not {question.key for question in asked} & set(seen)
        assert asked[0].topics == ["bills", "orders"]
        assert await mq.admin.half_lines() == []


async def test_a_broker_killed_between_half_and_commit_forgets_nothing(quick: Node) -> None:
    async with ternmq.connect(quick.url, app="shop", delivery_timeout=30) as mq:
        mq.transaction_checker(lambda question: "unknown")
        before = mq.transaction()
        await before.send("orders", b"before")
        await before.commit()
        rolled = mq.transaction()
        await rolled.send("orders", b"rolled back")
        await rolled.rollback()
        left = mq.transaction(first_check=60)
        await left.send("orders", b"open")
        staged = mq.detached("job", attempt=1)
        await staged.send_many("orders", [b"x", b"y"])
        await kill_and_start(quick, mq)
        assert await bodies(mq, "orders") == [b"before"]
        assert (await mq.admin.halves()).total == 2
        await left.commit()
        assert [receipt.sequence for receipt in left.receipts] == [1]
        await mq.commit_detached("job", [1])
        await kill_and_start(quick, mq)
        assert await bodies(mq, "orders") == [b"before", b"open", b"x", b"y"]
        for tx in (before, left):
            assert (await mq.admin.end_half(tx.id, "commit")).repeated
        with pytest.raises(TransactionEnded, match="rolled back"):
            await mq.admin.end_half(rolled.id, "commit")
        assert (await mq.commit_detached("job", [1])).repeated
        async with mq.consumer("orders", group="g") as consumer:
            coming = aiter(consumer)
            got = [await asyncio.wait_for(anext(coming), 10) for _ in range(4)]
            assert [(one.sequence, one.body) for one in got] == [
                (0, b"before"),
                (1, b"open"),
                (2, b"x"),
                (3, b"y"),
            ]


async def test_a_commit_whose_broker_dies_is_done_once(quick: Node) -> None:
    """The client repeats HALF and HALF_END until they are answered."""
    async with ternmq.connect(quick.url, app="shop", delivery_timeout=30) as mq:
        mq.transaction_checker(lambda question: "unknown")

        async def one(number: int) -> None:
            async with mq.transaction(first_check=60) as tx:
                await tx.send("orders", b"%d" % number)

        tasks = [asyncio.create_task(one(number)) for number in range(200)]
        await asyncio.sleep(0)
        await until(lambda: _some(mq), "some are stored")
        await kill_and_start(quick, mq)
        await asyncio.gather(*tasks)
        assert sorted(await bodies(mq, "orders"), key=int) == [b"%d" % n for n in range(200)]


async def _some(mq: ternmq.Client) -> bool:
    return "orders" in [topic.name for topic in await mq.admin.topics()]


async def test_people_see_and_end_transactions(quick: Node) -> None:
    url = quick.url
    async with ternmq.connect(url, app="shop") as mq:
        mq.transaction_checker(lambda question: "unknown")
        tx, other = mq.transaction(checks_max=1), mq.transaction(first_check=60)
        await tx.send("orders", b"one")
        await other.send("orders", b"two")
        await mq.detached("job").send("orders", b"three")
        for attempt in (1, 2):
            await mq.detached("again", attempt=attempt).send("orders", b"four")

        async def dropped() -> bool:
            return (await mq.admin.halves(dropped_only=True)).total == 1

        await until(dropped, "the first was given up")
    found = tern("half", "list", "--dropped", "--json", url=url).json()
    assert [one["transaction"] for one in found["transactions"]] == [tx.id]
    assert (found["transactions"][0]["state"], found["dropped_since_start"]) == ("dropped", 1)
    assert "5 half message(s)" in tern("ledger", url=url).err
    assert tern("half", "show", "job", "--json", url=url).json()[0]["detached"] is True
    done = tern("half", "commit", tx.id, "--yes", url=url)
    assert "is committed: 1 message(s)" in done.out
    assert "rolled back" in tern("half", "rollback", other.id, "--yes", url=url).out
    assert "committed already" in tern("half", "rollback", tx.id, "-y", url=url, code=1).err
    tern("half", "commit", "job", "--yes", url=url)
    assert "committed already" in tern("half", "rollback", "job", "-y", url=url, code=1).err
    assert "--attempt 2" in tern("half", "commit", "again", "--yes", url=url, code=2).err
    tern("half", "commit", "again", "--attempt", "2", "--yes", url=url)
    assert "no open transaction" in tern("half", "rollback", "nothing", "-y", url=url, code=1).err
    with ternmq.sync.connect(url, app="shop") as mq_again:
        assert [message.body for message in mq_again.read("orders")] == [b"one", b"three", b"four"]
    assert "transaction dropped" in quick.stderr_text()


async def test_questions_come_after_6_s_then_every_30_s_and_15_times(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    """R11: what is promised without any setting, by a clock that the test turns."""
    clock = SharedClock(tmp_path / "clock")
    node = node_factory(prefix=clock.prefix)
    heard_ms: list[float] = []
    announced_ms: list[int] = []
    async with ternmq.connect(node.url, app="shop") as mq:

        @mq.transaction_checker
        def check(question: TransactionCheck) -> str:
            heard_ms.append(clock.now() * 1000)
            return "unknown"

        await mq.transaction().send("orders", b"one")

        async def ended() -> bool:
            return len(heard_ms) == 15 and (await mq.admin.halves(dropped_only=True)).total == 1

        async def asked() -> bool:
            return len(heard_ms) == len(announced_ms)

        for number in range(15):
            [one] = (await mq.admin.halves()).transactions
            assert (one.checks, one.state) == (number, "open")
            announced_ms.append(one.next_at_ms)
            clock.turn((one.next_at_ms - clock.now() * 1000) / 1000 + 0.01)
            await until(asked, f"question {number + 1}")
        assert announced_ms[0] == one.opened_at_ms + 6_000
        assert all(heard >= at for heard, at in zip(heard_ms, announced_ms, strict=True))
        gaps = [announced_ms[at + 1] - announced_ms[at] for at in range(14)]
        assert min(gaps) >= 30_000
        assert sorted(gaps)[7] < 32_000  # The timer's tick, and a machine that is busy.
        clock.turn(31)
        await until(ended, "it is given up")


def test_the_blocking_client_has_transactions(quick: Node) -> None:
    with ternmq.sync.connect(quick.url, app="shop") as mq:
        mq.transaction_checker(lambda question: "commit")
        with mq.transaction() as tx:
            tx.send("orders", b"one")
        assert (tx.state, tx.receipts[0].sequence) == ("committed", 0)
        with mq.transaction() as tx:
            tx.send("orders", b"no")
            raise ternmq.Rollback
        assert tx.state == "rolled_back"
        with pytest.raises(ValueError, match="boom"), mq.transaction() as tx:
            tx.send("orders", b"two")
            raise ValueError("boom")
        mq.detached("job").send("orders", b"three")
        assert mq.commit_detached("job").attempts == [0]
        wait_until(lambda: not mq.admin.halves().total, "the checker answered")
        assert {message.body for message in mq.read("orders")} == {b"one", b"two", b"three"}
