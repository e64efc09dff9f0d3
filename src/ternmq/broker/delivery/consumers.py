"""JOIN, RENEW and LEAVE: consumers of groups, and what a lost connection means for their rows.

A consumer that leaves gives its rows back at once. One whose connection is lost keeps them for a
grace period: if it comes back in time it presents its leases and goes on, else the rows go to
others. A group is made by its first consumer; where it starts is safe on disk before that consumer
is answered (Q4, D9).
"""

import asyncio
from collections.abc import AsyncIterator, Sized
from contextlib import asynccontextmanager
from dataclasses import dataclass

import msgspec

from ternmq.batch.selector.filter import Filter, filter_text, parse_filter
from ternmq.broker.delivery.pull import PullHandler
from ternmq.broker.delivery.seek import resolve
from ternmq.broker.groups.consumer_group import ClientState, ConsumerGroup, ConsumerSession
from ternmq.broker.groups.groups import LEASE_GROUP_MASK, ConsumerGroups
from ternmq.broker.groups.key_order import KeyOrder
from ternmq.broker.groups.lane import Lane
from ternmq.broker.log.commit import Committer
from ternmq.broker.topics import TopicNames
from ternmq.core.errors import BadRequest, FilterConflict, GroupNotFound, OverLimit, TopicNotFound
from ternmq.core.ids import check_name
from ternmq.core.log import get_logger
from ternmq.core.retry import ATTEMPTS_MAX
from ternmq.discovery.directory import Directory
from ternmq.discovery.hidden_topics import lane_topic
from ternmq.rpc.peer import Peer
from ternmq.storage.consume.consume_log import ConsumeLog
from ternmq.wire.messages.groups import GroupSettings, Start
from ternmq.wire.messages.pull import Join, Joined, Renew, Renewed
from ternmq.wire.messages.topics import Topic

log = get_logger()

TOPICS_MAX = 1_000
LEASES_MAX = 100_000  # Named in one request.
CONSUMERS_MAX = 1_000  # Of one connection.


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTimes:
    """How long consumers keep rows."""

    lease_ms: int
    """Without a word of the consumer."""
    grace_ms: int
    """After its connection is lost."""


