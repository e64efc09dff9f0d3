"""Order, filters, broadcast and retries on real processes: kill -9 of the broker and of consumers
in the middle, and the ledger balances after every step.
"""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path

import ternmq
from ternmq.wire.messages.groups import LedgerLine, Start
from tests.integration.processes import Node, NodeFactory, clean_environment
from tests.waiting import until, wait_until

QUICK = {"TERN_SESSION_GRACE_MS": "200"}
KEYS, EACH = 20, 30


@contextmanager
def tellers(node: Node, topic: str, logs: list[Path], *options: str) -> Iterator[list[int]]:
    """Consumers as processes, one per log; yields their pids once they are there."""
    command = [
        sys.executable,
        "-m",
        "tests.integration.delivery.recording_consumer",
        node.url,
        topic,
    ]
    running = [
        subprocess.Popen([*command, str(log), *options], env=clean_environment()) for log in logs
    ]
    try:
        for log in set(logs):
            wait_until(partial(_ready, log, logs.count(log)), "consumers", seconds=30)
        yield [process.pid for process in running]
    finally:
        for process in running:
            process.kill()
            process.wait()


def _ready(log: Path, count: int) -> bool:
    return lines(log, "ready") >= count


def told(log: Path) -> list[tuple[str, int]]:
    if not log.exists():
        return []
    whole = [line.rsplit(" ", 1) for line in log.read_text().splitlines()]
    return [(body, int(attempt)) for body, attempt in whole if body != "ready"]


def lines(log: Path, body: str) -> int:
    text = log.read_text() if log.exists() else ""
    return sum(line.split(" ")[0] == body for line in text.splitlines())


async def balanced(mq: ternmq.Client, topic: str, group: str) -> LedgerLine:
    [line] = await mq.admin.ledger(topic, group)
    done = line.acked + line.filtered + line.skipped + line.dead + line.expired
    assert line.total == line.ready + line.in_flight + line.waiting_retry + done
    return line


async def settled(mq: ternmq.Client, topic: str, group: str) -> LedgerLine:
    """Wait until nothing is left to do."""

    async def look() -> LedgerLine | None:
        line = await balanced(mq, topic, group)
        left = line.ready + line.in_flight + line.waiting_retry
        return line if line.total and not left else None

    found = await until(look, "nothing left to do", seconds=40)
    assert found is not None
    return found


