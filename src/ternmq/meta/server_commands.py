"""Commands of servers that are other processes: the meta side of `RemoteDirectory`.

Brokers ask for ids and epochs, and wait here for news of topics, each time a little. Never answers
an application: who asks has proven to be a server (`rpc/node_proof.py`), and speaks for its own
broker group only.
"""

import re
from collections.abc import Callable, Iterator

from ternmq.core.errors import BadName, BadRequest
from ternmq.discovery.directory import InUse
from ternmq.discovery.hidden_topics import ACCESS_PREFIX, RESERVED, SECRET_PREFIXES
from ternmq.discovery.standing_table import StandingRequest
from ternmq.meta.directory import MetaDirectory
from ternmq.meta.id_allocation import NUMBER_MAX
from ternmq.meta.routing.registrar import Registrar
from ternmq.rpc.node_proof import NodeIdentity
from ternmq.rpc.peer import Peer
from ternmq.wire.messages.hello import Empty
from ternmq.wire.messages.servers import (
    EpochGiven,
    EpochNew,
    GroupId,
    GroupIdFind,
    Register,
    Reserve,
    Reserved,
    TopicNews,
    TopicNewsFind,
    Withdraw,
)
from ternmq.wire.messages.standings import (
    BrokerGroupDrain,
    InSyncChange,
    InSyncLeave,
    MemberJoin,
    MemberLead,
    StandingFind,
    Standings,
)
from ternmq.wire.messages.topics import TopicIds
from ternmq.wire.record import Record

WAIT_MS_MAX = 30_000
_TEXT = re.compile(r"[!-~]{1,255}", re.ASCII)
RESERVED_TOPICS_MAX = 1_000_000
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
            topics=[each for each in news.topics if not each.name.startswith(SECRET_PREFIXES)],
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
        """Numbers far beyond any that were given out are a mistake, and would use up all others."""
        highest = max((*used.topic_ids, used.group_id, used.epoch))
        lowest = min((*used.topic_ids, used.group_id, used.epoch))
        if highest > NUMBER_MAX or lowest < 0 or len(used.topic_ids) > RESERVED_TOPICS_MAX:
            raise BadRequest(
                f"ids from {lowest} to {highest} of {len(used.topic_ids)} topics cannot be in use "
                f"already: at most {NUMBER_MAX} are given out, and {RESERVED_TOPICS_MAX} topics; "
                "is the data of this server damaged?"
            )
        unknown = await self._directory.reserve(
            InUse(
                broker_group=used.broker_group,
                topic_ids=frozenset(used.topic_ids),
                group_id=used.group_id,
                epoch=used.epoch,
                kind=used.kind,
                names=dict(_named(used)),
            )
        )
        return Reserved(unknown=sorted(unknown))


def _named(used: Reserve) -> Iterator[tuple[int, str]]:
    return ((each, name) for each, name in zip(used.topic_ids, used.names, strict=False) if name)


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
    return peer.node is not None


def shown_to(peer: Peer) -> Callable[[str], bool]:
    """Which topics this peer is told of; ours that people use (dead letters) as far as it may see
    what they belong to."""
    rights = peer.rights
    if is_server(peer):
        return lambda name: not name.startswith(SECRET_PREFIXES)
    if rights is None or rights.sees_all:
        return lambda name: not name.startswith((ACCESS_PREFIX, *SECRET_PREFIXES))
    return lambda name: not name.startswith(RESERVED) and rights.sees(name)


def check_own(node: NodeIdentity, wanted: Record) -> None:
    """What a server says of a broker group is said of its own, and can be shown to people."""
    match wanted:
        case Register() | Withdraw():
            node.check_group(wanted.route.kind, wanted.route.broker_group)
            _check_texts(address=wanted.route.address, member=wanted.member or "-")
        case MemberJoin():
            node.check_group(wanted.kind, wanted.broker_group)
            member = wanted.member
            _check_texts(id=member.id, name=member.name, address=member.address)
        case InSyncChange() | InSyncLeave() | MemberLead() | Reserve():
            node.check_group(wanted.kind, wanted.broker_group)
        case EpochNew():
            node.check_group(node.kind, wanted.broker_group)


def _check_texts(**texts: str) -> None:
    for name, text in texts.items():
        if _TEXT.fullmatch(text) is None:
            raise BadName(
                f"{text[:40]!r} cannot be the {name} of a server: use 1 to 255 letters, digits and "
                "signs of ASCII, without spaces"
            )
