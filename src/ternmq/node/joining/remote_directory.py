"""The directory of a server far from meta: topics are a copy in memory, the rest is asked for.

One question for news of topics waits at a meta server all the time; what it answers is put into the
copy, so changed settings and deletions are seen at once. A topic that is not in the copy is asked
for (and made) by `create_topic`. While no meta server answers the last copy is used, and what needs
a meta server (a new topic, a new group) fails for now.
"""

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

from ternmq.core.errors import Conflict, TernError, Unavailable
from ternmq.core.log import get_logger
from ternmq.discovery.directory import InUse
from ternmq.discovery.hidden_topics import ACCESS_PREFIX, TOLD_PREFIXES
from ternmq.discovery.routes import RouteCache
from ternmq.discovery.standing_table import StandingRequest, StandingTable
from ternmq.discovery.topic_table import TopicTable
from ternmq.rpc.connection import request
from ternmq.wire.messages.hello import Empty
from ternmq.wire.messages.order_keys import PlaceChange, Placed
from ternmq.wire.messages.servers import (
    GroupId,
    GroupIdFind,
    Reserve,
    Reserved,
    TopicNews,
    TopicNewsFind,
)
from ternmq.wire.messages.standings import (
    BrokerGroupDrain,
    BrokerGroupKind,
    InSyncChange,
    InSyncLeave,
    MemberForget,
    MemberJoin,
    MemberLead,
    Standing,
    StandingFind,
    Standings,
    standing_of,
)
from ternmq.wire.messages.topics import (
    Topic,
    TopicCreate,
    TopicFind,
    TopicIds,
    TopicNamed,
    Topics,
    TopicSettings,
)
from ternmq.wire.numbers import Command
from ternmq.wire.record import Record, T

WAIT_MS = 10_000
ANSWER_S = 20.0
"""Longer than `WAIT_MS`, and than a registry may take."""
AGAIN_S = 0.5
PAGE = 5_000

COMMANDS: dict[type[StandingRequest], Command] = {
    MemberJoin: Command.MEMBER_JOIN,
    MemberLead: Command.MEMBER_LEAD,
    MemberForget: Command.MEMBER_FORGET,
    InSyncChange: Command.IN_SYNC_CHANGE,
    InSyncLeave: Command.IN_SYNC_LEAVE,
    BrokerGroupDrain: Command.BROKER_GROUP_DRAIN,
}

log = get_logger()


