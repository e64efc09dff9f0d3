"""One leadership of a broker: from opening its store to closing it.

What is on this disk and not known to be safe (the suffix) comes first: clients are served once
every required member has it, in both logs. Members that do not come within `replica_timeout_ms` are
taken out of the set, so that a sole survivor can begin; whether it then takes messages is
`replica_lost`.

It ends when the server stops, or when another leads. Then nothing is answered any more, clients are
sent away, and what does not count by then stays on the disk as suffix, for the next epoch to judge.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

from ternmq.broker.parts import Parts, open_store
from ternmq.broker.site import Site
from ternmq.core.errors import Unavailable
from ternmq.core.lifecycle import background
from ternmq.core.log import get_logger
from ternmq.discovery.directory import InUse
from ternmq.replication.in_sync import Proposal
from ternmq.replication.leader import Leader
from ternmq.rpc.answering import Answering
from ternmq.rpc.peer import Peer
from ternmq.storage.store import Store
from ternmq.wire.commands import Command, unpack
from ternmq.wire.frame import Frame
from ternmq.wire.replicating import MESSAGES, PULLS, Follow
from ternmq.wire.standing import HandedOver, Handover, Standing

log = get_logger()

HAND_OVER_S = 5.0
_REPLICATED, _FOLLOW = int(Command.REPLICATED), int(Command.FOLLOW)


class Past:
    """What the leader asks a store about its history."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._starts = store.tables()

    def starts(self, log: int) -> list[tuple[int, int]]:
        return self._starts[log]

    def base(self) -> bytes:
        return self._store.base_state()


class MasterRole:
    """Answers replicas from the beginning, clients once the parts are there."""

    def __init__(self, site: Site, leader: Leader) -> None:
        self.epoch = leader.epoch
        self._site = site
        self._leader = leader
        self._answering = Answering()
        self._parts: Parts | None = None

    def serve(self, parts: Parts) -> None:
        self._parts = parts
        parts.router.add(Command.FOLLOW, self._follow)
        parts.router.add(Command.REPLICATED, self._leader.replicated)
        parts.router.add(Command.HANDOVER, self._hand_over)

    def route(self, peer: Peer, frame: Frame) -> None:
        if self._parts is not None:
            self._parts.router.route(peer, frame)
        elif frame.command == _REPLICATED:
            self._leader.replicated(peer, frame)
        elif frame.command == _FOLLOW:
            self._follow(peer, frame)
        else:
            raise Unavailable("this server is about to lead its broker group; try again")

    def _follow(self, peer: Peer, frame: Frame) -> None:
        request = unpack(frame.payload, Follow)
        self._answering.begin(peer, frame, self._leader.follow(peer, request))

    def _hand_over(self, peer: Peer, frame: Frame) -> None:
        request = unpack(frame.payload, Handover)
        self._answering.begin(peer, frame, hand_over(self._site, self._leader, request))

    async def finish(self) -> None:
        """Wait until those who asked for a change have their answer."""
        await self._answering.finish()

    def lost(self, peer: Peer) -> None:
        self._leader.lost(peer)
        if self._parts is not None:
            self._parts.lost(peer)


async def lead(site: Site, standing: Standing) -> None:
    """Lead at the epoch of this standing until it is over."""
    loop = asyncio.get_running_loop()
    alone = standing.in_sync == [site.me]
    store = await loop.run_in_executor(
        None, lambda: open_store(site.config, standing.epoch, site.clock, site.disk, not alone)
    )
    try:
        if await site.leave_if_damaged(store.report):
            return
        standing, unnamed = await _reserve(site, store, standing)
        await loop.run_in_executor(None, store.begin_epoch, standing.epoch)
        leader = _leader(site, store, standing)
        role = MasterRole(site, leader)
        site.door.enter(role)
        site.heard = leader.learn
        leader.learn(site.standing)
        async with background(replicas=leader.run):
            if await _settled(site, store, leader):
                await _serve(site, store, role, leader, unnamed)
            leader.end()
        if leader.disk_failed:
            await site.leave_set()
    finally:
        site.heard = lambda standing: None
        site.door.leave(stopping=site.stop.is_set())
        await loop.run_in_executor(None, store.close)


