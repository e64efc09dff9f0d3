"""Ack ids in any console process: pulled here, settled there, whoever dies in between."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from ternmq import connect
from ternmq.client.consuming.detached_consumer import HandleVerdict
from ternmq.console.config import ConsoleConfig
from ternmq.console.process import making_site
from ternmq.core.clock import SystemClock
from ternmq.core.errors import BadRequest
from tests.integration.processes import COMMAND, NodeFactory, clean_environment, free_ports
from tests.waiting import until

GROUP = "/api/v1/topics/orders/groups/billing"


@asynccontextmanager
async def console_process(url: str, log: Path) -> AsyncIterator[tuple[httpx.AsyncClient, int]]:
    """A console of its own, and its pid."""
    port = free_ports(1)
    with log.open("wb") as written:
        child = await asyncio.create_subprocess_exec(
            *COMMAND,
            "console",
            "--url",
            url,
            "--port",
            str(port),
            stdout=written,
            stderr=written,
            env=clean_environment(),
        )
        try:
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30) as http:

                async def there() -> bool:
                    try:
                        return (await http.get("/api/v1/topics")).status_code == 200
                    except httpx.TransportError:
                        return False

                await until(there, "the console answers")
                yield http, child.pid
        finally:
            if child.returncode is None:
                child.kill()
            await child.wait()


async def test_what_one_console_handed_out_is_settled_at_another_after_its_death(
    node_factory: NodeFactory, tmp_path: Path
) -> None:
    """Pulled at one, killed with -9, settled at the other: the ledger is exact (J13)."""
    node = node_factory()
    async with connect(node.url) as mq:
        await mq.send_many("orders", [b"%d" % at for at in range(100)])
        async with (
            console_process(node.url, tmp_path / "one.log") as (one, pid),
            making_site(ConsoleConfig(url=node.url, port=free_ports(1)), SystemClock()) as site,
            httpx.AsyncClient(
                transport=httpx.ASGITransport(site.app), base_url="http://127.0.0.1"
            ) as two,
        ):
            wanted = {"max": 60, "wait_ms": 5_000, "lease_ms": 60_000}
            pulled = (await one.post(f"{GROUP}/pull", json=wanted)).json()["messages"]
            ids = [each["ack_id"] for each in pulled]
            os.kill(pid, signal.SIGKILL)
            kept = await two.post(f"{GROUP}/extend", json={"ack_ids": ids, "lease_ms": 120_000})
            verdicts = {"ack": ids[:40], "reject": [{"ack_id": ids[40], "error": "no"}]}
            settled = await two.post(f"{GROUP}/settle", json=verdicts)
            rest = (await two.post(f"{GROUP}/pull", json=wanted | {"max": 1_000})).json()

            [group] = await mq.admin.groups("orders", "billing")
        assert len(ids) == 60
        assert kept.json() == {"extended": 60, "late": 0, "late_ids": []}
        assert settled.json() == {"settled": 41, "late": 0, "late_ids": []}
        assert [each["text"] for each in rest["messages"]] == [str(at) for at in range(60, 100)]
        line = group.ledger
        assert (line.acked, line.dead, line.in_flight, line.ready) == (40, 1, 59, 0)


async def test_a_lease_outlives_the_broker_and_a_late_ack_is_refused(
    node_factory: NodeFactory,
) -> None:
    node = node_factory(environment={"TERN_SESSION_GRACE_MS": "300"})
    async with connect(node.url) as mq:
        await mq.send_many("orders", [b"%d" % at for at in range(10)])
        consumer = mq.detached_consumer("orders", group="billing")
        long = await consumer.pull(4, wait=5, lease=120)
        short = await consumer.pull(2, lease=0.5)
        await mq.admin.ledger("orders")
        node.restart()
        report = await mq.detached_consumer("orders", group="billing").settle(
            [HandleVerdict(handle=each.handle) for each in long]
        )
        again = await consumer.pull(4, wait=5)  # The rest of the ten.

        async def came_again() -> bool:
            again.extend(await consumer.pull(10))
            return len(again) == 6

        await until(came_again, "what nobody settled comes again")
        late = await consumer.settle([HandleVerdict(handle=each.handle) for each in short])

        assert (report.settled, report.late) == (4, ())
        attempts = {each.message.sequence: each.message.attempt for each in again}
        assert {row: attempts.get(row) for row in (4, 5)} == {4: 2, 5: 2}
        assert late.late == tuple(each.handle for each in short)
        [group] = await mq.admin.groups("orders", "billing")
        assert group.ledger.acked == 4
        with pytest.raises(BadRequest, match="settle its handle"):
            again[0].message.ack()
        await consumer.close()


async def test_a_caller_that_goes_away_while_it_waits_takes_nothing_along(
    node_factory: NodeFactory,
) -> None:
    node = node_factory()
    async with connect(node.url) as mq:
        consumer = mq.detached_consumer("orders", group="billing")
        assert await consumer.pull(10, lease=600) == []
        waiting = asyncio.create_task(consumer.pull(10, wait=20, lease=600))

        for _ in range(2):  # On the same connection: the pull was before these.
            await mq.admin.ledger("orders")
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await mq.send_many("orders", [b"one"])

        async def back() -> bool:
            found = await consumer.pull(10)
            return [each.message.attempt for each in found] == [1]

        await until(back, "it is handed to others as if nobody had seen it")
        await consumer.close()
