"""What operators ask and decide: groups, resets, the ledger, the state of the broker.

Decisions (make, delete, reset a group) are answered when they are as safe as a publish.
"""

import msgspec

from ternmq.broker.delivery.consumers import Consumers
from ternmq.broker.delivery.pull import PullHandler
from ternmq.broker.delivery.seek import resolve
from ternmq.broker.groups.consumer_group import ConsumerGroup
from ternmq.broker.groups.groups import ConsumerGroups
from ternmq.broker.groups.key_order import KeyOrder
from ternmq.broker.limits.slices import Slices
from ternmq.broker.log.commit import Committer
from ternmq.broker.topics import TopicNames
from ternmq.core.errors import AlreadyExists, BadRequest, GroupNotFound, TernError
from ternmq.core.ids import check_name
from ternmq.core.log import get_logger
from ternmq.core.retry import ATTEMPTS_MAX, check_policy
from ternmq.discovery.directory import Directory
from ternmq.discovery.hidden_topics import RESERVED, lane_topic
from ternmq.rpc.address import join_address
from ternmq.rpc.peer import Peer
from ternmq.storage.consume.consume_log import ConsumeLog
from ternmq.wire.messages.groups import (
    ConsumerInfo,
    Group,
    GroupCreate,
    GroupFind,
    GroupNamed,
    GroupReset,
    GroupResetDone,
    Groups,
    GroupSet,
    GroupSettings,
    HalfLine,
    Ledger,
)
from ternmq.wire.messages.hello import Empty, Notice
from ternmq.wire.messages.limits import ConsumerPause
from ternmq.wire.messages.read import GroupRetried, GroupRetry
from ternmq.wire.messages.stats import TopicStatus
from ternmq.wire.messages.topics import Topic, asked_once
from ternmq.wire.numbers import Command
from ternmq.wire.record import pack

log = get_logger()

LEASES_ENDED = pack(Notice(kind="leases", text="the group was reset"))
PAUSED_SESSIONS_MAX = 1_000
"""Consumers of a group that are paused one by one; beyond, the oldest pause is forgotten."""
LIMITS = ("rate", "bytes_rate", "in_flight_max", "consumer_in_flight_max", "backlog_alarm")
LIMIT_MAX = 10**12
SLICE = 20
"""Groups described in one turn of the loop."""
GROUPS_LISTED_MAX = 1_000
"""In one page."""