async def _reserve(site: Site, store: Store, standing: Standing) -> tuple[Standing, frozenset[int]]:
    """Numbers in the data are never given out again; the epoch is above all that were used."""
    known = await asyncio.get_running_loop().run_in_executor(None, store.known)
    unnamed = await site.directory.reserve(
        InUse(
            broker_group=site.config.broker_group,
            topic_ids=known.topic_ids,
            group_id=known.group_id,
            epoch=known.epoch,
        )
    )
    if standing.epoch <= known.epoch:
        log.error("the registry gave out an epoch twice; asking again", epoch=known.epoch)
        standing = await site.directory.lead(site.config.broker_group, site.me)
        await site.accept(standing.epoch)
    return standing, unnamed


def _leader(site: Site, store: Store, standing: Standing) -> Leader:
    group = site.config.broker_group

    async def change(wanted: Proposal) -> Standing:
        return await site.directory.change_in_sync(
            group, epoch=standing.epoch, in_sync=sorted(wanted.in_sync), version=wanted.version
        )

    return Leader(
        site.me,
        standing,
        logs={MESSAGES: store.messages, PULLS: store.pulls},
        history=Past(store),
        change=change,
        policy=site.config.replica_lost,
        timeout=site.config.replica_timeout_ms / 1000,
    )


async def _settled(site: Site, store: Store, leader: Leader) -> bool:
    """Wait until everything on this disk counts, and let it; False when it is over before."""
    moved = asyncio.Event()
    leader.watch(moved.set)
    leader.at_least = 1
    ends = {MESSAGES: store.messages.end, PULLS: store.pulls.end}
    while any(leader.mark(number) < end for number, end in ends.items()):
        moved.clear()
        await first_of(moved.wait(), site.stop.wait(), leader.over())
        if site.stop.is_set() or leader.ended.done():
            return False
    leader.at_least = None
    while store.messages.advance(ends[MESSAGES]):  # noqa: ASYNC110
        await asyncio.sleep(0)  # A piece in each turn of the loop.
    store.pulls.advance(ends[PULLS])
    return True


async def _serve(
    site: Site, store: Store, role: MasterRole, leader: Leader, unnamed: frozenset[int]
) -> None:
    parts = Parts(
        site.config, store, site.directory, site.clock, site.disk, safety=leader, url=site.url
    )
    parts.publisher.draining = lambda: site.standing.draining
    site.topic_deleted, site.topic_changed = parts.topic_deleted, parts.admin.topic_changed
    listener = site.door.listener
    assert listener is not None
    parts.listener, parts.member = listener, site.me
    try:
        await parts.start(unnamed, promoted=site.promoted)
        role.serve(parts)
        loops = {
            "upkeep": parts.upkeep.run,
            "checkpoints": parts.upkeep.run_checkpoints,
            "alarms": parts.observer.run_alarms,
            "index": parts.upkeep.run_index,
            "flush": parts.upkeep.run_flush,
            "retention": parts.retention.run,
            "check-back": parts.check_back.run,
            "slots": parts.slots.run,
        }
        async with background(**loops):
            log.info("broker leads", group=site.config.broker_group, epoch=leader.epoch)
            site.begun(parts.scrape, epoch=leader.epoch)
            await first_of(site.stop.wait(), leader.over())
            if not leader.ended.done():
                await parts.stop(listener)
    finally:
        leader.end()
        await role.finish()
        site.ended()
        site.door.leave(stopping=site.stop.is_set())
        await parts.close()


async def hand_over(site: Site, leader: Leader, request: Handover) -> HandedOver:
    """The HANDOVER command: messages wait, the other catches up, the registry makes it master."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    target = leader.successor(request.member_id)
    leader.pause(True)
    try:
        async with asyncio.timeout(HAND_OVER_S):
            await leader.reached(target)
            led = await site.directory.lead(site.config.broker_group, target, force=True)
    except TimeoutError:
        raise Unavailable(
            f"{target} did not catch up within {HAND_OVER_S:g} s; this server goes on leading"
        ) from None
    finally:
        leader.pause(False)
    paused_ms = int((loop.time() - began) * 1000)
    return HandedOver(member_id=target, epoch=led.epoch, paused_ms=paused_ms)


async def first_of(*waiting: Coroutine[Any, Any, Any]) -> None:
    """Wait for one of them; the others are ended."""
    tasks = [asyncio.ensure_future(each) for each in waiting]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
