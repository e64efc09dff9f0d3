"""Questions and orders about topics, groups and servers; what the command line is made of.

Topics belong to meta, everything about groups and stored messages to the brokers: all broker groups
are asked (`everyone`), and their answers are put together or named by their broker group. A broker
group that does not answer makes a call fail after all others were asked; `tolerant()` gives an
admin that goes on with those that answer, and says in `missing` whose part is not there. A sequence
belongs to one broker group: where there are several, `broker_group` says which one is meant.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, Unpack

import msgspec

from ternmq.client.admin.broker_members import BrokerMembers, BrokerState
from ternmq.client.admin.delays import Delays
from ternmq.client.admin.drain import DrainProgress, look, look_delay
from ternmq.client.admin.merge_answers import ResetDone, merged_group, reset_done
from ternmq.client.admin.replay import Replay, ReplayProgress, run_replay
from ternmq.client.admin.settings import change_of, checked
from ternmq.client.model.start import make_start
from ternmq.client.transactions.half_sender import HalfWanted, half_id, make_half_find
from ternmq.client.transport.cluster import Cluster
from ternmq.client.transport.fan_out import FanOut, Missing, named, not_answered
from ternmq.core.errors import BadRequest, TopicNotFound, TransactionNotFound
from ternmq.discovery.hidden_topics import DEAD_PREFIX, REFUSED_PREFIX, plain_name
from ternmq.wire.messages.dead_letters import (
    DeadDone,
    DeadFind,
    DeadHandle,
    DeadOpen,
    RefusedFind,
    RefusedHandle,
)
from ternmq.wire.messages.groups import (
    Group,
    GroupCreate,
    GroupFind,
    GroupNamed,
    GroupReset,
    GroupResetDone,
    Groups,
    GroupSet,
    HalfLine,
    Ledger,
    LedgerLine,
    Start,
)
from ternmq.wire.messages.hello import Empty
from ternmq.wire.messages.limits import AppLimit, AppLimits, ConsumerPause, LimitSet, TopicSet
from ternmq.wire.messages.order_keys import (
    GroupKeys,
    KeyResume,
    KeyResumed,
    PlaceChange,
    Placed,
    Placement,
)
from ternmq.wire.messages.read import GroupRetried, GroupRetry, Seek, Sought
from ternmq.wire.messages.servers import Route
from ternmq.wire.messages.standings import BrokerGroupDrain, BrokerGroupKind, HandedOver, Standing
from ternmq.wire.messages.stats import (
    AllGroupFigures,
    AllTopicFigures,
    GroupFigures,
    Status,
    StatusQuery,
    TopicFigures,
    TopicFiguresFind,
)
from ternmq.wire.messages.topics import (
    Topic,
    TopicCreate,
    TopicFind,
    TopicNamed,
    Topics,
    TopicSettings,
)
from ternmq.wire.messages.transactions import HalfEnd, HalfEnded, HalfFind, HalfOpens
from ternmq.wire.numbers import Command
from ternmq.wire.record import Record, T

Ranges = list[tuple[int, int]]
TOPICS_PAGE = 5_000  # In one answer; a page fits a frame.


def topic_missing(topic: str, error: TopicNotFound) -> TopicNotFound:
    """What to say: nobody can create a hidden topic."""
    if topic.startswith(DEAD_PREFIX):
        return TopicNotFound(f"group {plain_name(topic)!r} has no dead letters")
    if topic.startswith(REFUSED_PREFIX):
        return TopicNotFound(f"nothing of topic {plain_name(topic)!r} was put aside")
    return error


def sessions_of(group: Group, prefix: str) -> set[str]:
    """Consumers of a group, also paused ones that are away, whose session begins so."""
    known = {member.session for member in group.members} | set(group.settings.paused_sessions)
    return {session for session in known if prefix and session.startswith(prefix.lower())}


class Admin:
    """`mq.admin`."""

    def __init__(self, links: Cluster, missing: Missing | None = None) -> None:
        self._links = links
        self._everyone = FanOut(links, missing)

    def tolerant(self) -> "Admin":
        """The same calls, with the answers of those broker groups that answer; see `missing`."""
        return Admin(self._links, {})

    @property
    def missing(self) -> Missing:
        """Of `tolerant()`: broker groups whose part is missing in what was answered, and why."""
        return self._everyone.missing or {}

    async def broker_groups(self) -> list[str]:
        """All broker groups that hold messages, also those that are away."""
        return await self._everyone.groups()

    async def create_topic(self, name: str, settings: TopicSettings | None = None) -> Topic:
        """Make a topic; the one that is there already is returned as it is."""
        create = TopicCreate(name=name, settings=checked(settings or TopicSettings()))
        return await self._links.ask_meta(Command.TOPIC_CREATE, create, Topic)

    async def topics(self, prefix: str = "") -> list[Topic]:
        """All topics, by name, or those whose name begins with `prefix`."""
        found: list[Topic] = []
        while True:
            after = found[-1].name if found else ""
            find = TopicFind(prefix=prefix, after=after, limit=TOPICS_PAGE)
            page = await self._links.ask_meta(Command.TOPIC_LIST, find, Topics)
            found += page.topics
            if len(page.topics) < TOPICS_PAGE:
                return found

    async def topic(self, name: str) -> Topic:
        """One topic; `TopicNotFound` if there is none of that name."""
        for topic in await self.topics(prefix=name):
            if topic.name == name:
                return topic
        raise TopicNotFound(f"there is no topic {name!r}; 'tern topic list' shows what there is")

    async def set_topic(self, name: str, **changes: Any) -> Topic:
        """Change settings: rate, bytes_rate, over_limit, paused, consume_paused, closed, apps,
        body_size_max, keep_ms, broker_groups, on_groups. A rate of 0 is no limit."""
        wanted = change_of(TopicSet, changes, name=name)
        return await self._links.ask_meta(Command.TOPIC_SET, wanted, Topic)

    async def placement(self) -> Placement:
        """Which broker group has which order-key slots, and the weights of broker groups."""
        return await self._place(PlaceChange())

    async def move_slots(
        self, group: str, slots: Sequence[int], *, force: bool = False
    ) -> Placement:
        """Give order-key slots to a broker group; the servers finish what this begins."""
        return await self._place(
            PlaceChange(action="move", broker_group=group, slots=list(slots), force=force)
        )

    async def balance_slots(self, *, leaving: Sequence[str] = ()) -> Placement:
        """Share all slots out by weight; the broker groups `leaving` shall have none."""
        return await self._place(PlaceChange(action="balance", leaving=list(leaving)))

    async def release_slots(self, group: str) -> Placement:
        """Do not wait any more for rows of moved slots that are not settled on this group."""
        return await self._place(PlaceChange(action="release", broker_group=group))

    async def set_weight(self, group: str, weight: int) -> Placement:
        """How much a broker group takes of what is shared out by weight; 0: nothing new."""
        return await self._place(PlaceChange(action="weight", broker_group=group, weight=weight))

    async def _place(self, wanted: PlaceChange) -> Placement:
        return (await self._links.ask_meta(Command.PLACE, wanted, Placed)).placement

    async def set_limit(self, app: str, **changes: Any) -> AppLimit:
        """Limit an application on all topics together: rate, bytes_rate, consume_rate,
        consume_bytes_rate. 0 is no limit."""
        wanted = change_of(LimitSet, changes, app=app)
        return await self._links.ask_meta(Command.LIMIT_SET, wanted, AppLimit)

    async def limits(self) -> list[AppLimit]:
        """Applications that have a limit."""
        return (await self._links.ask_meta(Command.LIMIT_LIST, Empty(), AppLimits)).limits

    async def delete_topic(self, name: str) -> None:
        """Delete a topic with its messages and groups."""
        await self._links.ask_meta(Command.TOPIC_DELETE, TopicNamed(name=name), Record)

    async def groups(self, topic: str = "", group: str = "") -> list[Group]:
        """Groups, of one topic or of one name, or all; one entry for each broker group.
        `merged_groups` adds them up."""
        find = GroupFind(topic=topic, group=group)
        answers = await self._everyone.ask(Command.GROUP_LIST, find, Groups)
        return [named(name, found) for name, answer in answers.items() for found in answer.groups]

    async def create_group(
        self, topic: str, group: str, start: Start, broker_group: str = ""
    ) -> Group:
        """Make a group, on every broker group."""
        where = make_start(start)
        create = GroupCreate(topic=topic, group=group, start=where)
        if where.at != "sequence" and not broker_group:
            return await self._group_order(Command.GROUP_CREATE, create)
        # One sequence decides for its broker group; the others have the group from their beginning.
        chosen = await self._everyone.chosen(where, broker_group)
        return await self._group_order(Command.GROUP_CREATE, create, chosen)

    async def delete_group(self, topic: str, group: str) -> None:
        wanted = GroupNamed(topic=topic, group=group)
        await self._everyone.ask(Command.GROUP_DELETE, wanted, Record)

    async def set_group(self, topic: str, group: str, **changes: Any) -> Group:
        """Change settings: retry, attempts_max, ordered_attempts_max, paused, rate, bytes_rate,
        in_flight_max, consumer_in_flight_max, backlog_alarm, dead_letter_keep_ms, on_failure,
        priority. 0 is no limit. Rates and limits are those of each broker group.
        """
        wanted = change_of(GroupSet, changes, topic=topic, group=group)
        await self._make_everywhere(topic, group)
        return await self._group_order(Command.GROUP_SET, wanted)

    async def group_keys(self, topic: str, group: str) -> GroupKeys:
        """Order keys that stand still, and whether a failing key holds back the whole group."""
        wanted = GroupNamed(topic=topic, group=group)
        answers = list((await self._everyone.ask(Command.GROUP_KEYS, wanted, GroupKeys)).values())
        fullest = max(answers, key=lambda answer: answer.full_rows, default=GroupKeys(stopped=[]))
        return GroupKeys(
            stopped=[key for answer in answers for key in answer.stopped],
            stopped_count=sum(answer.stopped_count for answer in answers),
            full_since_ms=fullest.full_since_ms,
            full_key=fullest.full_key,
            full_rows=fullest.full_rows,
        )

    async def resume_key(
        self, topic: str, group: str, key: str | None = None, skip: bool = False
    ) -> int:
        """Let an order key that stands still go on (None: all of them): its message is tried again,
        or with `skip` becomes a dead letter. Returns how many messages that concerned."""
        wanted = KeyResume(topic=topic, group=group, key=key, skip=skip)
        answers = await self._everyone.ask(Command.KEY_RESUME, wanted, KeyResumed)
        return sum(answer.rows for answer in answers.values())

    async def pause_consumer(
        self, topic: str, group: str, session: str, paused: bool = True
    ) -> Group:
        """Hand nothing out to one consumer, or go on; `session` as in `Group.members`."""
        found = await self.groups(topic, group)
        known = {each.broker_group: sessions_of(each, session) for each in found}
        whole = {one for sessions in known.values() for one in sessions}
        if found and len(whole) != 1:
            raise BadRequest(
                f"{len(whole)} consumers have a session that begins with {session!r}; "
                "'tern group show' lists them"
            )
        wanted = ConsumerPause(topic=topic, group=group, session=session, paused=paused)
        chosen = [name for name, sessions in known.items() if sessions] or None
        return await self._group_order(Command.CONSUMER_PAUSE, wanted, chosen)

    async def expired_dead_letters(self, group: str) -> int:
        """How many went because their time was over before anybody handled them."""
        answers = await self._everyone.ask(Command.DEAD_OPEN, DeadFind(group=group), DeadOpen)
        return sum(answer.expired for answer in answers.values())

    async def open_dead_letters(self, group: str, broker_group: str = "") -> Ranges:
        """Sequences in the topic `%dead.GROUP` that nobody handled yet."""
        found = await self._one(Command.DEAD_OPEN, DeadFind(group=group), DeadOpen, broker_group)
        return found.ranges

    async def resend_dead_letters(
        self, group: str, ranges: Ranges, broker_group: str = ""
    ) -> DeadDone:
        """Send dead letters again, to this group alone, as new at attempt 1."""
        wanted = DeadHandle(group=group, ranges=ranges)
        return await self._one(Command.DEAD_RESEND, wanted, DeadDone, broker_group)

    async def delete_dead_letters(
        self, group: str, ranges: Ranges, broker_group: str = ""
    ) -> DeadDone:
        """Let dead letters go."""
        wanted = DeadHandle(group=group, ranges=ranges)
        return await self._one(Command.DEAD_DELETE, wanted, DeadDone, broker_group)

    async def open_refused(self, topic: str, broker_group: str = "") -> Ranges:
        """Sequences in the topic `%refused.TOPIC` (over the limit, put aside) nobody handled."""
        wanted = RefusedFind(topic=topic)
        return (await self._one(Command.REFUSED_OPEN, wanted, DeadOpen, broker_group)).ranges

    async def resend_refused(self, topic: str, ranges: Ranges, broker_group: str = "") -> DeadDone:
        """Put messages that were over the limit into their topic, for every group."""
        wanted = RefusedHandle(topic=topic, ranges=ranges)
        return await self._one(Command.REFUSED_RESEND, wanted, DeadDone, broker_group)

    async def delete_refused(self, topic: str, ranges: Ranges, broker_group: str = "") -> DeadDone:
        """Let messages that were over the limit go."""
        wanted = RefusedHandle(topic=topic, ranges=ranges)
        return await self._one(Command.REFUSED_DELETE, wanted, DeadDone, broker_group)

    async def topic_figures(self, topic: str) -> list[TopicFigures]:
        """Rates, refusals and what was put aside, of each broker group."""
        find = TopicFiguresFind(topics=[topic])
        answers = await self._everyone.ask(Command.TOPIC_FIGURES, find, AllTopicFigures)
        return [named(name, each) for name, answer in answers.items() for each in answer.topics]

    async def group_figures(self, topic: str = "", group: str = "") -> list[GroupFigures]:
        """Backlog in messages and time, rates and alarm, of each lane on each broker group."""
        find = GroupFind(topic=topic, group=group)
        answers = await self._everyone.ask(Command.GROUP_FIGURES, find, AllGroupFigures)
        return [named(name, each) for name, answer in answers.items() for each in answer.groups]

    async def reset_group(
        self, topic: str, group: str, start: Start, dry_run: bool = False, broker_group: str = ""
    ) -> ResetDone:
        """Let a group go on from another place; says how many come again and how many never."""
        where = make_start(start)
        reset = GroupReset(topic=topic, group=group, start=where, dry_run=dry_run)
        chosen = await self._everyone.chosen(where, broker_group)
        return reset_done(
            await self._everyone.ask(Command.GROUP_RESET, reset, GroupResetDone, chosen)
        )

    async def retry_group(self, topic: str, group: str, dry_run: bool = False) -> int:
        """What waits for a retry is ready at once, as attempt 1; returns how many messages."""
        wanted = GroupRetry(topic=topic, group=group, dry_run=dry_run)
        answers = await self._everyone.ask(Command.GROUP_RETRY, wanted, GroupRetried)
        return sum(answer.rows for answer in answers.values())

    async def replay(
        self, wanted: Replay, told: Callable[[ReplayProgress], None] = lambda _: None
    ) -> ReplayProgress:
        """Copy messages into one group's private lane; `told` hears of every step."""
        await self._make_everywhere(wanted.topic, wanted.into)
        return await run_replay(self._links, wanted, told)

    async def ledger(self, topic: str = "", group: str = "") -> list[LedgerLine]:
        """Where every message is, as the groups see it: a line for each lane on each broker group.
        `merged_lines` adds them up."""
        find = GroupFind(topic=topic, group=group)
        answers = await self._everyone.ask(Command.LEDGER, find, Ledger)
        return [named(name, line) for name, answer in answers.items() for line in answer.lines]

    async def half_lines(self, topic: str = "") -> list[HalfLine]:
        """Per topic, how many messages are in transactions that have not ended."""
        answers = await self._everyone.ask(Command.LEDGER, GroupFind(topic=topic), Ledger)
        return [named(name, line) for name, answer in answers.items() for line in answer.halves]

    async def halves(self, **wanted: Unpack[HalfWanted]) -> HalfOpens:
        """Open transactions, by transaction, name, app, dropped_only, limit; of all brokers."""
        find = make_half_find(wanted)
        answers = await self._everyone.ask(Command.HALF_LIST, find, HalfOpens)
        found = [named(name, one) for name, each in answers.items() for one in each.transactions]
        found.sort(key=lambda one: one.opened_at_ms)
        return HalfOpens(
            transactions=found[: find.limit],
            total=sum(answer.total for answer in answers.values()),
            dropped=sum(answer.dropped for answer in answers.values()),
        )

    async def end_half(self, transaction: str, action: Literal["commit", "rollback"]) -> HalfEnded:
        """Commit or roll back a transaction by hand, by its id, wherever it is."""
        end = HalfEnd(transaction=half_id(transaction), action=action, source="operator")
        groups = await self._everyone.groups()
        if len(groups) > 1:  # One with order keys may have a part on several.
            opens = await self._everyone.ask(
                Command.HALF_LIST, HalfFind(transaction=end.transaction, limit=1), HalfOpens
            )
            groups = [group for group, found in opens.items() if found.total]
        if len(groups) > 1:
            answers = await self._everyone.ask(Command.HALF_END, end, HalfEnded, groups)
            placed = [place for answer in answers.values() for place in answer.placed]
            return msgspec.structs.replace(next(iter(answers.values())), placed=placed)
        return await self._everyone.first(Command.HALF_END, end, HalfEnded, TransactionNotFound)

    async def seek(self, topic: str, start: Start, broker_group: str = "") -> Sought:
        """Which sequence a start means now, and the bounds of the topic on one broker group."""
        group = await self._everyone.only("a position", broker_group)
        return (await self._seek(topic, start, [group]))[group]

    async def seek_all(self, topic: str, start: Start) -> dict[str, Sought]:
        """The same on every broker group, by its name."""
        return await self._seek(topic, start, await self._everyone.chosen(make_start(start)))

    async def _seek(self, topic: str, start: Start, groups: list[str]) -> dict[str, Sought]:
        seek = Seek(topic=topic, start=make_start(start))
        try:
            return await self._everyone.ask(Command.SEEK, seek, Sought, groups)
        except TopicNotFound as error:
            raise topic_missing(topic, error) from None

    async def broker_status(self, topics: Sequence[str] = ()) -> list[Status]:
        """What every broker says about itself, and holds of these topics."""
        query = StatusQuery(topics=list(topics))
        return list((await self._everyone.ask(Command.STATUS, query, Status)).values())

    @property
    def delays(self) -> Delays:
        """Messages that are not due yet."""
        return Delays(self._links)

    async def meta_status(self) -> Status:
        return await self._links.ask_meta(Command.STATUS, StatusQuery(), Status)

    async def brokers(self, kind: BrokerGroupKind = "realtime") -> list[BrokerState]:
        """Every server of every broker group, running or not, with what it says; with kind "delay"
        the same of delay servers."""
        return await BrokerMembers(self._links).states(kind)

    async def standings(self) -> list[Standing]:
        """How broker groups and groups of delay servers stand: members, master, in-sync set."""
        return await BrokerMembers(self._links).standings()

    async def promote(
        self,
        group: str,
        member: str | None = None,
        force: bool = False,
        accept_loss: bool = False,
        kind: BrokerGroupKind = "realtime",
    ) -> Standing:
        """Make a member of a broker group (of a delay server: kind "delay") its master, and wait
        until it serves; None: one that is in sync. `force`: although the master may be alive; it
        stops acknowledging. `accept_loss`: although the member is not in sync; what it lacks of
        acknowledged messages is lost."""
        return await BrokerMembers(self._links).promote(
            group, member, force=force, accept_loss=accept_loss, kind=kind
        )

    async def handover(
        self, group: str, member: str | None = None, kind: BrokerGroupKind = "realtime"
    ) -> HandedOver:
        """Let another in-sync member lead; nothing is lost, sending pauses for a moment."""
        return await BrokerMembers(self._links).hand_over(group, member, kind=kind)

    async def forget_member(
        self, group: str, member: str, accept_loss: bool = False, kind: BrokerGroupKind = "realtime"
    ) -> Standing:
        """A member of a broker group is gone for good. `accept_loss`: although it is the last one
        in sync, so that the group's messages are gone with it."""
        return await BrokerMembers(self._links).forget(
            group, member, accept_loss=accept_loss, kind=kind
        )

    async def drain(
        self, broker_group: str, undo: bool = False, kind: BrokerGroupKind = "realtime"
    ) -> DrainProgress:
        """Let producers move away from a broker group (a delay server: kind "delay"), for good or
        until `undo`; what is there is still handed out. `drain_progress` says when it is safe to
        stop."""
        wanted = BrokerGroupDrain(broker_group=broker_group, kind=kind, draining=not undo)
        await self._links.ask_meta(Command.BROKER_GROUP_DRAIN, wanted, Standing)
        if kind == "realtime" and not undo and (await self.placement()).owners:
            await self.balance_slots(leaving=[broker_group])
        return await self.drain_progress(broker_group, kind)

    async def drain_progress(
        self, broker_group: str, kind: BrokerGroupKind = "realtime"
    ) -> DrainProgress:
        """What a broker group still holds that somebody waits for."""
        return await (look_delay if kind == "delay" else look)(self._links, broker_group)

    async def routes(self) -> list[Route]:
        """Which servers clients are told to use; asked anew."""
        await self._links.refresh()
        return self._links.routes()

    async def _one(self, command: Command, record: Record, answer: type[T], broker_group: str) -> T:
        """From the broker group that was named, or the only one."""
        group = await self._everyone.only("a position", broker_group)
        return (await self._everyone.ask(command, record, answer, [group]))[group]

    async def _group_order(
        self, command: Command, record: Record, groups: list[str] | None = None
    ) -> Group:
        """An order about a group, to all; what it is like then, everywhere together."""
        answers = await self._everyone.ask(command, record, Group, groups)
        if not answers:
            raise not_answered(self.missing, [])
        return merged_group([named(name, group) for name, group in answers.items()])

    async def _make_everywhere(self, topic: str, group: str) -> None:
        """A broker group that was added later has the group too, with these settings, before a
        consumer brings it there; it misses nothing."""
        find = GroupNamed(topic=topic, group=group)
        found, absent = await self._everyone.try_all(Command.GROUP_KEYS, find, GroupKeys)
        if found and absent:
            create = GroupCreate(topic=topic, group=group)
            await self._everyone.ask(Command.GROUP_CREATE, create, Group, sorted(absent))
