"""Who is in a broker group and who leads it, as people see and order it; servers are stand-ins
that do what a broker does about its role and nothing else."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

import ternmq
from ternmq.client.admin import broker_members
from ternmq.core.clock import SystemClock
from ternmq.discovery.routes import RouteCache
from ternmq.node.joining.registration import registered
from ternmq.node.joining.remote_directory import remote_directory
from ternmq.rpc.address import join_address
from ternmq.rpc.peer import Peer
from ternmq.rpc.server import ServerLimits, listening
from ternmq.wire.frame import Frame
from ternmq.wire.messages.hello import PROTOCOL_VERSION, Hello, Welcome
from ternmq.wire.messages.servers import Route
from ternmq.wire.messages.standings import HandedOver, Handover, Member, Standing
from ternmq.wire.messages.stats import Status
from ternmq.wire.numbers import Command
from ternmq.wire.record import pack, unpack
from tests.integration.meta.noting_meta import Meta, meta
from tests.node_greeting import greeting
from tests.waiting import until

HELLO = greeting()


class Server:
    """A member of the group 'main': joins, follows its standing, answers STATUS and HANDOVER."""

    def __init__(self, name: str) -> None:
        self.id, self.name = secrets.token_hex(8), name
        self.address, self.epoch, self.lag = "", 0, 0
        self.handovers: list[str] = []
        self.silent = False
        self._stack = AsyncExitStack()
        self._serving: asyncio.Task[None] | None = None

    def welcome(self, peer: Peer, hello: Hello) -> Welcome:
        return Welcome(
            protocol=PROTOCOL_VERSION, version="0", role="broker", node=self.name, epoch=1
        )

    def lost(self, peer: Peer) -> None:
        pass

    def frame(self, peer: Peer, frame: Frame) -> None:
        if frame.command == Command.HANDOVER:
            self.handovers.append(unpack(frame.payload, Handover).member_id)
            self._handing = asyncio.create_task(self._hand_over(peer, frame))
            return
        if self.silent:
            return
        status = Status(
            node=self.name,
            role="broker",
            state="ok",
            address=self.address,
            data_dir="",
            started_at_ms=0,
            now_ms=0,
            disk_free=0,
            disk_size=0,
            cpu_s=0,
            memory=0,
            connections=0,
            log_start=0,
            log_end=0,
            epoch=self.epoch,
            pid=42,
            member=self.id,
            lag=self.lag,
        )
        peer.answer(frame.command, frame.correlation, pack(status))

    async def _hand_over(self, peer: Peer, frame: Frame) -> None:
        """As a master does: the answer comes before the other one serves."""
        standing = self.directory.standing("main")
        assert standing is not None
        other = self.handovers[-1] or next(i for i in standing.in_sync if i != self.id)
        done = HandedOver(member_id=other, epoch=9, paused_ms=7)
        peer.answer(frame.command, frame.correlation, pack(done))
        await self.directory.lead("main", other, force=True)

    async def start(self, at: Meta) -> "Server":
        enter = self._stack.enter_async_context
        listener = await enter(
            listening("127.0.0.1", 0, self, limits=ServerLimits(linger=0.1), clock=SystemClock())
        )
        self.address = join_address(*listener.address)
        cache = RouteCache([at.address], HELLO)
        self._stack.push_async_callback(cache.close)
        directory = await enter(remote_directory(cache))
        member = Member(id=self.id, name=self.name, address=self.address)
        await directory.join_group("main", "realtime", member)
        route = Route(broker_group="main", address=self.address)
        registration = await enter(registered([at.address], HELLO, route, member=self.id))

        async def serve() -> None:
            self.epoch = (await directory.lead("main", self.id)).epoch
            registration.set_epoch(self.epoch)

        def stand(standing: Standing) -> None:
            leading = self._serving is not None and not self._serving.done()
            if standing.master == self.id and standing.epoch > self.epoch and not leading:
                self._serving = asyncio.create_task(serve())
            elif standing.master != self.id and self.epoch:
                self.epoch = 0
                registration.set_epoch(0)

        directory.on_standing_changed(stand)
        self.directory = directory
        return self

    async def stop(self) -> None:
        await self._stack.aclose()


@asynccontextmanager
async def cluster(tmp_path: Path) -> AsyncIterator[tuple[Meta, ternmq.Client, list[Server]]]:
    """Three members: the first leads, the second is in sync, the third is not."""
    async with meta(tmp_path / "r.db", dead_after_ms=1_000) as at, AsyncExitStack() as stack:
        servers = [await Server(name).start(at) for name in ("one", "two", "three")]
        for server in servers:
            stack.push_async_callback(server.stop)
        one, two, three = servers
        three.lag = 500
        await at.service.lead("main", one.id)
        await until(lambda: [each.role for each in at.routes.current().servers].count("master"))
        held = at.service.standing("main")
        assert held is not None
        await at.service.change_in_sync(
            "main", epoch=held.epoch, in_sync=[one.id, two.id], version=held.version
        )
        async with ternmq.connect(f"tern://{at.address}", app="cli") as mq:
            yield at, mq, servers


async def test_everybody_is_listed_with_role_lag_and_what_is_wrong(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (_, mq, (one, two, three)):
        lines = await mq.admin.brokers()
        assert [(each.name, each.role, each.in_sync, each.lag) for each in lines] == [
            ("one", "master", True, 0),
            ("three", "replica", False, 500),
            ("two", "replica", True, 0),
        ]
        assert (lines[0].state, lines[0].pid, lines[0].epoch) == ("ok", 42, one.epoch)
        await two.stop()
        three.lag = -1
        lines = await mq.admin.brokers()
        assert [(each.name, each.state, each.lag) for each in lines] == [
            ("one", "ok", 0),
            ("three", "ok", None),
            ("two", "away", None),
        ]


async def take_out(at: Meta, member: Server) -> None:
    """As a new master does with the one before, once it has opened its store."""
    held = at.service.standing("main")
    assert held is not None
    rest = [each for each in held.in_sync if each != member.id]
    await at.service.change_in_sync("main", epoch=held.epoch, in_sync=rest, version=held.version)


async def test_a_member_is_promoted_only_when_that_is_safe_or_meant(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (_, mq, (one, two, three)):
        with pytest.raises(ternmq.MasterAlive, match="tern broker handover main"):
            await mq.admin.promote("main")
        with pytest.raises(ternmq.NotInSync, match="--accept-loss"):
            await mq.admin.promote("main", "three", force=True)
        with pytest.raises(ternmq.BadRequest, match=r"no member 'four'; it has one \("):
            await mq.admin.promote("main", "four")
        with pytest.raises(ternmq.BadRequest, match="no server joined"):
            await mq.admin.promote("other")
        standing = await mq.admin.promote("main", two.id[:8], force=True)
        assert (standing.master, standing.epoch) == (two.id, two.epoch)
        assert standing.in_sync == sorted([one.id, two.id]), "until the new one takes it out"
        lost = await mq.admin.promote("main", three.address, force=True, accept_loss=True)
        assert (lost.master, lost.in_sync) == (three.id, [three.id])
        await until(lambda: two.epoch == 0)
        with pytest.raises(ternmq.NotInSync, match="one is not in sync; two is not in sync"):
            await mq.admin.promote("main")
        assert one.epoch == 0


async def test_a_master_that_is_gone_is_replaced_by_who_is_in_sync_and_running(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path) as (at, mq, (one, two, _)):
        await one.stop()
        standing = await mq.admin.promote("main")
        assert standing.master == two.id
        await take_out(at, one)
        with pytest.raises(ternmq.Unavailable, match="one is not running"):
            await mq.admin.promote("main", "one", accept_loss=True)
        await two.stop()
        with pytest.raises(ternmq.NotInSync, match="last in-sync member"):
            await mq.admin.forget_member("main", "two")
        left = await mq.admin.forget_member("main", "one")
        assert [each.name for each in left.members] == ["three", "two"]
        with pytest.raises(ternmq.AlreadyExists, match="three is running"):
            await mq.admin.forget_member("main", "three")
        assert [route.address for route in at.routes.current().away] == [two.address]
        left = await mq.admin.forget_member("main", "two", accept_loss=True)
        assert left.in_sync == [] and at.routes.current().away == []


async def test_a_member_that_does_not_answer_is_not_promoted_although_it_counts_as_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_members, "STATUS_S", 0.3)
    async with cluster(tmp_path) as (at, mq, (one, two, _)):
        two.silent = True  # Killed a moment ago: meta does not know yet.
        with pytest.raises(ternmq.Unavailable, match="two does not answer at"):
            await mq.admin.promote("main", force=True)
        held = at.service.standing("main")
        assert held is not None and held.master == one.id and two.id in held.in_sync


async def test_a_server_with_a_new_disk_is_not_promoted_as_who_it_was(tmp_path: Path) -> None:
    """It has the address of the member, and nothing of its data; the group would have no leader."""
    async with cluster(tmp_path) as (at, mq, (one, two, _)):
        before, two.id = two.id, "another member"
        with pytest.raises(ternmq.Unavailable, match="two does not answer at"):
            await mq.admin.promote("main", force=True)
        held = at.service.standing("main")
        assert held is not None and held.master == one.id and before in held.in_sync


async def test_a_handover_is_asked_of_the_master_and_over_when_the_other_one_serves(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path) as (at, mq, (one, two, three)):
        with pytest.raises(ternmq.NotInSync, match="three is not in sync; wait"):
            await mq.admin.handover("main", "three")
        with pytest.raises(ternmq.BadRequest, match="already"):
            await mq.admin.handover("main", "one")
        done = await mq.admin.handover("main", "two")
        assert (done.member_id, done.epoch) == (two.id, two.epoch)
        assert done.paused_ms >= 7, "and what passed until the other one served"
        await take_out(at, one)
        with pytest.raises(ternmq.NotInSync, match="none to lead"):
            await mq.admin.handover("main")
        assert (one.handovers, two.handovers, three.handovers) == ([two.id], [], [])
