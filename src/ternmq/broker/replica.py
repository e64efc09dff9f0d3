"""A broker that follows: copies the logs of its master, answers READ and who it is, waits.

It follows whoever the standing names. While its master cannot be reached, and this member is in the
in-sync set, it asks meta to lead in its place: meta agrees once the master has been silent for long
enough. So a replica becomes a master by asking, and the registry decides between several.

Its logs are those of the master, byte for byte; what the master calls safe is visible here. What
the master removed is removed here too.
"""

import asyncio
import os
from collections.abc import Callable
from functools import partial
from typing import Any

from ternmq.broker.admin import own_cpu_s, own_memory
from ternmq.broker.fetch import Fetcher
from ternmq.broker.parts import open_store
from ternmq.broker.read import Reader
from ternmq.broker.site import Site
from ternmq.broker.topics import Topics
from ternmq.core.errors import AlreadyExists, Diverged, MasterAlive, NotInSync, NotMaster, TernError
from ternmq.core.lifecycle import background
from ternmq.core.log import get_logger
from ternmq.metrics.samples import Samples
from ternmq.replication.follower import Follower
from ternmq.replication.intake import Intake
from ternmq.rpc.address import join_address
from ternmq.rpc.answering import Answering
from ternmq.rpc.figures import server_figures
from ternmq.rpc.peer import Peer
from ternmq.storage.append import Append, committed
from ternmq.storage.base_state import install_base
from ternmq.storage.message_log import MessageLog
from ternmq.storage.pull_log import PullLog
from ternmq.storage.store import Store
from ternmq.wire import commands as wire
from ternmq.wire.commands import Command, pack, unpack
from ternmq.wire.frame import Frame
from ternmq.wire.replicating import MESSAGES, PULLS, Follow, Followed, LogHeld
from ternmq.wire.standing import Standing

AGAIN_S = 0.3
DIVERGED_S = 5.0
INDEX_INTERVAL_S = 0.5

log = get_logger()


class ReplicaRole:
    """What clients may ask of a replica."""

    epoch = 0

    def __init__(self, site: Site, store: Store) -> None:
        self._site = site
        self._store = store
        self._fetcher = Fetcher(store.messages)
        self._reader = Reader(consume=store.consume, fetcher=self._fetcher)
        self._topics = Topics(site.directory, auto_create=False, body_size_max=1)
        self._answering = Answering()
        self._started_at_ms = site.clock.now_ms()
        self.lag: Callable[[], int] = lambda: -1
        """Bytes of messages that the master has and this replica has not; -1: not known."""
        self.trouble = "not following yet"
        """Why it does not follow at present; empty while it does."""

    def route(self, peer: Peer, frame: Frame) -> None:
        if frame.command == Command.READ:
            request = unpack(frame.payload, wire.Read)
            topic = self._topics.get(request.topic)
            self._topics.check_app(topic, peer)
            self._reader.read(peer, frame.correlation, topic.id, request)
        elif frame.command == Command.SEEK:
            seek = unpack(frame.payload, wire.Seek)
            self._answering.begin(peer, frame, self._reader.seek(self._topics, seek))
        elif frame.command == Command.STATUS:
            query = unpack(frame.payload, wire.StatusQuery)
            peer.answer(frame.command, frame.correlation, pack(self.status(query)))
        else:
            error = NotMaster(
                f"this server is a replica of broker group {self._site.config.broker_group!r}: "
                "it answers reads only; ask for routes again"
            )
            if frame.command in (Command.FOLLOW, Command.HANDOVER):
                raise error
            peer.close(error)  # A client of the master: let it look where that is.

    def lost(self, peer: Peer) -> None:
        pass

    def on_safe(self, number: int, appends: Any) -> None:
        """More is safe, as the master says: readers may see it."""
        if number == MESSAGES:
            found: list[Append] = appends
            self._fetcher.remember(found)
            grown = {append.topic_id for append in found if append.special is None}
            for append in found:
                if append.special is not None:
                    grown |= {placed.topic_id for placed in committed(append.special)}
            for topic_id in sorted(grown):
                self._reader.grew(topic_id)

    def status(self, query: wire.StatusQuery) -> wire.Status:
        """What this replica says about itself."""
        config, store, clock = self._site.config, self._store, self._site.clock
        listener = self._site.door.listener
        assert listener is not None
        free, size = self._site.disk.free(config.data_dir)
        return wire.Status(
            node=config.broker_group, role="broker",
            state=f"replica: {self.trouble}" if self.trouble else "ok",
            address=join_address(*listener.address),
            data_dir=str(config.data_dir.absolute()), started_at_ms=self._started_at_ms,
            now_ms=clock.now_ms(), disk_free=free, disk_size=size, cpu_s=own_cpu_s(),
            memory=own_memory(), connections=len(listener.peers),
            log_start=store.messages.start_offset, log_end=store.messages.safe_offset,
            topics=[self._topic_status(name) for name in query.topics],
            epoch=self._site.member.accepted_epoch, pid=os.getpid(), member=self._site.me,
            lag=self.lag(),
        )  # fmt: skip

    def _topic_status(self, name: str) -> wire.TopicStatus:
        topic = self._topics.get(name)
        first, end = self._store.consume.bounds(topic.id)
        return wire.TopicStatus(topic=name, id=topic.id, first=first, end=end, groups=0)

    async def scrape(self, out: Samples) -> None:
        listener = self._site.door.listener
        assert listener is not None
        server_figures(out, self.status(wire.StatusQuery()), listener)

    async def stop(self) -> None:
        self._reader.stop()
        await self._answering.finish()
        self._fetcher.close()


