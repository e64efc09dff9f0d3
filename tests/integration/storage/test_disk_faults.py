"""A real node whose disk answers with errors: no space, failed flushes, short writes, kills.

What design 4 promises: producers are told, consuming goes on, space that returns is enough; a
failed flush is final until a restart, and nothing is acknowledged after it.
"""

import asyncio
import re
import shutil

import pytest

import ternmq
from tests.integration.faults import (
    WRITES,
    file_size_limit,
    injected,
    log_size,
    message_log,
    needs_strace,
    pull_log,
)
from tests.integration.processes import Node, NodeFactory, tern
from tests.integration.verifiable_clients import balanced, whole_topic
from tests.waiting import until, wait_until

TOPIC = "orders"
FEW = 20


async def send_some(mq: ternmq.Client, first: int, count: int) -> list[str]:
    receipts = await mq.send_many(TOPIC, [b"%d" % number for number in range(first, first + count)])
    assert not receipts.failures
    return [str(number) for number in range(first, first + count)]


async def take(mq: ternmq.Client, group: str, count: int) -> list[str]:
    """Consume and ack so many messages, and hear from the broker that they are acked."""
    got: list[str] = []
    async with asyncio.timeout(20), mq.consumer(TOPIC, group=group, prefetch=count) as consumer:
        async for message in consumer:
            got.append(message.body.decode())
            message.ack()
            if len(got) == count:
                break
        await consumer.flush()
    return got


async def until_sending_works(mq: ternmq.Client) -> None:
    await until(lambda: mq.send(TOPIC, b"again"), ignoring=ternmq.DiskFull)


