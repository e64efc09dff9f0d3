"""Commands of servers that are other processes: the meta side of `RemoteDirectory`.

Brokers ask for ids and epochs, and wait here for news of topics, each time a little. Never answers
an application: its name would have to begin with '%', and people's do not.
"""

from ternmq.core.errors import BadRequest, Unauthorized
from ternmq.discovery.directory import InUse
from ternmq.discovery.standing_table import StandingRequest
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
    MemberJoin,
    StandingFind,
    Standings,
)
from ternmq.wire.messages.topics import TopicIds
from ternmq.wire.record import Record

WAIT_MS_MAX = 30_000
TOLD_MAX = 5_000
"""Topics in one answer; with more the asker is told to look at the list."""


class ServerCommands:
    """The questions of servers."""

    def __init__(self, directory: MetaDirectory) -> None:
        self._directory = directory

    async def news(self, find: TopicNewsFind) -> Record:
        news_feed = self._directory.news
        if find.since < 0:
            await news_feed.look()
            return TopicNews(version=news_feed.version, everything=True)
        if news_feed.version == find.since:
            await news_feed.wait(find.since, min(find.wait_ms, WAIT_MS_MAX) / 1000)
        if news_feed.version == find.since:
            return TopicNews(version=find.since)
        news = await news_feed.find(find.since)
        if news.everything or len(news.topics) + len(news.deleted) > TOLD_MAX:
            return TopicNews(version=news.version, everything=True)
        return TopicNews(
            version=news.version,
            topics=news.topics,
            deleted=sorted(news.deleted),
            standings=news.standings,
        )

    async def group_id(self, find: GroupIdFind) -> Record:
        return GroupId(id=await self._directory.group_id(find.topic_id, find.name))

    async def forget_group(self, find: GroupIdFind) -> Record:
        await self._directory.forget_group(find.topic_id, find.name)
        return Empty()

    async def new_epoch(self, wanted: EpochNew) -> Record:
        return EpochGiven(epoch=await self._directory.new_epoch(wanted.broker_group))

    async def gone_topics(self, asked: TopicIds) -> Record:
        return TopicIds(ids=sorted(await self._directory.gone_topics(asked.ids)))

    async def reserve(self, used: Reserve) -> Record:
        unknown = await self._directory.reserve(
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

    def __init__(self, directory: MetaDirectory, registrar: Registrar) -> None:
        self._directory = directory
        self._registrar = registrar

    async def find(self, find: StandingFind) -> Record:
        directory, broker_group = self._directory, find.broker_group
        if not broker_group:
            return Standings(standings=directory.standings())
        held = directory.standing(broker_group, find.kind)
        found = await directory.read_standing(broker_group, find.kind) if find.fresh else held
        return Standings(standings=[] if found is None else [found])

    async def change(self, wanted: StandingRequest) -> Record:
        return await self._directory.change_standing(wanted)

    async def join(self, wanted: MemberJoin) -> Record:
        self._registrar.check_join(wanted)
        return await self._directory.change_standing(wanted)

    async def drain(self, wanted: BrokerGroupDrain) -> Record:
        """Refused where no other broker group would take the messages."""
        others = self._registrar.writable_groups(wanted.kind, besides=wanted.broker_group)
        placement = self._directory.placement()
        weights = {} if placement is None or wanted.kind != "realtime" else placement.weights
        if wanted.draining and all(weights.get(name) == 0 for name in others):
            hint = f"; tern broker weight {others[0]} 100 lets one take them" if others else ""
            raise BadRequest(
                f"no other broker group takes messages: {wanted.broker_group!r} cannot be drained "
                f"before there is one{hint}"
            )
        return await self._directory.change_standing(wanted)


def is_server(peer: Peer) -> bool:
    """Servers may use names of our own."""
    return peer.hello is not None and peer.hello.app.startswith("%")


def check_server(peer: Peer) -> None:
    if not is_server(peer):
        raise Unauthorized("only servers of the cluster ask this")
