"""Names as a server far from meta knows them: topics are a copy in memory, the rest is asked for.

One question for news of topics waits at a meta server all the time; what it answers is put into the
copy, so changed settings and deletions are seen at once. A topic that is not in the copy is asked
for (and made) by `create_topic`. While no meta server answers the last copy is used, and what needs
a meta server (a new topic, a new group) fails for now.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from ternmq.core.errors import TernError, Unavailable
from ternmq.core.log import get_logger
from ternmq.discovery.directory import InUse
from ternmq.discovery.hidden_topics import PLACEMENT
from ternmq.discovery.notify import tell_all
from ternmq.discovery.remote_standings import RemoteStandings
from ternmq.discovery.routes import RouteCache
from ternmq.rpc.connection import request
from ternmq.wire.messages.hello import Empty
from ternmq.wire.messages.order_keys import PlaceChange, Placed, Placement
from ternmq.wire.messages.servers import (
    GroupId,
    GroupIdFind,
    Reserve,
    Reserved,
    TopicNews,
    TopicNewsFind,
)
from ternmq.wire.messages.standings import StandingFind, Standings
from ternmq.wire.messages.topics import (
    Topic,
    TopicCreate,
    TopicFind,
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

log = get_logger()


class RemoteDirectory(RemoteStandings):
    """Implements `discovery.directory.ClusterDirectory`. Made by `remote_directory`."""

    def __init__(self, routes: RouteCache) -> None:
        self._routes = routes
        super().__init__()
        self._version = -1
        self._topics: dict[str, Topic] = {}
        self._deleted: list[Callable[[Topic], None]] = []
        self._changed: list[Callable[[Topic], None]] = []

    def topic(self, name: str) -> Topic | None:
        return self._topics.get(name)

    def topics(self) -> list[Topic]:
        return list(self._topics.values())

    async def create_topic(self, name: str, settings: TopicSettings) -> Topic:
        wanted = TopicCreate(name=name, settings=settings)
        topic = await self.ask(Command.TOPIC_CREATE, wanted, Topic)
        self._topics[name] = topic
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

    def placement(self) -> Placement | None:
        topic = self._topics.get(PLACEMENT)
        return None if topic is None else topic.settings.placement

    async def place(self, wanted: PlaceChange) -> Placed:
        return await self.ask(Command.PLACE, wanted, Placed)

    async def reserve(self, used: InUse) -> frozenset[int]:
        wanted = Reserve(
            broker_group=used.broker_group,
            topic_ids=sorted(used.topic_ids),
            group_id=used.group_id,
            epoch=used.epoch,
            kind=used.kind,
        )
        return frozenset((await self.ask(Command.RESERVE, wanted, Reserved)).unknown)

    def on_topic_deleted(self, callback: Callable[[Topic], None]) -> None:
        self._deleted.append(callback)

    def on_topic_changed(self, callback: Callable[[Topic], None]) -> None:
        self._changed.append(callback)

    async def refresh(self) -> None:
        """Ask for all topics and tell what became of those we knew."""
        news = await self.ask(Command.TOPIC_NEWS, TopicNewsFind(), TopicNews)
        found = [*await self._list(""), *await self._list("%")]
        groups = await self.ask(Command.STANDINGS, StandingFind(), Standings)
        another, self._version = news.version < self._version, news.version
        fresh = {topic.id for topic in found}
        for topic in list(self._topics.values()):
            if topic.id not in fresh and topic.id <= max(fresh, default=0):
                self._forget(topic)  # What was made while we asked has a higher id.
        for topic in found:
            self._learn(topic)
        self.learn_standings(groups.standings, another=another)

    async def follow(self) -> None:
        """Wait for news once, and learn them."""
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

    def _learn(self, topic: Topic) -> None:
        before = self._topics.get(topic.name)
        if before is not None and before.id != topic.id:
            self._forget(before)
        self._topics[topic.name] = topic
        if before is not None and before.id == topic.id and before != topic:
            tell_all(self._changed, topic, topic=topic.name)

    def _forget(self, topic: Topic) -> None:
        held = self._topics.get(topic.name)
        if held is not None and held.id == topic.id:
            del self._topics[topic.name]
            tell_all(self._deleted, topic, topic=topic.name)

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
            return await request(connection, command, record, answer, timeout=ANSWER_S)
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
