"""Members of a broker group whose disk fails or lies: they leave the in-sync set, another leads,
and what is of no use any more is moved aside and copied anew. Real processes; for long runs."""

import asyncio
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pytest

import ternmq
from tests.integration.broker_pair import Pair, bodies, make_pair
from tests.integration.faults import injected, message_log, needs_strace
from tests.integration.processes import BrokerServer, NodeFactory, tern
from tests.integration.storage.test_damage import cut_off
from tests.waiting import wait_until

NUMBERS = [f"body-{number}" for number in range(50)]


def member_of(pair: Pair, broker: BrokerServer) -> str:
    """Its id in the group."""
    members = pair.standing().members
    return next(each.id for each in members if f":{broker.port + 1}" in each.address)


def kept(broker: BrokerServer) -> list[Path]:
    return sorted(broker.data_dir.glob("broker.aside-*"))


async def filled_pair(
    nodes: NodeFactory, folder: Path, settings: Mapping[str, str] | None = None
) -> Pair:
    """Two brokers in sync that hold NUMBERS."""
    pair = await asyncio.to_thread(make_pair, nodes, folder, settings=settings)
    await fill(pair)
    return pair


async def fill(pair: Pair) -> None:
    async with ternmq.connect(pair.url, app="test") as mq:
        for number in NUMBERS:
            await mq.send("orders", number.encode())


async def damage(broker: BrokerServer) -> None:
    """The end of what was acknowledged is gone while it is stopped."""
    await asyncio.to_thread(broker.stop)
    cut_off(message_log(broker), 100)


