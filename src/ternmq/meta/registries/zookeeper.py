"""The registry in ZooKeeper, by kazoo. Everything lies below the path of the url.

    /state            version, topic_id, group_id: the last ones given out
    /schema /cluster  the schema's version, the cluster's id
    /topics/ID        a live topic          /names/=NAME     its id
    /gone/ID          a deleted topic       /groups/ID/=NAME a group of a live topic: its id
    /epochs/=GROUP    the last epoch        /servers/KIND=GROUP   servers that hold messages
    /standings/KIND=GROUP  how a broker group stands      /alive/…   see `zookeeper_heartbeats`
    /clients/…        clients, if they are shown: likewise
    /documents/…      see `zookeeper_documents`
    /news/VERSION     which topics that version changed; 0: servers, -1: standings

Every change is one transaction of `zookeeper_tree` and puts itself into the news. A change whose
answer got lost is told as `Unavailable`: asking again is harmless (rule 3 of `registry`).
"""

import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from kazoo.exceptions import NoNodeError
from kazoo.protocol.states import WatchedEvent

from ternmq.core.errors import BadConfig, Corrupt, TopicNotFound
from ternmq.discovery.directory import InUse
from ternmq.meta.registries.registry import (
    NEWS_KEPT,
    SCHEMA_VERSION,
    Behind,
    Change,
    GroupRow,
    NewGroup,
    News,
    NewTopic,
    check_names,
)
from ternmq.meta.registries.zookeeper_documents import ZooKeeperDocuments
from ternmq.meta.registries.zookeeper_heartbeats import CLIENTS, SERVERS, ZooKeeperHeartbeats
from ternmq.meta.registries.zookeeper_tree import (
    OVERTAKEN,
    Overtaken,
    State,
    ZooKeeperTree,
    chunks,
    now,
)
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

FOLDERS = (
    "/topics",
    "/names",
    "/gone",
    "/groups",
    "/epochs",
    "/servers",
    "/standings",
    "/alive",
    "/clients",
    "/news",
    "/documents",
)
SERVERS_CHANGED = 0
STANDINGS_CHANGED = -1
"""In the news, beside ids of topics; an earlier release takes them for topics that are gone."""


class _TopicNode(msgspec.Struct, frozen=True):
    name: str
    created_at_ms: int
    settings: TopicSettings
    deleted_at_ms: int | None = None


