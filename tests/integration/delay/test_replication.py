"""A delay server with replicas: what it acknowledged goes out once, whoever leads (issue 7).

Real processes: a node with meta server and broker, and the members of one delay server.
"""

import asyncio
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial

import pytest

import ternmq
from ternmq import CancelResult
from ternmq.client.admin.broker_members import BrokerState
from ternmq.meta.config import DEAD_AFTER_MS
from tests.integration.broker_pair import BROKER, QUICK
from tests.integration.delay.test_delays import arrived, settled
from tests.integration.processes import DelayServer, Node, NodeFactory
from tests.integration.verifiable_clients import whole_topic
from tests.waiting import until, wait_until

NAME = "later"
SETTINGS = {**BROKER, "TERN_DELAY_TICK_MS": "20", "TERN_CHECKPOINT_INTERVAL_MS": "500"}
FAR = timedelta(hours=5)


@dataclass(slots=True)
class DelayPair:
    """One node and the members of one delay server."""

    node: Node
    members: list[DelayServer] = field(default_factory=list)

    @property
    def url(self) -> str:
        return self.node.url

    async def states(self) -> list[BrokerState]:
        async with ternmq.connect(self.url, app="test") as mq:
            return await mq.admin.brokers("delay")

    async def master(self) -> DelayServer:
        """As the registry has it; it may not serve yet."""
        leads = next(each for each in await self.states() if each.role == "master")
        return next(each for each in self.members if leads.address.endswith(f":{each.port + 2}"))

    def other(self, than: DelayServer) -> DelayServer:
        return next(each for each in self.members if each is not than)

    async def wait_in_sync(self, count: int, seconds: float = 20) -> None:
        async def reached() -> bool:
            return sum(each.in_sync for each in await self.states()) == count

        await until(reached, f"{count} in sync", seconds=seconds)

    async def wait_led_by(self, member: DelayServer) -> None:
        """It is on the routes as master."""
        wanted = f":{member.port + 2}"
        async with ternmq.connect(self.url, app="test") as mq:

            async def leads() -> bool:
                return any(
                    each.kind == "delay" and each.role == "master" and each.address.endswith(wanted)
                    for each in await mq.admin.routes()
                )

            await until(leads)


async def make_delay_pair(
    nodes: NodeFactory,
    *,
    count: int = 2,
    settings: Mapping[str, str] | None = None,
    meta: Mapping[str, str] = QUICK,
) -> DelayPair:
    """Running, everybody in sync."""
    node = nodes(arguments=["--no-delay"], environment=meta)
    pair = DelayPair(node)
    for _ in range(count):
        environment = {**SETTINGS, **(settings or {})}
        pair.members.append(nodes.delay_server(node, NAME, environment=environment))
        await pair.wait_led_by(pair.members[0])
    await pair.wait_in_sync(count)
    return pair


async def retried(job: Callable[[], Awaitable[CancelResult]]) -> CancelResult:
    """Ask until somebody leads who can answer."""
    return await until(job, seconds=30, ignoring=ternmq.Unavailable)


async def test_kill_9_of_the_master_loses_nothing_and_repeats_nothing(
    node_factory: NodeFactory,
) -> None:
    pair = await make_delay_pair(node_factory, settings={"TERN_REPLICA_LOST": "continue"})
    async with ternmq.connect(pair.url, app="test") as mq:
        bodies = [b"%d" % number for number in range(300)]
        soon = await mq.send_many("soon", bodies, delay=timedelta(seconds=4))
        far = list(await mq.send_many("far", [b"a", b"b", b"c"], delay=FAR))
        gone = list(soon)[:50]
        for receipt in gone[:20]:
            assert await mq.cancel(receipt) is CancelResult.CANCELLED
        before = await pair.master()
        before.kill()
        await pair.wait_led_by(pair.other(before))

        # Receipts of the old master hold at the new one; what was cancelled stays so.
        assert await retried(lambda: mq.cancel(gone[0])) is CancelResult.CANCELLED
        assert await retried(lambda: mq.cancel(far[0])) is CancelResult.CANCELLED
        assert await retried(lambda: mq.fire_now(far[1])) is CancelResult.FIRED
        expected = Counter(str(number) for number in range(20, 300))
        assert Counter(await arrived(mq, "soon", 280, 30)) == expected
        assert await arrived(mq, "far", 1, 20) == ["b"]
        await settled(mq, "soon", (300, 0, 280, 20))
        await settled(mq, "far", (3, 1, 1, 1))
        assert Counter(await arrived(mq, "soon", 280)) == expected

        # The old one comes back and follows.
        before.start()
        await pair.wait_in_sync(2)
        assert await mq.cancel(far[2]) is CancelResult.CANCELLED


