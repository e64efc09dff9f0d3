"""Files of one member are removed or cut short behind its back: it never leads over the one that is
whole, nothing that was acknowledged is cut off, and somebody leads as soon as the whole one is
there (decision 0017). Real processes, and no checkpoint knows of the messages."""

import asyncio
import shutil
from pathlib import Path

import pytest

import ternmq
from tests.integration.broker_pair import Pair, bodies
from tests.integration.faults import log_size, message_log
from tests.integration.processes import BrokerServer, NodeFactory, tern
from tests.integration.replication.test_damaged_members import NUMBERS, filled_pair, kept, member_of
from tests.waiting import wait_until

SELDOM = {"TERN_CHECKPOINT_INTERVAL_MS": "600000"}
LEAVES = "this member leaves the set"


def lose(broker: BrokerServer, how: str) -> None:
    """What somebody does to the files of a member."""
    home = broker.data_dir / "broker"
    if how == "cut":
        path = message_log(broker)
        with path.open("r+b") as file:
            file.truncate(log_size(path) // 2)
    elif how == "removed":
        for path in (home / "message").glob("*.log"):
            path.unlink()
    else:
        assert how == "all"
        shutil.rmtree(home)


async def filled(
    node_factory: NodeFactory, tmp_path: Path
) -> tuple[Pair, BrokerServer, BrokerServer]:
    """Two members with messages that no checkpoint knows: the pair, its master, its replica."""
    pair = await filled_pair(node_factory, tmp_path, SELDOM)
    return pair, await asyncio.to_thread(pair.master), await asyncio.to_thread(pair.replica)


async def told(broker: BrokerServer, text: str) -> None:
    await asyncio.to_thread(
        wait_until, lambda: text in broker.stderr_text(), f"{text!r}", seconds=20
    )


async def check_whole(pair: Pair, leads: BrokerServer) -> None:
    """This one leads, everything is there, and the other one is in step again."""
    member = await asyncio.to_thread(member_of, pair, leads)
    await asyncio.to_thread(
        pair.wait, "it leads", lambda now: now.master == member and len(now.in_sync) == 2
    )
    async with ternmq.connect(pair.url, app="test") as mq:
        assert await bodies(mq, "orders") == NUMBERS
        await mq.send("orders", b"taken by both")
        read = [message.body.decode() async for message in mq.read("orders", from_="replica")]
        assert read == [*NUMBERS, "taken by both"]


@pytest.mark.parametrize("how", ["cut", "removed"])
async def test_a_member_that_lost_its_log_while_it_was_down_waits_for_the_whole_one(
    node_factory: NodeFactory, tmp_path: Path, how: str
) -> None:
    """Both were killed, and the damaged one is back first (chaos V1)."""
    pair, master, replica = await filled(node_factory, tmp_path)
    replica.kill()
    master.kill()
    lose(replica, how)
    await asyncio.to_thread(replica.launch)
    await told(replica, LEAVES)
    told_list = await asyncio.to_thread(tern, "broker", "list", url=pair.url, code=None)
    assert "damaged, and not moved aside" in told_list.out
    await asyncio.to_thread(master.start)

    await check_whole(pair, master)
    assert len(kept(replica)) == 1, "nothing is deleted"


@pytest.mark.long
async def test_a_member_without_a_mark_makes_room_for_the_one_that_has_more(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    """After a power cut the mark may be older than the log: it leads until the other one comes."""
    pair, master, replica = await filled(node_factory, tmp_path)
    replica.kill()
    master.kill()
    lose(replica, "cut")
    for mark in (replica.data_dir / "broker").glob("*.mark"):
        mark.unlink()
    await asyncio.to_thread(replica.start)
    await told(replica, "broker leads")
    await asyncio.to_thread(master.start)

    await check_whole(pair, master)
    assert "the logs are cut" not in master.stderr_text()


@pytest.mark.parametrize("how", ["removed", "all"])
async def test_a_replica_whose_files_are_removed_never_leads(
    node_factory: NodeFactory, tmp_path: Path, how: str
) -> None:
    """The master is gone a moment later (chaos V2, L1)."""
    pair, master, replica = await filled(node_factory, tmp_path)
    lose(replica, how)
    master.kill()
    await told(replica, LEAVES)
    await asyncio.to_thread(master.start)

    await check_whole(pair, master)
    assert "broker leads" not in replica.stderr_text()


@pytest.mark.long
@pytest.mark.parametrize("how", ["removed", "all"])
async def test_a_replica_notices_that_its_files_are_gone_and_copies_anew(
    node_factory: NodeFactory, tmp_path: Path, how: str
) -> None:
    pair, master, replica = await filled(node_factory, tmp_path)
    member = await asyncio.to_thread(member_of, pair, replica)
    lose(replica, how)
    await told(replica, LEAVES)

    await check_whole(pair, master)
    assert member in (await asyncio.to_thread(pair.standing)).in_sync, "it is still that member"