class Replica:
    """One time of following, until this member leads or stops."""

    def __init__(self, site: Site, store: Store) -> None:
        self._site = site
        self._store = store
        self.role = ReplicaRole(site, store)
        self._logs: dict[int, MessageLog | PullLog] = {
            MESSAGES: store.messages,
            PULLS: store.pulls,
        }
        self._intake = Intake(self._logs, sync=True, on_safe=self.role.on_safe)
        self._follower = Follower(self._intake, site.hello, prepare=self._prepare)
        self.role.lag = self._lag
        self.base = b""
        """What to begin with anew, once the store is closed."""

    def _lag(self) -> int:
        if not self._follower.following:
            return -1
        return max(0, self._intake.told[MESSAGES] - self._store.messages.end)

    async def run(self) -> Standing | None:
        """Returns the standing by which this member leads; None when the server stops."""
        async with background(checkpoints=self._run_checkpoints, index=self._run_index):
            while not self._site.stop.is_set() and not self.base:
                standing = self._site.standing
                if standing.master == self._site.me:
                    return await self._own(standing)
                self._site.changed.clear()
                won = await self._follow(standing)
                if won is not None:
                    return won
        return None

    async def _own(self, standing: Standing) -> Standing:
        """Somebody made this member the master: by that epoch if it is new, else by another."""
        if standing.epoch > self._site.member.accepted_epoch:
            return standing
        return await self._site.directory.lead(self._site.config.broker_group, self._site.me)

    async def _follow(self, standing: Standing) -> Standing | None:
        """Follow until that ends, then try to lead; a standing if that worked."""
        try:
            master = standing.member(standing.master)
            if master is None:
                raise NotMaster("the broker group has no master")
            await self._site.accept(standing.epoch)
            self.role.trouble = ""
            await self._until_changed(
                self._follower.run(master.address, lambda: self._ask(standing.epoch))
            )
            return None
        except TernError as error:
            self.role.trouble = error.message
            log.warning("not following", reason=error.message, epoch=standing.epoch)
            if self.base:
                return None
            if isinstance(error, Diverged):
                await self._rest(DIVERGED_S)
                return None
        won = await self._try_to_lead()
        if won is None:
            await self._rest(AGAIN_S)
        return won

    async def _try_to_lead(self) -> Standing | None:
        site = self._site
        if site.me not in site.standing.in_sync or not site.config.failover:
            return None
        if self._is_other(site.standing):
            return None  # Another leads already.
        try:
            return await site.directory.lead(site.config.broker_group, site.me)
        except MasterAlive:
            pass
        except NotInSync as error:
            log.warning("may not lead", reason=error.message)
        except TernError as error:
            log.warning("cannot ask to lead", reason=error.message)
        return None

    async def _until_changed(self, following: Any) -> None:
        """Follow until it ends by itself, or the standing is another, or the server stops."""
        site = self._site
        tasks = [
            asyncio.ensure_future(following),
            asyncio.ensure_future(site.changed.wait()),
            asyncio.ensure_future(site.stop.wait()),
        ]
        try:
            while True:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                if tasks[0].done() or site.stop.is_set() or self._is_other(site.standing):
                    break
                site.changed.clear()
                tasks[1] = asyncio.ensure_future(site.changed.wait())
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        if not tasks[0].cancelled():
            tasks[0].result()

    def _is_other(self, standing: Standing) -> bool:
        return standing.epoch > self._site.member.accepted_epoch

    async def _rest(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._site.changed.wait()
        except TimeoutError:
            pass

    def _ask(self, epoch: int) -> Follow:
        tables = self._store.tables()
        return Follow(
            broker_group=self._site.config.broker_group,
            member=self._site.me,
            epoch=epoch,
            logs=[
                LogHeld(
                    log=number, start=log.start_offset, end=log.end, safe=log.safe_offset,
                    epochs=tables[number],
                )
                for number, log in self._logs.items()
            ],
        )  # fmt: skip

    async def _prepare(self, followed: Followed) -> None:
        """Have the master's history and nothing else."""
        plans = {plan.log: plan for plan in followed.logs}
        messages, pulls = plans[MESSAGES], plans[PULLS]

        if followed.base:
            self.base = followed.base
            raise NotMaster("the master's logs begin later than these end: beginning anew")

        def cut() -> None:
            self._store.truncate(messages.cut_to, pulls.cut_to)
            self._store.adopt_epochs({plan.log: plan.epochs for plan in followed.logs})

        await self._intake.alone(cut)

    async def _run_checkpoints(self) -> None:
        while True:
            await asyncio.sleep(self._site.config.checkpoint_interval_ms / 1000)
            try:
                await self._intake.alone(self._store.checkpoint)
                start = self._intake.starts[MESSAGES]
                if start > self._store.messages.start_offset:
                    await self._intake.alone(partial(self._store.drop_before, start))
            except TernError as error:
                log.warning("checkpoint not written", reason=error.message)

    async def _run_index(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await loop.run_in_executor(None, self._store.upkeep_index)
            await asyncio.sleep(INDEX_INTERVAL_S)

    async def close(self) -> None:
        await self.role.stop()
        await self._intake.close()


async def follow(site: Site) -> Standing | None:
    """Be a replica; returns the standing by which this member leads, None at the end."""
    while True:
        leads, base = await _follow(site)
        if not base:
            return leads
        home = site.config.data_dir / "broker"
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(None, install_base, site.disk, home, base)
        except AlreadyExists as error:
            log.error(
                "this replica was away for too long: its logs end before its master's begin; move "
                "its data directory aside and start again", reason=error.message,
            )  # fmt: skip
            await asyncio.sleep(DIVERGED_S)


async def _follow(site: Site) -> tuple[Standing | None, bytes]:
    loop = asyncio.get_running_loop()
    epoch = site.member.accepted_epoch
    store = await loop.run_in_executor(
        None, lambda: open_store(site.config, epoch, site.clock, site.disk, True)
    )
    try:
        replica = Replica(site, store)
        try:
            site.door.enter(replica.role)
            site.begun(replica.role.scrape)
            if await site.leave_if_damaged(store.report):
                replica.role.trouble = "damaged: move the data directory aside and start again"
                await site.stop.wait()
            return await replica.run(), replica.base
        finally:
            site.ended()
            site.door.leave(stopping=site.stop.is_set())
            await replica.close()
    finally:
        await loop.run_in_executor(None, store.close)
