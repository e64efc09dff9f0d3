"""`tern broker list|promote|handover|forget` with real brokers."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import ternmq
from tests.integration.broker_pair import GROUP, Pair, bodies, make_pair
from tests.integration.processes import NodeFactory, tern
from tests.waiting import wait_until


def listed(pair: Pair) -> dict[str, dict[str, Any]]:
    """By role."""
    lines = tern("broker", "list", "--json", url=pair.url).json()
    return {line["role"]: line for line in lines}


async def send(url: str, *texts: str) -> None:
    async with ternmq.connect(url, app="shop") as mq:
        await mq.send_many("orders", [text.encode() for text in texts])


async def read(url: str) -> list[str]:
    async with ternmq.connect(url, app="shop") as mq:
        return await bodies(mq, "orders")


@pytest.mark.long
def test_people_see_and_decide_who_leads(node_factory: NodeFactory, tmp_path: Path) -> None:
    """Q12: by hand, with automatic failover switched off; every refusal says why."""
    pair = make_pair(node_factory, tmp_path, settings={"TERN_FAILOVER": "false"})
    asyncio.run(send(pair.url, "a", "b"))
    master, replica = pair.master(), pair.replica()
    lines = listed(pair)
    leads, follows = lines["master"], lines["replica"]
    assert (leads["state"], follows["state"]) == ("ok", "ok")
    assert (leads["group"], leads["pid"], follows["pid"]) == (GROUP, master.pid, replica.pid)
    assert leads["in_sync"] and follows["in_sync"]
    assert leads["epoch"] == follows["epoch"] > 0
    assert (leads["lag"], follows["lag"]) == (0, 0)

    refused = tern("broker", "promote", GROUP, url=pair.url, code=1)
    assert "may be alive" in refused.err and "tern broker handover" in refused.err
    moved = tern("broker", "handover", GROUP, follows["name"], "--json", url=pair.url).json()
    assert (moved["member"], moved["epoch"] > leads["epoch"]) == (follows["member"], True)
    assert moved["paused_ms"] < 5_000
    pair.wait_in_sync(2)
    assert listed(pair)["master"]["pid"] == replica.pid

    replica.kill()  # It leads, and nobody takes over by itself.
    wait_until(lambda: listed(pair)["master"]["state"] == "away", "silence", seconds=30)
    promoted = tern("broker", "promote", GROUP, "--json", url=pair.url).json()
    assert promoted["master"] == leads["member"]
    assert asyncio.run(read(pair.url)) == ["a", "b"]
    lost = tern(
        "broker", "promote", GROUP, follows["member"], "--accept-loss", url=pair.url, code=2
    )
    assert "Nobody is here to answer" in lost.err and "lost for good" in lost.err

    refused = tern("broker", "forget", GROUP, leads["member"], "--yes", url=pair.url, code=1)
    assert "is running" in refused.err
    left = tern("broker", "forget", GROUP, follows["member"], "--yes", "--json", url=pair.url)
    assert [each["id"] for each in left.json()["members"]] == [leads["member"]]
    assert json.dumps(left.json())
    for ran in (refused, lost):
        assert "Traceback" not in ran.err