class Consumers:
    """The JOIN, RENEW and LEAVE commands."""

    def __init__(
        self,
        *,
        groups: ConsumerGroups,
        topics: TopicNames,
        directory: Directory,
        consume: ConsumeLog,
        committer: Committer,
        pull_handler: PullHandler,
        leases: LeaseTimes,
    ) -> None:
        self._groups = groups
        self._topics = topics
        self._directory = directory
        self._consume = consume
        self._committer = committer
        self._pull_handler = pull_handler
        self._leases = leases
        self._making: dict[tuple[int, str], asyncio.Lock] = {}
        self._clients: dict[Peer, ClientState] = {}
        """Connections with consumers, until they are lost."""

    async def join(self, peer: Peer, request: Join) -> Joined:
        """Take part in a group on one or several topics (R24)."""
        check_name("group", request.group)
        names = list(dict.fromkeys(request.topics))
        if not 0 < len(names) <= TOPICS_MAX:
            raise BadRequest(f"a consumer takes 1 to {TOPICS_MAX} topics, not {len(names)}")
        if request.attempts_max is not None and not 0 <= request.attempts_max <= ATTEMPTS_MAX:
            raise BadRequest(f"attempts_max must be 0 (no limit) to {ATTEMPTS_MAX}")
        if peer in self._clients and len(self._clients[peer].consumers) >= CONSUMERS_MAX:
            raise OverLimit(f"this client has {CONSUMERS_MAX} consumers already")
        topics = [await self._topics.get_or_create(name, peer) for name in names]
        for topic in topics:
            self._topics.check_app(topic, peer)
        wanted = parse_filter(request.tag, request.filter)
        made = [
            await self.make_group(topic, request.group, request.start, peer) for topic in topics
        ]
        for group, _ in made:
            agree(group, wanted, request.ordered)
        made += [
            await self._make_lane(topic, lane, request.group)
            for topic in topics
            if (lane := self._topics.find(lane_topic(topic.id, request.group))) is not None
        ]
        await self._bind_attempts([group for group, _ in made], request.attempts_max)
        for group, _ in made[: len(topics)]:  # Once more: others may have come meanwhile.
            if group.deleted:
                raise GroupNotFound(f"group {group.name!r} of {group.topic!r} was deleted")
            agree(group, wanted, request.ordered)
        session = peer.hello.session if peer.hello else bytes(16)
        client = self._clients.setdefault(peer, ClientState())
        consumer = ConsumerSession(
            self._groups.new_ticket(),
            peer,
            client,
            session,
            self._groups.now_ms(),
            groups=[group for group, _ in made],
            picks=request.picks,
            detached=request.detached,
        )
        check_leases(request.held)
        kept = self._take_part(consumer, request)
        client.consumers[consumer.id] = consumer
        if peer.closed:
            self.lost(peer)
        return Joined(
            subscription=consumer.id,
            topics=topics,
            new=[new for _, new in made[: len(topics)]],
            kept=kept,
            lease_ms=self._leases.lease_ms,
            detached=request.detached,
        )

    def _take_part(self, consumer: ConsumerSession, request: Join) -> list[int]:
        """The consumer is there for its groups; returns the leases that it still has."""
        session = consumer.session
        held: dict[int, list[int]] = {}
        for lease in request.held:
            held.setdefault(lease & LEASE_GROUP_MASK, []).append(lease)
        kept: list[int] = []
        deadline = self._groups.now() + self._leases.lease_ms
        for group in consumer.groups:
            group.consumers[consumer.id] = consumer
            if not request.ordered:  # Nobody has to wait for order's sake.
                group.lane.orphan(0, self._groups.now() + self._leases.grace_ms)
            adopt = group.lane.adopt
            mine = held.get(group.id & LEASE_GROUP_MASK, ())
            kept += [x for x in mine if adopt(x, session, consumer.id, deadline)]
            group.lane.came_back(session, self._groups.now() + self._leases.grace_ms)
            self._groups.schedule(group)
        return kept

    async def open_lane(self, topic: Topic, group: str) -> Topic:
        """The group's private lane beside a topic; consumers that are there take part at once."""
        lane = await self._topics.lane_of(topic, group)
        private, _ = await self._make_lane(topic, lane, group)
        public = self._groups.find(topic.id, group)
        if public is not None:
            for consumer in public.consumers.values():
                if consumer.id not in private.consumers:
                    private.consumers[consumer.id] = consumer
                    consumer.groups.append(private)
                    self._pull_handler.also(consumer, private)
        return lane

    async def _make_lane(self, topic: Topic, lane: Topic, name: str) -> tuple[ConsumerGroup, bool]:
        """Find or make the private lane beside a topic; it does as the group of the topic does."""
        private, new = await self.make_group(lane, name, Start(at="earliest"), beside=topic)
        public = self._groups.find(topic.id, name)
        if public is not None and private.follow(public):
            self._committer.progress(self._groups.settings_record(private, private.settings))
        return private, new

    async def _bind_attempts(self, groups: list[ConsumerGroup], attempts_max: int | None) -> None:
        """A limit that a starting consumer gives binds its whole group, private lanes too; the
        last one wins (R12)."""
        others = [each for each in groups if each.settings.attempts_max != attempts_max]
        if attempts_max is None or not others:
            return
        new = {
            group: msgspec.structs.replace(group.settings, attempts_max=attempts_max)
            for group in others
        }
        records = [self._groups.settings_record(group, settings) for group, settings in new.items()]
        await self._committer.decide(records)
        for group, settings in new.items():
            group.settings = settings

    async def make_group(
        self,
        topic: Topic,
        name: str,
        start: Start,
        peer: Peer | None = None,
        *,
        beside: Topic | None = None,
    ) -> tuple[ConsumerGroup, bool]:
        """Find the group, or make it, for the user of a client; a new one's start is safe before
        anybody hears of it. `beside`: it is a private lane of a group of that topic."""
        found = self._groups.find(topic.id, name)
        if found is not None:
            return found, False
        async with self._alone(topic.id, name):
            found = self._groups.find(topic.id, name)
            if found is not None:
                return found, False
            self._groups.check_room()
            user = self._groups.maker(None if peer is None else peer.use)
            group_id = await self._directory.group_id(topic.id, name)
            lane = Lane(await resolve(self._consume, topic.id, start))
            lane.grow(self._consume.bounds(topic.id)[1])
            settings = GroupSettings(made_by=user)
            now_ms = self._groups.now_ms()
            group = ConsumerGroup(
                group_id,
                name,
                topic.id,
                topic.name,
                now_ms,
                lane,
                beside="" if beside is None else beside.name,
                settings=settings,
            )
            births = [self._groups.birth_record(group)]
            if user:
                births.append(self._groups.settings_record(group, group.settings))
            await self._committer.decide(births)
            lane.grow(self._consume.bounds(topic.id)[1])
            current = self._topics.find(topic.name)
            if current is None or current.id != topic.id:
                self._committer.progress(self._groups.death_record(group))
                raise TopicNotFound(f"topic {topic.name!r} was deleted meanwhile")
            group.halt(current.settings.consume_paused)
            self._groups.add(group)
            log.info("group made", topic=topic.name, group=name, start=lane.start)
            return group, True

    @asynccontextmanager
    async def _alone(self, topic_id: int, name: str) -> AsyncIterator[None]:
        """One maker of a group at a time; the lock goes with the last one that waits for it."""
        lock = self._making.setdefault((topic_id, name), asyncio.Lock())
        try:
            async with lock:
                yield
        finally:
            if not lock.locked() and self._making.get((topic_id, name)) is lock:
                del self._making[topic_id, name]

    def renew(self, consumer: ConsumerSession, request: Renew) -> Renewed:
        """The consumer still works on these; answers which ones it has lost."""
        leases = request.leases
        deadline = self._groups.now() + self._leases.lease_ms
        check_leases(leases)
        check_leases(request.started)
        homes = {group.id & LEASE_GROUP_MASK: group for group in consumer.groups}
        lost: list[int] = []
        for lease in leases:
            group = homes.get(lease & LEASE_GROUP_MASK)
            if group is None or not group.lane.renew(lease, consumer.id, deadline):
                lost.append(lease)
        for lease, first, end in request.started:
            group = homes.get(lease & LEASE_GROUP_MASK)
            if group is not None and first < end:
                group.lane.start_rows(lease, first, end)
        return Renewed(lost=lost)

    def find(self, peer: Peer, subscription: int) -> ConsumerSession | None:
        """The consumer that a connection has under this number."""
        client = self._clients.get(peer)
        return None if client is None else client.consumers.get(subscription)

    def leave(self, consumer: ConsumerSession) -> None:
        """Everything un-acked is ready for others at once."""
        consumer.client.consumers.pop(consumer.id, None)
        self._pull_handler.forget(consumer)
        for group in consumer.groups:
            group.consumers.pop(consumer.id, None)
            self._end_pause(group, consumer)
            self._groups.write(group, group.lane.release(consumer.id))
            self._pull_handler.feed(group)

    def _end_pause(self, group: ConsumerGroup, consumer: ConsumerSession) -> None:
        """A pause of one consumer ends with its session."""
        left = [x for x in group.settings.paused_sessions if x != consumer.session.hex()]
        if len(left) < len(group.settings.paused_sessions):
            group.settings = msgspec.structs.replace(group.settings, paused_sessions=left)
            self._committer.progress(self._groups.settings_record(group, group.settings))

    def of(self, peer: Peer) -> list[ConsumerSession]:
        """The consumers of one connection."""
        client = self._clients.get(peer)
        return list(client.consumers.values()) if client is not None else []

    def lost(self, peer: Peer) -> None:
        """The connection is gone; its consumers have a grace period to come back."""
        client = self._clients.pop(peer, None)
        if client is None:
            return
        deadline = self._groups.now() + self._leases.grace_ms
        for consumer in client.consumers.values():
            self._pull_handler.forget(consumer)
            for group in consumer.groups:
                group.consumers.pop(consumer.id, None)
                group.lane.orphan(consumer.id, deadline)
                self._groups.schedule(group)
        client.consumers.clear()


