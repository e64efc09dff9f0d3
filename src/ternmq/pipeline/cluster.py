"""The cluster as a Spark process sees it: where topics begin and end, and reading ranges of them.

One client per process and url, kept for the process's life: Spark reuses its Python workers, and a
connection opened for each task would cost more than a small task. Spark asks for the end of a
stream some thirty times a second: `recent_bounds` remembers the answer for a moment. A broker group
whose master changes is waited for (`OUTAGE_S`): a query must not end for that.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from ternmq.batch.envelope import Envelope
from ternmq.client.client import Client
from ternmq.client.client import connect as connect_async
from ternmq.client.reading.range_reader import Page, RangeReader
from ternmq.client.transactions.detached import Detached, DetachedEnding
from ternmq.client.transport.attempts import Attempts
from ternmq.core.errors import NotMaster, TopicNotFound, Unavailable
from ternmq.core.units import MIB
from ternmq.discovery.hidden_topics import DEAD_PREFIX
from ternmq.pipeline.positions import DELIVERIES, TopicPlace
from ternmq.sync.loop_thread import loop_thread
from ternmq.wire.messages.dead_letters import DeadDone
from ternmq.wire.messages.groups import Start
from ternmq.wire.messages.read import DeliveriesPage, DeliveriesRead, Seek, Sought
from ternmq.wire.numbers import Command
from ternmq.wire.record import Record, T

REMEMBER_S = 0.1
IDS_REMEMBER_S = 1.0
ROWS_MAX = 50_000
PAGE_SIZE = MIB
OUTAGE_S = 30.0
"""Twice what a failover takes."""
REPLICA_WAIT_MS = 500
REPLICA_STILL_MAX = 10
"""After so many waits without a row the master is asked."""
APP = "spark"
STAGED_S = 72 * 3600.0
"""So long rows of the sink wait for their commit: a driver may be down in between."""

_clusters: dict[tuple[str, str], "ClusterView"] = {}


class Bounds(NamedTuple):
    """What a broker group holds of a topic."""

    first: int
    end: int


class ClusterView:
    """Blocking access for one process. Made by `cluster`."""

    def __init__(self, url: str, keys: str = "") -> None:
        self._keys = bool(keys)
        self._client: Client = connect_async(url, app=APP, keys=keys)
        loop_thread().run(_started(self._client))
        self._bounds: dict[TopicPlace, tuple[float, Bounds]] = {}
        self._topic_ids: tuple[float, dict[str, int]] = (-IDS_REMEMBER_S, {})
        self._id: str | None = None

    @property
    def client(self) -> Client:
        """To be used on `loop_thread` only."""
        return self._client

    def topics(self) -> list[str]:
        """The names of all topics that people made."""
        return [topic.name for topic in loop_thread().run(self._client.admin.topics())]

    def topic_ids(self) -> dict[str, int]:
        """All topics that people made; one that is made anew has another number."""
        return {topic.name: topic.id for topic in loop_thread().run(self._client.admin.topics())}

    def recent_topic_ids(self) -> dict[str, int]:
        """`topic_ids`, perhaps a moment old."""
        now = time.monotonic()
        if now - self._topic_ids[0] >= IDS_REMEMBER_S:
            self._topic_ids = now, self.topic_ids()
        return self._topic_ids[1]

    def check_topics(self, topics: Sequence[str]) -> None:
        """Refuse a name that no topic has."""
        known = self.topic_ids() if topics else {}
        for topic in topics:
            if topic not in known:
                raise TopicNotFound(
                    f"there is no topic {topic!r}; 'tern topic list' shows what there is"
                )

    def id(self) -> str:
        """Which cluster this is; empty where its meta servers do not say."""
        if self._id is None:
            self._id = loop_thread().run(self._client.admin.meta_status()).cluster
        return self._id

    def broker_groups(self) -> list[str]:
        return loop_thread().run(self._client.cluster.some_masters())

    def delay_servers(self) -> list[str]:
        """At least one; `Unavailable` when there is none."""
        return loop_thread().run(self._client.cluster.some_writable_groups("delay"))

    def taking_groups(self) -> list[str]:
        """The broker groups that new rows go to: without those that are being drained."""
        return loop_thread().run(self._client.cluster.some_writable_groups())

    def recent_bounds(self, place: TopicPlace) -> Bounds | None:
        """First and end, perhaps a moment old; None when there is no such topic."""
        known = self._bounds.get(place)
        now = time.monotonic()
        if known is not None and now - known[0] < REMEMBER_S:
            return known[1]
        found = self.bounds(place)
        if found is not None:
            self._bounds[place] = (now, found)
        return found

    def bounds(self, place: TopicPlace) -> Bounds | None:
        """First and end now; None when there is no such topic."""
        if place.topic == DELIVERIES:
            page = self._deliveries(place.broker_group, -1)
            return Bounds(page.first, page.end)
        sought = self._seek(place, Start(at="latest"))
        return None if sought is None else Bounds(sought.first, sought.end)

    def at_time(self, place: TopicPlace, time_ms: int) -> int | None:
        """The first sequence stored at or after a time; None when there is none yet."""
        sought = self._seek(place, Start(at="time", value=time_ms))
        return None if sought is None or sought.sequence >= sought.end else sought.sequence

    def after_bytes(self, place: TopicPlace, first: int, end: int, size: int) -> tuple[int, int]:
        """The sequence about so many stored bytes after `first`, and how many those are.

        Whole batches, at least one, and not beyond `end`.
        """
        at, weighed = first, 0
        while at < end and weighed < size:
            sought = self._seek(place, Start(at="sequence", value=at), size - weighed)
            if sought is None or sought.sequence <= at:
                return end, weighed
            if weighed and weighed + sought.size > size:
                break  # The next batch alone would be too much.
            at, weighed = sought.sequence, weighed + sought.size
        return min(at, end), weighed

    def read(
        self,
        place: TopicPlace,
        first: int,
        end: int,
        columns: Sequence[int],
        *,
        replica: bool = False,
    ) -> Iterator[list[Envelope]]:
        """The rows of a range, piece by piece; the next piece is under way meanwhile.

        `end` is what the master has. A replica may need a moment to have it too; from one that
        does not get on, the rest is read from the master.
        """
        at, still = first, 0
        if replica:
            for piece in self._walk(place, first, end, columns, replica=True):
                still = still + 1 if piece.following <= at else 0
                at = max(at, piece.following)
                yield self._opened(piece.envelopes)
                if still == REPLICA_STILL_MAX:
                    break
            if at >= end:
                return
        for piece in self._walk(place, at, end, columns):
            yield self._opened(piece.envelopes)

    def _opened(self, envelopes: list[Envelope]) -> list[Envelope]:
        """Decrypted, where keys were given."""
        if self._keys and any(envelope.batch.sealed for envelope in envelopes):
            opening = [(envelope.batch, envelope.selection) for envelope in envelopes]
            loop_thread().run(self._client.cluster.keyring.open_all(opening))
        return envelopes

    def _walk(
        self,
        place: TopicPlace,
        first: int,
        end: int,
        columns: Sequence[int],
        *,
        replica: bool = False,
    ) -> Iterator[Page]:
        cluster, group = self._client.cluster, place.broker_group
        walk = loop_thread().call(
            lambda: RangeReader(
                cluster.reader(group) if replica else cluster.broker(group),
                place.topic,
                columns=columns,
                rows_max=ROWS_MAX,
                wait_ms=REPLICA_WAIT_MS if replica else 0,
            ).walk(first, end)
        )

        async def following() -> Page | None:
            return await anext(walk, None)

        try:
            while (piece := loop_thread().run(following())) is not None:
                yield piece
        finally:
            loop_thread().run(walk.aclose())

    def read_deliveries(
        self, place: TopicPlace, first: int, end: int, gone: Callable[[int], None]
    ) -> Iterator[DeliveriesPage]:
        """The delivery records of a broker group between two offsets of its pull log; `gone` hears
        how many bytes of them were removed meanwhile, or cannot be read."""
        while first < end:
            page = self._deliveries(place.broker_group, first, end)
            if page.first > first:
                gone(min(page.first, end) - first)
            if page.damaged:
                gone(page.damaged)
            if page.following <= first:
                return
            first = page.following
            yield page

    def _deliveries(self, broker_group: str, position: int, end: int = 0) -> DeliveriesPage:
        request = DeliveriesRead(position=position, size_max=PAGE_SIZE, end=end)
        return self._ask(broker_group, Command.READ_DELIVERIES, request, DeliveriesPage)

    def _ask(self, broker_group: str, command: Command, record: Record, answer: type[T]) -> T:
        """For what may be asked again; also while nobody leads that group."""
        cluster = self._client.cluster

        async def ask() -> T:
            attempts = Attempts(OUTAGE_S)
            while True:
                try:
                    return await cluster.ask(cluster.broker(broker_group), command, record, answer)
                except (NotMaster, Unavailable) as error:
                    await attempts.failed(error)

        return loop_thread().run(ask())

    def groups_with_dead_letters(self) -> list[str]:
        topics = loop_thread().run(self._client.admin.topics(DEAD_PREFIX))
        return [topic.name.removeprefix(DEAD_PREFIX) for topic in topics]

    def check_group(self, group: str) -> None:
        """Raises `GroupNotFound` for a name that no group has."""
        loop_thread().run(self._client.admin.groups(group=group))

    def open_dead_letters(self, group: str, broker_group: str) -> list[tuple[int, int]]:
        return loop_thread().run(self._client.admin.open_dead_letters(group, broker_group))

    def resend_dead_letters(
        self, group: str, ranges: list[tuple[int, int]], broker_group: str
    ) -> DeadDone:
        admin = self._client.admin
        return loop_thread().run(admin.resend_dead_letters(group, ranges, broker_group))

    def detached(self, name: str, attempt: int, broker_group: str) -> Detached:
        """An attempt of the sink: staged here, committed by the driver once it counts."""
        return loop_thread().call(
            lambda: self._client.detached(
                name, attempt=attempt, broker_group=broker_group, expires=STAGED_S, fenced=False
            )
        )

    def commit(
        self, name: str, broker_group: str, attempts: list[int], elsewhere: list[int]
    ) -> DetachedEnding:
        end = self._client.commit_detached
        return loop_thread().run(
            end(name, attempts, broker_group, fenced=False, elsewhere=elsewhere)
        )

    def abort(
        self, name: str, broker_group: str, attempts: list[int], elsewhere: list[int]
    ) -> DetachedEnding:
        end = self._client.abort_detached
        return loop_thread().run(
            end(name, attempts, broker_group, fenced=False, elsewhere=elsewhere)
        )

    def look(self, name: str, broker_group: str) -> DetachedEnding:
        return loop_thread().run(self._client.look_detached(name, broker_group))

    def _seek(self, place: TopicPlace, start: Start, size: int = 0) -> Sought | None:
        seek = Seek(topic=place.topic, start=start, size=size)
        try:
            return self._ask(place.broker_group, Command.SEEK, seek, Sought)
        except TopicNotFound:
            return None


def cluster(url: str, keys: str = "") -> ClusterView:
    """This process's access to a cluster. With `keys` (as in TERN_KEYS) bodies are decrypted, and
    encrypted; what the environment names is not used, so that no job decrypts unasked."""
    found = _clusters.get((url, keys))
    if found is None:
        found = _clusters[url, keys] = ClusterView(url, keys)
    return found


async def _started(client: Client) -> None:
    await client
