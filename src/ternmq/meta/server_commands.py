"""Names for servers that are processes of their own: `Directory` over the network, meta's side.

Brokers ask for ids and epochs, and wait here for news of topics, each time a little. Never answers
an application: its name would have to begin with '%', and people's do not.
"""

from ternmq.core.errors import BadRequest, Unauthorized
from ternmq.discovery.directory import InUse
from ternmq.meta.directory import MetaDirectory
from ternmq.meta.routing.registrar import Registrar
from ternmq.rpc.peer import Peer
from ternmq.wire.messages.hello import Empty
from ternmq.wire.messages.servers import (
    EpochGiven,
    EpochNew,
    GroupId,
    GroupIdFind,
    Reserve,
    Reserved,
    TopicNews,
    TopicNewsFind,
)
from ternmq.wire.messages.standings import (
    BrokerGroupDrain,
    InSyncChange,
    InSyncLeave,
    MemberForget,
    MemberJoin,
    MemberLead,
    StandingFind,
    Standings,
)
from ternmq.wire.record import Record

WAIT_MS_MAX = 30_000
TOLD_MAX = 5_000
"""Topics in one answer; with more the asker is told to look at the list."""


class ServerCommands:
    """The questions of servers."""

    def __init__(self, service: MetaDirectory) -> None:
        self._service = service

    async def news(self, find: TopicNewsFind) -> Record:
        service = self._service
        if find.since < 0:
            await service.look_for_news()
            return TopicNews(version=service.version, everything=True)
        if service.version == find.since:
            await service.wait_for_news(find.since, min(find.wait_ms, WAIT_MS_MAX) / 1000)
        if service.version == find.since:
            return TopicNews(version=find.since)
        news = await service.news(find.since)
        if news.everything or len(news.topics) + len(news.deleted) > TOLD_MAX:
            return TopicNews(version=news.version, everything=True)
        return TopicNews(
            version=news.version,
            topics=news.topics,
            deleted=sorted(news.deleted),
            standings=news.standings,
        )

    async def group_id(self, find: GroupIdFind) -> Record:
        return GroupId(id=await self._service.group_id(find.topic_id, find.name))

    async def forget_group(self, find: GroupIdFind) -> Record:
        await self._service.forget_group(find.topic_id, find.name)
        return Empty()

    async def new_epoch(self, wanted: EpochNew) -> Record:
        return EpochGiven(epoch=await self._service.new_epoch(wanted.broker_group))

    async def reserve(self, used: Reserve) -> Record:
        unknown = await self._service.reserve(
            InUse(
                broker_group=used.broker_group,
                topic_ids=frozenset(used.topic_ids),
                group_id=used.group_id,
                epoch=used.epoch,
                kind=used.kind,
            )
        )
        return Reserved(unknown=sorted(unknown))


class StandingCommands:
    """The questions of members of broker groups, and of people about them."""

    def __init__(self, service: MetaDirectory, registrar: Registrar) -> None:
        self._service = service
        self._registrar = registrar

    async def find(self, find: StandingFind) -> Record:
        service, group = self._service, find.broker_group
        if not group:
            return Standings(standings=service.standings())
        held = service.standing(group, find.kind)
        found = await service.read_standing(group, find.kind) if find.fresh else held
        return Standings(standings=[] if found is None else [found])

    async def join(self, wanted: MemberJoin) -> Record:
        self._registrar.check_join(wanted)
        return await self._service.join_group(
            wanted.broker_group,
            wanted.kind,
            wanted.member,
            data_epoch=wanted.data_epoch,
            claim=wanted.claim,
        )

    async def lead(self, wanted: MemberLead) -> Record:
        return await self._service.lead(
            wanted.broker_group,
            wanted.member_id,
            kind=wanted.kind,
            force=wanted.force,
            accept_loss=wanted.accept_loss,
        )

    async def change_in_sync(self, wanted: InSyncChange) -> Record:
        return await self._service.change_in_sync(
            wanted.broker_group,
            epoch=wanted.epoch,
            in_sync=wanted.in_sync,
            version=wanted.version,
            waits=wanted.waits,
            kind=wanted.kind,
        )

    async def leave_in_sync(self, wanted: InSyncLeave) -> Record:
        return await self._service.leave_in_sync(
            wanted.broker_group,
            wanted.member_id,
            wanted.epoch_seen,
            kind=wanted.kind,
            surely=wanted.surely,
        )

    async def drain(self, wanted: BrokerGroupDrain) -> Record:
        """Refused where nobody else would take the messages."""
        others = self._registrar.takers(wanted.kind, besides=wanted.broker_group)
        placement = self._service.placement()
        weights = {} if placement is None or wanted.kind != "realtime" else placement.weights
        if wanted.draining and all(weights.get(name) == 0 for name in others):
            hint = f"; tern broker weight {others[0]} 100 lets one take them" if others else ""
            raise BadRequest(
                f"no other broker group takes messages: {wanted.broker_group!r} cannot be drained "
                f"before there is one{hint}"
            )
        return await self._service.drain_group(
            wanted.broker_group, kind=wanted.kind, draining=wanted.draining
        )

    async def forget(self, wanted: MemberForget) -> Record:
        return await self._service.forget_member(
            wanted.broker_group, wanted.member_id, kind=wanted.kind, accept_loss=wanted.accept_loss
        )


def is_server(peer: Peer) -> bool:
    """Servers may use names of our own."""
    return peer.hello is not None and peer.hello.app.startswith("%")


def check_server(peer: Peer) -> None:
    if not is_server(peer):
        raise Unauthorized("only servers of the cluster ask this")
