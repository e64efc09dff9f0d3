"""The directory in process: a copy of all live topics in memory over a registry that is slow.

Theory of operation
-------------------
Looking up is a dictionary access. Whatever changes the registry goes to one worker thread, in the
order asked. Creations gather while a transaction runs and then go together in the next one, so
50,000 new topics are a handful of transactions and one new topic waits for one.

Other meta servers may change the same registry. `run_news` looks what they did, when the registry
wakes it or every `NEWS_S`. Groups are not kept in memory: whether one is there is asked.

Rules
-----
1. Memory changes only after the registry has it on disk, on the loop, in the registry's order.
2. No SQL on the event loop.
3. A failed transaction fails those who asked for it and nobody else.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TypeVar

from ternmq.core.clock import Clock
from ternmq.core.errors import BadName, Closed, TernError, TopicNotFound
from ternmq.core.ids import check_name
from ternmq.core.lifecycle import background
from ternmq.core.log import get_logger
from ternmq.discovery.directory import InUse
from ternmq.discovery.hidden_topics import PLACEMENT, refused_topic
from ternmq.discovery.notify import tell_all
from ternmq.meta.batching import Batching
from ternmq.meta.place import place
from ternmq.meta.registries.registry import Change, GroupRow, NewGroup, News, NewTopic, Registry
from ternmq.meta.standings.leadership import Leadership
from ternmq.meta.standings.liveness import DEAD_AFTER_MS, Liveness
from ternmq.meta.standings.standings import epoch_key
from ternmq.wire.messages.order_keys import PlaceChange, Placed, Placement
from ternmq.wire.messages.servers import Route
from ternmq.wire.messages.standings import (
    BrokerGroupKind,
    Claim,
    InSyncChange,
    InSyncLeave,
    Member,
    MemberForget,
    MemberJoin,
    MemberLead,
    Standing,
)
from ternmq.wire.messages.topics import Topic, TopicSettings

log = get_logger()

NEWS_S = 0.3
"""A registry that cannot tell when it has changed is asked this often."""
NEWS_SLOW_S = 5.0
"""And one that can, in case it forgot."""

_OWN_NAME = re.compile(r"%[A-Za-z0-9._%-]{1,390}", re.ASCII)

T = TypeVar("T")


class MetaDirectory:
    """Implements `discovery.directory.ClusterDirectory` over a registry. Made by
    `serving_directory`."""

    def __init__(
        self,
        registry: Registry,
        *,
        clock: Clock,
        worker: ThreadPoolExecutor,
        dead_after_ms: int = DEAD_AFTER_MS,
    ) -> None:
        self._registry = registry
        self._clock = clock
        self._worker = worker
        self._closed = False
        self._topics: dict[str, Topic] = {}
        self._version = 0
        self._woken = asyncio.Event()
        self._learnt = asyncio.Event()
        self.liveness = Liveness(clock, dead_after_ms=dead_after_ms)
        self._leadership = Leadership(registry, self.liveness)
        self._servers: list[Route] = []
        self._servers_callbacks: list[Callable[[list[Route]], None]] = []
        self._deleted_callbacks: list[Callable[[Topic], None]] = []
        self._changed_callbacks: list[Callable[[Topic], None]] = []
        self._new_topics = Batching[str, NewTopic, Topic](
            lambda new: self._in_worker(lambda: registry.create_topics(new)), self._made_topics
        )
        self._new_groups = Batching[tuple[int, str], NewGroup, GroupRow | None](
            lambda new: self._in_worker(lambda: registry.create_groups(new)), lambda rows: None
        )

    @property
    def description(self) -> str:
        """What the registry is, for people."""
        return self._registry.description

    @property
    def cluster(self) -> str:
        """Which cluster this is."""
        return self._registry.cluster

    async def load(self) -> None:
        """Fill the copy in memory; once, before anything else."""
        self._version = await self._in_worker(self._registry.version)
        self._add_topics(await self._in_worker(self._registry.topics))
        self._set_servers(await self._in_worker(self._registry.servers))
        self._leadership.learn(await self._in_worker(self._registry.standings))

    # Topics.

    def topic(self, name: str) -> Topic | None:
        return self._topics.get(name)

    def topics(self) -> list[Topic]:
        return list(self._topics.values())

    @property
    def topic_count(self) -> int:
        return len(self._topics)

    async def create_topic(self, name: str, settings: TopicSettings) -> Topic:
        found = self._topics.get(name)
        if found is not None:
            return found
        _check_own_or_name("topic", name)
        new = NewTopic(name=name, settings=settings, created_at_ms=self._clock.now_ms())
        return await self._new_topics.ask(name, new)

    async def change_topic(self, name: str, change: Change) -> Topic:
        """Replace a topic's settings, durably; everybody who looks it up sees them at once."""
        return await asyncio.shield(
            self._changed(lambda: self._registry.update_topic(name, change), self._put_topic)
        )

    async def delete_topic(self, name: str) -> Topic:
        """With the topic that keeps what was refused: one of the same name must not find it."""
        now_ms = self._clock.now_ms()

        def delete() -> list[Topic]:
            gone: list[Topic] = []
            with suppress(TopicNotFound):
                gone.append(self._registry.delete_topic(refused_topic(name), deleted_at_ms=now_ms))
            return [*gone, self._registry.delete_topic(name, deleted_at_ms=now_ms)]

        return (await asyncio.shield(self._changed(delete, self._drop_topics)))[-1]

    def on_topic_deleted(self, callback: Callable[[Topic], None]) -> None:
        self._deleted_callbacks.append(callback)

    def on_topic_changed(self, callback: Callable[[Topic], None]) -> None:
        self._changed_callbacks.append(callback)

    def _put_topic(self, topic: Topic) -> None:
        self._topics[topic.name] = topic
        tell_all(self._changed_callbacks, topic, topic=topic.name)

    def _made_topics(self, topics: Sequence[Topic]) -> None:
        self._add_topics(topics)
        self._woken.set()

    def _add_topics(self, topics: Sequence[Topic]) -> None:
        for topic in topics:
            self._topics[topic.name] = topic
            settings = topic.settings
            if settings.placement or settings.broker_groups or settings.on_groups:
                tell_all(self._changed_callbacks, topic, topic=topic.name)

    def _drop_topics(self, topics: list[Topic]) -> None:
        for topic in topics:
            self._drop_topic(topic)

    def _drop_topic(self, topic: Topic) -> None:
        held = self._topics.get(topic.name)
        if held is not None and held.id == topic.id:
            del self._topics[topic.name]
        tell_all(self._deleted_callbacks, topic, topic=topic.name)

    # Groups.

    async def group_id(self, topic_id: int, group: str) -> int:
        _check_own_or_name("group", group)
        new = NewGroup(topic_id=topic_id, name=group, created_at_ms=self._clock.now_ms())
        row = await self._new_groups.ask((topic_id, group), new)
        if row is None:
            raise TopicNotFound(f"topic {topic_id} does not exist any more")
        return row.id

    async def forget_group(self, topic_id: int, group: str) -> None:
        now_ms = self._clock.now_ms()

        def delete() -> bool:
            return self._registry.delete_group(topic_id, group, deleted_at_ms=now_ms)

        await asyncio.shield(self._in_worker(delete))

    # Epochs.

    async def new_epoch(self, broker_group: str) -> int:
        """For brokers of earlier releases, which join no group."""
        check_name("broker group", broker_group)
        return await asyncio.shield(self._in_worker(lambda: self._registry.new_epoch(broker_group)))

    async def reserve(self, used: InUse) -> frozenset[int]:
        check_name("broker group", used.broker_group)
        now_ms = self._clock.now_ms()
        used = replace(used, broker_group=epoch_key(used.broker_group, used.kind))
        behind = await asyncio.shield(
            self._in_worker(lambda: self._registry.reserve(used, now_ms=now_ms))
        )
        if behind:
            log.error(
                "registry is older than the data: unknown topics keep their messages and groups "
                "but have no name; restore the right registry",
                registry=self.description,
                unknown_topics=_spans(behind.topic_ids),
                groups_behind=behind.group_ids,
                epoch_behind=behind.epoch,
            )
        return behind.topic_ids

    # How broker groups stand.

    def standing(self, broker_group: str, kind: BrokerGroupKind = "realtime") -> Standing | None:
        return self._leadership.standing(broker_group, kind)

    def standings(self) -> list[Standing]:
        return self._leadership.standings()

    def on_standing_changed(self, callback: Callable[[Standing], None]) -> None:
        self._leadership.on_changed(callback)

    async def read_standing(
        self, broker_group: str, kind: BrokerGroupKind = "realtime"
    ) -> Standing | None:
        def read() -> list[Standing]:
            found = self._registry.standing(broker_group, kind)
            return [] if found is None else [found]

        found = await asyncio.shield(self._in_worker(read, self._leadership.learn))
        return found[0] if found else None

    async def join_group(
        self,
        broker_group: str,
        kind: BrokerGroupKind,
        member: Member,
        *,
        data_epoch: int = 0,
        claim: Claim | None = None,
    ) -> Standing:
        check_name("broker group", broker_group)
        wanted = MemberJoin(
            broker_group=broker_group, kind=kind, member=member, data_epoch=data_epoch, claim=claim
        )
        return await self._standing(lambda: self._leadership.join(wanted))

    async def testify(self, seen: Sequence[Standing]) -> None:
        """Groups stood so once; where the registry knows less, its members have to prove it."""
        for standing in seen:
            await self._standing(partial(self._leadership.testify, standing))

    async def lead(
        self,
        broker_group: str,
        member_id: str,
        *,
        kind: BrokerGroupKind = "realtime",
        force: bool = False,
        accept_loss: bool = False,
    ) -> Standing:
        wanted = MemberLead(
            broker_group=broker_group,
            kind=kind,
            member_id=member_id,
            force=force,
            accept_loss=accept_loss,
        )
        return await self._standing(lambda: self._leadership.lead(wanted))

    async def change_in_sync(
        self,
        broker_group: str,
        *,
        epoch: int,
        in_sync: Sequence[str],
        version: int,
        waits: bool = True,
        kind: BrokerGroupKind = "realtime",
    ) -> Standing:
        wanted = InSyncChange(
            broker_group=broker_group,
            kind=kind,
            epoch=epoch,
            in_sync=list(in_sync),
            version=version,
            waits=waits,
        )
        return await self._standing(lambda: self._leadership.change_in_sync(wanted))

    async def leave_in_sync(
        self,
        broker_group: str,
        member_id: str,
        epoch_seen: int,
        *,
        kind: BrokerGroupKind = "realtime",
        surely: bool = False,
    ) -> Standing:
        wanted = InSyncLeave(
            broker_group=broker_group,
            kind=kind,
            member_id=member_id,
            epoch_seen=epoch_seen,
            surely=surely,
        )
        return await self._standing(lambda: self._leadership.leave_in_sync(wanted))

    async def forget_member(
        self,
        broker_group: str,
        member_id: str,
        *,
        kind: BrokerGroupKind = "realtime",
        accept_loss: bool = False,
    ) -> Standing:
        wanted = MemberForget(
            broker_group=broker_group, kind=kind, member_id=member_id, accept_loss=accept_loss
        )
        return await self._standing(lambda: self._leadership.forget(wanted))

    async def drain_group(
        self, broker_group: str, *, kind: BrokerGroupKind = "realtime", draining: bool = True
    ) -> Standing:
        """Nothing new is sent to it from now on; or again."""
        return await self._standing(lambda: self._leadership.drain(broker_group, kind, draining))

    async def _standing(self, work: Callable[[], Standing]) -> Standing:
        """In the worker; those who watch hear of it at once."""
        return await asyncio.shield(self._changed(work, lambda it: self._leadership.learn([it])))

    # Where messages go.

    def placement(self) -> Placement | None:
        topic = self._topics.get(PLACEMENT)
        return None if topic is None else topic.settings.placement

    async def place(self, wanted: PlaceChange, masters: Sequence[str] = ()) -> Placed:
        return await place(self, wanted, masters)

    # Servers that hold messages by themselves.

    def servers(self) -> list[Route]:
        return self._servers

    async def remember_server(self, route: Route) -> None:
        now_ms = self._clock.now_ms()
        await self._change_servers(lambda: self._registry.remember_server(route, now_ms=now_ms))

    async def forget_server(self, route: Route) -> None:
        await self._change_servers(lambda: self._registry.forget_server(route))

    async def _change_servers(self, change: Callable[[], None]) -> None:
        def work() -> list[Route]:
            change()
            return self._registry.servers()

        await asyncio.shield(self._in_worker(work, self._set_servers))

    async def hold_servers(self, silent_s: Mapping[str, float]) -> None:
        """Tell other meta servers whom we hear, and how long ago that was."""
        await asyncio.shield(self._in_worker(lambda: self._registry.hold(silent_s)))

    def on_servers_changed(self, callback: Callable[[list[Route]], None]) -> None:
        self._servers_callbacks.append(callback)

    def _set_servers(self, servers: list[Route]) -> None:
        self._servers = servers
        for callback in self._servers_callbacks:
            callback(servers)

    # What other meta servers do.

    async def run_news(self) -> None:
        """Learn what changed in the registry, again and again."""
        loop = asyncio.get_running_loop()

        def wake() -> None:
            loop.call_soon_threadsafe(self._woken.set)

        told = await self._in_worker(lambda: self._registry.watch(wake))
        away = False
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(NEWS_SLOW_S if told else NEWS_S):
                    await self._woken.wait()
            self._woken.clear()
            try:
                await self.look_for_news()
                away = False
            except TernError as error:
                if not away:
                    log.warning("the registry does not answer", reason=error.message)
                away = True

    @property
    def version(self) -> int:
        """Of the registry, as far as memory has followed it."""
        return self._version

    async def wait_for_news(self, since: int, seconds: float) -> None:
        """Until memory has followed beyond that version, or the time is over."""
        learnt = self._learnt
        if self._version == since:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await learnt.wait()

    async def news(self, since: int) -> News:
        """What changed in the registry after that version."""
        return await asyncio.shield(self._in_worker(lambda: self._registry.news(since)))

    async def look_for_news(self) -> None:
        """Once; raises what the registry raises."""
        since = self._version

        def look() -> tuple[News, list[Route] | None]:
            news = self._registry.news(since)
            return news, self._registry.servers() if news.servers else None

        await asyncio.shield(self._in_worker(look, self._learn))

    def _learn(self, found: tuple[News, list[Route] | None]) -> None:
        """What we did ourselves is in the news too; memory has it already, in the same order."""
        news, servers = found
        another = news.version < self._version
        if self._version != news.version:
            self._version = news.version
            self._learnt.set()
            self._learnt = asyncio.Event()
        live = {topic.id for topic in news.topics}
        held = list(self._topics.values())
        for topic in held:
            if topic.id in news.deleted or (news.everything and topic.id not in live):
                self._drop_topic(topic)
        for topic in news.topics:
            held_one = self._topics.get(topic.name)
            if held_one is None:
                self._add_topics([topic])
            elif held_one != topic:
                self._put_topic(topic)
        if servers is not None:
            self._set_servers(servers)
        self._leadership.learn(news.standings, another=another)

    # The worker.

    def _in_worker(
        self, work: Callable[[], T], then: Callable[[T], None] | None = None
    ) -> "asyncio.Future[T]":
        """Run `work` in the worker thread; `then` gets the result on the loop, in order."""
        if self._closed:
            raise Closed("the directory is closed")
        future = asyncio.get_running_loop().run_in_executor(self._worker, work)
        if then is not None:
            future.add_done_callback(lambda done: _apply(done, then))
        return future

    def _changed(self, work: Callable[[], T], then: Callable[[T], None]) -> "asyncio.Future[T]":
        """The same for what changes topics: those who wait for news hear of it at once."""

        def apply(result: T) -> None:
            then(result)
            self._woken.set()

        return self._in_worker(work, apply)

    def close(self) -> None:
        """No more changes; those under way are finished by the worker."""
        self._closed = True


