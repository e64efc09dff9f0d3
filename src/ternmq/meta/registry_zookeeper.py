"""The registry in ZooKeeper, by kazoo. Everything lies below the path of the url.

    /state            version, topic_id, group_id: the last ones given out
    /schema /cluster  the schema's version, the cluster's id
    /topics/ID        a live topic          /names/=NAME     its id
    /gone/ID          a deleted topic       /groups/ID/=NAME a group of a live topic: its id
    /epochs/=GROUP    the last epoch        /servers/KIND=GROUP   servers that hold messages
    /news/VERSION     which topics that version changed

Every change is one ZooKeeper transaction that replaces `/state` if nobody else did meanwhile, so
changes happen one after the other, whichever meta server asks, and versions are their order. Who
was overtaken looks again. A change whose answer got lost is told as `Unavailable`: asking again is
harmless (rule 3 of `registry`).

kazoo keeps the session and moves to another ZooKeeper server by itself. Waits at most `ANSWER_S`.
"""

import secrets
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec
from kazoo.client import KazooClient, TransactionRequest
from kazoo.exceptions import (
    BadVersionError,
    KazooException,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import WatchedEvent

from ternmq.core.errors import BadConfig, Corrupt, TopicNotFound, Unavailable
from ternmq.discovery.directory import InUse
from ternmq.meta.registry import (
    NEWS_KEPT,
    SCHEMA_VERSION,
    Behind,
    Change,
    GroupRow,
    NewGroup,
    News,
    NewTopic,
)
from ternmq.wire.commands import Route, Topic, TopicSettings

ANSWER_S = 10.0
CONNECT_S = 10.0
SESSION_S = 10.0
ATTEMPTS_MAX = 20
"""Changes are serial: with many meta servers busy at once somebody may be overtaken often."""
CHUNK = 250
"""Rows per transaction: a ZooKeeper server takes 1 MiB at most."""
FOLDERS = ("/topics", "/names", "/gone", "/groups", "/epochs", "/servers", "/news")
TRIM_EVERY = 1_000

_OVERTAKEN = (BadVersionError, NodeExistsError, NoNodeError, NotEmptyError)

T = TypeVar("T")
K = TypeVar("K")


class _State(msgspec.Struct, frozen=True):
    version: int = 0
    topic_id: int = 0
    group_id: int = 0


class _TopicNode(msgspec.Struct, frozen=True):
    name: str
    created_at_ms: int
    settings: TopicSettings
    deleted_at_ms: int | None = None


class _Overtaken(Exception):
    """Somebody else changed the registry since we looked."""


class ZooKeeperRegistry:
    """Implements `registry.Registry`."""

    def __init__(self, client: KazooClient, *, description: str) -> None:
        self._client = client
        self._description = description
        self._cluster = ""

    @classmethod
    def open(cls, hosts: str, path: str) -> "ZooKeeperRegistry":
        """Connect, and make what is not there; raises `Unavailable`, `BadConfig`."""
        description = f"zookeeper {hosts}{path}"
        client = KazooClient(hosts=hosts, timeout=SESSION_S)
        try:
            client.start(timeout=CONNECT_S)
        except (KazooTimeoutError, KazooException, OSError) as error:
            client.stop()
            client.close()
            raise Unavailable(f"the registry ({description}) does not answer: {error}") from error
        registry = cls(client, description=description)
        try:
            registry._prepare(path)
        except BaseException:
            registry.close()
            raise
        return registry

    def _prepare(self, path: str) -> None:
        def prepare() -> None:
            if path:
                _now(self._client.ensure_path_async(path))
                self._client.chroot = path
            for folder in FOLDERS:
                _now(self._client.ensure_path_async(folder))

        self._asked(prepare)
        schema = self._kept("/schema", str(SCHEMA_VERSION))
        if schema != str(SCHEMA_VERSION):
            raise BadConfig(
                f"the registry ({self._description}) has schema {schema}, this version of ternmq "
                f"knows {SCHEMA_VERSION}; use the version that wrote it, or a newer one"
            )
        self._cluster = self._kept("/cluster", secrets.token_hex(8))
        self._kept("/state", msgspec.json.encode(_State()).decode())

    @property
    def description(self) -> str:
        return self._description

    @property
    def cluster(self) -> str:
        return self._cluster

    # Topics.

    def topics(self) -> list[Topic]:
        return self._topics(sorted(int(node) for node in self._children("/topics")))

    def create_topics(self, wanted: Sequence[NewTopic]) -> list[Topic]:
        by_name = {new.name: new for new in wanted}
        found: dict[str, Topic] = {}
        for names in _chunks(by_name):
            found |= self._repeated(partial(self._make_topics, names, by_name))
        return [found[new.name] for new in wanted]

    def _make_topics(self, names: list[str], wanted: dict[str, NewTopic]) -> dict[str, Topic]:
        state, at = self._state()
        ids = self._read([f"/names/={name}" for name in names])
        there = self._topics([int(node) for node in ids if node is not None])
        found = {topic.name: topic for topic in there}
        missing = [wanted[name] for name in names if name not in found]
        if not missing:
            return found
        change = self._client.transaction()
        made: list[int] = []
        for topic_id, new in enumerate(missing, start=state.topic_id + 1):
            node = _TopicNode(new.name, new.created_at_ms, new.settings)
            change.create(f"/topics/{topic_id}", msgspec.json.encode(node))
            change.create(f"/names/={new.name}", str(topic_id).encode())
            change.create(f"/groups/{topic_id}")
            found[new.name] = _topic(topic_id, node)
            made.append(topic_id)
        after = msgspec.structs.replace(state, topic_id=made[-1])
        self._commit(change, after, at, made)
        return found

    def update_topic(self, name: str, change: Change) -> Topic:
        def update() -> Topic:
            state, at = self._state()
            topic = self._live_topic(name)
            changed = msgspec.structs.replace(topic, settings=change(topic.settings))
            node = _TopicNode(topic.name, topic.created_at_ms, changed.settings)
            transaction = self._client.transaction()
            transaction.set_data(f"/topics/{topic.id}", msgspec.json.encode(node))
            self._commit(transaction, state, at, [topic.id])
            return changed

        return self._repeated(update)

    def delete_topic(self, name: str, *, deleted_at_ms: int) -> Topic:
        def delete() -> Topic:
            state, at = self._state()
            topic = self._live_topic(name)
            gone = _TopicNode(topic.name, topic.created_at_ms, topic.settings, deleted_at_ms)
            transaction = self._client.transaction()
            for group in self._children(f"/groups/{topic.id}"):
                transaction.delete(f"/groups/{topic.id}/{group}")
            transaction.delete(f"/groups/{topic.id}")
            transaction.delete(f"/topics/{topic.id}")
            transaction.delete(f"/names/={name}")
            transaction.create(f"/gone/{topic.id}", msgspec.json.encode(gone))
            self._commit(transaction, state, at, [topic.id])
            return topic

        return self._repeated(delete)

    # Groups.

    def groups(self) -> list[GroupRow]:
        topics = sorted(int(node) for node in self._children("/topics"))
        rows = [row for topic_id in topics for row in self._groups(topic_id).values()]
        return sorted(rows, key=lambda row: row.id)

    def create_groups(self, wanted: Sequence[NewGroup]) -> list[GroupRow | None]:
        found: dict[tuple[int, str], GroupRow | None] = {}
        for keys in _chunks(dict.fromkeys((new.topic_id, new.name) for new in wanted)):
            found |= self._repeated(partial(self._make_groups, keys))
        return [found[new.topic_id, new.name] for new in wanted]

    def _make_groups(self, keys: list[tuple[int, str]]) -> dict[tuple[int, str], GroupRow | None]:
        state, at = self._state()
        topics = dict.fromkeys(topic_id for topic_id, _ in keys)
        nodes = self._read([f"/topics/{topic_id}" for topic_id in topics])
        live = {topic_id for topic_id, node in zip(topics, nodes, strict=True) if node is not None}
        ids = self._read([f"/groups/{topic_id}/={name}" for topic_id, name in keys])
        found: dict[tuple[int, str], GroupRow | None] = {}
        change, last = self._client.transaction(), state.group_id
        for (topic_id, name), known in zip(keys, ids, strict=True):
            if topic_id not in live:
                found[topic_id, name] = None
                continue
            if known is None:
                last += 1
                change.create(f"/groups/{topic_id}/={name}", str(last).encode())
            row = GroupRow(id=int(known or last), topic_id=topic_id, name=name)
            found[topic_id, name] = row
        if last > state.group_id:
            self._commit(change, msgspec.structs.replace(state, group_id=last), at, [])
        return found

    def delete_group(self, topic_id: int, name: str, *, deleted_at_ms: int) -> bool:
        try:
            self._asked(lambda: _now(self._client.delete_async(f"/groups/{topic_id}/={name}")))
        except NoNodeError:
            return False
        return True

    def _groups(self, topic_id: int) -> dict[str, GroupRow]:
        names = [node.removeprefix("=") for node in self._children(f"/groups/{topic_id}")]
        ids = self._read([f"/groups/{topic_id}/={name}" for name in names])
        return {
            name: GroupRow(id=int(known), topic_id=topic_id, name=name)
            for name, known in zip(names, ids, strict=True)
            if known is not None
        }

    # Epochs, servers, news.

    def new_epoch(self, broker_group: str) -> int:
        return self._repeated(lambda: self._raise_epoch(broker_group, lambda last: last + 1))

    def _raise_epoch(self, broker_group: str, change: Callable[[int], int]) -> int:
        path = f"/epochs/={broker_group}"

        def work() -> int:
            try:
                data, stat = _now(self._client.get_async(path))
            except NoNodeError:
                epoch = change(0)
                _now(self._client.create_async(path, str(epoch).encode()))
                return epoch
            epoch = change(int(data))
            if epoch != int(data):
                _now(self._client.set_async(path, str(epoch).encode(), version=stat.version))
            return epoch

        try:
            return self._asked(work)
        except _OVERTAKEN as error:
            raise _Overtaken from error

    def servers(self) -> list[Route]:
        nodes = self._read([f"/servers/{node}" for node in sorted(self._children("/servers"))])
        return [msgspec.json.decode(node, type=Route) for node in nodes if node is not None]

    def remember_server(self, route: Route, *, now_ms: int) -> None:
        kept = Route(broker_group=route.broker_group, address=route.address, kind=route.kind)

        def remember() -> None:
            state, at = self._state()
            path, change = _server_path(route), self._client.transaction()
            [known] = self._read([path])
            if known is None:
                change.create(path, msgspec.json.encode(kept))
            else:
                change.set_data(path, msgspec.json.encode(kept))
            self._commit(change, state, at, [0])

        self._repeated(remember)

    def forget_server(self, route: Route) -> None:
        def forget() -> None:
            state, at = self._state()
            path, change = _server_path(route), self._client.transaction()
            if self._read([path]) != [None]:
                change.delete(path)
                self._commit(change, state, at, [0])

        self._repeated(forget)

    def version(self) -> int:
        return self._state()[0].version

    def news(self, since: int) -> News:
        version = self.version()
        if version < since or version - since >= NEWS_KEPT:
            # Another registry than the one that was asked before, or too long ago.
            return News(version=version, topics=self.topics(), servers=True, everything=True)
        told = self._read([f"/news/{each}" for each in range(since + 1, version + 1)])
        if None in told:
            return News(version=version, topics=self.topics(), servers=True, everything=True)
        ids = {each for node in told if node is not None for each in msgspec.json.decode(node)}
        topics = self._topics(sorted(ids - {0}))
        return News(
            version=version,
            topics=topics,
            deleted=frozenset(ids - {0}).difference(topic.id for topic in topics),
            servers=0 in ids,
        )

    def watch(self, wake: Callable[[], None]) -> bool:
        @self._client.DataWatch("/state")  # type: ignore[untyped-decorator]
        def _changed(_data: bytes | None, _stat: Any, _event: WatchedEvent | None) -> None:
            wake()

        return True

    def reserve(self, used: InUse, *, now_ms: int) -> Behind:
        def reserve() -> Behind:
            state, at = self._state()
            known = {int(node) for node in (*self._children("/topics"), *self._children("/gone"))}
            unknown = used.topic_ids - known
            topic_id, group_id = max(unknown, default=0), used.group_id
            after = msgspec.structs.replace(
                state,
                topic_id=max(state.topic_id, topic_id),
                group_id=max(state.group_id, group_id),
            )
            if after != state:
                self._commit(self._client.transaction(), after, at, [])
            return Behind(topic_ids=unknown, group_ids=group_id > state.group_id)

        behind = self._repeated(reserve)
        lasts: list[int] = []

        def at_least(last: int) -> int:
            lasts.append(last)
            return max(last, used.epoch)

        self._repeated(lambda: self._raise_epoch(used.broker_group, at_least))
        return Behind(
            topic_ids=behind.topic_ids, group_ids=behind.group_ids, epoch=lasts[-1] < used.epoch
        )

    def close(self) -> None:
        self._client.stop()
        self._client.close()

    # ZooKeeper.

    def _state(self) -> tuple[_State, int]:
        """With the version of its node, for `_commit`."""
        data, stat = self._asked(lambda: _now(self._client.get_async("/state")))
        return msgspec.json.decode(data, type=_State), stat.version

    def _commit(self, change: TransactionRequest, after: _State, at: int, told: list[int]) -> None:
        """Everything in `change`, if `/state` is still what it was; else `_Overtaken`."""
        after = msgspec.structs.replace(after, version=after.version + 1)
        change.set_data("/state", msgspec.json.encode(after), version=at)
        change.create(f"/news/{after.version}", msgspec.json.encode(told))
        results = self._asked(lambda: _now(change.commit_async()))
        errors = [each for each in results if isinstance(each, KazooException)]
        causes = [
            each for each in errors if not isinstance(each, RolledBackError | RuntimeInconsistency)
        ]
        if any(isinstance(each, _OVERTAKEN) for each in causes):
            raise _Overtaken
        if errors:
            raise Unavailable(f"the registry ({self._description}) refused: {errors[0]!r}")
        if after.version % TRIM_EVERY == 0:
            threading.Thread(target=self._trim, args=(after.version,), daemon=True).start()

    def _trim(self, version: int) -> None:
        """Old news go; failing is no harm, the next one tries again."""
        for node in self._children("/news"):
            if int(node) <= version - NEWS_KEPT:
                try:
                    _now(self._client.delete_async(f"/news/{node}"))
                except (KazooException, KazooTimeoutError):
                    return

    def _repeated(self, work: Callable[[], T]) -> T:
        for _ in range(ATTEMPTS_MAX):
            try:
                return work()
            except _Overtaken:
                continue
        raise Unavailable(f"the registry ({self._description}) is too busy; try again")

    def _live_topic(self, name: str) -> Topic:
        [known] = self._read([f"/names/={name}"])
        found = self._topics([int(known)]) if known is not None else []
        if not found:
            raise TopicNotFound(f"topic {name!r} does not exist", topic=name)
        return found[0]

    def _topics(self, ids: Sequence[int]) -> list[Topic]:
        """Those of them that live."""
        nodes = self._read([f"/topics/{topic_id}" for topic_id in ids])
        found = zip(ids, nodes, strict=True)
        return [_decoded(topic_id, node) for topic_id, node in found if node is not None]

    def _children(self, path: str) -> list[str]:
        def children() -> list[str]:
            try:
                return list(_now(self._client.get_children_async(path)))
            except NoNodeError:
                return []

        return self._asked(children)

    def _read(self, paths: Sequence[str]) -> list[bytes | None]:
        """All at once; None where there is nothing."""

        def read() -> list[bytes | None]:
            asked = [self._client.get_async(path) for path in paths]
            found: list[bytes | None] = []
            for each in asked:
                try:
                    found.append(_now(each)[0])
                except NoNodeError:
                    found.append(None)
            return found

        return self._asked(read)

    def _kept(self, path: str, first: str) -> str:
        def keep() -> str:
            try:
                _now(self._client.create_async(path, first.encode()))
            except NodeExistsError:
                return str(_now(self._client.get_async(path))[0].decode())
            return first

        return self._asked(keep)

    def _asked(self, work: Callable[[], T]) -> T:
        """kazoo's errors become ours, once, here; those that tell something are passed on."""
        try:
            return work()
        except _OVERTAKEN:
            raise
        except (KazooException, KazooTimeoutError, OSError) as error:
            text = str(error) or type(error).__name__
            raise Unavailable(
                f"the registry ({self._description}) does not answer: {text}"
            ) from error


def _now(result: Any) -> Any:
    """kazoo itself would wait for ever while no server is there."""
    return result.get(timeout=ANSWER_S)


def _topic(topic_id: int, node: _TopicNode) -> Topic:
    return Topic(
        id=topic_id, name=node.name, created_at_ms=node.created_at_ms, settings=node.settings
    )


def _decoded(topic_id: int, data: bytes) -> Topic:
    try:
        return _topic(topic_id, msgspec.json.decode(data, type=_TopicNode))
    except msgspec.MsgspecError as error:
        raise Corrupt(f"topic {topic_id} in the registry: {error}") from error


def _server_path(route: Route) -> str:
    return f"/servers/{route.kind}={route.broker_group}"


def _chunks(values: Iterable[K]) -> Iterable[list[K]]:
    everything = list(values)
    for first in range(0, len(everything), CHUNK):
        yield everything[first : first + CHUNK]
