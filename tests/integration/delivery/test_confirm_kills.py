"""Confirm on consumption on real processes: over a killed broker, and from the command line."""

import asyncio
import subprocess
import sys

import pytest

import ternmq
from tests.integration.processes import Node, clean_environment, tern

CONSUME = """
import os, ternmq
with ternmq.sync.connect(os.environ["TERN_URL"], app="worker") as mq:
    with mq.consumer("confirm.cli", group="billing") as consumer:
        for message in consumer:
            message.ack()
"""


async def test_a_confirmation_is_waited_for_over_a_killed_broker(node: Node) -> None:
    """D13: kill -9 while the producer waits; the client asks the next life of the broker."""
    tern("group", "create", "orders", "billing", "--create", url=node.url)
    async with ternmq.connect(node.url, app="shop") as mq:
        sending = asyncio.create_task(
            mq.send_many("orders", [b"x"] * 5, confirm_group="billing", timeout=60)
        )
        async with mq.consumer("orders", group="billing") as consumer:
            messages = [await anext(consumer) for _ in range(5)]
            for message in messages[:3]:
                await message.ack()
        node.kill()
        assert not sending.done()
        await asyncio.to_thread(node.start)
        async with mq.consumer("orders", group="billing") as consumer:
            async with asyncio.timeout(30):
                async for message in consumer:
                    await message.ack()
                    if message.sequence == 4:
                        break
                receipts = await sending
    assert [receipt.sequence for receipt in receipts] == list(range(5))

    node.kill()  # What the producer was told is on disk.
    node.start()
    [line] = tern("ledger", "orders", "billing", "--json", url=node.url).json()
    assert (line["acked"], line["ready"]) == (5, 0)


def test_the_command_line_waits_for_a_group_too(shared_node: Node) -> None:
    url = shared_node.url
    missing = tern("send", "confirm.cli", "x", "--confirm-group", "billing", url=url, code=None)
    assert missing.code != 0
    assert "confirm.cli" in missing.err

    tern("group", "create", "confirm.cli", "billing", "--create", url=url)
    late = tern(
        "send",
        "confirm.cli",
        "x",
        "--confirm-group",
        "billing",
        "--timeout",
        "0.1",
        url=url,
        code=None,
    )
    assert late.code != 0
    assert "is stored" in late.err
    assert "billing" in late.err

    worker = subprocess.Popen(
        [sys.executable, "-c", CONSUME], env=clean_environment({"TERN_URL": url})
    )
    try:
        done = tern(
            "send",
            "confirm.cli",
            "y",
            "--confirm-group",
            "billing",
            "--timeout",
            "30",
            "--json",
            url=url,
        ).json()
    finally:
        worker.kill()
        worker.wait(10)
    assert done["confirmed_by"] == "billing"
    assert done["sequence"] == 1


def test_a_blocking_client_waits_and_says_what_became_of_it(shared_node: Node) -> None:
    with ternmq.sync.connect(shared_node.url, app="shop") as mq:
        mq.admin.create_topic("bills")
        mq.admin.create_group("bills", "audit", ternmq.Start())
        with pytest.raises(ternmq.NotConfirmed) as caught:
            mq.send("bills", b"x", confirm_group="audit", timeout=0.1)
        with mq.consumer("bills", group="audit") as consumer:
            next(consumer).ack()
            mq.confirm(caught.value.receipt, "audit", timeout=10)