@needs_strace
@pytest.mark.parametrize("where", ["message log", "everywhere"])
async def test_no_space_refuses_producers_and_lets_consumers_go_on(where: str, node: Node) -> None:
    """R14, D8: DiskFull says so; acks go on; sending works again by itself."""
    async with ternmq.connect(node.url) as mq:
        sent = await send_some(mq, 0, FEW)
        assert await take(mq, "early", FEW // 2)
        paths = [message_log(node)] if where == "message log" else []
        with injected(node, f"{WRITES}:error=ENOSPC", paths=paths):
            with pytest.raises(ternmq.DiskFull, match="no space left"):
                await mq.send(TOPIC, b"refused")
            got = await take(mq, "early", FEW - FEW // 2)
        await until_sending_works(mq)

        assert got == sent[FEW // 2 :]
        assert "refused" not in (await whole_topic(mq, TOPIC)).values()
        (line,) = await mq.admin.ledger(TOPIC, "early")
        assert balanced(line)
        assert line.acked == FEW
    assert "messages not stored" in node.stderr_text()


@needs_strace
async def test_a_new_group_on_a_full_disk_is_refused_and_can_be_made_later(node: Node) -> None:
    """Q4: a group's start is a decision; it is not answered before it is on the disk."""
    async with ternmq.connect(node.url) as mq:
        await send_some(mq, 0, FEW)
        with (
            injected(node, f"{WRITES}:error=ENOSPC", paths=[pull_log(node)]),
            pytest.raises(ternmq.DiskFull),
        ):
            await take(mq, "late", 1)

        assert len(await take(mq, "late", FEW)) == FEW


@needs_strace
async def test_a_failed_flush_of_messages_is_final_until_a_restart(node: Node) -> None:
    """R2, R14: no ack, DiskFailed is said, also after the disk works again; reading goes on."""
    async with ternmq.connect(node.url) as mq:
        sent = await send_some(mq, 0, FEW)
        with injected(node, "fdatasync:error=EIO:when=1", paths=[message_log(node)]) as trace:
            with pytest.raises(ternmq.DiskFailed):
                await mq.send(TOPIC, b"unsure")
            assert "INJECTED" in trace.read_text()
        for _ in range(3):
            with pytest.raises(ternmq.DiskFailed, match="restart this server"):
                await mq.send(TOPIC, b"refused")

        assert list((await whole_topic(mq, TOPIC)).values()) == sent
        assert await take(mq, "readers", FEW) == sent
        (status,) = await mq.admin.broker_status()
        assert "fsync failed" in status.state
    assert "fsync failed" in node.stderr_text()
    node.restart()
    async with ternmq.connect(node.url) as mq:
        await mq.send(TOPIC, b"after")
        found = list((await whole_topic(mq, TOPIC)).values())
        assert found[:FEW] == sent
        assert found[FEW:] in (["after"], ["unsure", "after"])
        (line,) = await mq.admin.ledger(TOPIC, "readers")
        assert balanced(line)


@needs_strace
async def test_a_failed_flush_of_the_pull_log_stops_decisions_and_nothing_else(node: Node) -> None:
    """Producers and consumers go on; what must be decided durably is refused; stopping works."""
    async with ternmq.connect(node.url) as mq:
        sent = await send_some(mq, 0, FEW)
        assert await take(mq, "known", 1) == ["0"]
        with injected(node, "fdatasync:error=EIO", paths=[pull_log(node)]) as trace:
            with pytest.raises(ternmq.DiskFailed):
                await take(mq, "new", 1)
            assert "INJECTED" in trace.read_text()
        sent += await send_some(mq, FEW, FEW)
        with pytest.raises(ternmq.DiskFailed):
            await take(mq, "new", 1)
        assert await take(mq, "known", 2 * FEW - 1) == sent[1:]
        assert list((await whole_topic(mq, TOPIC)).values()) == sent
        (status,) = await mq.admin.broker_status()
        assert "fsync failed" in status.state
    node.restart()
    async with ternmq.connect(node.url) as mq:
        assert list((await whole_topic(mq, TOPIC)).values()) == sent
        assert await take(mq, "new", 2 * FEW) == sent
        lines = await mq.admin.ledger(TOPIC)
        assert all(balanced(line) for line in lines)


@needs_strace
async def test_writes_that_take_only_a_part_are_continued(node: Node) -> None:
    """A call that wrote nothing at first is made again; nobody notices."""
    async with ternmq.connect(node.url) as mq:
        with injected(node, f"{WRITES}:retval=0:when=1+2", paths=[message_log(node)]) as trace:
            sent = [await send_some(mq, number * FEW, FEW) for number in range(5)]
            assert "INJECTED" in trace.read_text()
        wanted = [body for part in sent for body in part]
        assert list((await whole_topic(mq, TOPIC)).values()) == wanted


async def test_a_short_write_at_a_limit_is_taken_back(node: Node) -> None:
    """A real short write, then EFBIG: the half batch is cut off again before the next one."""
    body = bytes(range(256)) * 64
    async with ternmq.connect(node.url, compression="none") as mq:
        await mq.send(TOPIC, b"first")
        end = log_size(message_log(node))
        with file_size_limit(node, end + 5000):
            with pytest.raises(ternmq.DiskFull):
                await mq.send(TOPIC, body)
            assert log_size(message_log(node)) == end
        await until_sending_works(mq)
        receipt = await mq.send(TOPIC, body)
    node.kill()
    node.start()
    async with ternmq.connect(node.url) as mq:
        bodies = [message.body async for message in mq.read(TOPIC)]
        assert bodies == [b"first", b"again", body]
        assert receipt.sequence == 2
    assert "torn tail" not in node.stderr_text()


KILLS = [
    (f"{WRITES}:signal=KILL:when=1", "message"),
    (f"{WRITES}:signal=KILL:when=7", "message"),
    ("fdatasync:signal=KILL:when=1", "message"),
    ("fdatasync:signal=KILL:when=5", "message"),
    ("rename:signal=KILL:when=1", ""),
    ("rename:signal=KILL:when=2", ""),
    (f"{WRITES}:signal=KILL:when=3", "pull"),
    ("fsync:signal=KILL:when=1", ""),
]


@needs_strace
@pytest.mark.parametrize(("fault", "where"), KILLS)
async def test_a_kill_at_a_chosen_system_call_loses_nothing(
    fault: str, where: str, node_factory: NodeFactory
) -> None:
    """R2, R3: in the middle of a write, of a flush, of a checkpoint."""
    node = node_factory(environment={"TERN_CHECKPOINT_INTERVAL_MS": "150"})
    paths = {"message": [message_log(node)], "pull": [pull_log(node)], "": []}[where]
    stored: dict[int, str] = {}
    async with ternmq.connect(node.url) as mq:
        await take_in_background(mq)
        with injected(node, fault, paths=paths):
            number = 0
            while True:
                sending = asyncio.create_task(mq.send(TOPIC, b"%d" % number))
                while not sending.done() and node.running:
                    await asyncio.wait({sending}, timeout=0.05)
                if not sending.done():
                    break
                stored[sending.result().sequence] = str(number)
                number += 1
        node.process.wait(10)
        node.start()
        stored[(await sending).sequence] = str(number)  # The repeat arrives, or is recognised.
        found = await whole_topic(mq, TOPIC)
        assert found == {at: str(at) for at in range(len(found))}
        assert stored == found
        lines = await mq.admin.ledger(TOPIC)
        assert lines
        assert all(balanced(line) for line in lines)


async def take_in_background(mq: ternmq.Client) -> None:
    """A consumer that goes on as long as the client lives, so that the pull log is written."""
    consumer = await mq.consumer(TOPIC, group="steady").start()

    async def run() -> None:
        async for message in consumer:
            message.ack()

    task = asyncio.create_task(run())
    task.add_done_callback(lambda done: done.cancelled() or done.exception())


def test_the_command_line_tells_a_full_disk_in_one_line(node_factory: NodeFactory) -> None:
    node = node_factory(environment={"TERN_DISK_FREE_MIN": "1024GiB"})

    refused = tern("send", TOPIC, "x", url=node.url, code=None)

    assert refused.code not in (0, 130)
    assert refused.err.count("\n") == 1
    assert "free some space" in refused.err
    wait_until(lambda: "messages not stored" in node.stderr_text(), "the node said so too")


async def test_folders_deleted_under_a_running_node_are_noticed_and_nothing_more_is_acknowledged(
    node: Node,
) -> None:
    """Open files can be written after their names are gone, and would be lost with the process."""
    async with ternmq.connect(node.url) as mq:
        await send_some(mq, 0, FEW)
        await mq.send(TOPIC, b"later", delay=3600)
        shutil.rmtree(node.data_dir / "delay")
        with pytest.raises(ternmq.DiskFailed, match="delay"):
            await mq.send(TOPIC, b"lost", delay=3600)
        assert await take(mq, "readers", FEW), "the broker has its own folder"

        shutil.rmtree(node.data_dir / "broker")
        said = re.compile("was removed.*broker/message")
        wait_until(lambda: bool(said.search(node.stderr_text())), "noticed without a write")
        servers = [*await mq.admin.broker_status(), *await mq.admin.delays.status()]
        assert all("was removed" in server.state for server in servers)
        for delay in (None, 3600):
            with pytest.raises(ternmq.DiskFailed, match=r"was removed.*restart this server"):
                await mq.send(TOPIC, b"lost", delay=delay)
    assert node.stop() == 0