class RemoteDirectory(TopicTable, StandingTable):
    """Implements `discovery.directory.ClusterDirectory`. Made by `remote_directory`."""

    def __init__(self, routes: RouteCache) -> None:
        super().__init__()
        self._routes = routes
        self._version = -1
        self._cluster = ""
        """Whose topics these are."""
        self._heard_at = 0.0

    def silent_s(self) -> float:
        return asyncio.get_running_loop().time() - self._heard_at

    async def create_topic(self, name: str, settings: TopicSettings) -> Topic:
        wanted = TopicCreate(name=name, settings=settings)
        topic = await self.ask(Command.TOPIC_CREATE, wanted, Topic)
        self._put(topic)
        return topic

    async def delete_topic(self, name: str) -> Topic:
        topic = await self.ask(Command.TOPIC_DELETE, TopicNamed(name=name), Topic)
        self._forget(topic)
        return topic

    async def group_id(self, topic_id: int, group: str) -> int:
        find = GroupIdFind(topic_id=topic_id, name=group)
        return (await self.ask(Command.GROUP_ID, find, GroupId)).id

    async def forget_group(self, topic_id: int, group: str) -> None:
        await self.ask(Command.GROUP_FORGET, GroupIdFind(topic_id=topic_id, name=group), Empty)

    async def place(self, wanted: PlaceChange) -> Placed:
        return await self.ask(Command.PLACE, wanted, Placed)

    async def gone_topics(self, ids: Collection[int]) -> frozenset[int]:
        asked = TopicIds(ids=sorted(ids))
        return frozenset((await self.ask(Command.TOPICS_GONE, asked, TopicIds)).ids)

    async def reserve(self, used: InUse) -> frozenset[int]:
        ids = sorted(used.topic_ids)
        wanted = Reserve(
            broker_group=used.broker_group,
            topic_ids=ids,
            group_id=used.group_id,
            epoch=used.epoch,
            kind=used.kind,
            names=[used.names.get(each, "") for each in ids] if used.names else [],
        )
        return frozenset((await self.ask(Command.RESERVE, wanted, Reserved)).unknown)

    async def read_standing(
        self, broker_group: str, kind: BrokerGroupKind = "realtime"
    ) -> Standing | None:
        find = StandingFind(broker_group=broker_group, kind=kind, fresh=True)
        found = (await self.ask(Command.STANDINGS, find, Standings)).standings
        self.learn_standings(found)
        return found[0] if found else None

    async def change_standing(self, wanted: StandingRequest) -> Standing:
        if isinstance(wanted, MemberJoin):
            await self._check_registry(wanted)
        try:
            standing = await self.ask(COMMANDS[type(wanted)], wanted, Standing)
        except Conflict as error:
            held = standing_of(error)
            if held is not None:
                self.learn_standings([held])
            raise
        self.learn_standings([standing])
        return standing

    async def _check_registry(self, wanted: MemberJoin) -> None:
        """Data from another registry is brought along where that one is lost for sure: no meta
        server is away that may have it."""
        began = wanted.claim.held.line if wanted.claim is not None else ""
        held, known = self.standing(wanted.broker_group, wanted.kind), self._routes.cluster
        same = began in ("", known.id) or (held is not None and held.line == began)
        if not same and not await self._routes.is_only(known.id):
            raise Unavailable(
                f"broker group {wanted.broker_group!r} began in the registry of cluster {began}, "
                f"and the meta servers that answer have the one of {known.id}; others of the url "
                "are away or have another one. Start those that have the registry of "
                f"{began}. If that one is lost, all of them must answer with the new one"
            )

    async def refresh(self) -> None:
        """Ask for all topics and tell what became of those we knew."""
        news = await self.ask(Command.TOPIC_NEWS, TopicNewsFind(), TopicNews)
        found = [*await self._list(""), *await self._list("%")]
        groups = await self.ask(Command.STANDINGS, StandingFind(), Standings)
        another = news.version < self._version or self._is_new_cluster()
        self._version, self._cluster = news.version, self._routes.cluster.id
        fresh = {topic.id for topic in found}
        newest = max(fresh, default=0)  # What was made while we asked has a higher id.
        lost = [
            each
            for each in self.topics()
            if each.id not in fresh and (another or each.id <= newest)
        ]
        # No server makes users: one that is not found is not new, whatever has its id by now.
        users = {topic.name for topic in found if topic.name.startswith(ACCESS_PREFIX)}
        lost += [
            each
            for each in self.topics()
            if each.name.startswith(ACCESS_PREFIX) and each.name not in users and each not in lost
        ]
        gone = await self.gone_topics([topic.id for topic in lost]) if lost else frozenset()
        for topic in lost:
            if topic.id in gone:
                self._forget(topic)
            else:
                self._unname(topic)
        for topic in found:
            self._learn(topic)
        self.learn_standings(groups.standings, another=another)

    def _is_new_cluster(self) -> bool:
        """The registry was lost, and the meta servers have another one."""
        return self._cluster not in ("", self._routes.cluster.id)

    async def follow(self) -> None:
        """Wait for news once, and learn them."""
        await self._routes.connection()
        if self._is_new_cluster():  # Its versions say nothing of what we know.
            await self.refresh()
            return
        find = TopicNewsFind(since=self._version, wait_ms=WAIT_MS)
        news = await self.ask(Command.TOPIC_NEWS, find, TopicNews)
        if news.everything:
            await self.refresh()
            return
        self._version = news.version
        gone = set(news.deleted)
        for topic in [topic for topic in self._topics.values() if topic.id in gone]:
            self._forget(topic)
        for topic in news.topics:
            self._learn(topic)
        self.learn_standings(news.standings)

    async def keep_fresh(self) -> None:
        away = False
        while True:
            try:
                await self.follow()
                away = False
            except TernError as error:
                if not away:
                    log.warning(
                        "no meta server answers; going on with what is known", reason=error.message
                    )
                away = True
                await asyncio.sleep(AGAIN_S)
            except Exception:  # Nobody else would ever hear of topics again.
                log.exception("following the topics failed by a bug")
                await asyncio.sleep(AGAIN_S)

    def _learn(self, topic: Topic) -> None:
        before = self._topics.get(topic.name)
        if before is not None and before.id != topic.id:
            self._unname(before)  # One that was deleted is out of the table by now.
        self._put(topic)
        known = before is not None and before.id == topic.id
        if before != topic and (known or topic.name.startswith(TOLD_PREFIXES)):
            self._tell_changed(topic)

    def _forget(self, topic: Topic) -> None:
        if self._remove(topic):
            self._tell_deleted(topic)

    async def _list(self, prefix: str) -> list[Topic]:
        found: list[Topic] = []
        while True:
            after = found[-1].name if found else ""
            find = TopicFind(after=after, prefix=prefix, limit=PAGE)
            page = await self.ask(Command.TOPIC_LIST, find, Topics)
            found += page.topics
            if len(page.topics) < PAGE:
                return found

    async def ask(self, command: Command, record: Record, answer: type[T]) -> T:
        connection = await self._routes.connection()
        try:
            found = await request(connection, command, record, answer, timeout=ANSWER_S)
            if command is Command.TOPIC_NEWS:
                self._heard_at = asyncio.get_running_loop().time()
            return found
        except Unavailable:
            self._routes.move_on(connection)  # It may hang, or not reach the registry.
            raise


@asynccontextmanager
async def remote_directory(routes: RouteCache) -> AsyncIterator[RemoteDirectory]:
    """A directory that is filled when the block begins and kept fresh while it runs."""
    directory = RemoteDirectory(routes)
    await directory.refresh()
    keeping = asyncio.create_task(directory.keep_fresh(), name="tern-topics")
    try:
        yield directory
    finally:
        keeping.cancel()
        await asyncio.wait([keeping])
