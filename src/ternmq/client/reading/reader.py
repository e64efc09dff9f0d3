"""`mq.read`: a topic from one place to another, without a group.

Stateless: the brokers keep nothing, so reading neither disturbs nor is disturbed by groups, and the
same messages can be read any number of times. All broker groups are read and put together by time
(`merge_by_time`), or the one that is named. A position belongs to a broker group: where there are
several, a sequence needs `broker_group=`, or is given for each, as `{"east": 7, "west": 3}`. A
broker group that is away makes the call fail, unless `missing=` (a dict) takes its name. While
messages are shown, the next piece is already asked for. Who follows also gets broker groups that
are added.

`group=` begins where a consumer group stands, and leaves out what it has settled by then; from a
replica that works while nobody leads (R19). Nothing is leased: whoever reads so shows the same
messages, and the group gets them all the same when it is led again. `tag=` and `filter=` are looked
at here, not by the broker.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from datetime import datetime
from typing import Literal, TypedDict

from ternmq.batch.selector.filter import parse_filter
from ternmq.client.admin.topics import topic_missing
from ternmq.client.codecs.codec import Codec, CodecName, find_codec
from ternmq.client.config import ClientConfig
from ternmq.client.model.arguments import check_typed_options, check_value, fits
from ternmq.client.model.delivery import Delivery, NotLeased
from ternmq.client.model.durations import typed
from ternmq.client.model.message import Message, MessageBatch
from ternmq.client.model.start import StartLike, make_start
from ternmq.client.model.times import shown
from ternmq.client.reading.merge_by_time import MergeByTime, MergeSource
from ternmq.client.reading.range_reader import ENDLESS, Page, RangeReader
from ternmq.client.transport.cluster import Cluster
from ternmq.client.transport.fan_out import FanOut, Missing, not_answered
from ternmq.core.clock import SystemClock
from ternmq.core.errors import BadRequest, TopicNotFound
from ternmq.core.ids import check_name
from ternmq.core.log import get_logger
from ternmq.core.range_set import RangeSet
from ternmq.discovery.hidden_topics import plain_name
from ternmq.wire.messages.groups import Start
from ternmq.wire.messages.read import Seek, Sought
from ternmq.wire.numbers import Command

WAIT_MS = 5_000
AGAIN_S = 0.5

log = get_logger()

_NOT_LEASED = NotLeased()

Positions = Mapping[str, int]
"""A sequence for each broker group."""


class ReadOptions(TypedDict, total=False):
    """The keywords of `read`, for type checkers."""

    start: StartLike | Positions
    end: int | datetime | Positions | None
    follow: bool
    codec: Codec | CodecName | None
    broker_group: str
    missing: Missing | None
    group: str
    tag: str
    filter: str
    from_: Literal["master", "replica"]


class Reader:
    """Messages in order: iterate over it, or over `.batches()`."""

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        options: ReadOptions,
        config: ClientConfig,
        *,
        late_start: Start | None = None,
    ) -> None:
        """`late_start`: where to begin on a broker group that comes later; None: where it would
        have begun."""
        check_typed_options("read", options, ReadOptions, but=("codec", "end", "from_"))
        self._cluster = cluster
        check_value("topic", topic, str)
        check_name("topic", plain_name(topic))
        self._topic = topic
        start = options.get("start", "earliest")
        self._start = dict(start) if isinstance(start, Mapping) else make_start(start)
        self._end = options.get("end")
        if not fits(self._end, ReadOptions.__annotations__["end"]):
            raise BadRequest(
                f"end is {typed(self._end)}; it is an aware datetime, a sequence, or a dict of "
                "sequences by broker group; leave it out for what is there now, follow=True goes on"
            )
        self._group = _group_of(options)
        self._filter = parse_filter(options.get("tag", ""), options.get("filter", ""))
        self._settled: dict[str, RangeSet] = {}
        """By broker group: what `group` needs no more."""
        self._follow = options.get("follow", False)
        if self._follow and self._end is not None:
            raise BadRequest("read() goes either to an end or follows, not both")
        self._broker_group = options.get("broker_group", "")
        self._from_replica = from_replica(options.get("from_", "master"))
        # Who follows goes on without those that are away: they are tried again and again.
        missing = {} if self._follow else options.get("missing")
        self._fan_out = FanOut(cluster, missing, replicas=self._from_replica)
        self._late_start = late_start
        self._codec = find_codec(options.get("codec") or config.codec)

    async def __aiter__(self) -> AsyncIterator[Message]:
        async for batch in self.batches():
            for message in batch:
                yield message

    async def batches(self) -> AsyncIterator[MessageBatch]:
        """Messages in pieces, as they are stored."""
        begun_ms = SystemClock().now_ms()
        bounds = await self._bounds()
        if not bounds and self._follow:
            raise not_answered(self._fan_out.missing or {}, [])
        if len(bounds) == 1 and (self._broker_group or not self._follow):
            [(group, (first, end, _))] = bounds.items()
            async for batches, _ in self._pieces(group, first, end):
                for batch in batches:
                    yield batch
            return
        merged = MergeByTime()
        for group, (first, end, here) in bounds.items():
            merged.add(MergeSource(group, self._pieces(group, first, end), end=here))
        if self._follow:
            self._cluster.on_routes.append(merged.wake)
        try:
            async for next_one in merged.batches():
                if next_one is not None:
                    yield next_one
                elif self._follow:
                    await self._add_new(merged, begun_ms)
        finally:
            if self._follow:
                self._cluster.on_routes.remove(merged.wake)

    async def _pieces(
        self, group: str, first: int, end: int
    ) -> AsyncIterator[tuple[list[MessageBatch], int]]:
        async for piece in self._walk(group, first, end):
            deliveries = [
                Delivery(envelope, _NOT_LEASED, self._codec, broker_group=group)
                for envelope in piece.envelopes
            ]
            if any(delivery.batch.sealed for delivery in deliveries):
                opening = [(delivery.batch, delivery.ranges) for delivery in deliveries]
                await self._cluster.keyring.open_all(opening)
            yield (
                [
                    MessageBatch([(delivery, at, stop)])
                    for delivery in deliveries
                    for at, stop in self._wanted(delivery)
                ],
                piece.following,
            )

    def _wanted(self, delivery: Delivery) -> Iterable[tuple[int, int]]:
        """The rows of a batch that are shown."""
        ranges: Iterable[tuple[int, int]] = delivery.ranges
        settled = self._settled.get(delivery.broker_group)
        if settled is not None:
            base = delivery.base
            ranges = [
                (first - base, end - base)
                for at, stop in ranges
                for first, end in settled.gaps(base + at, base + stop)
            ]
        if self._filter is None:
            return ranges
        passing = RangeSet(self._filter.rows(delivery.batch))
        return [part for at, stop in ranges for part in passing.overlap(at, stop)]

    async def _walk(self, group: str, first: int, end: int) -> AsyncIterator[Page]:
        """From a replica, if so wanted, and what it does not have from the master."""
        for_ever = self._follow and not self._broker_group
        if self._from_replica:
            # Where to stop is asked of the master: a replica may need a moment to have that.
            pieces = RangeReader(
                self._cluster.reader(group),
                self._topic,
                wait_ms=WAIT_MS,
                for_ever=for_ever,
                stalls=not self._follow,
            )
            async for piece in pieces.walk(first, end):
                first = piece.following
                yield piece
            if first >= end:
                return
            log.warning("a replica has not all of it", broker_group=group, topic=self._topic)
        pieces = RangeReader(
            self._cluster.broker(group),
            self._topic,
            wait_ms=WAIT_MS if self._follow else 0,
            for_ever=for_ever,
        )
        async for piece in pieces.walk(first, end):
            yield piece

    async def _add_new(self, merged: MergeByTime, begun_ms: int) -> None:
        """Broker groups that came since, or were away."""
        start = self._late_start or self._late(begun_ms)
        for group in [group for group in self._there() if group not in merged]:
            try:
                sought = (await self._seek(start, [group])).get(group)
            except TopicNotFound:
                sought = None  # It has not heard of the topic yet.
            if sought is None:
                asyncio.get_running_loop().call_later(AGAIN_S, merged.wake)
                continue
            pieces = self._pieces(group, sought.sequence, ENDLESS)
            merged.add(MergeSource(group, pieces, end=sought.end))

    def _late(self, begun_ms: int) -> Start:
        """Where this reader would have begun on a broker group that it did not see."""
        if not isinstance(self._start, Start) or self._start.at == "sequence":
            return Start()
        return Start(at="time", value=begun_ms) if self._start.at == "latest" else self._start

    async def _bounds(self) -> dict[str, tuple[int, int, int]]:
        """By broker group: first sequence, where to stop, and the end that is there now."""
        groups = await self._groups()
        if isinstance(self._start, Start):
            starts = await self._seek(self._start, groups)
            firsts = {group: sought.sequence for group, sought in starts.items()}
        else:
            starts = await self._seek(Start(), groups)
            firsts = {group: max(self._start.get(group, 0), 0) for group in starts}
        stops = {group: sought.end for group, sought in starts.items()}
        if isinstance(self._end, datetime):
            ends = await self._seek(make_start(self._end), list(starts))
            stops = {group: sought.sequence for group, sought in ends.items()}
        elif isinstance(self._end, Mapping):
            stops = {group: min(self._end.get(group, 0), end) for group, end in stops.items()}
        elif self._end is not None:
            stops = {group: min(self._end, end) for group, end in stops.items()}
        if self._follow:
            return {group: (firsts[group], ENDLESS, sought.end) for group, sought in starts.items()}
        return {group: (firsts[group], stop, ENDLESS) for group, stop in stops.items()}

    async def _groups(self) -> list[str]:
        """The broker groups to read; a lone sequence needs its broker group."""
        for place in (self._start, self._end):
            if isinstance(place, Mapping):
                for group in place:
                    await self._fan_out.only("a sequence", group)
        lone = isinstance(self._end, int) or (
            isinstance(self._start, Start) and self._start.at == "sequence"
        )
        if lone or self._broker_group:
            return [await self._fan_out.only("a sequence", self._broker_group)]
        if self._follow:
            return self._there() or await self._cluster.some_masters()
        return await self._fan_out.groups()

    def _there(self) -> list[str]:
        """The broker groups that can be read now; from a replica also while nobody leads them."""
        masters, away = self._cluster.masters(), self._cluster.away("realtime")
        if not self._from_replica:
            return masters
        return [*masters, *(group for group in away if self._cluster.has_replica(group))]

    async def _seek(self, start: Start, groups: list[str]) -> dict[str, Sought]:
        try:
            if self._group and start is self._start:
                return await self._seek_group(start, groups)
            seek = Seek(topic=self._topic, start=start)
            return await self._fan_out.ask(Command.SEEK, seek, Sought, groups)
        except TopicNotFound as error:
            raise topic_missing(self._topic, error) from None

    async def _seek_group(self, start: Start, groups: list[str]) -> dict[str, Sought]:
        """Where the group stands; where it never was, all of it."""
        seek = Seek(topic=self._topic, start=start, group=self._group)
        found, absent = await self._fan_out.try_all(Command.SEEK, seek, Sought, groups)
        for group, sought in found.items():
            if sought.group != self._group:
                raise BadRequest(
                    f"the broker group {group!r} is of a release that does not say where a group "
                    "stands; leave group= out, or upgrade it"
                )
            self._settled[group] = RangeSet(sought.settled)
        if absent and not found:
            raise next(iter(absent.values()))
        if absent:
            whole = Seek(topic=self._topic, start=start)
            found |= await self._fan_out.ask(Command.SEEK, whole, Sought, list(absent))
        return found


def _group_of(options: ReadOptions) -> str:
    group = options.get("group", "")
    if group:
        check_name("group", group)
        if "start" in options:
            raise BadRequest("read() begins at start= or where group= stands, not both")
    return group


def from_replica(source: object) -> bool:
    """What `from_` says."""
    if source not in ("master", "replica"):
        raise BadRequest(f"from_ is {shown(source)}; it can be 'master' or 'replica'")
    return source == "replica"
