"""Q1: a broker group is emptied under load, over a restart of it, and then safe to stop."""

import asyncio
import subprocess
from pathlib import Path

import ternmq
from tests.integration.processes import COMMAND, NodeFactory, clean_environment, tern
from tests.waiting import until, wait_until


def begin(url: str, said: Path) -> "subprocess.Popen[bytes]":
    """`tern broker drain west`, which waits."""
    with said.open("wb") as err:
        return subprocess.Popen(
            [*COMMAND, "broker", "drain", "west", "--json"],
            stdout=subprocess.PIPE,
            stderr=err,
            env=clean_environment({"TERN_URL": url}),
        )


async def test_a_drained_group_gets_nothing_more_and_is_safe_to_stop_when_all_is_consumed(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    """Nothing is lost: every message that was acknowledged comes out, from either group."""
    meta = node_factory.meta_server(f"sqlite:///{tmp_path / 'registry.db'}")
    node_factory.broker_server(meta.url, "east")
    west = node_factory.broker_server(meta.url, "west")
    alone = tern("broker", "drain", "north", url=meta.url, code=None)
    assert alone.code != 0 and "north" in alone.err
    async with ternmq.connect(meta.url, app="shop") as mq:
        sent: set[bytes] = set()
        groups: list[str] = []

        async def send(count: int) -> None:
            for _ in range(count):
                body = b"%d" % len(sent)
                groups.append((await mq.send("orders", body)).broker_group)
                sent.add(body)

        await mq.admin.create_topic("orders")
        await mq.admin.create_group("orders", "g", ternmq.Start())
        await send(20)
        assert set(groups) == {"east", "west"}
        tx = mq.detached("job", broker_group="west")
        await tx.send("orders", b"half")

        draining = begin(meta.url, tmp_path / "err")
        said = tmp_path / "err"
        wait_until(lambda: "10 ready, 1 open transactions" in said.read_text(), "the progress")

        async def only_east() -> bool:
            await send(1)
            return len(groups) > 24 and set(groups[-4:]) == {"east"}

        await until(only_east, "the routes tell this client")
        await asyncio.to_thread(west.restart)  # The order survives.
        lines = tern("broker", "list", "--json", url=meta.url).json()
        assert [line["state"] for line in lines] == ["ok", "draining"]
        groups.clear()
        await send(20)
        assert set(groups) == {"east"}
        assert draining.poll() is None
        await mq.commit_detached("job", broker_group="west")
        sent.add(b"half")
        async with asyncio.timeout(60), mq.consumer("orders", group="g") as messages:
            async for message in messages:
                await message.ack()
                sent.discard(message.body)
                if not sent:
                    break
        out, _ = await asyncio.to_thread(draining.communicate, timeout=30)
        assert b'"safe_to_stop": true' in out

        last = tern("broker", "drain", "east", url=meta.url, code=2)
        assert "no other broker group takes messages" in last.err
        tern("broker", "drain", "west", "--undo", url=meta.url)
        groups.clear()
        async with asyncio.timeout(20):
            while "west" not in groups:
                await send(1)
