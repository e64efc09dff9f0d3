"""R1, Q1: the order of every key holds while slots move between broker groups, under load."""

import asyncio
import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

import ternmq
from ternmq.core.slots import SLOTS
from ternmq.outbox import Outbox
from tests.integration.processes import NodeFactory, tern
from tests.waiting import until

KEYS = 16
ROOT = Path(__file__).parents[3]


class Load:
    """Producers of their own process."""

    def __init__(self, url: str, name: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.slot_load", url, name, str(KEYS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
        )

    async def stop(self) -> dict[str, int]:
        out, _ = await asyncio.to_thread(self._process.communicate, b"", 60)
        assert self._process.returncode == 0
        return dict(json.loads(out))


class Shop:
    """Ordered consumers that note what they see, as long as they run."""

    def __init__(self) -> None:
        self.seen: dict[str, list[int]] = defaultdict(list)
        self._busy: set[str] = set()

    async def consume(self, mq: ternmq.Client, group: str = "billing") -> None:
        async with mq.consumer("orders", group=group, start="earliest", ordered=True) as messages:
            async for message in messages:
                key, number = message.body.decode().rsplit(" ", 1)
                assert key == message.order_key
                assert key not in self._busy, f"{key} is in two hands"
                self._busy.add(key)
                self.seen[key].append(int(number))
                await asyncio.sleep(0)  # The other consumer gets its turn with this one in hand.
                self._busy.discard(key)
                message.ack()

    def count(self) -> int:
        return sum(len(set(numbers)) for numbers in self.seen.values())

    def least(self) -> int:
        """How many messages of a key were seen, of that with the fewest."""
        return min(map(len, self.seen.values())) if len(self.seen) == 2 * KEYS else 0

    def check(self, sent: dict[str, int]) -> None:
        """Nothing is lost; a repeat is allowed, going back and then on again in order is not."""
        for key, count in sent.items():
            firsts = list(dict.fromkeys(self.seen[key]))
            assert firsts == list(range(count)), key


async def settled(mq: ternmq.Client) -> None:
    """No slot is on its way."""

    async def rests() -> bool:
        placement = await mq.admin.placement()
        return not placement.closing and not placement.behind

    await until(rests, seconds=60)


def owners(placement: Any) -> set[str]:
    return {placement.groups[at] for at in placement.owners}


async def test_order_holds_while_a_group_is_added_slots_move_and_a_group_is_drained(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    meta = node_factory.meta_server(f"sqlite:///{tmp_path / 'registry.db'}")
    for name in ("east", "west"):
        node_factory.broker_server(meta.url, name)
    shop = Shop()
    async with ternmq.connect(meta.url, app="shop") as mq, ternmq.connect(meta.url) as other:
        loads = [Load(meta.url, name) for name in ("one", "two")]
        consumers = [asyncio.create_task(shop.consume(each)) for each in (mq, other)]
        await seen_more(shop, 500)
        assert owners(await mq.admin.placement()) == {"east", "west"}

        node_factory.broker_server(meta.url, "north")
        await mq.admin.balance_slots()
        await settled(mq)
        assert owners(await mq.admin.placement()) == {"east", "north", "west"}
        await seen_more(shop, 200)
        for group in ("west", "east", "west"):  # Back and forth.
            await mq.admin.move_slots(group, range(0, SLOTS, 2))
            await settled(mq)
            await seen_more(shop, 100)
        ran = await asyncio.to_thread(tern, "broker", "drain", "east", url=meta.url)
        assert "safe to stop" in ran.out
        assert owners(await mq.admin.placement()) == {"north", "west"}
        await seen_more(shop, 200)
        await until(lambda: shop.least() > 5, "some of each key", seconds=60)

        sent: dict[str, int] = {}
        for load in loads:
            sent |= await load.stop()
        await seen_more(shop, sum(sent.values()) - shop.count())
        for consumer in consumers:
            consumer.cancel()
        await asyncio.wait(consumers)

    assert min(sent.values()) > 5
    shop.check(sent)


async def seen_more(shop: Shop, rows: int) -> None:
    wanted = shop.count() + rows
    await until(lambda: shop.count() >= wanted, seconds=60)


async def test_a_topic_is_stored_on_the_groups_it_asks_for_and_weight_0_gets_nothing(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    meta = node_factory.meta_server(f"sqlite:///{tmp_path / 'registry.db'}")
    for name in ("east", "west"):
        node_factory.broker_server(meta.url, name)
    async with ternmq.connect(meta.url, app="shop") as mq:
        await mq.admin.create_topic("log")
        tern("topic", "set", "log", "--broker-groups", "west", url=meta.url)
        tern("broker", "weight", "west", "0", url=meta.url)

        async def stored(topic: str) -> set[str]:
            receipts = [await mq.send(topic, b"x") for _ in range(6)]
            return {receipt.broker_group for receipt in receipts}

        async def routes_have_told() -> bool:
            return (await stored("orders"), await stored("log")) == ({"east"}, {"west"})

        await until(routes_have_told, seconds=30)


@pytest.mark.long
async def test_delayed_messages_and_an_outbox_bring_order_keys_to_where_they_lie(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    """Else a broker would refuse them for ever; also those that were decided before a move."""
    meta = node_factory.meta_server(f"sqlite:///{tmp_path / 'registry.db'}")
    for name in ("east", "west"):
        node_factory.broker_server(meta.url, name)
    node_factory.delay_server(meta)
    keys = [f"k{number}" for number in range(30)]
    engine = create_engine(f"sqlite:///{tmp_path / 'shop.db'}")
    Outbox(engine).create_tables()
    async with ternmq.connect(meta.url, app="shop") as mq, Outbox(engine, mq) as outbox:
        for key in keys:
            await mq.send("orders", f"{key} 0".encode(), order_key=key)
        for key in keys:
            await mq.send("orders", f"{key} later".encode(), order_key=key, delay=1)
        with Session(engine) as session, session.begin():
            for key in keys:
                outbox.send(session, "orders", f"{key} 1".encode(), order_key=key)
        await mq.admin.move_slots("west", range(0, SLOTS, 2))
        found: list[str] = []
        async with (
            asyncio.timeout(60),
            mq.consumer("orders", group="g", start="earliest", ordered=True) as messages,
        ):
            async for message in messages:
                found.append(message.body.decode())
                message.ack()
                if len(set(found)) == 3 * len(keys):
                    break

    assert all(found.index(f"{key} 0") < found.index(f"{key} 1") for key in keys)