class AdminCommands:
    """Group commands, LEDGER and SEEK."""

    def __init__(
        self,
        *,
        groups: ConsumerGroups,
        topics: TopicNames,
        consumers: Consumers,
        directory: Directory,
        consume: ConsumeLog,
        committer: Committer,
        pull_handler: PullHandler,
    ) -> None:
        self._slices = Slices(SLICE)
        self._groups = groups
        self._topics = topics
        self._consumers = consumers
        self._directory = directory
        self._consume = consume
        self._committer = committer
        self._pull_handler = pull_handler

    async def groups(self, request: GroupFind) -> Groups:
        found, following = self._find(request)
        return Groups(groups=await self._slices.make(found, describe), following=following)

    async def ledger(self, request: GroupFind, halves: list[HalfLine]) -> Ledger:
        """`halves` is what is in transactions that have not ended."""
        found, following = self._find(request)
        return Ledger(
            lines=await self._slices.make(found, ConsumerGroup.ledger),
            halves=[
                one
                for one in halves
                if not request.group and not request.after and request.topic in ("", one.topic)
            ],
            following=following,
        )

    def _find(self, request: GroupFind) -> tuple[list[ConsumerGroup], str]:
        return group_page(self._groups, self._topics, request)

    async def create(self, peer: Peer, request: GroupCreate) -> Group:
        check_name("group", request.group)
        topic = await self._topics.get_or_create(request.topic, peer)
        group, new = await self._consumers.make_group(topic, request.group, request.start, peer)
        if not new:
            raise AlreadyExists(
                f"group {request.group!r} is on topic {request.topic!r} already; "
                f"move it with 'tern group reset', or delete it first"
            )
        return describe(group)

    async def delete(self, request: GroupNamed) -> Empty:
        topic = self._topics.get(request.topic)
        group = self._groups.get(topic.id, topic.name, request.group)
        group.deleted = True  # From now on no snapshot of it is written behind its death.
        try:
            await self._committer.decide([self._groups.death_record(group)])
        except TernError:
            group.deleted = False
            raise
        self._drop(group)
        try:
            await self._forget_lane(topic.id, group.name)
            await self._directory.forget_group(topic.id, group.name)
        except TernError as error:  # It is deleted all the same: the pull log decides.
            log.warning("registry keeps a deleted group", group=group.name, reason=error.message)
        return Empty()

    async def reset(self, request: GroupReset) -> GroupResetDone:
        """Go on from elsewhere; consumers that are there see it with their next pull."""
        topic = self._topics.get(request.topic)
        group = self._groups.get(topic.id, topic.name, request.group)
        target = await resolve(self._consume, topic.id, request.start)
        lane = group.lane
        settled_beyond = sum(b - a for a, b in lane.done.overlap(target, max(target, lane.next)))
        first = min(lane.start, target)
        unsettled_below = target - first - sum(b - a for a, b in lane.done.overlap(first, target))
        done = GroupResetDone(
            from_sequence=min(lane.done.first_gap(lane.start), lane.end),
            to_sequence=target,
            again=settled_beyond,
            skipped=max(0, unsettled_below) if target > lane.start else 0,
        )
        if not request.dry_run:
            await self._reset(group, target)
        return done

    async def _reset(self, group: ConsumerGroup, target: int) -> None:
        """In force at once, so that later steps lie behind it in the log; undone if not safe."""
        before = self._groups.snapshot_record(group)
        change = group.lane.reset(target)
        if group.order is not None:
            group.order = KeyOrder(group.lane)
        try:
            await self._committer.decide([self._groups.to_record(group, change)])
        except TernError:
            self._groups.restore(group, before)
            raise
        finally:
            for peer in {consumer.peer for consumer in group.consumers.values()}:
                peer.push(Command.NOTICE, LEASES_ENDED)
            self._pull_handler.feed(group)

    async def retry_now(self, request: GroupRetry) -> GroupRetried:
        """What waits for a retry is ready, as attempt 1, in the topic's lane and the private one.

        If it cannot be made safe it happens all the same, and a restart waits again."""
        topic = self._topics.get(request.topic)
        both = both_lanes(self._groups, self._topics, topic, request.group)
        rows = sum(group.lane.waiting.count for group in both)
        if request.dry_run or not rows:
            return GroupRetried(rows=rows)
        records = []
        for group in both:
            changes = group.lane.wait_no_more()
            records += [self._groups.to_record(group, change) for change in changes]
            if group.order is not None:
                group.order.apply(changes, group.lane)
        safe = self._committer.decide(records)
        for group in both:
            self._pull_handler.feed(group)
        await safe
        return GroupRetried(rows=rows)

    async def set(self, request: GroupSet) -> Group:
        """Change settings; what is in flight or waits is treated by the new ones at once (J13)."""
        topic = self._topics.get(request.topic)
        group = self._groups.get(topic.id, topic.name, request.group)
        changed = {
            name: value
            for name, value in msgspec.structs.asdict(request).items()
            if name not in ("topic", "group") and value is not None
        }
        return await self._put_settings(group, msgspec.structs.replace(group.settings, **changed))

    async def pause_consumer(self, request: ConsumerPause) -> Group:
        """Hand nothing out to one consumer, or go on; lasts as long as its session."""
        topic = self._topics.get(request.topic)
        group = self._groups.get(topic.id, topic.name, request.group)
        paused = group.settings.paused_sessions
        there = {consumer.session.hex() for consumer in group.consumers.values()}
        session = _one_session(request.session, there | set(paused))
        left = [one for one in paused if one != session]
        wanted = [*left, session] if request.paused else left
        settings = msgspec.structs.replace(
            group.settings, paused_sessions=wanted[-PAUSED_SESSIONS_MAX:]
        )
        return await self._put_settings(group, settings)

    async def _put_settings(self, group: ConsumerGroup, settings: GroupSettings) -> Group:
        check_settings(settings)
        wants_order = settings.order == "keys"
        if settings.order and group.consumers and wants_order != (group.order is not None):
            raise BadRequest(
                f"group {group.name!r} has consumers with ordered={not wants_order}: stop them "
                "first, then set its order"
            )
        if settings.priority and (wants_order or group.order is not None):
            raise BadRequest(
                f"group {group.name!r} has ordered consumers: order and priority exclude each other"
            )
        both = [group, *self._lanes_of(group)]
        await self._committer.decide([self._groups.settings_record(g, settings) for g in both])
        for each in both:
            each.settings = settings
            each.lane.reschedule(each.retry_rule())
            self._groups.schedule(each)
            self._pull_handler.feed(each)
        return describe(group)

    def topic_changed(self, topic: Topic) -> None:
        """Settings of a topic changed: its groups go on or stop."""
        for group in list(self._groups.of_topic(topic.id)):
            for each in (group, *self._lanes_of(group)):
                each.halt(topic.settings.consume_paused)
                self._pull_handler.feed(each)

    def _lanes_of(self, group: ConsumerGroup) -> list[ConsumerGroup]:
        lane = self._topics.find(lane_topic(group.topic_id, group.name))
        return list(self._groups.of_topic(lane.id)) if lane is not None else []

    async def _forget_lane(self, topic_id: int, group: str) -> None:
        """A private lane goes with its group: made again, it must not find the old one's rows."""
        lane = self._topics.find(lane_topic(topic_id, group))
        if lane is not None:
            await self._directory.delete_topic(lane.name)

    async def topic_deleted(self, topic: Topic) -> None:
        """Nothing of a deleted topic comes back: its groups go with it."""
        groups = list(self._groups.of_topic(topic.id))
        for group in groups:
            self._drop(group)
        self._consume.forget(topic.id)
        for group in groups:
            await self._forget_lane(topic.id, group.name)
        if groups:
            await self._committer.decide([self._groups.death_record(group) for group in groups])

    def topic_status(self, names: list[str]) -> list[TopicStatus]:
        found: list[TopicStatus] = []
        for name in asked_once(names):
            topic = self._topics.get(name)
            first, end = self._consume.bounds(topic.id)
            groups = sum(1 for _ in self._groups.of_topic(topic.id))
            found.append(TopicStatus(topic=name, id=topic.id, first=first, end=end, groups=groups))
        return found

    def _drop(self, group: ConsumerGroup) -> None:
        self._groups.remove(group)
        error = GroupNotFound(f"group {group.name!r} of topic {group.topic!r} was deleted")
        self._pull_handler.refuse(group, error)


