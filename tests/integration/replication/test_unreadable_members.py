"""A replica of a master that holds what no reader reads gets it all, can lead, and serves the rest.

The poison gets in by a node in this process with the door of an older release (findings C1, C3);
real processes go on with its data directory.
"""

import shutil
from datetime import timedelta
from pathlib import Path

import ternmq
from ternmq.core.errors import NotInSync
from ternmq.testing import node
from ternmq.wire.messages.standings import BrokerGroupKind
from tests.integration.broker.test_unreadable_batches import consumed, fill
from tests.integration.broker_pair import BROKER, QUICK
from tests.integration.delay.test_delays import arrived, settled
from tests.integration.delay.test_unreadable_records import poison, unreadable
from tests.integration.poisoned_batches import POISON
from tests.integration.processes import Node, NodeFactory, tern
from tests.waiting import until

SETTINGS = {**QUICK, **BROKER, "TERN_DELAY_TICK_MS": "20"}
BAD = 2 * len(POISON)


async def poisoned_node(nodes: NodeFactory, folder: Path) -> Node:
    async with node(data_dir=folder) as url, ternmq.connect(url, app="t") as mq:
        await mq.admin.create_topic("t")
        for group in ("plain", "ordered"):
            await mq.admin.create_group("t", group, ternmq.Start())
        await fill(mq, "t")
        await poison(mq, "later", *POISON, after_ms=(1_000, 3_600_000))
        await mq.send("later", b"soon", delay=timedelta(seconds=1))
        await mq.send("later", b"far", delay=timedelta(hours=1))
    served = nodes(environment=SETTINGS, start=False)
    shutil.copytree(folder, served.data_dir)
    served.start()
    return served


async def follows_and_leads(mq: ternmq.Client, member: Node, kind: BrokerGroupKind) -> None:
    """Wait until this member is in sync, and let it lead."""
    port = f":{member.port + (1 if kind == 'realtime' else 2)}"

    async def in_sync() -> bool:
        return any(
            each.in_sync and each.address.endswith(port) for each in await mq.admin.brokers(kind)
        )

    async def leads() -> bool:
        return any(
            each.role == "master" and each.address.endswith(port)
            for each in await mq.admin.brokers(kind)
        )

    await until(in_sync, f"a {kind} replica in sync", seconds=30)
    # In sync by the registry, and perhaps connecting again at this moment.
    await until(lambda: mq.admin.handover("main", kind=kind), ignoring=NotInSync)
    await until(leads, f"the {kind} replica leads", seconds=30)


async def test_a_promoted_delay_replica(node_factory: NodeFactory, tmp_path: Path) -> None:
    served = await poisoned_node(node_factory, tmp_path / "old")
    async with ternmq.connect(served.url, app="t") as mq:
        assert await arrived(mq, "later", 1) == ["soon"]
        replica = node_factory.delay_server(served, "main", environment=SETTINGS)
        await follows_and_leads(mq, replica, "delay")

        await until(lambda: mq.admin.delays.ledger("later"), ignoring=ternmq.Unavailable)
        await unreadable(mq, "later", BAD)
        shown = tern("delay", "list", "--unreadable", "--json", url=served.url).json()
        assert {row["state"] for row in shown} == {"unreadable"}
        assert len(shown) == BAD
        for row in await mq.admin.delays.rows(topic="later"):
            if row.state == "pending":
                await mq.admin.delays.change("fire", row)
        assert sorted(await arrived(mq, "later", 2)) == ["far", "soon"]
        await settled(mq, "later", (BAD + 2, BAD, 2, 0))


async def test_a_promoted_broker_replica(node_factory: NodeFactory, tmp_path: Path) -> None:
    served = await poisoned_node(node_factory, tmp_path / "old")
    good = {b"first", *(what.encode() for what in POISON)}
    async with ternmq.connect(served.url, app="t") as mq:
        replica = node_factory.broker_server(served.url, "main", environment=SETTINGS)
        await follows_and_leads(mq, replica, "realtime")

        assert await consumed(mq, "plain", len(good)) == good
        assert await consumed(mq, "ordered", len(good), ordered=True) == good
