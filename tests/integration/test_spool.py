"""A producer with a spool is killed and goes on: nothing lost, nothing doubled (D6)."""

import subprocess
import sys
from pathlib import Path

import pytest

import ternmq
from tests.integration.processes import Node, NodeFactory, clean_environment, wait_until

PROGRAM = """
import asyncio, sys, ternmq

async def main(url, spool, first, count):
    async with ternmq.connect(url, app="meter", spool=spool, delivery_timeout=30) as mq:
        for number in range(first, first + count):
            mq.send_nowait("reading", b"%d" % number)
            sys.stdout.write(f"{number}\\n")  # Accepted.
            sys.stdout.flush()
            await asyncio.sleep(0)
        await mq.flush()

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
"""


def meter(node: Node, folder: Path, first: int, count: int) -> "subprocess.Popen[bytes]":
    with (folder / f"accepted-{first}").open("wb") as out:
        return subprocess.Popen(
            [sys.executable, "-c", PROGRAM, node.url, str(folder / "spool"), str(first),
             str(count)],
            stdout=out, env=clean_environment(),
        )  # fmt: skip


def accepted(folder: Path, first: int) -> list[int]:
    lines = (folder / f"accepted-{first}").read_bytes().split(b"\n")
    return [int(line) for line in lines[:-1]]


def stored(node: Node) -> list[int]:
    with ternmq.sync.connect(node.url, app="check") as mq:
        return [int(message.body) for message in mq.read("reading", start="earliest")]


def test_a_producer_that_is_killed_goes_on_where_it_was(node: Node, tmp_path: Path) -> None:
    """Killed while sending, killed while no broker was there, then let finish."""
    million = 1_000_000
    sending = meter(node, tmp_path, 0, million)
    wait_until(lambda: len(accepted(tmp_path, 0)) > 500, "five hundred messages", seconds=30)
    sending.kill()
    sending.wait()
    node.kill()
    alone = meter(node, tmp_path, million, million)
    wait_until(lambda: len(accepted(tmp_path, million)) > 100, "a hundred messages", seconds=30)
    alone.kill()
    alone.wait()
    node.start()
    last = meter(node, tmp_path, 2 * million, 10)
    assert last.wait(60) == 0

    sure = [number for first in (0, million, 2 * million) for number in accepted(tmp_path, first)]
    found = stored(node)
    assert found == sorted(found), "order"
    assert len(found) == len(set(found)), "doubled"
    assert set(sure) <= set(found), "lost"
    assert len(set(found) - set(sure)) <= 2  # In the file, killed before it was printed.


def test_a_directory_belongs_to_one_client(shared_node: Node, tmp_path: Path) -> None:
    with ternmq.sync.connect(shared_node.url, app="a", spool=tmp_path / "s") as mq:
        mq.send_nowait("spool.sync", b"1")
        receipt = mq.send("spool.sync", b"2", key="k")
        receipts = mq.send_many("spool.sync", [b"%d" % number for number in range(100)])
        assert receipt.sequence == 1
        assert [one.sequence for one in receipts] == list(range(2, 102))
        assert mq.stats().sent == 102
        with pytest.raises(ternmq.BadConfig, match="in use by another process"):
            ternmq.sync.connect(shared_node.url, app="b", spool=tmp_path / "s")


def test_connecting_needs_nobody(node_factory: NodeFactory, tmp_path: Path) -> None:
    node = node_factory(start=False)
    with ternmq.sync.connect(node.url, app="a", spool=str(tmp_path / "s")) as mq:
        mq.send_nowait("reading", b"7")
        node.start()
        assert mq.send("reading", b"8").sequence == 1
    assert stored(node) == [7, 8]