@asynccontextmanager
async def serving_directory(
    open_registry: Callable[[], Registry], *, clock: Clock, dead_after_ms: int = DEAD_AFTER_MS
) -> AsyncIterator[MetaDirectory]:
    """Open the registry and keep the directory while the block runs."""
    worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="registry")
    loop = asyncio.get_running_loop()
    try:
        registry = await loop.run_in_executor(worker, open_registry)
        service = MetaDirectory(registry, clock=clock, worker=worker, dead_after_ms=dead_after_ms)
        try:
            await service.load()
            async with background(news=service.run_news):
                yield service
        finally:
            service.close()
            await loop.run_in_executor(worker, registry.close)
    finally:
        worker.shutdown(wait=True)


def _apply(done: "asyncio.Future[T]", then: Callable[[T], None]) -> None:
    if not done.cancelled() and done.exception() is None:
        then(done.result())


def _spans(ids: frozenset[int]) -> str:
    """'3..7, 9' for 3, 4, 5, 6, 7 and 9."""
    spans: list[tuple[int, int]] = []
    for number in sorted(ids):
        if spans and number == spans[-1][1] + 1:
            spans[-1] = (spans[-1][0], number)
        else:
            spans.append((number, number))
    shown = [f"{first}..{last}" if first < last else f"{first}" for first, last in spans[:20]]
    return ", ".join(shown) + (" and more" if len(spans) > 20 else "")


def _check_own_or_name(kind: str, name: str) -> None:
    """People's names by the rule; ours begin with '%'. Servers check what clients ask for."""
    if not name.startswith("%"):
        check_name(kind, name)
    elif _OWN_NAME.fullmatch(name) is None:
        raise BadName(f"{name!r} cannot be the name of a {kind} of our own")