@pytest.mark.long
async def test_a_master_that_stood_still_sends_nothing_that_was_cancelled_meanwhile(
    node_factory: NodeFactory,
) -> None:
    pair = await make_delay_pair(node_factory, settings={"TERN_REPLICA_LOST": "continue"})
    async with ternmq.connect(pair.url, app="test") as mq:
        rows = [b"%d" % number for number in range(60)]
        receipts = list(await mq.send_many("still", rows, delay=timedelta(seconds=9)))
        before = await pair.master()
        os.kill(before.pid, signal.SIGSTOP)
        answers: list[CancelResult] = []
        try:
            await mq.admin.promote(NAME, kind="delay", force=True)
            answers = [await retried(partial(mq.cancel, each)) for each in receipts[:30]]
        finally:
            os.kill(before.pid, signal.SIGCONT)
        gone = {str(at) for at, said in enumerate(answers) if said is CancelResult.CANCELLED}
        assert gone, "the promotion took longer than the messages wait"
        count = 60 - len(gone)
        expected = Counter(str(number) for number in range(60) if str(number) not in gone)
        assert Counter(await arrived(mq, "still", count, 30)) == expected
        await settled(mq, "still", (60, 0, count, len(gone)))
        await pair.wait_in_sync(2)
        assert len(await arrived(mq, "still", count)) == count


async def test_a_master_that_hangs_is_noticed_and_another_member_takes_over_by_itself(
    node_factory: NodeFactory,
) -> None:
    """Q12: as quickly as that of a broker (`server_dead_after_ms`, 3 s), and nobody has to ask."""
    pair = await make_delay_pair(node_factory, settings={"TERN_REPLICA_LOST": "continue"}, meta={})
    async with ternmq.connect(pair.url, app="test") as mq:
        before = list(await mq.send_many("hung", [b"1", b"2"], delay=timedelta(seconds=5)))
        master = await pair.master()
        os.kill(master.pid, signal.SIGSTOP)
        stopped = time.monotonic()
        try:
            await pair.wait_led_by(pair.other(master))
            await mq.send("hung", b"3", delay=0.1)
            took = time.monotonic() - stopped
            assert await retried(partial(mq.cancel, before[0])) is CancelResult.CANCELLED
            assert sorted(await arrived(mq, "hung", 2, 20)) == ["2", "3"]
        finally:
            os.kill(master.pid, signal.SIGCONT)
        await pair.wait_in_sync(2)
        await settled(mq, "hung", (3, 0, 2, 1))
    assert took < 3 * DEAD_AFTER_MS / 1000, "about 3 s, and some for a busy machine"


@pytest.mark.long
async def test_a_hand_over_is_a_short_pause_and_no_error(node_factory: NodeFactory) -> None:
    pair = await make_delay_pair(node_factory)
    async with ternmq.connect(pair.url, app="test") as mq:
        sent: list[str] = []
        stop = asyncio.Event()

        async def send() -> None:
            while not stop.is_set():
                body = f"{len(sent)}"
                await mq.send("over", body.encode(), delay=0.5)
                sent.append(body)

        sending = asyncio.create_task(send())
        for _ in range(3):
            before = await pair.master()
            done = await mq.admin.handover(NAME, kind="delay")
            assert done.paused_ms < 1_000
            await pair.wait_led_by(pair.other(before))
            await pair.wait_in_sync(2)
        with pytest.raises(ternmq.BadRequest, match="cannot be drained"):
            await mq.admin.drain(NAME, kind="delay")  # There is no other.
        stop.set()
        await sending
        assert (await mq.admin.drain_progress(NAME, kind="delay")).draining is False
        assert Counter(await arrived(mq, "over", len(sent), 30)) == Counter(sent)
        await settled(mq, "over", (len(sent), 0, len(sent), 0))


@pytest.mark.long
async def test_without_its_replica_a_master_takes_nothing_and_sends_nothing_until_it_is_back(
    node_factory: NodeFactory,
) -> None:
    pair = await make_delay_pair(node_factory)
    async with ternmq.connect(pair.url, app="test", delivery_timeout=4) as mq:
        await mq.send("alone", b"1", delay=6)
        replica = pair.other(await pair.master())
        replica.kill()
        with pytest.raises(ternmq.TernError):
            for _ in range(100):
                await mq.send("alone", b"2", delay=FAR)
                await asyncio.sleep(0.1)
        await asyncio.sleep(7)  # Long enough for the first one to be due.
        assert await whole_topic(mq, "alone") == {}
        replica.start()
        await pair.wait_in_sync(2)
        await mq.send("alone", b"3", delay=0.1)
        assert sorted(await arrived(mq, "alone", 2, 20)) == ["1", "3"]


