"""The directory of a meta server: topics and standings in memory, over a registry that is slow.

Theory of operation
-------------------
Looking up is a dictionary access (`TopicTable`, `StandingTable`). Whatever changes the registry
goes to one worker thread, in the order asked. Creations gather while a transaction runs and then go
together in the next one, so 50,000 new topics are a handful of transactions and one new topic waits
for one.

Other meta servers may change the same registry; `RegistryChanges` follows it. Consumer groups are
not kept in memory: whether one is there is asked.

Rules
-----
1. Memory changes only after the registry has it on disk, on the loop, in the registry's order.
2. No SQL on the event loop.
3. A failed transaction fails the requests in it and no other.
"""

import asyncio
import re
import secrets
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TypeVar

from ternmq.core.clock import Clock
from ternmq.core.errors import BadName, OverLimit, TopicNotFound
from ternmq.core.ids import check_name
from ternmq.core.lifecycle import background
from ternmq.core.log import get_logger
from ternmq.discovery.directory import InUse
from ternmq.discovery.hidden_topics import (
    ORIGIN_PREFIX,
    SECRET_PREFIXES,
    TOLD_PREFIXES,
    refused_topic,
)
from ternmq.discovery.standing_table import StandingRequest, StandingTable
from ternmq.discovery.topic_table import TopicTable
from ternmq.meta.config import DEAD_AFTER_MS, REFRESH_MS, TOPICS_MAX
from ternmq.meta.id_allocation import Draw, leap, past
from ternmq.meta.place import place
from ternmq.meta.registries.registry import (
    Behind,
    Change,
    GroupRow,
    NewGroup,
    News,
    NewTopic,
    Registry,
)
from ternmq.meta.registries.registry_worker import RegistryWorker
from ternmq.meta.registry_changes import RegistryChanges
from ternmq.meta.request_batches import RequestBatches
from ternmq.meta.standings.leadership import Leadership
from ternmq.meta.standings.liveness import Liveness
from ternmq.meta.standings.standings import epoch_key
from ternmq.wire.messages.order_keys import PlaceChange, Placed
from ternmq.wire.messages.servers import Route
from ternmq.wire.messages.standings import BrokerGroupKind, MemberJoin, Standing
from ternmq.wire.messages.topics import Topic, TopicSettings

log = get_logger()

_OWN_NAME = re.compile(r"%[A-Za-z0-9._%-]{1,390}", re.ASCII)

T = TypeVar("T")