class ZooKeeperRegistry:
    """Implements `registry.Registry`."""

    def __init__(self, tree: ZooKeeperTree) -> None:
        self._tree = tree
        self._alive = ZooKeeperHeartbeats(tree, SERVERS)
        self._clients = ZooKeeperHeartbeats(tree, CLIENTS)
        self._documents = ZooKeeperDocuments(tree)
        self._cluster = ""

    @classmethod
    def open(cls, hosts: str, path: str) -> "ZooKeeperRegistry":
        """Connect, and make what is not there; raises `Unavailable`, `BadConfig`."""
        registry = cls(ZooKeeperTree.open(hosts, description=f"zookeeper {hosts}{path}"))
        try:
            registry._prepare(path)
        except BaseException:
            registry.close()
            raise
        return registry

    def _prepare(self, path: str) -> None:
        def prepare() -> None:
            if path:
                now(self._tree.client.ensure_path_async(path))
                self._tree.client.chroot = path
            for folder in FOLDERS:
                now(self._tree.client.ensure_path_async(folder))

        self._tree.asked(prepare)
        schema = self._tree.kept("/schema", str(SCHEMA_VERSION))
        if schema != str(SCHEMA_VERSION):
            raise BadConfig(
                f"the registry ({self._tree.description}) has schema {schema}, this version of "
                f"ternmq knows {SCHEMA_VERSION}; use the version that wrote it, or a newer one"
            )
        self._cluster = self._tree.kept("/cluster", secrets.token_hex(8))
        self._tree.kept("/state", msgspec.json.encode(State()).decode())

    @property
    def description(self) -> str:
        return self._tree.description

    @property
    def cluster(self) -> str:
        return self._cluster

    # Topics.

    def topics(self) -> list[Topic]:
        return self._topics(sorted(int(node) for node in self._tree.children("/topics")))

    def create_topics(self, wanted: Sequence[NewTopic]) -> list[Topic]:
        by_name = {new.name: new for new in wanted}
        found: dict[str, Topic] = {}
        for names in chunks(by_name):
            found |= self._tree.repeated(partial(self._make_topics, names, by_name))
        return [found[new.name] for new in wanted]

    def _make_topics(self, names: list[str], wanted: dict[str, NewTopic]) -> dict[str, Topic]:
        state, at = self._tree.state()
        ids = self._tree.read([f"/names/={name}" for name in names])
        there = self._topics([int(node) for node in ids if node is not None])
        found = {topic.name: topic for topic in there}
        missing = [wanted[name] for name in names if name not in found]
        if not missing:
            return found
        change = self._tree.client.transaction()
        made: list[int] = []
        for topic_id, new in enumerate(missing, start=state.topic_id + 1):
            node = _TopicNode(new.name, new.created_at_ms, new.settings)
            change.create(f"/topics/{topic_id}", msgspec.json.encode(node))
            change.create(f"/names/={new.name}", str(topic_id).encode())
            change.create(f"/groups/{topic_id}")
            found[new.name] = _topic(topic_id, node)
            made.append(topic_id)
        after = msgspec.structs.replace(state, topic_id=made[-1])
        self._tree.commit(change, after, at, made)
        return found

    def update_topic(self, name: str, change: Change) -> Topic:
        def update() -> Topic:
            state, at = self._tree.state()
            topic = self._live_topic(name)
            changed = msgspec.structs.replace(topic, settings=change(topic.settings))
            node = _TopicNode(topic.name, topic.created_at_ms, changed.settings)
            transaction = self._tree.client.transaction()
            transaction.set_data(f"/topics/{topic.id}", msgspec.json.encode(node))
            self._tree.commit(transaction, state, at, [topic.id])
            return changed

        return self._tree.repeated(update)

    def delete_topic(self, name: str, *, deleted_at_ms: int) -> Topic:
        def delete() -> Topic:
            state, at = self._tree.state()
            topic = self._live_topic(name)
            gone = _TopicNode(topic.name, topic.created_at_ms, topic.settings, deleted_at_ms)
            transaction = self._tree.client.transaction()
            for group in self._tree.children(f"/groups/{topic.id}"):
                transaction.delete(f"/groups/{topic.id}/{group}")
            transaction.delete(f"/groups/{topic.id}")
            transaction.delete(f"/topics/{topic.id}")
            transaction.delete(f"/names/={name}")
            transaction.create(f"/gone/{topic.id}", msgspec.json.encode(gone))
            self._tree.commit(transaction, state, at, [topic.id])
            return topic

        return self._tree.repeated(delete)

    # Groups.

    def groups(self) -> list[GroupRow]:
        topics = sorted(int(node) for node in self._tree.children("/topics"))
        rows = [row for topic_id in topics for row in self._groups(topic_id).values()]
        return sorted(rows, key=lambda row: row.id)

    def create_groups(self, wanted: Sequence[NewGroup]) -> list[GroupRow | None]:
        found: dict[tuple[int, str], GroupRow | None] = {}
        for keys in chunks(dict.fromkeys((new.topic_id, new.name) for new in wanted)):
            found |= self._tree.repeated(partial(self._make_groups, keys))
        return [found[new.topic_id, new.name] for new in wanted]

    def _make_groups(self, keys: list[tuple[int, str]]) -> dict[tuple[int, str], GroupRow | None]:
        state, at = self._tree.state()
        topics = dict.fromkeys(topic_id for topic_id, _ in keys)
        nodes = self._tree.read([f"/topics/{topic_id}" for topic_id in topics])
        live = {topic_id for topic_id, node in zip(topics, nodes, strict=True) if node is not None}
        ids = self._tree.read([f"/groups/{topic_id}/={name}" for topic_id, name in keys])
        found: dict[tuple[int, str], GroupRow | None] = {}
        change, last = self._tree.client.transaction(), state.group_id
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
            self._tree.commit(change, msgspec.structs.replace(state, group_id=last), at, [])
        return found

    def delete_group(self, topic_id: int, name: str, *, deleted_at_ms: int) -> bool:
        try:
            self._tree.asked(
                lambda: now(self._tree.client.delete_async(f"/groups/{topic_id}/={name}"))
            )
        except NoNodeError:
            return False
        return True

    def _groups(self, topic_id: int) -> dict[str, GroupRow]:
        names = [node.removeprefix("=") for node in self._tree.children(f"/groups/{topic_id}")]
        ids = self._tree.read([f"/groups/{topic_id}/={name}" for name in names])
        return {
            name: GroupRow(id=int(known), topic_id=topic_id, name=name)
            for name, known in zip(names, ids, strict=True)
            if known is not None
        }

    # Epochs, servers, news.

    def new_epoch(self, broker_group: str) -> int:
        return self._tree.repeated(lambda: self._raise_epoch(broker_group, lambda last: last + 1))

    def _raise_epoch(self, broker_group: str, change: Callable[[int], int]) -> int:
        path = f"/epochs/={broker_group}"

        def work() -> int:
            try:
                data, stat = now(self._tree.client.get_async(path))
            except NoNodeError:
                epoch = change(0)
                now(self._tree.client.create_async(path, str(epoch).encode()))
                return epoch
            epoch = change(int(data))
            if epoch != int(data):
                now(self._tree.client.set_async(path, str(epoch).encode(), version=stat.version))
            return epoch

        try:
            return self._tree.asked(work)
        except OVERTAKEN as error:
            raise Overtaken from error

    def last_epoch(self, broker_group: str) -> int:
        [last] = self._tree.read([f"/epochs/={broker_group}"])
        return int(last or 0)

    def standing(self, broker_group: str, kind: BrokerGroupKind) -> Standing | None:
        [node] = self._tree.read([f"/standings/{kind}={broker_group}"])
        return None if node is None else _standing(node)

    def standings(self) -> list[Standing]:
        names = sorted(self._tree.children("/standings"))
        nodes = self._tree.read([f"/standings/{name}" for name in names])
        return [_standing(node) for node in nodes if node is not None]

    def put_standing(self, new: Standing, expected_version: int) -> bool:
        assert new.version > expected_version
        path = f"/standings/{new.kind}={new.broker_group}"

        def put() -> bool:
            state, at = self._tree.state()
            held = self.standing(new.broker_group, new.kind)
            if (held.version if held is not None else 0) != expected_version:
                return False
            change = self._tree.client.transaction()
            if held is None:
                change.create(path, msgspec.json.encode(new))
            else:
                change.set_data(path, msgspec.json.encode(new))
            self._tree.commit(change, state, at, [STANDINGS_CHANGED])
            return True

        return self._tree.repeated(put)

    def servers(self) -> list[Route]:
        nodes = self._tree.read(
            [f"/servers/{node}" for node in sorted(self._tree.children("/servers"))]
        )
        return [msgspec.json.decode(node, type=Route) for node in nodes if node is not None]

    def remember_server(self, route: Route, *, now_ms: int) -> None:
        kept = Route(broker_group=route.broker_group, address=route.address, kind=route.kind)

        def remember() -> None:
            state, at = self._tree.state()
            path, change = _server_path(route), self._tree.client.transaction()
            [known] = self._tree.read([path])
            if known is None:
                change.create(path, msgspec.json.encode(kept))
            else:
                change.set_data(path, msgspec.json.encode(kept))
            self._tree.commit(change, state, at, [SERVERS_CHANGED])

        self._tree.repeated(remember)

    def forget_server(self, route: Route) -> None:
        def forget() -> None:
            state, at = self._tree.state()
            path, change = _server_path(route), self._tree.client.transaction()
            if self._tree.read([path]) != [None]:
                change.delete(path)
                self._tree.commit(change, state, at, [SERVERS_CHANGED])

        self._tree.repeated(forget)

    def hold(self, silent_s: Mapping[str, float]) -> None:
        self._alive.hold(dict.fromkeys(silent_s, b""))

    def show_clients(self, clients: Mapping[str, bytes]) -> None:
        self._clients.hold(clients)

    def held(self) -> dict[str, float | None]:
        return dict.fromkeys(self._alive.others())

    def version(self) -> int:
        return self._tree.state()[0].version

    def news(self, since: int) -> News:
        version = self.version()
        if version < since or version - since >= NEWS_KEPT:
            # Another registry than the one that was asked before, or too long ago.
            return self._everything(version)
        news = self._tree.read([f"/news/{each}" for each in range(since + 1, version + 1)])
        if None in news:
            return self._everything(version)
        ids = {each for node in news if node is not None for each in msgspec.json.decode(node)}
        of_topics = ids - {SERVERS_CHANGED, STANDINGS_CHANGED}
        topics = self._topics(sorted(of_topics))
        return News(
            version=version,
            topics=topics,
            deleted=frozenset(of_topics).difference(topic.id for topic in topics),
            servers=SERVERS_CHANGED in ids,
            standings=self.standings() if STANDINGS_CHANGED in ids else [],
        )

    def _everything(self, version: int) -> News:
        return News(
            version=version,
            topics=self.topics(),
            deleted=frozenset(map(int, self._tree.children("/gone"))),
            servers=True,
            everything=True,
            standings=self.standings(),
        )

    def watch(self, wake: Callable[[], None]) -> bool:
        @self._tree.client.DataWatch("/state")  # type: ignore[untyped-decorator]
        def _changed(_data: bytes | None, _stat: Any, _event: WatchedEvent | None) -> None:
            wake()

        return True

    def gone_topics(self, ids: Collection[int]) -> frozenset[int]:
        gone = self._tree.repeated(lambda: self._tree.children("/gone"))
        return frozenset(ids).intersection(map(int, gone))

    def reserve(self, used: InUse, *, now_ms: int) -> Behind:
        def reserve() -> Behind:
            state, at = self._tree.state()
            held = {topic.id: topic.name for topic in self._topics(sorted(used.names))}
            check_names(used, held, self.description)
            known = {
                int(node)
                for node in (*self._tree.children("/topics"), *self._tree.children("/gone"))
            }
            unknown = used.topic_ids - known
            topic_id, group_id = max(unknown, default=0), used.group_id
            after = msgspec.structs.replace(
                state,
                topic_id=max(state.topic_id, topic_id),
                group_id=max(state.group_id, group_id),
            )
            if after != state:
                self._tree.commit(self._tree.client.transaction(), after, at, [])
            return Behind(topic_ids=unknown, group_ids=group_id > state.group_id)

        behind = self._tree.repeated(reserve)
        lasts: list[int] = []

        def at_least(last: int) -> int:
            lasts.append(last)
            return max(last, used.epoch)

        self._tree.repeated(lambda: self._raise_epoch(used.broker_group, at_least))
        return Behind(
            topic_ids=behind.topic_ids, group_ids=behind.group_ids, epoch=lasts[-1] < used.epoch
        )

    def leap(self, after: Callable[[int], int]) -> None:
        def work() -> None:
            state, at = self._tree.state()
            ahead = msgspec.structs.replace(
                state, topic_id=after(state.topic_id), group_id=after(state.group_id)
            )
            self._tree.commit(self._tree.client.transaction(), ahead, at, [])

        self._tree.repeated(work)

    def document(self, wanted: DocumentNamed, *, now_ms: int) -> Document | None:
        return self._documents.find(wanted, now_ms)

    def documents(self, wanted: DocumentQuery, *, now_ms: int) -> list[Document]:
        return self._documents.listed(wanted, now_ms)

    def put_document(self, wanted: DocumentPut, *, now_ms: int) -> Document:
        return self._documents.put(wanted, now_ms)

    def delete_document(self, wanted: DocumentDelete, *, now_ms: int) -> Document | None:
        return self._documents.delete(wanted, now_ms)

    def close(self) -> None:
        self._tree.close()

    # Reading.

    def _live_topic(self, name: str) -> Topic:
        [known] = self._tree.read([f"/names/={name}"])
        found = self._topics([int(known)]) if known is not None else []
        if not found:
            raise TopicNotFound(f"topic {name!r} does not exist", topic=name)
        return found[0]

    def _topics(self, ids: Sequence[int]) -> list[Topic]:
        """The topics that live."""
        nodes = self._tree.read([f"/topics/{topic_id}" for topic_id in ids])
        found = zip(ids, nodes, strict=True)
        return [_decoded(topic_id, node) for topic_id, node in found if node is not None]


def _topic(topic_id: int, node: _TopicNode) -> Topic:
    return Topic(
        id=topic_id, name=node.name, created_at_ms=node.created_at_ms, settings=node.settings
    )


def _decoded(topic_id: int, data: bytes) -> Topic:
    try:
        return _topic(topic_id, msgspec.json.decode(data, type=_TopicNode))
    except msgspec.MsgspecError as error:
        raise Corrupt(f"topic {topic_id} in the registry: {error}") from error


def _standing(data: bytes) -> Standing:
    try:
        return msgspec.json.decode(data, type=Standing)
    except msgspec.MsgspecError as error:
        raise Corrupt(f"a standing in the registry: {error}") from error


def _server_path(route: Route) -> str:
    return f"/servers/{route.kind}={route.broker_group}"
