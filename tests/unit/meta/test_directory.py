"""The directory: answers from memory, gathers creations, keeps SQL off the loop."""

import asyncio
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import pytest
from structlog.testing import capture_logs

from ternmq.core.clock import SystemClock
from ternmq.core.errors import BadName, Closed, DiskFull, TernError, TopicNotFound, Unavailable
from ternmq.discovery.directory import ClusterDirectory, InUse
from ternmq.meta import registry_changes
from ternmq.meta.directory import MetaDirectory, serving_directory
from ternmq.meta.id_allocation import COUNTED_BITS
from ternmq.meta.policies import topic_change
from ternmq.meta.registries.registry import (
    Behind,
    Change,
    GroupRow,
    NewGroup,
    News,
    NewTopic,
    Registry,
)
from ternmq.meta.request_batches import TRANSACTION_ROWS_MAX
from ternmq.wire.messages.limits import TopicSet
from ternmq.wire.messages.servers import Route
from ternmq.wire.messages.standings import BrokerGroupKind, Standing
from ternmq.wire.messages.topics import Topic, TopicSettings
from ternmq.wire.registry.documents import (
    Document,
    DocumentDelete,
    DocumentNamed,
    DocumentPut,
    DocumentQuery,
)
from tests.unit.meta.conftest import Opener

PLAIN = TopicSettings()
PLAIN_TOPIC = Topic(id=0, name="", created_at_ms=0)


class Watched:
    """A registry that counts transactions, can be held up, and can fail."""

    def __init__(self, inner: Registry) -> None:
        self.leaps = 0
        self._inner = inner
        self.go = threading.Event()
        self.go.set()
        self.batches: list[int] = []
        self.threads: set[int] = set()
        self.fail: TernError | None = None
        self.closed = False

    def _enter(self, rows: int) -> None:
        assert self.go.wait(20)
        self.threads.add(threading.get_ident())
        self.batches.append(rows)
        if self.fail is not None:
            raise self.fail

    @property
    def description(self) -> str:
        return self._inner.description

    @property
    def cluster(self) -> str:
        return self._inner.cluster

    def topics(self) -> list[Topic]:
        return self._inner.topics()

    def groups(self) -> list[GroupRow]:
        return self._inner.groups()

    def hold(self, silent_s: Mapping[str, float]) -> None:
        self._inner.hold(silent_s)

    def show_clients(self, clients: Mapping[str, bytes]) -> None:
        self._inner.show_clients(clients)

    def held(self) -> dict[str, float | None]:
        return self._inner.held()

    def version(self) -> int:
        return self._inner.version()

    def news(self, since: int) -> News:
        return self._inner.news(since)

    def watch(self, wake: Callable[[], None]) -> bool:
        return self._inner.watch(wake)

    def create_topics(self, wanted: Sequence[NewTopic]) -> list[Topic]:
        self._enter(len(wanted))
        return self._inner.create_topics(wanted)

    def update_topic(self, name: str, change: Change) -> Topic:
        self._enter(1)
        return self._inner.update_topic(name, change)

    def delete_topic(self, name: str, *, deleted_at_ms: int) -> Topic:
        self._enter(1)
        return self._inner.delete_topic(name, deleted_at_ms=deleted_at_ms)

    def create_groups(self, wanted: Sequence[NewGroup]) -> list[GroupRow | None]:
        self._enter(len(wanted))
        return self._inner.create_groups(wanted)

    def delete_group(self, topic_id: int, name: str, *, deleted_at_ms: int) -> bool:
        self._enter(1)
        return self._inner.delete_group(topic_id, name, deleted_at_ms=deleted_at_ms)

    def new_epoch(self, broker_group: str) -> int:
        self._enter(1)
        return self._inner.new_epoch(broker_group)

    def last_epoch(self, broker_group: str) -> int:
        return self._inner.last_epoch(broker_group)

    def standing(self, broker_group: str, kind: BrokerGroupKind) -> Standing | None:
        return self._inner.standing(broker_group, kind)

    def standings(self) -> list[Standing]:
        return self._inner.standings()

    def put_standing(self, new: Standing, expected_version: int) -> bool:
        self._enter(1)
        return self._inner.put_standing(new, expected_version)

    def servers(self) -> list[Route]:
        return self._inner.servers()

    def remember_server(self, route: Route, *, now_ms: int) -> None:
        self._enter(1)
        self._inner.remember_server(route, now_ms=now_ms)

    def forget_server(self, route: Route) -> None:
        self._enter(1)
        self._inner.forget_server(route)

    def gone_topics(self, ids: Collection[int]) -> frozenset[int]:
        self._enter(1)
        return self._inner.gone_topics(ids)

    def reserve(self, used: InUse, *, now_ms: int) -> Behind:
        self._enter(1)
        return self._inner.reserve(used, now_ms=now_ms)

    def leap(self, after: Callable[[int], int]) -> None:
        self.leaps += 1
        self._inner.leap(after)

    def document(self, wanted: DocumentNamed, *, now_ms: int) -> Document | None:
        return self._inner.document(wanted, now_ms=now_ms)

    def documents(self, wanted: DocumentQuery, *, now_ms: int) -> list[Document]:
        return self._inner.documents(wanted, now_ms=now_ms)

    def put_document(self, wanted: DocumentPut, *, now_ms: int) -> Document:
        return self._inner.put_document(wanted, now_ms=now_ms)

    def delete_document(self, wanted: DocumentDelete, *, now_ms: int) -> Document | None:
        return self._inner.delete_document(wanted, now_ms=now_ms)

    def close(self) -> None:
        self.closed = True
        self._inner.close()