def group_page(
    groups: ConsumerGroups, topics: TopicNames, request: GroupFind
) -> tuple[list[ConsumerGroup], str]:
    """The groups that are asked for: all of them by name; or a page of them in the order of their
    topics' numbers, and after what to ask for the next one."""
    if not request.limit:
        found = find_groups(groups, topics, request.topic, request.group)
        return sorted(found, key=lambda item: (item.topic, item.name)), ""
    if not 0 < request.limit <= GROUPS_LISTED_MAX:
        raise BadRequest(f"limit is {request.limit}; it can be 1 to {GROUPS_LISTED_MAX}")
    after = _read_cursor(request.after)
    if request.topic or request.group:
        found = find_groups(groups, topics, request.topic, request.group)
    else:
        found = _next_groups(groups, after, request.limit)
    found = sorted(
        (item for item in found if _place(item) > after),
        key=_place,
    )
    page = found[: request.limit]
    more = len(found) > len(page)
    return page, f"{page[-1].topic_id} {page[-1].name}" if more else ""


def _place(group: ConsumerGroup) -> tuple[int, str]:
    return group.topic_id, group.name


def _next_groups(
    groups: ConsumerGroups, after: tuple[int, str], wanted: int
) -> list[ConsumerGroup]:
    """Groups of whole topics: more than are wanted, or all that are left."""
    found: list[ConsumerGroup] = []
    for number in sorted(each for each in groups.by_topic if each >= after[0]):
        found += [
            each
            for each in groups.of_topic(number)
            if _place(each) > after and not each.name.startswith(RESERVED)
        ]
        if len(found) > wanted:
            break
    return found


