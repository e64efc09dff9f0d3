"""Topics as a server far from meta knows them: a copy in memory, refreshed every few seconds.

A topic that is not in the copy is asked for (and made) by `create_topic`, so a new one is usable at
once; changed settings and deletions are seen within a refresh. While no meta server answers the
last copy is used. Only topics: a delay server needs no group ids and no epochs.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from ternmq.core.errors import TernError
from ternmq.core.log import get_logger
from ternmq.discovery.routes import RouteCache
from ternmq.rpc.connection import request
from ternmq.wire.commands import (
    Command,
    Record,
    T,
    Topic,
    TopicCreate,
    TopicFind,
    Topics,
    TopicSettings,
)

REFRESH_S = 2.0
ANSWER_S = 5.0
PAGE = 5_000

log = get_logger()


class RemoteDirectory:
    """Implements `discovery.directory.TopicDirectory`. Made by `remote_directory`."""

    def __init__(self, routes: RouteCache) -> None:
        self._routes = routes
        self._topics: dict[str, Topic] = {}
        self._deleted: list[Callable[[Topic], None]] = []
        self._changed: list[Callable[[Topic], None]] = []

    def topic(self, name: str) -> Topic | None:
        return self._topics.get(name)

    def topics(self) -> list[Topic]:
        return list(self._topics.values())

    async def create_topic(self, name: str, settings: TopicSettings) -> Topic:
        wanted = TopicCreate(name=name, settings=settings)
        topic = await self._ask(Command.TOPIC_CREATE, wanted, Topic)
        self._topics[name] = topic
        return topic

    def on_topic_deleted(self, callback: Callable[[Topic], None]) -> None:
        self._deleted.append(callback)

    def on_topic_changed(self, callback: Callable[[Topic], None]) -> None:
        self._changed.append(callback)

    async def refresh(self) -> None:
        """Ask for all topics and tell what became of those we knew."""
        before = dict(self._topics)
        found: list[Topic] = []
        while True:
            find = TopicFind(after=found[-1].name if found else "", limit=PAGE)
            page = await self._ask(Command.TOPIC_LIST, find, Topics)
            found += page.topics
            if len(page.topics) < PAGE:
                break
        fresh = {topic.name: topic for topic in found}
        made = {name: topic for name, topic in self._topics.items() if name not in before}
        self._topics = made | fresh  # What was made while we asked is newer than the answer.
        for name, topic in before.items():
            now = fresh.get(name)
            if now is None or now.id != topic.id:
                _tell(self._deleted, topic)
            elif now != topic:
                _tell(self._changed, now)

    async def keep_fresh(self) -> None:
        while True:
            await asyncio.sleep(REFRESH_S)
            try:
                await self.refresh()
            except TernError as error:
                log.info("topics are not refreshed", reason=error.message)

    async def _ask(self, command: Command, record: Record, answer: type[T]) -> T:
        connection = await self._routes.connection()
        return await request(connection, command, record, answer, timeout=ANSWER_S)


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


def _tell(callbacks: list[Callable[[Topic], None]], topic: Topic) -> None:
    for callback in callbacks:
        try:
            callback(topic)
        except Exception:
            log.exception("telling about a topic failed", topic=topic.name)