@pytest.fixture
def watched(opener: Opener) -> Iterator[Watched]:
    registry = Watched(opener())
    yield registry
    registry.go.set()
    if not registry.closed:
        registry.close()


async def test_the_service_is_a_directory(watched: Watched) -> None:
    async with serving_directory(lambda: watched, clock=SystemClock()) as service:
        directory: ClusterDirectory = service

        assert directory.topics() == []


async def test_a_topic_is_made_once_and_found_in_memory(watched: Watched) -> None:
    async with serving_directory(lambda: watched, clock=SystemClock()) as service:
        assert service.topic("orders") is None
        topic = await service.create_topic("orders", PLAIN)
        again = await service.create_topic("orders", TopicSettings(closed=True))

        assert topic is again is service.topic("orders")
        assert service.topics() == [topic]
    assert watched.batches == [1]
    assert watched.closed


async def test_creations_of_one_moment_are_one_transaction(watched: Watched) -> None:
    async with serving_directory(lambda: watched, clock=SystemClock()) as service:
        topics = await asyncio.gather(
            *(service.create_topic(f"t{number % 300}", PLAIN) for number in range(900))
        )

    assert watched.batches == [300]
    assert [topic.name for topic in topics] == [f"t{number % 300}" for number in range(900)]


async def test_creations_gather_while_a_transaction_runs(watched: Watched) -> None:
    watched.go.clear()
    async with serving_directory(lambda: watched, clock=SystemClock()) as service:
        first = asyncio.ensure_future(service.create_topic("first", PLAIN))
        await asyncio.sleep(0.01)
        rest = [asyncio.ensure_future(service.create_topic(f"t{n}", PLAIN)) for n in range(50)]
        await asyncio.sleep(0.01)
        watched.go.set()
        await asyncio.gather(first, *rest)

    assert watched.batches == [1, 50]


