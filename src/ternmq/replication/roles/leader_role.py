"""One leadership: from opening the store to closing it.

What is on this disk and not known to be safe (the suffix) comes first: clients are served once
every required member has it, in both logs. Members that do not come within `replica_timeout_ms` are
taken out of the set, so that a sole survivor can begin; whether it then takes messages is
`replica_lost`.

It ends when the server stops, or when another leads. Then nothing is answered any more, clients are
sent away, and what does not count by then stays on the disk as suffix, for the next epoch to judge.
"""

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import Any

from ternmq.core.errors import Conflict, DiskFailed, NotInSync, Unavailable
from ternmq.core.lifecycle import background
from ternmq.core.log import get_logger
from ternmq.replication.config import ReplicaAck
from ternmq.replication.leading.in_sync_set import Proposal, Rules
from ternmq.replication.leading.leader import Leader
from ternmq.replication.member.member_context import MemberContext
from ternmq.replication.member.member_events import MemberEvents
from ternmq.replication.member.role_switch import RouteFrame
from ternmq.replication.member.server_kind import (
    LeaderService,
    MemberCommands,
    ReplicatedStore,
    ServerKind,
)
from ternmq.rpc.node_proof import proven
from ternmq.rpc.peer import Peer
from ternmq.rpc.pending_requests import PendingRequests
from ternmq.wire.frame import Frame
from ternmq.wire.messages.replication import Follow
from ternmq.wire.messages.standings import HandedOver, Handover, Standing, standing_of
from ternmq.wire.messages.topics import Topic
from ternmq.wire.numbers import Command
from ternmq.wire.record import unpack

log = get_logger()

HAND_OVER_S = 5.0
SUCCESSOR_S = 2.0
AGAIN_S = 0.02


class PastEpochs:
    """What the leader asks a store about its history."""

    def __init__(self, store: ReplicatedStore) -> None:
        self._store = store
        self._starts = store.tables()

    def starts(self, log: int) -> list[tuple[int, int]]:
        return self._starts[log]

    def base(self) -> bytes:
        return self._store.base()


class LeaderRole(MemberEvents):
    """Answers replicas from the beginning, clients once they are served."""

    def __init__(self, context: MemberContext, leader: Leader) -> None:
        self.epoch = leader.epoch
        self._context = context
        self._leader = leader
        self._answering = PendingRequests()
        self._serving: LeaderService | None = None
        self._of_topics: LeaderService | None = None
        """Is told of topics, from before it starts until it is closed."""
        self.commands = MemberCommands(
            follow=self._follow, replicated=leader.replicated, hand_over=self._hand_over
        )
        self._of_replicas: dict[int, RouteFrame] = {
            Command.FOLLOW: self._follow,
            Command.REPLICATED: leader.replicated,
        }

    def begin(self, serving: LeaderService) -> None:
        """The parts of a master are made; they need not answer yet."""
        self._of_topics = serving

    def serve(self, serving: LeaderService) -> None:
        """The parts of a master answer clients from here on."""
        self._serving = serving
        self._context.role_switch.serve(serving.router.route)

    def end(self) -> None:
        """The parts of a master are about to be closed."""
        self._of_topics = None

    def route(self, peer: Peer, frame: Frame) -> None:
        """While the parts of a master are made: replicas only."""
        handle = self._of_replicas.get(frame.command)
        if handle is None:
            raise Unavailable("this server is about to lead its broker group; try again")
        handle(peer, frame)

    def _follow(self, peer: Peer, frame: Frame) -> None:
        request = unpack(frame.payload, Follow)
        proven(peer).check_group(self._context.kind, request.broker_group)
        self._answering.begin(peer, frame, self._leader.follow(peer, request))

    def _hand_over(self, peer: Peer, frame: Frame) -> None:
        request = unpack(frame.payload, Handover)
        self._answering.begin(peer, frame, hand_over(self._context, self._leader, request))

    def on_standing(self, standing: Standing) -> None:
        self._leader.learn(standing)

    def on_damage(self, reason: str) -> bool:
        return self._leader.step_down(reason)

    def topic_deleted(self, topic: Topic) -> None:
        if self._of_topics is not None:
            self._of_topics.topic_deleted(topic)

    def topic_changed(self, topic: Topic) -> None:
        if self._of_topics is not None:
            self._of_topics.topic_changed(topic)

    async def finish(self) -> None:
        """Wait until those who asked for a change have their answer."""
        await self._answering.finish()

    def lost(self, peer: Peer) -> None:
        self._leader.lost(peer)
        if self._serving is not None:
            self._serving.lost(peer)


async def lead(context: MemberContext, server_kind: ServerKind, standing: Standing) -> None:
    """Lead at the epoch of this standing until it is over."""
    loop = asyncio.get_running_loop()
    alone = standing.in_sync == [context.me]
    store = await loop.run_in_executor(
        None,
        lambda: server_kind.open(standing.epoch, suffix=not alone, on_corrupt=context.on_corrupt),
    )
    try:
        if await context.leave_if_damaged(store.report, store.logs):
            return
        standing = await _reserve(context, store, standing)
        await loop.run_in_executor(None, store.begin_epoch, standing.epoch)
        leader = _leader(context, store, standing)
        role = LeaderRole(context, leader)
        context.enter(role, role)
        await context.record.note(context.standing)
        leader.learn(context.standing)
        leader.begin()
        leader.give_up_on(context.former)
        files = partial(context.watch_files, store.look)
        async with background(replicas=leader.run, files=files):
            if await _settled(context, store, leader):
                serving = store.leader_service(context, leader, role.commands)
                await _serve(context, server_kind, role, leader, serving)
            leader.end()
        if leader.gives_way_to:
            await context.give_way(leader.gives_way_to)
        elif context.damaged:
            await context.leave_if_damaged(store.report)
        elif leader.disk_failed:
            await context.leave_set()
    finally:
        context.tell_nobody()
        context.leave()
        context.close_role(store.logs)
        again = not context.stop.is_set()
        await loop.run_in_executor(None, partial(store.close, again=again))