def _read_cursor(text: str) -> tuple[int, str]:
    number, _, name = text.partition(" ")
    if not text:
        return -1, ""
    if not (number.isascii() and number.isdigit() and len(number) < 20):
        raise BadRequest("`after` is what `following` of the page before said")
    return int(number), name


def find_groups(
    groups: ConsumerGroups, topics: TopicNames, topic: str, group: str
) -> list[ConsumerGroup]:
    """Groups by name; empty means any. A topic that is named must exist."""
    if topic:
        topic_id = topics.get(topic).id
        found = list(groups.of_topic(topic_id))
        lanes = [topics.find(lane_topic(topic_id, item.name)) for item in found]
        found += [g for lane in lanes if lane for g in groups.of_topic(lane.id)]
    else:  # Without what is ours alone: the group that stands for handled dead letters.
        found = [item for item in groups if not item.name.startswith(RESERVED)]
    if group:
        found = [item for item in found if item.name == group]
        if not found:
            where = f"topic {topic!r} has" if topic else "there is"
            raise GroupNotFound(
                f"{where} no group {group!r}; 'tern group list' shows what is there"
            )
    return found


def both_lanes(
    groups: ConsumerGroups, topics: TopicNames, topic: Topic, group: str
) -> list[ConsumerGroup]:
    """A group on its topic, and on its private lane if it has one."""
    found = [groups.get(topic.id, topic.name, group)]
    lane = topics.find(lane_topic(topic.id, group))
    return [*found, *groups.of_topic(lane.id)] if lane is not None else found


def _one_session(prefix: str, known: set[str]) -> str:
    found = [session for session in known if prefix and session.startswith(prefix.lower())]
    if len(found) != 1:
        raise BadRequest(
            f"{len(found)} consumers have a session that begins with {prefix!r}; "
            "'tern group show' lists them"
        )
    return found[0]


def check_settings(settings: GroupSettings) -> GroupSettings:
    check_policy(settings.retry)
    if settings.on_failure not in ("retry", "stop"):
        raise BadRequest(f"on_failure is {settings.on_failure!r}; it is 'retry' or 'stop'")
    if settings.order not in ("", "keys", "none"):
        raise BadRequest(f"order is {settings.order!r}; it is 'keys', 'none' or empty (either)")
    for name in LIMITS:
        if not 0 <= getattr(settings, name) <= LIMIT_MAX:
            raise BadRequest(f"{name} must be 0 (no limit) to {LIMIT_MAX}")
    for name in ("attempts_max", "ordered_attempts_max"):
        if not 0 <= getattr(settings, name) <= ATTEMPTS_MAX:
            raise BadRequest(f"{name} must be 0 (no limit) to {ATTEMPTS_MAX}")
    if not -1 <= settings.dead_letter_keep_ms < 2**62:
        raise BadRequest("dead_letter_keep_ms must be -1 (what the broker says) or more")
    return settings


def describe(group: ConsumerGroup) -> Group:
    """A group as people see it."""
    held: dict[int, int] = {}
    for lease in group.lane.leases.values():
        held[lease.owner] = held.get(lease.owner, 0) + lease.rows.count
    consumers = []
    for consumer in group.consumers.values():
        hello = consumer.peer.hello
        consumers.append(
            ConsumerInfo(
                session=consumer.session.hex(),
                app=hello.app if hello else "",
                host=hello.host if hello else "",
                pid=hello.pid if hello else 0,
                address=join_address(*consumer.peer.address),
                in_flight=held.get(consumer.id, 0),
                joined_at_ms=consumer.joined_at_ms,
            )
        )
    return Group(
        id=group.id,
        name=group.name,
        topic=group.beside or group.topic,
        created_at_ms=group.created_at_ms,
        ledger=group.ledger(),
        members=consumers,
        settings=group.settings,
        filter=group.filter.text if group.filter else "",
        ordered=group.order is not None,
    )