@pytest.mark.long
async def test_a_new_replica_gets_the_files_of_a_master_whose_logs_begin_later(
    node_factory: NodeFactory,
) -> None:
    settings = {"TERN_SEGMENT_SIZE": "8MiB", "TERN_REPLICA_LOST": "continue"}
    pair = await make_delay_pair(node_factory, count=1, settings=settings)
    (first,) = pair.members
    async with ternmq.connect(pair.url, app="test") as mq:
        filler = os.urandom(200_000)
        for _ in range(10):
            await mq.send_many("fill", [filler] * 20, delay=FAR)
        kept = await mq.send("kept", b"kept", delay=FAR)
        gone = await mq.send("kept", b"gone", delay=FAR)
        assert await mq.cancel(gone) is CancelResult.CANCELLED
        first.restart()
        wal = first.data_dir / "delay" / "wal"
        zero = wal / f"{0:020d}.log"
        await asyncio.to_thread(wait_until, lambda: not zero.exists(), "old segments are gone")

        second = node_factory.delay_server(pair.node, NAME, environment={**SETTINGS, **settings})
        pair.members.append(second)
        await pair.wait_in_sync(2, 60)
        first.kill()
        await pair.wait_led_by(second)
        assert await retried(lambda: mq.cancel(gone)) is CancelResult.CANCELLED
        assert await retried(lambda: mq.fire_now(kept)) is CancelResult.FIRED
        assert await arrived(mq, "kept", 1, 20) == ["kept"]
        await settled(mq, "fill", (200, 200, 0, 0))


@dataclass(slots=True)
class Load:
    """Sends messages for soon, takes some of them back, and remembers what it was told."""

    mq: ternmq.Client
    topic: str
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    sent: set[str] = field(default_factory=set)
    """Acknowledged."""
    gone: set[str] = field(default_factory=set)
    """Answered with CANCELLED."""
    doubtful: set[str] = field(default_factory=set)
    """No answer: it may be stored, or cancelled, or not."""

    async def run(self, chance: random.Random) -> None:
        number = 0
        while not self.stop.is_set():
            number += 1
            body = f"{id(self)}-{number}"
            try:
                receipt = await self.mq.send(
                    self.topic, body.encode(), delay=chance.uniform(0.2, 4)
                )
                self.sent.add(body)
                cancel = chance.random() < 0.3
                if cancel and await self.mq.cancel(receipt) is CancelResult.CANCELLED:
                    self.gone.add(body)
            except ternmq.TernError:
                self.doubtful.add(body)
            await asyncio.sleep(0.005)


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize("how", ["kill", "promote"])
async def test_masters_that_die_again_and_again_lose_nothing_and_send_nothing_twice(
    node_factory: NodeFactory, how: str
) -> None:
    pair = await make_delay_pair(node_factory, settings={"TERN_REPLICA_LOST": "continue"})
    async with ternmq.connect(pair.url, app="test") as mq:
        loads = [Load(mq, "storm") for _ in range(4)]
        running = [
            asyncio.create_task(load.run(random.Random(seed))) for seed, load in enumerate(loads)
        ]
        for _ in range(5):
            await asyncio.sleep(3)
            before = await pair.master()
            if how == "kill":
                before.kill()
                await pair.wait_led_by(pair.other(before))
                await asyncio.to_thread(before.start)
            else:
                await mq.admin.promote(NAME, kind="delay", force=True)
            await pair.wait_in_sync(2)
        for load in loads:
            load.stop.set()
        await asyncio.gather(*running)
        sent = set().union(*(load.sent for load in loads))
        gone = set().union(*(load.gone for load in loads))
        doubtful = set().union(*(load.doubtful for load in loads))
        certain = sent - gone - doubtful
        assert len(certain) > 200 and len(gone) > 20
        await asyncio.sleep(5)  # All are due.
        found = Counter[str]()

        async def all_there() -> bool:
            found.clear()
            found.update((await whole_topic(mq, "storm")).values())
            return certain <= found.keys()

        await until(all_there, seconds=60, every=0.5)
        assert [body for body, count in found.items() if count > 1] == []
        assert gone & found.keys() == set()
        assert found.keys() <= sent | doubtful
        (line,) = await mq.admin.delays.ledger("storm")
        assert line.accepted == line.pending + line.dispatched + line.cancelled