@pytest.mark.long
async def test_fifty_thousand_topics_are_a_handful_of_transactions(watched: Watched) -> None:
    """Q17: 50,000 topics on one node."""
    count = 50_000
    async with serving_directory(lambda: watched, clock=SystemClock()) as service:
        topics = await asyncio.gather(
            *(service.create_topic(f"topic.{number}", PLAIN) for number in range(count))
        )
        assert len(service.topics()) == count

    assert len({topic.id for topic in topics}) == count
    assert watched.batches == [TRANSACTION_ROWS_MAX] * (count // TRANSACTION_ROWS_MAX)


async def test_everything_is_there_again_after_a_restart(opener: Opener) -> None:
    async with serving_directory(opener, clock=SystemClock()) as service:
        topic = await service.create_topic("orders", TopicSettings(closed=True, apps=["shop"]))
        own = await service.create_topic("%dead%orders%billing", PLAIN)
        group = await service.group_id(topic.id, "billing")
        epoch = await service.new_epoch("a")
    async with serving_directory(opener, clock=SystemClock()) as service:
        assert service.topics() == [topic, own]
        assert await service.group_id(topic.id, "billing") == group
        assert await service.new_epoch("a") == epoch + 1


async def test_a_deleted_topic_is_gone_and_made_again_is_new(watched: Watched) -> None:
    async with serving_directory(lambda: watched, clock=SystemClock()) as service:
        deleted: list[Topic] = []
        service.on_topic_deleted(deleted.append)
        topic = await service.create_topic("orders", PLAIN)
        group = await service.group_id(topic.id, "billing")
        assert await service.delete_topic("orders") == topic
        assert service.topic("orders") is None
        assert deleted == [topic]
        again = await service.create_topic("orders", PLAIN)

        assert again.id > topic.id
        assert await service.group_id(again.id, "billing") > group
        with pytest.raises(TopicNotFound):
            await service.group_id(topic.id, "billing")


async def test_deleting_an_unknown_topic_is_an_error_and_calls_nobody(watched: Watched) -> None:
    async with serving_directory(lambda: watched, clock=SystemClock()) as service:
        deleted: list[Topic] = []
        service.on_topic_deleted(deleted.append)
        with pytest.raises(TopicNotFound):
            await service.delete_topic("orders")

    assert deleted == []


async def test_one_bad_callback_does_not_keep_the_others_from_knowing(watched: Watched) -> None:
    async with serving_directory(lambda: watched, clock=SystemClock()) as service:
        deleted: list[Topic] = []
        service.on_topic_deleted(lambda topic: 1 / 0)  # type: ignore[arg-type]
        service.on_topic_deleted(deleted.append)
        topic = await service.create_topic("orders", PLAIN)
        await service.delete_topic("orders")

    assert deleted == [topic]


async def test_group_ids_are_remembered_until_the_group_is_forgotten(watched: Watched) -> None:
    async with serving_directory(lambda: watched, clock=SystemClock()) as service:
        topic = await service.create_topic("orders", PLAIN)
        ids = await asyncio.gather(*(service.group_id(topic.id, "billing") for _ in range(70)))
        assert len(set(ids)) == 1
        assert watched.batches == [1, 1]
        await service.forget_group(topic.id, "billing")
        await service.forget_group(topic.id, "never there")

        assert await service.group_id(topic.id, "billing") > ids[0]


async def test_epochs_grow(watched: Watched) -> None:
    async with serving_directory(lambda: watched, clock=SystemClock()) as service:
        epochs = await asyncio.gather(*(service.new_epoch("a") for _ in range(5)))

    assert sorted(epochs) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("name", ["", "a b", "x" * 128, "ü", "%", "% x", "a%b"])
async def test_bad_names_do_not_reach_the_registry(watched: Watched, name: str) -> None:
    async with serving_directory(lambda: watched, clock=SystemClock()) as service:
        with pytest.raises(BadName):
            await service.create_topic(name, PLAIN)
        with pytest.raises(BadName):
            await service.group_id(1, name)
        with pytest.raises(BadName):
            await service.new_epoch(name)

    assert watched.batches == []


async def test_a_failed_transaction_fails_its_askers_and_the_next_one_works(
    watched: Watched,
) -> None:
    async with serving_directory(lambda: watched, clock=SystemClock()) as service:
        watched.fail = DiskFull("no space left")
        results = await asyncio.gather(
            *(service.create_topic(f"t{number}", PLAIN) for number in range(3)),
            return_exceptions=True,
        )
        assert [type(result) for result in results] == [DiskFull] * 3
        assert service.topics() == []
        watched.fail = None

        assert (await service.create_topic("t1", PLAIN)).name == "t1"


async def test_a_caller_that_gives_up_does_not_take_the_others_with_it(watched: Watched) -> None:
    watched.go.clear()
    async with serving_directory(lambda: watched, clock=SystemClock()) as service:
        gone = asyncio.ensure_future(service.create_topic("orders", PLAIN))
        stays = asyncio.ensure_future(service.create_topic("orders", PLAIN))
        await asyncio.sleep(0)
        gone.cancel()
        watched.go.set()
        topic = await stays

        assert service.topic("orders") == topic
    assert gone.cancelled()


async def test_sql_runs_on_one_thread_that_is_not_the_loops(watched: Watched) -> None:
    async with serving_directory(lambda: watched, clock=SystemClock()) as service:
        topic = await service.create_topic("orders", PLAIN)
        await service.group_id(topic.id, "billing")
        await service.new_epoch("a")
        await service.delete_topic("orders")

    assert len(watched.threads) == 1
    assert threading.get_ident() not in watched.threads


async def test_the_loop_goes_on_while_the_registry_is_slow(watched: Watched) -> None:
    watched.go.clear()
    async with serving_directory(lambda: watched, clock=SystemClock()) as service:
        creating = asyncio.ensure_future(service.create_topic("orders", PLAIN))
        for _ in range(100):
            await asyncio.sleep(0)
        assert not creating.done()
        watched.go.set()
        await creating


async def test_a_registry_that_does_not_answer_is_told_and_since_when(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked for real, each time; and well again when it is."""
    monkeypatch.setattr(registry_changes, "CHECK_S", 0.05)
    monkeypatch.setattr(registry_changes, "CHANGE_S", 0.05)
    async with serving_directory(lambda: watched, clock=SystemClock()) as service:
        news = service.news
        await news.check()
        before_ms = news.answered_at_ms
        assert (news.silence, before_ms > 0) == ("", True)

        watched.go.clear()
        making = asyncio.ensure_future(service.create_topic("orders", PLAIN))
        await asyncio.sleep(0)
        with pytest.raises(Unavailable, match=r"registry \(.+\) did not answer within"):
            await news.in_time(asyncio.shield(making))
        await news.check()
        assert news.silence == "no answer within 0.05 s"

        watched.go.set()
        await making
        await news.check()
        assert news.silence == ""
        assert news.answered_at_ms >= before_ms


async def test_a_closed_directory_makes_nothing(watched: Watched) -> None:
    service: MetaDirectory
    async with serving_directory(lambda: watched, clock=SystemClock()) as service:
        pass

    with pytest.raises(Closed):
        await service.create_topic("orders", PLAIN)
    with pytest.raises(Closed):
        await service.delete_topic("orders")


async def test_a_registry_that_does_not_open_is_the_error_of_starting() -> None:
    def broken() -> Registry:
        raise DiskFull("no space left")

    with pytest.raises(DiskFull):
        async with serving_directory(broken, clock=SystemClock()):
            pytest.fail("started without a registry")


async def test_what_a_brokers_data_uses_is_reserved_off_the_loop_and_the_unknown_is_named(
    watched: Watched,
) -> None:
    async with serving_directory(lambda: watched, clock=SystemClock()) as service:
        known = (await service.create_topic("orders", PLAIN)).id
        unknown = frozenset({known + 2, known + 3, known + 4})
        used = InUse(broker_group="a", topic_ids=unknown | {known}, group_id=0, epoch=0)
        with capture_logs() as logs:
            assert await service.reserve(used) == unknown
        more = (await service.create_topic("more", PLAIN)).id
        assert more > known + 5, "another broker may use that one, and says so later"
        assert more & (1 << COUNTED_BITS) - 1 == (known + 5) & (1 << COUNTED_BITS) - 1
        assert await service.reserve(used) == unknown
        assert (await service.create_topic("last", PLAIN)).id == more + 1, "once is enough"

    assert threading.get_ident() not in watched.threads
    assert [line["unknown_topics"] for line in logs] == [f"{known + 2}..{known + 4}"]


async def test_changed_settings_are_seen_and_told_once_they_are_stored(watched: Watched) -> None:
    """J13: changed without a restart."""
    told: list[Topic] = []
    async with serving_directory(lambda: watched, clock=SystemClock()) as service:
        service.on_topic_changed(told.append)
        await service.create_topic("orders", TopicSettings(closed=True))
        wanted = topic_change(TopicSet(name="orders", rate=7))
        watched.go.clear()
        changing = asyncio.create_task(service.change_topic("orders", wanted))
        await asyncio.sleep(0)
        assert (service.topic("orders") or PLAIN_TOPIC).settings.rate == 0
        watched.go.set()
        changed = await changing

        assert service.topic("orders") == changed == told[0]
        assert changed.settings == TopicSettings(closed=True, rate=7)


async def test_a_change_that_is_not_stored_changes_nothing(watched: Watched) -> None:
    async with serving_directory(lambda: watched, clock=SystemClock()) as service:
        before = await service.create_topic("orders", PLAIN)
        watched.fail = DiskFull("no space")
        with pytest.raises(DiskFull):
            await service.change_topic("orders", topic_change(TopicSet(name="orders", rate=7)))

        assert service.topic("orders") == before


async def test_numbers_leap_before_the_first_one_of_a_start_and_only_then(watched: Watched) -> None:
    """R1: an older copy goes on elsewhere; a start that gives nothing out writes nothing."""
    async with serving_directory(lambda: watched, clock=SystemClock()) as service:
        assert watched.leaps == 0
        first = await service.create_topic("orders", PLAIN)
        second = await service.create_topic("bills", PLAIN)
        await service.group_id(first.id, "g")
        assert (watched.leaps, second.id) == (1, first.id + 1)
        service._learn(News(version=0, topics=service.topics()), None, True)
        assert (await service.create_topic("later", PLAIN)).id > second.id + 1
        assert watched.leaps == 2, "an older copy was put back under it"