async def test_keys_stay_in_order_through_kills_of_consumers_and_of_the_broker(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    """R6, J7, J16: one in flight per key; a failing message is retried in place and holds back its
    own key only; what comes again begins earlier and goes on in order, nothing is passed over."""
    node, log = node_factory(environment=QUICK), tmp_path / "log"
    async with ternmq.connect(node.url, app="shop") as mq:
        await mq.admin.create_group("orders", "g", Start())
        for number in range(EACH):
            for key in range(KEYS):
                fails = "fail" if key == 3 and number == 10 else "fine"
                mq.send_nowait("orders", f"{fails}-{key}-{number}".encode(), order_key=f"k{key}")
        await mq.flush()
        with tellers(node, "orders", [log], "group", "group=g", "ordered=1"):
            wait_until(lambda: len(told(log)) > 60, "a beginning")
        await balanced(mq, "orders", "g")
        with tellers(node, "orders", [log, log], "group", "group=g", "ordered=1"):
            wait_until(lambda: len(told(log)) > 200, "the middle")
            node.kill()
            node.restart()
            line = await settled(mq, "orders", "g")

    assert (line.acked, line.total) == (KEYS * EACH, KEYS * EACH)
    seen: dict[str, list[int]] = {}
    for body, _ in told(log):
        _, name, place = body.split("-")
        seen.setdefault(name, []).append(int(place))
    for name, numbers in seen.items():
        assert set(numbers) == set(range(EACH)), name
        steps = pairwise(numbers)
        assert all(after <= before + 1 for before, after in steps), (name, numbers)
    assert [attempt for body, attempt in told(log) if body == "fail-3-10"][-1] == 3


async def test_filters_give_a_group_its_messages_and_count_the_others_through_kills(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    """R9, R10: by tag and by a condition, on the broker; what is filtered is counted."""
    node = node_factory(environment=QUICK)
    logs = {"tag": tmp_path / "tag", "sql": tmp_path / "sql"}
    count = 3_000
    async with ternmq.connect(node.url, app="shop") as mq:
        for group in logs:
            await mq.admin.create_group("orders", group, Start())

        async def send(first: int, end: int) -> None:
            for number in range(first, end):
                mq.send_nowait(
                    "orders", b"%d" % number, tag="abc"[number % 3], properties={"n": number}
                )
            await mq.flush()

        await send(0, count // 2)
        by_tag = ("group", "group=tag", "tag=a || c")
        by_sql = ("group", "group=sql", "filter=n BETWEEN 1000 AND 1999")
        with (
            tellers(node, "orders", [logs["tag"]], *by_tag),
            tellers(node, "orders", [logs["sql"]], *by_sql),
        ):
            wait_until(lambda: len(told(logs["tag"])) > 300, "a beginning")
            node.kill()
            node.restart()
            await send(count // 2, count)
            tagged = await settled(mq, "orders", "tag")
            chosen = await settled(mq, "orders", "sql")

    assert (tagged.acked, tagged.filtered, tagged.total) == (2_000, 1_000, count)
    assert (chosen.acked, chosen.filtered, chosen.total) == (1_000, 2_000, count)
    assert {int(body) for body, _ in told(logs["tag"])} == {n for n in range(count) if n % 3 != 1}
    assert {int(body) for body, _ in told(logs["sql"])} == set(range(1_000, 2_000))


async def test_every_instance_hears_every_broadcast_over_a_kill_of_the_broker(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    """Q15, R5: at least once per instance; an instance that starts again begins at the latest; the
    broker keeps nothing of them."""
    node = node_factory()
    logs = [tmp_path / name for name in ("one", "two", "late")]
    async with ternmq.connect(node.url, app="shop") as mq:
        await mq.send("news", b"before")
        with tellers(node, "news", logs[:2], "broadcast"):
            await mq.send_many("news", [b"%d" % number for number in range(50)])
            wait_until(lambda: all(len(told(log)) >= 50 for log in logs[:2]), "the first half")
            node.kill()
            node.restart()
            with tellers(node, "news", logs[2:], "broadcast"):
                await mq.send_many("news", [b"%d" % number for number in range(50, 100)])
                wait_until(
                    lambda: all(lines(log, "99") for log in logs), "the second half", seconds=30
                )
        assert await mq.admin.groups("news") == []

    everything = {str(number) for number in range(100)}
    assert {body for body, _ in told(logs[0])} == {body for body, _ in told(logs[1])} == everything
    assert {body for body, _ in told(logs[2])} == {str(number) for number in range(50, 100)}


async def test_what_waits_for_a_retry_waits_on_after_kill_9_and_by_a_new_policy(
    node_factory: NodeFactory,
) -> None:
    """R12, J3: 3^(n-1) seconds as a policy; a changed one holds for what is already waiting."""
    node = node_factory(environment=QUICK)
    async with ternmq.connect(node.url, app="shop") as mq:
        sent = await mq.send("orders", b"x")
        await mq.admin.create_group("orders", "g", Start())
        await mq.admin.set_group("orders", "g", retry="power")
        async with mq.consumer("orders", group="g") as consumer:
            async with asyncio.timeout(30):
                first = await anext(aiter(consumer))
                first.retry(reason="one")
                second = await anext(aiter(consumer))  # After a second.
                second.retry(reason="two")
            await consumer.flush()
        await mq.admin.set_group("orders", "g", retry="table:1s,1h")
        node.kill()
        node.restart()
        line = await balanced(mq, "orders", "g")
        assert (line.waiting_retry, line.total) == (1, 1)
        await mq.admin.set_group("orders", "g", retry="fixed:1ms")
        async with mq.consumer("orders", group="g") as consumer, asyncio.timeout(30):
            third = await anext(aiter(consumer))
            await third.ack()
        line = await settled(mq, "orders", "g")

    assert [m.attempt for m in (first, second, third)] == [1, 2, 3]
    assert {m.id for m in (first, second, third)} == {sent.id}
    assert (second.stored_at, line.acked) == (first.stored_at, 1)