class MetaDirectory(TopicTable, StandingTable):
    """Implements `discovery.directory.ClusterDirectory` over a registry. Made by
    `serving_directory`."""

    def __init__(
        self,
        registry: Registry,
        *,
        clock: Clock,
        worker: RegistryWorker,
        dead_after_ms: int = DEAD_AFTER_MS,
        topics_max: int = TOPICS_MAX,
        draw: Draw = secrets.randbelow,
        refresh_ms: int = REFRESH_MS,
    ) -> None:
        super().__init__()
        self._draw = draw
        self._leapt = False
        self._topics_max = topics_max
        self._registry = registry
        self._clock = clock
        self._worker = worker
        self.news = RegistryChanges(registry, worker, self._learn, clock, refresh_ms)
        self.liveness = Liveness(clock, dead_after_ms=dead_after_ms)
        self._leadership = Leadership(registry, self.liveness)
        self.on_standing_changed(self._leadership.saw)
        self._servers: list[Route] = []
        self._servers_callbacks: list[Callable[[list[Route]], None]] = []
        self._new_topics = RequestBatches[str, NewTopic, Topic](
            lambda new: self._worker.run(lambda: self._numbered().create_topics(new)),
            self._made_topics,
        )
        self._new_groups = RequestBatches[tuple[int, str], NewGroup, GroupRow | None](
            lambda new: self._worker.run(lambda: self._numbered().create_groups(new)),
            lambda rows: None,
        )

    @property
    def description(self) -> str:
        """What the registry is, for people."""
        return self._registry.description

    @property
    def cluster(self) -> str:
        """Which cluster this is."""
        return self._registry.cluster

    def silent_s(self) -> float:
        return max(0.0, (self._clock.now_ms() - self.news.answered_at_ms) / 1000)

    async def load(self) -> None:
        """Fill the copy in memory; once, before anything else."""
        await self.news.start()
        self._add_topics(await self._worker.run(self._registry.topics))
        self._set_servers(await self._worker.run(self._registry.servers))
        self.learn_standings(await self._worker.run(self._registry.standings))

    def _numbered(self) -> Registry:
        """In the worker, before the first number is given out: it may be an older copy, or another
        registry than the one that the data of brokers comes from (`id_allocation`)."""
        if not self._leapt:
            self._registry.leap(lambda last: leap(last, self._draw))
            self._leapt = True
        return self._registry

    async def show_clients(self, clients: Mapping[str, bytes]) -> None:
        """In the registry, for people, if it shows such things; raises `Unavailable`."""
        await self._worker.run(lambda: self._registry.show_clients(clients))

    # Topics.

    async def create_topic(self, name: str, settings: TopicSettings) -> Topic:
        found = self._topics.get(name)
        if found is not None:
            return found
        _check_own_or_name("topic", name)
        if not name.startswith("%") and (count := self._count()) >= self._topics_max:
            raise OverLimit(
                f"there are {count} topics already, and topics_max is "
                f"{self._topics_max}; delete some ('tern topic delete'), or raise it on the meta "
                "servers"
            )
        new = NewTopic(name=name, settings=settings, created_at_ms=self._clock.now_ms())
        return await self._new_topics.ask(name, new)

    def _count(self) -> int:
        """Of topics, without the keys of encrypted ones, which have a bound of their own, and what
        says where dead letters are from."""
        if len(self._topics) < self._topics_max:
            return len(self._topics)
        return sum(not name.startswith((ORIGIN_PREFIX, *SECRET_PREFIXES)) for name in self._topics)

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

    def _put_topic(self, topic: Topic) -> None:
        self._put(topic)
        self._tell_changed(topic)

    def _made_topics(self, topics: Sequence[Topic]) -> None:
        self._add_topics(topics)
        self.news.wake()

    def _add_topics(self, topics: Sequence[Topic]) -> None:
        for topic in topics:
            self._put(topic)
            if _in_routes(topic.settings) or topic.name.startswith(TOLD_PREFIXES):
                self._tell_changed(topic)

    def _drop_topics(self, topics: list[Topic]) -> None:
        for topic in topics:
            self._drop_topic(topic)

    def _drop_topic(self, topic: Topic) -> None:
        self._remove(topic)
        self._tell_deleted(topic)

    # Consumer groups.

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

        await asyncio.shield(self._worker.run(delete))

    # Epochs.

    async def new_epoch(self, broker_group: str) -> int:
        """For brokers of earlier releases, which join no group."""
        check_name("broker group", broker_group)
        return await asyncio.shield(
            self._worker.run(lambda: self._registry.new_epoch(broker_group))
        )

    async def gone_topics(self, ids: Collection[int]) -> frozenset[int]:
        return await self._worker.run(lambda: self._registry.gone_topics(ids))

    async def reserve(self, used: InUse) -> frozenset[int]:
        check_name("broker group", used.broker_group)
        now_ms = self._clock.now_ms()
        used = replace(used, broker_group=epoch_key(used.broker_group, used.kind))

        def reserve() -> Behind:
            behind = self._registry.reserve(used, now_ms=now_ms)
            reserved = behind.topic_ids | ({used.group_id} if behind.group_ids else set())
            if reserved:
                self._registry.leap(lambda last: past(last, reserved, self._draw))
            return behind

        behind = await asyncio.shield(self._worker.run(reserve))
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

    async def read_standing(
        self, broker_group: str, kind: BrokerGroupKind = "realtime"
    ) -> Standing | None:
        def read() -> list[Standing]:
            found = self._registry.standing(broker_group, kind)
            return [] if found is None else [found]

        found = await asyncio.shield(self._worker.run(read, self.learn_standings))
        return found[0] if found else None

    async def change_standing(self, wanted: StandingRequest) -> Standing:
        if isinstance(wanted, MemberJoin):
            check_name("broker group", wanted.broker_group)
        return await self._change_standing(lambda: self._leadership.change(wanted))

    async def check_seen(self, seen: Sequence[Standing]) -> None:
        """Groups stood so once; where the registry knows less, the members have to prove it."""
        for standing in seen:
            await self._change_standing(partial(self._leadership.check_seen, standing))

    async def _change_standing(self, work: Callable[[], Standing]) -> Standing:
        """Run it in the worker; callbacks hear of the new standing at once."""
        return await asyncio.shield(self._changed(work, lambda it: self.learn_standings([it])))

    async def of_registry(self, work: Callable[[Registry, int], T]) -> T:
        """What a call of the registry answers; it gets the registry and the time. For what is not
        kept in memory."""
        now_ms = self._clock.now_ms()
        return await asyncio.shield(self._worker.run(lambda: work(self._registry, now_ms)))

    # Where messages go.

    async def place(self, wanted: PlaceChange, masters: Sequence[str] = ()) -> Placed:
        return await place(self, wanted, masters)

    # Servers that hold messages and are no members of a broker group.

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

        await asyncio.shield(self._worker.run(work, self._set_servers))

    async def hold_servers(self, silent_s: Mapping[str, float]) -> None:
        """Tell other meta servers which servers this one hears, and how long ago that was."""
        await asyncio.shield(self._worker.run(lambda: self._registry.hold(silent_s)))

    def on_servers_changed(self, callback: Callable[[list[Route]], None]) -> None:
        self._servers_callbacks.append(callback)

    def _set_servers(self, servers: list[Route]) -> None:
        self._servers = servers
        for callback in self._servers_callbacks:
            callback(servers)

    # What other meta servers do.

    def _learn(self, news: News, servers: list[Route] | None, another: bool) -> None:
        """What we did ourselves is in the news too; memory has it already, in the same order."""
        live = {topic.id for topic in news.topics}
        held = list(self._topics.values())
        for topic in held:
            if topic.id in news.deleted:
                self._drop_topic(topic)
            elif news.everything and topic.id not in live:
                self._unname(topic)
        for topic in news.topics:
            held_one = self._topics.get(topic.name)
            if held_one is None:
                self._add_topics([topic])
            elif held_one != topic:
                self._put_topic(topic)
        if another:
            self._leapt = False  # Put back from an older copy, under this very server.
        if servers is not None:
            self._set_servers(servers)
        self.learn_standings(news.standings, another=another)

    def _changed(self, work: Callable[[], T], then: Callable[[T], None]) -> "asyncio.Future[T]":
        """Run a change in the worker; requests that wait for news hear of it at once."""

        def apply(result: T) -> None:
            then(result)
            self.news.wake()

        return self._worker.run(work, apply)


@asynccontextmanager
async def serving_directory(
    open_registry: Callable[[], Registry],
    *,
    clock: Clock,
    dead_after_ms: int = DEAD_AFTER_MS,
    topics_max: int = TOPICS_MAX,
    refresh_ms: int = REFRESH_MS,
) -> AsyncIterator[MetaDirectory]:
    """Open the registry and keep the directory while the block runs."""
    thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="registry")
    loop = asyncio.get_running_loop()
    try:
        registry = await loop.run_in_executor(thread, open_registry)
        worker = RegistryWorker(thread)
        directory = MetaDirectory(
            registry,
            clock=clock,
            worker=worker,
            dead_after_ms=dead_after_ms,
            topics_max=topics_max,
            refresh_ms=refresh_ms,
        )
        try:
            await directory.load()
            async with background(news=directory.news.run):
                yield directory
        finally:
            worker.close()
            await loop.run_in_executor(thread, registry.close)
    finally:
        thread.shutdown(wait=True)


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


def _in_routes(settings: TopicSettings) -> bool:
    """Clients learn of it with the routes."""
    placed = settings.placement or settings.broker_groups or settings.on_groups
    return (
        bool(placed or settings.master_key)
        or settings.body_size_max != TopicSettings().body_size_max
    )
