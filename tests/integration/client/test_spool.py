"""A producer with a spool is killed and goes on: nothing lost, nothing doubled (D6)."""

import subprocess
import sys
from pathlib import Path

import pytest

import ternmq
from tests.integration.client.spool_producer import (
    HANDED_OVER,
    IN_THE_FILE_FROM,
    POINTS,
    STORED_FROM,
)
from tests.integration.faults import needs_root
from tests.integration.processes import Node, NodeFactory, clean_environment
from tests.integration.storage.test_full_disk import small_disk
from tests.waiting import wait_until

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
            [
                sys.executable,
                "-c",
                PROGRAM,
                node.url,
                str(folder / "spool"),
                str(first),
                str(count),
            ],
            stdout=out,
            env=clean_environment(),
        )


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


def test_a_producer_is_killed_at_every_step(node: Node, tmp_path: Path) -> None:
    """What is in the file is stored once; what is not was never accepted.

    A producer without a spool takes along what it was handed and had not sent.
    """
    whole = [(str(tmp_path / str(number)), point) for number, point in enumerate(POINTS)]
    dying = [
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.integration.client.spool_producer",
                node.url,
                spool,
                point,
                str(number),
            ],
            stderr=subprocess.PIPE,
            env=clean_environment(),
        )
        for number, (spool, point) in enumerate([*whole, ("-", HANDED_OVER)])
    ]
    for process in dying:
        _, err = process.communicate(timeout=60)
        assert process.returncode == -9, err.decode()
    assert sorted(stored(node)) == list(range(STORED_FROM, len(POINTS)))

    for number in range(len(POINTS)):
        with ternmq.sync.connect(node.url, app="meter", spool=tmp_path / str(number)) as mq:
            mq.flush()
            assert mq.stats().buffered == 0

    assert sorted(stored(node)) == list(range(IN_THE_FILE_FROM, len(POINTS)))


@needs_root
def test_a_full_disk_is_said_and_loses_nothing(node: Node, tmp_path: Path) -> None:
    """The producer's disk fills up while no broker is there; then one comes."""
    node.kill()
    accepted = 0
    with (
        small_disk(tmp_path, "tmpfs") as disk,
        ternmq.sync.connect(node.url, app="meter", spool=disk / "spool") as mq,
    ):
        for size in (100_000, 1_000, 1):  # To the last byte.
            with pytest.raises(ternmq.DiskFull, match="no space left"):
                while True:
                    mq.send_nowait("reading", (b"%d" % accepted).ljust(size))
                    accepted += 1
        assert accepted > 100
        node.start()
        mq.flush()
        mq.send_nowait("reading", b"%d" % accepted)  # There is room again.
        mq.flush()
        assert mq.stats().buffered == 0
    assert stored(node) == list(range(accepted + 1))