@pytest.mark.long
async def test_a_damaged_replica_moves_its_data_aside_and_copies_everything_anew(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    pair = await filled_pair(node_factory, tmp_path)
    replica = await asyncio.to_thread(pair.replica)
    member = await asyncio.to_thread(member_of, pair, replica)
    await damage(replica)
    await asyncio.to_thread(replica.start)
    await asyncio.to_thread(
        wait_until,
        lambda: bool(kept(replica)) and member in pair.standing().in_sync,
        "a new copy",
        seconds=40,
    )

    [aside] = kept(replica)
    assert (aside / "message").is_dir(), "nothing is deleted"
    async with ternmq.connect(pair.url, app="test") as mq:
        read = [message.body.decode() async for message in mq.read("orders", from_="replica")]
        assert read == NUMBERS
    told = await asyncio.to_thread(tern, "broker", "list", url=pair.url)
    assert f"kept aside: {aside.name}" in told.out
    doctor = await asyncio.to_thread(tern, "doctor", url=pair.url, code=None)
    assert aside.name in doctor.out


@pytest.mark.long
async def test_a_damaged_master_leaves_the_set_and_comes_back_as_a_replica(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    pair = await filled_pair(node_factory, tmp_path)
    master = await asyncio.to_thread(pair.master)
    await damage(master)
    await asyncio.to_thread(pair.wait_served, master)
    await asyncio.to_thread(master.start)
    await asyncio.to_thread(pair.wait_in_sync, 2)

    assert await asyncio.to_thread(pair.master) is not master
    assert len(kept(master)) == 1
    async with ternmq.connect(pair.url, app="test") as mq:
        assert await bodies(mq, "orders") == NUMBERS


@pytest.mark.long
async def test_the_only_copy_is_never_moved_and_one_may_forbid_it_anyway(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    settings = {"TERN_ASIDE_MAX": "0"}
    pair = await filled_pair(node_factory, tmp_path, settings)
    master = await asyncio.to_thread(pair.master)
    replica = await asyncio.to_thread(pair.replica)
    await damage(replica)
    await asyncio.to_thread(replica.start)
    await asyncio.to_thread(
        wait_until, lambda: len(pair.standing().in_sync) == 1, "it leaves", seconds=20
    )
    told = await asyncio.to_thread(tern, "broker", "list", url=pair.url)
    assert "damaged, and not moved aside" in told.out
    assert kept(replica) == []

    # Now the sole in-sync member is damaged, too: it stays what there is.
    await damage(master)
    await asyncio.to_thread(master.start)
    assert await asyncio.to_thread(pair.master) is master
    assert kept(master) == []


@needs_strace
@pytest.mark.long
async def test_a_master_whose_disk_fails_leaves_the_set_and_another_one_leads(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    settings = {"TERN_REPLICA_LOST": "continue"}
    pair = await filled_pair(node_factory, tmp_path, settings)
    master = await asyncio.to_thread(pair.master)
    member = await asyncio.to_thread(member_of, pair, master)
    async with ternmq.connect(pair.url, app="test") as mq:
        with injected(master, "fdatasync:error=EIO", paths=[message_log(master)]):
            await mq.send("orders", b"last")  # Answered by whoever leads then.
        await asyncio.to_thread(pair.wait_served, master)
        standing = await asyncio.to_thread(pair.standing)
        assert member not in standing.in_sync
        assert await bodies(mq, "orders") == [*NUMBERS, "last"]


@pytest.mark.long
async def test_with_flush_async_a_member_that_was_killed_leaves_and_catches_up(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    """A crash may have taken what it answered for; the other one has it."""
    settings = {"TERN_FLUSH": "async"}
    pair = await filled_pair(node_factory, tmp_path, settings)
    master = await asyncio.to_thread(pair.master)
    master.kill()
    await asyncio.to_thread(master.start)
    await asyncio.to_thread(pair.wait_in_sync, 2)

    assert await asyncio.to_thread(pair.master) is not master
    async with ternmq.connect(pair.url, app="test") as mq:
        assert await bodies(mq, "orders") == NUMBERS


@pytest.mark.long
async def test_a_replica_that_was_away_for_longer_than_retention_begins_anew(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    settings = {
        "TERN_REPLICA_LOST": "continue",
        "TERN_SEGMENT_SIZE": "8MiB",
        "TERN_RETENTION_SIZE": "8MiB",
        "TERN_RETENTION_INTERVAL_MS": "1000",
    }
    pair = await filled_pair(node_factory, tmp_path, settings)
    master = await asyncio.to_thread(pair.master)
    replica = await asyncio.to_thread(pair.replica)
    replica.kill()
    first = master.data_dir / "broker" / "message" / f"{0:020d}.log"
    async with ternmq.connect(pair.url, app="test") as mq:
        for _ in range(40):
            await mq.send_many("large", [os.urandom(100_000) for _ in range(10)])
        await asyncio.to_thread(wait_until, lambda: not first.exists(), "retention", seconds=60)
        await asyncio.to_thread(replica.start)
        await asyncio.to_thread(pair.wait_in_sync, 2)

        assert len(kept(replica)) == 1
        await mq.send("orders", b"taken by both")
        read = [message.body async for message in mq.read("orders", from_="replica")]
        assert read[-1] == b"taken by both"


async def sealed(pair: Pair) -> BrokerServer:
    """A master that has nothing in memory, and NUMBERS in a segment that no start reads again."""
    await fill(pair)
    async with ternmq.connect(pair.url, app="test") as mq:
        for _ in range(20):
            await mq.send_many("large", [os.urandom(100_000) for _ in range(10)])
    before = await asyncio.to_thread(pair.master)
    await asyncio.to_thread(before.stop)
    await asyncio.to_thread(pair.wait_served, before)
    await asyncio.to_thread(before.start)
    await asyncio.to_thread(pair.wait_in_sync, 2)
    return await asyncio.to_thread(pair.master)


def turn_over(broker: BrokerServer, body: str) -> None:
    """One bit of a stored message is another one."""
    first = broker.data_dir / "broker" / "message" / f"{0:020d}.log"
    with first.open("r+b") as file:
        at = file.read().index(body.encode())
        file.seek(at)
        file.write(bytes([body.encode()[0] ^ 1]))


@pytest.mark.long
@pytest.mark.parametrize("how", ["read", "pull"])
async def test_a_master_that_meets_damage_makes_room_for_one_that_has_the_message_whole(
    node_factory: NodeFactory, tmp_path: Path, how: str
) -> None:
    settings = {"TERN_SEGMENT_SIZE": "8MiB", "TERN_COLD_READS": "master"}
    pair = await asyncio.to_thread(make_pair, node_factory, tmp_path, settings=settings)
    master = await sealed(pair)
    member = await asyncio.to_thread(member_of, pair, master)
    turn_over(master, NUMBERS[25])
    async with ternmq.connect(pair.url, app="test") as mq:
        if how == "read":
            assert await bodies(mq, "orders") == NUMBERS
        else:
            got: set[str] = set()
            async with asyncio.timeout(60), mq.consumer("orders", group="all") as consumer:
                async for message in consumer:
                    got.add(message.body.decode())
                    await message.ack()
                    if len(got) == len(NUMBERS):
                        break
            assert got == set(NUMBERS)
        await asyncio.to_thread(
            wait_until,
            lambda: bool(kept(master)) and member in pair.standing().in_sync,
            "a new copy",
            seconds=40,
        )
        assert await asyncio.to_thread(pair.master) is not master
        read = [message.body.decode() async for message in mq.read("orders", from_="replica")]
        assert read == NUMBERS
        await mq.send("orders", b"taken by both")


@pytest.mark.long
async def test_a_replica_that_meets_damage_leaves_the_set_until_it_has_a_new_copy(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    """Killed in between it knows what it found, though its start finds nothing."""
    settings = {"TERN_SEGMENT_SIZE": "8MiB", "TERN_ASIDE_MAX": "0"}
    pair = await asyncio.to_thread(make_pair, node_factory, tmp_path, settings=settings)
    await sealed(pair)
    replica = await asyncio.to_thread(pair.replica)
    turn_over(replica, NUMBERS[25])
    async with ternmq.connect(pair.url, app="test") as mq:
        with suppress(TimeoutError):  # It asks the replica again until that is whole.
            async with asyncio.timeout(5):
                async for message in mq.read("orders", from_="replica"):
                    assert message.body.decode() in NUMBERS
        await asyncio.to_thread(pair.wait_in_sync, 1)
        replica.kill()
        await asyncio.to_thread(replica.start)
        told = "this member leaves the set"
        await asyncio.to_thread(
            wait_until, lambda: replica.stderr_text().count(told) == 2, told, seconds=20
        )
        assert len((await asyncio.to_thread(pair.standing)).in_sync) == 1
        assert kept(replica) == []
        assert await asyncio.to_thread(pair.master) is not replica