async def _reserve(context: MemberContext, store: ReplicatedStore, standing: Standing) -> Standing:
    """Numbers in the data are never given out again; the epoch is above all that were used."""
    used = await store.reserve(context)
    if standing.epoch <= used:
        log.error("the registry gave out an epoch twice; asking again", epoch=used)
        standing = await context.lead()
        await context.record.accept(standing)
    return standing


def _leader(context: MemberContext, store: ReplicatedStore, standing: Standing) -> Leader:
    async def change(wanted: Proposal) -> Standing:
        if not wanted.in_sync.issuperset(context.standing.in_sync):
            await _check_files(context, store)
        try:
            changed = await context.directory.change_in_sync(
                context.broker_group,
                kind=context.kind,
                epoch=standing.epoch,
                in_sync=sorted(wanted.in_sync),
                version=wanted.version,
                waits=wanted.waits,
            )
        except Conflict as refused:
            held = standing_of(refused)
            if held is not None:
                await context.record.note(held)
            raise
        await context.record.note(changed)  # The leader acts on what is returned.
        return changed

    return Leader(
        context.me,
        standing,
        logs=store.logs,
        history=PastEpochs(store),
        change=change,
        look=lambda: context.directory.read_standing(context.broker_group, context.kind),
        rules=Rules(
            lost=context.config.replica_lost,
            timeout=context.config.replica_timeout_ms / 1000,
            wait=context.kind != "realtime" or context.config.replica_ack is not ReplicaAck.NONE,
        ),
    )


async def _check_files(context: MemberContext, store: ReplicatedStore) -> None:
    """A master whose files were removed takes nobody out of the set: they have what it lacks, and
    one of them has to lead after it."""
    if await context.misses_files(store.look):
        raise DiskFailed("files of this server were removed: the others stay in the set")


async def _settled(context: MemberContext, store: ReplicatedStore, leader: Leader) -> bool:
    """Wait until everything on this disk counts, and let it; False when it is over before."""
    moved = asyncio.Event()
    leader.watch(moved.set)
    ends = {number: log.end for number, log in store.logs.items()}
    while any(leader.mark(number) < end for number, end in ends.items()):
        moved.clear()
        await first_of(moved.wait(), context.stop.wait(), leader.over())
        if context.stop.is_set() or leader.ended.done():
            return False
    leader.has_begun()
    for number, suffix in store.logs.items():
        before = -1
        while before < suffix.safe_offset:
            before = suffix.safe_offset
            suffix.advance(ends[number])
            await asyncio.sleep(0)  # A piece in each turn of the loop.
    return True


async def _serve(
    context: MemberContext,
    server_kind: ServerKind,
    role: LeaderRole,
    leader: Leader,
    serving: LeaderService,
) -> None:
    role.begin(serving)
    try:
        await serving.start()
        role.serve(serving)
        async with background(**serving.loops()):
            event = server_kind.title + " leads"
            log.info(event, group=context.broker_group, epoch=leader.epoch)
            context.begun(serving.scrape, epoch=leader.epoch)
            await first_of(context.stop.wait(), leader.over())
            if not leader.ended.done():
                await serving.stop(context.listener)
    finally:
        leader.end()
        await role.finish()
        role.end()
        context.ended()
        context.leave()
        await serving.close()


async def hand_over(context: MemberContext, leader: Leader, request: Handover) -> HandedOver:
    """The HANDOVER command: messages wait, the other catches up, the registry makes it master."""
    loop = asyncio.get_running_loop()
    target = await _successor(leader, request.member_id)
    began = loop.time()  # Until here messages were taken.
    leader.pause(True)
    try:
        async with asyncio.timeout(HAND_OVER_S):
            await leader.reached(target)
            led = await context.lead(target, force=True)
    except TimeoutError:
        raise Unavailable(
            f"{target} did not catch up within {HAND_OVER_S:g} s; this server goes on leading"
        ) from None
    finally:
        leader.pause(False)
    paused_ms = int((loop.time() - began) * 1000)
    return HandedOver(member_id=target, epoch=led.epoch, paused_ms=paused_ms)


async def _successor(leader: Leader, wanted: str) -> str:
    """Who is to lead. A member of the set that is not connected is on its way, or about to leave
    it: so it is right after another hand-over."""
    give_up = asyncio.get_running_loop().time() + SUCCESSOR_S
    while True:
        try:
            return leader.successor(wanted)
        except NotInSync:
            if leader.alone or asyncio.get_running_loop().time() > give_up:
                raise
        await asyncio.sleep(AGAIN_S)


async def first_of(*waiting: Coroutine[Any, Any, Any]) -> None:
    """Wait for one of them; the others are ended."""
    tasks = [asyncio.ensure_future(each) for each in waiting]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
