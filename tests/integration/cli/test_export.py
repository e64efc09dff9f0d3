"""`tern export | tern import`: a topic goes to another cluster whole, once, however often."""

import asyncio
import json
from pathlib import Path

import ternmq
from ternmq.testing import node
from tests.integration.processes import Ran, tern

BODIES = [b"", b"plain", bytes(range(256)), "ä€".encode()]


async def cli(*arguments: str, url: str, stdin: bytes = b"", code: int | None = 0) -> Ran:
    return await asyncio.to_thread(tern, *arguments, url=url, stdin=stdin, code=code)


async def fill(mq: ternmq.Client) -> None:
    for at, body in enumerate(BODIES):
        await mq.send(
            "orders",
            body,
            key=f"k{at}",
            tag="red",
            properties={"big": 2**80, "raw": b"\0\xff", "yes": True, "x": 0.5, "s": "é"},
            priority=7,
            ttl=3600,
        )
    for at in range(20):
        await mq.send("orders", b"%d" % at, order_key=f"o{at % 3}")
    await mq.send_many("logs", [b"line %d" % at for at in range(1200)])
    await mq.admin.set_topic("logs", rate=5000)


def fields(message: ternmq.Message) -> tuple[object, ...]:
    return (
        message.id,
        message.body,
        message.key,
        message.tag,
        message.order_key,
        message.properties,
        message.priority,
        message.born_at,
        message.expires_at,
    )


async def everything(mq: ternmq.Client, topic: str) -> list[tuple[object, ...]]:
    return [fields(message) async for message in mq.read(topic, start="earliest")]


async def test_topics_go_to_another_cluster_with_everything_and_once(tmp_path: Path) -> None:
    async with (
        node() as here,
        node() as there,
        ternmq.connect(here) as old,
        ternmq.connect(there) as new,
    ):
        await fill(old)
        exported = await cli("export", "orders", "logs", "-o", str(tmp_path / "x"), url=here)
        assert "orders: 24 messages" in exported.err
        assert "logs: 1200 messages" in exported.err
        lines = await asyncio.to_thread((tmp_path / "x").read_bytes)

        # It is interrupted, then begun again.
        cut = b"".join(lines.splitlines(keepends=True)[:700])
        refused = await cli("import", url=there, stdin=cut, code=2)
        assert "it was interrupted" in refused.err
        done = await cli("import", str(tmp_path / "x"), "--json", url=there)
        found = json.loads(done.out)
        assert found["orders"] == {"imported": 0, "there_already": 24}
        assert found["logs"]["imported"] + found["logs"]["there_already"] == 1200
        assert found["logs"]["imported"] == 1224 - 699, "what the first run lacked"
        again = await cli("import", url=there, stdin=lines)
        assert "logs: 0 imported, 1200 there already" in again.err

        for topic in ("orders", "logs"):
            assert await everything(new, topic) == await everything(old, topic)
        assert (await new.admin.topic("logs")).settings.rate == 5000


async def test_what_is_no_export_is_refused_with_the_number_of_its_line() -> None:
    async with node() as url:
        for stdin, said in (
            (b"hello\n", "line 1 is not a line of an export"),
            (b'{"tern_export": 9}\n', "has version 9"),
            (b'{"tern_export": 1}\n{"topic": 5}\n', "line 2 is not a line of an export"),
            (
                b'{"tern_export": 1}\n{"topic": "t", "id": "zz", "body": "", "born_at_ms": 1}\n',
                "line 2 is not a message",
            ),
            (b"", "before its end"),
        ):
            ran = await cli("import", url=url, stdin=stdin, code=None)
            assert ran.code == 2 and said in ran.err, ran.err
            assert "Traceback" not in ran.err
