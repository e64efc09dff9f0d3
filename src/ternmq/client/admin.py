"""Questions and orders about topics, groups and servers; what the command line is made of.

Topics belong to meta, everything about groups and stored messages to the brokers: answers of
several broker groups are put together.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Literal, Unpack

from ternmq.client.delays import Delays
from ternmq.client.half import HalfWanted, half_id, make_half_find
from ternmq.client.links import Links
from ternmq.client.replay import Replay, ReplayProgress, run_replay
from ternmq.client.settings import change_of, checked
from ternmq.client.start import make_start
from ternmq.core.errors import TopicNotFound, TransactionNotFound, Unavailable
from ternmq.discovery.own_topics import REFUSED_PREFIX
from ternmq.wire.commands import (
    Command,
    DeadDone,
    DeadFind,
    DeadHandle,
    DeadOpen,
    Empty,
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
    Record,
    Route,
    Seek,
    Sought,
    Start,
    Status,
    StatusQuery,
    T,
    Topic,
    TopicCreate,
    TopicFind,
    TopicNamed,
    Topics,
    TopicSettings,
)
from ternmq.wire.figures import (
    AllGroupFigures,
    AllTopicFigures,
    GroupFigures,
    TopicFigures,
    TopicFiguresFind,
)
from ternmq.wire.halves import HalfEnd, HalfEnded, HalfOpens
from ternmq.wire.keys import GroupKeys, KeyResume, KeyResumed
from ternmq.wire.policies import AppLimit, AppLimits, LimitSet, MemberPause, TopicSet
from ternmq.wire.refused import RefusedFind, RefusedHandle
from ternmq.wire.replaying import GroupRetried, GroupRetry

DEAD_PREFIX = "%dead."  # A group's dead letters are a hidden topic that may be read.
TOPICS_PAGE = 5_000  # In one answer; a page fits a frame.


def topic_missing(topic: str, error: TopicNotFound) -> TopicNotFound:
    """What to say: nobody can create a hidden topic."""
    if topic.startswith(DEAD_PREFIX):
        return TopicNotFound(f"group {plain_name(topic)!r} has no dead letters")
    if topic.startswith(REFUSED_PREFIX):
        return TopicNotFound(f"nothing of topic {plain_name(topic)!r} was put aside")
    return error


def plain_name(topic: str) -> str:
    """The group or topic that a hidden topic is for; other names as they are."""
    return topic.removeprefix(DEAD_PREFIX).removeprefix(REFUSED_PREFIX)


class Admin:
    """`mq.admin`."""

    def __init__(self, links: Links) -> None:
        self._links = links

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
        body_size_max, keep_ms. A rate of 0 is no limit."""
        wanted = change_of(TopicSet, changes, name=name)
        return await self._links.ask_meta(Command.TOPIC_SET, wanted, Topic)

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
        """Groups, of one topic or of one name, or all."""
        find = GroupFind(topic=topic, group=group)
        answers = await self._ask_all(Command.GROUP_LIST, find, Groups)
        return [found for answer in answers for found in answer.groups]

    async def create_group(self, topic: str, group: str, start: Start) -> Group:
        create = GroupCreate(topic=topic, group=group, start=make_start(start))
        return (await self._ask_all(Command.GROUP_CREATE, create, Group))[0]

    async def delete_group(self, topic: str, group: str) -> None:
        named = GroupNamed(topic=topic, group=group)
        await self._ask_all(Command.GROUP_DELETE, named, Record)

    async def set_group(self, topic: str, group: str, **changes: Any) -> Group:
        """Change settings: retry, attempts_max, ordered_attempts_max, paused, rate, bytes_rate,
        in_flight_max, consumer_in_flight_max, backlog_alarm, dead_letter_keep_ms, on_failure,
        priority. 0 is no limit.
        """
        wanted = change_of(GroupSet, changes, topic=topic, group=group)
        return (await self._ask_all(Command.GROUP_SET, wanted, Group))[0]

    async def group_keys(self, topic: str, group: str) -> GroupKeys:
        """Order keys that stand still, and whether a failing key holds back the whole group."""
        named = GroupNamed(topic=topic, group=group)
        answers = await self._ask_all(Command.GROUP_KEYS, named, GroupKeys)
        fullest = max(answers, key=lambda answer: answer.full_rows)
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
        answers = await self._ask_all(Command.KEY_RESUME, wanted, KeyResumed)
        return sum(answer.rows for answer in answers)

    async def pause_consumer(
        self, topic: str, group: str, session: str, paused: bool = True
    ) -> Group:
        """Hand nothing out to one consumer, or go on; `session` as in `Group.members`."""
        wanted = MemberPause(topic=topic, group=group, session=session, paused=paused)
        return (await self._ask_all(Command.MEMBER_PAUSE, wanted, Group))[0]

    async def expired_dead_letters(self, group: str) -> int:
        """How many went because their time was over before anybody handled them."""
        [found] = await self._ask_all(Command.DEAD_OPEN, DeadFind(group=group), DeadOpen)
        return found.expired

    async def open_dead_letters(self, group: str) -> list[tuple[int, int]]:
        """Sequences in the topic `%dead.GROUP` that nobody handled yet."""
        [found] = await self._ask_all(Command.DEAD_OPEN, DeadFind(group=group), DeadOpen)
        return found.ranges

    async def resend_dead_letters(self, group: str, ranges: list[tuple[int, int]]) -> DeadDone:
        """Send dead letters again, to this group alone, as new at attempt 1."""
        wanted = DeadHandle(group=group, ranges=ranges)
        return (await self._ask_all(Command.DEAD_RESEND, wanted, DeadDone))[0]

    async def delete_dead_letters(self, group: str, ranges: list[tuple[int, int]]) -> DeadDone:
        """Let dead letters go."""
        wanted = DeadHandle(group=group, ranges=ranges)
        return (await self._ask_all(Command.DEAD_DELETE, wanted, DeadDone))[0]

    async def open_refused(self, topic: str) -> list[tuple[int, int]]:
        """Sequences in the topic `%refused.TOPIC` (over the limit, put aside) nobody handled."""
        [found] = await self._ask_all(Command.REFUSED_OPEN, RefusedFind(topic=topic), DeadOpen)
        return found.ranges

    async def resend_refused(self, topic: str, ranges: list[tuple[int, int]]) -> DeadDone:
        """Put messages that were over the limit into their topic, for every group."""
        wanted = RefusedHandle(topic=topic, ranges=ranges)
        return (await self._ask_all(Command.REFUSED_RESEND, wanted, DeadDone))[0]

    async def delete_refused(self, topic: str, ranges: list[tuple[int, int]]) -> DeadDone:
        """Let messages that were over the limit go."""
        wanted = RefusedHandle(topic=topic, ranges=ranges)
        return (await self._ask_all(Command.REFUSED_DELETE, wanted, DeadDone))[0]

    async def topic_figures(self, topic: str) -> list[TopicFigures]:
        """Rates, refusals and what was put aside, of each broker group."""
        find = TopicFiguresFind(topics=[topic])
        answers = await self._ask_all(Command.TOPIC_FIGURES, find, AllTopicFigures)
        return [figures for answer in answers for figures in answer.topics]

    async def group_figures(self, topic: str = "", group: str = "") -> list[GroupFigures]:
        """Backlog in messages and time, rates and alarm, of each lane."""
        find = GroupFind(topic=topic, group=group)
        answers = await self._ask_all(Command.GROUP_FIGURES, find, AllGroupFigures)
        return [figures for answer in answers for figures in answer.groups]

    async def reset_group(
        self, topic: str, group: str, start: Start, dry_run: bool = False
    ) -> GroupResetDone:
        """Let a group go on from another place; says how many come again and how many never."""
        where = make_start(start)
        reset = GroupReset(topic=topic, group=group, start=where, dry_run=dry_run)
        answers = await self._ask_all(Command.GROUP_RESET, reset, GroupResetDone)
        return GroupResetDone(
            from_sequence=answers[0].from_sequence,
            to_sequence=answers[0].to_sequence,
            again=sum(answer.again for answer in answers),
            skipped=sum(answer.skipped for answer in answers),
        )

    async def retry_group(self, topic: str, group: str, dry_run: bool = False) -> int:
        """What waits for a retry is ready at once, as attempt 1; returns how many messages."""
        wanted = GroupRetry(topic=topic, group=group, dry_run=dry_run)
        answers = await self._ask_all(Command.GROUP_RETRY, wanted, GroupRetried)
        return sum(answer.rows for answer in answers)

    async def replay(
        self, wanted: Replay, told: Callable[[ReplayProgress], None] = lambda _: None
    ) -> ReplayProgress:
        """Copy messages into one group's private lane; `told` hears of every step."""
        return await run_replay(self._links, wanted, told)

    async def ledger(self, topic: str = "", group: str = "") -> list[LedgerLine]:
        """Where every message is, as the groups see it."""
        find = GroupFind(topic=topic, group=group)
        answers = await self._ask_all(Command.LEDGER, find, Ledger)
        return [line for answer in answers for line in answer.lines]

    async def half_lines(self, topic: str = "") -> list[HalfLine]:
        """Per topic, how many messages are in transactions that have not ended."""
        answers = await self._ask_all(Command.LEDGER, GroupFind(topic=topic), Ledger)
        return [line for answer in answers for line in answer.halves]

    async def halves(self, **wanted: Unpack[HalfWanted]) -> HalfOpens:
        """Open transactions, by transaction, name, app, dropped_only, limit; of all brokers."""
        answers = await self._ask_all(Command.HALF_LIST, make_half_find(wanted), HalfOpens)
        return HalfOpens(
            transactions=[one for answer in answers for one in answer.transactions],
            total=sum(answer.total for answer in answers),
            dropped=sum(answer.dropped for answer in answers),
        )

    async def end_half(self, transaction: str, action: Literal["commit", "rollback"]) -> HalfEnded:
        """Commit or roll back a transaction by hand, by its id, wherever it is."""
        end = HalfEnd(transaction=half_id(transaction), action=action, source="operator")
        not_here: TransactionNotFound | None = None
        for group in await self._links.some_masters():
            try:
                link = self._links.broker(group)
                return await self._links.ask(link, Command.HALF_END, end, HalfEnded)
            except TransactionNotFound as error:
                not_here = error
        assert not_here is not None
        raise not_here

    async def seek(self, topic: str, start: Start) -> Sought:
        """Which sequence a start means now, and the bounds of the topic."""
        seek = Seek(topic=topic, start=make_start(start))
        try:
            return (await self._ask_all(Command.SEEK, seek, Sought))[0]
        except TopicNotFound as error:
            raise topic_missing(topic, error) from None

    async def broker_status(self, topics: Sequence[str] = ()) -> list[Status]:
        """What every broker says about itself, and holds of these topics."""
        return await self._ask_all(Command.STATUS, StatusQuery(topics=list(topics)), Status)

    @property
    def delays(self) -> Delays:
        """Messages that are not due yet."""
        return Delays(self._links)

    async def meta_status(self) -> Status:
        return await self._links.ask_meta(Command.STATUS, StatusQuery(), Status)

    async def brokers(self) -> list[tuple[Route, Status | None]]:
        """Every broker that is on the routes with what it says; None: it does not answer."""
        await self._links.refresh()
        found: list[tuple[Route, Status | None]] = []
        for route in self._links.routes():
            if route.kind == "realtime":
                status: Status | None = None
                with suppress(Unavailable):
                    link = self._links.broker(route.broker_group)
                    status = await self._links.ask(link, Command.STATUS, StatusQuery(), Status)
                found.append((route, status))
        return found

    async def routes(self) -> list[Route]:
        """Which servers clients are told to use; asked anew."""
        await self._links.refresh()
        return self._links.routes()

    async def _ask_all(self, command: Command, record: Record, answer: type[T]) -> list[T]:
        groups = await self._links.some_masters()
        links = [self._links.broker(group) for group in groups]
        return [await self._links.ask(link, command, record, answer) for link in links]