def check_leases(leases: Sized) -> None:
    if len(leases) > LEASES_MAX:
        raise OverLimit(f"{len(leases)} leases at once; at most {LEASES_MAX}")


def agree(group: ConsumerGroup, wanted: Filter | None, ordered: bool) -> None:
    """All consumers of a group see the same messages in the same way."""
    setting = group.settings.order
    if setting and (setting == "keys") != ordered:
        raise FilterConflict(
            f"group {group.name!r} on {group.topic!r} is set to order {setting!r}; this consumer "
            f"wants ordered={ordered}: use ordered={not ordered}, or another group"
        )
    if group.consumers:
        if filter_text(group.filter) != filter_text(wanted):
            raise FilterConflict(
                f"group {group.name!r} on {group.topic!r} has consumers with "
                f"{filter_text(group.filter)}; this one wants {filter_text(wanted)}: "
                "use the same filter, or another group"
            )
        if (group.order is not None) != ordered:
            raise FilterConflict(
                f"group {group.name!r} on {group.topic!r} has consumers with "
                f"ordered={not ordered}; this one wants ordered={ordered}: use another group"
            )
        return
    if ordered and group.settings.priority:
        raise FilterConflict(
            f"group {group.name!r} on {group.topic!r} hands out by priority, which excludes order: "
            f"'tern group set {group.topic} {group.name} --priority off', or use another group"
        )
    if filter_text(group.filter) != filter_text(wanted):
        group.unsifted = group.lane.next
        group.ranks = None
    group.filter = wanted
    group.order = KeyOrder(group.lane) if ordered else None
