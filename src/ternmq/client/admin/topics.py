"""Topics: their settings, rates and limits, and sequences within them.

Topics belong to meta; what is stored of them lies on the brokers, so positions and rates are asked
of every broker group. Limits of applications stand here too: they hold over all topics.
"""

from collections.abc import Sequence
from typing import Any

from ternmq.client.admin.settings import change_of, checked
from ternmq.client.model.arguments import typed_calls
from ternmq.client.model.start import StartLike, make_start
from ternmq.client.sealing.keyring import subject_digest
from ternmq.client.transport.admin_calls import AdminCalls
from ternmq.client.transport.cluster import Cluster
from ternmq.client.transport.fan_out import named
from ternmq.core.errors import BadRequest, TopicNotFound
from ternmq.core.log import get_logger
from ternmq.core.units import MIB
from ternmq.discovery.hidden_topics import DEAD_PREFIX, REFUSED_PREFIX, plain_name
from ternmq.wire.messages.hello import Empty
from ternmq.wire.messages.limits import AppLimit, AppLimits, LimitSet, TopicSet
from ternmq.wire.messages.read import Seek, Sought
from ternmq.wire.messages.stats import (
    AllTopicFigures,
    Status,
    StatusQuery,
    TopicFigures,
    TopicFiguresFind,
)
from ternmq.wire.messages.topics import (
    KeyErase,
    KeyErased,
    Topic,
    TopicCreate,
    TopicFind,
    TopicKey,
    TopicKeyQuery,
    TopicKeys,
    TopicNamed,
    Topics,
    TopicSettings,
)
from ternmq.wire.numbers import Command
from ternmq.wire.record import Record

BODY_SIZE_MAX = 4 * MIB
TOPICS_PAGE = 500
"""In one answer: no meta server, which may share its loop with a broker, is held up by one."""

REWRAPPED_AT_ONCE = 100
FIGURES_AT_ONCE = 1_000

log = get_logger()


def topic_missing(topic: str, error: TopicNotFound) -> TopicNotFound:
    """The error to raise: a hidden topic cannot be created by hand."""
    if topic.startswith(DEAD_PREFIX):
        return TopicNotFound(f"group {plain_name(topic)!r} has no dead letters")
    if topic.startswith(REFUSED_PREFIX):
        return TopicNotFound(f"nothing of topic {plain_name(topic)!r} was put aside")
    return error


async def topic_exists(cluster: Cluster, topic: str) -> bool:
    """Whether the meta servers know it."""
    asked = TopicFind(prefix=topic, limit=1)
    known = await cluster.ask_meta(Command.TOPIC_LIST, asked, Topics)
    return topic in [each.name for each in known.topics]


@typed_calls
class TopicAdmin(AdminCalls):
    """Calls about topics."""

    async def create_topic(self, name: str, settings: TopicSettings | None = None) -> Topic:
        """Make a topic; the one that is there already is returned as it is, with a warning if its
        settings are others: `set_topic` changes them."""
        wanted = checked(settings or TopicSettings())
        if not 1 <= wanted.body_size_max <= BODY_SIZE_MAX:
            raise BadRequest(
                f"body_size_max is {wanted.body_size_max}; it can be 1 to {BODY_SIZE_MAX}"
            )
        create = TopicCreate(name=name, settings=wanted)
        topic = await self._cluster.ask_meta(Command.TOPIC_CREATE, create, Topic)
        if settings is not None and topic.settings != settings:
            log.warning("the topic was there with other settings", topic=name)
        return topic

    async def topics(self, prefix: str = "") -> list[Topic]:
        """All topics, by name, or those whose name begins with `prefix`."""
        found: list[Topic] = []
        while True:
            after = found[-1].name if found else ""
            find = TopicFind(prefix=prefix, after=after, limit=TOPICS_PAGE)
            page = await self._cluster.ask_meta(Command.TOPIC_LIST, find, Topics)
            found += page.topics
            if len(page.topics) < TOPICS_PAGE:
                return found

    async def topic(self, name: str) -> Topic:
        """One topic; `TopicNotFound` if there is none of that name."""
        asked = TopicFind(prefix=name, limit=1)  # In the order of names it would be the first.
        known = await self._cluster.ask_meta(Command.TOPIC_LIST, asked, Topics)
        if known.topics and known.topics[0].name == name:
            return known.topics[0]
        raise TopicNotFound(f"there is no topic {name!r}; 'tern topic list' shows what there is")

    async def set_topic(self, name: str, **changes: Any) -> Topic:
        """Change settings: rate, bytes_rate, over_limit, paused, consume_paused, closed, apps,
        body_size_max, keep_ms, broker_groups, on_groups, master_key, key_period_ms. A rate of 0 is
        no limit."""
        wanted = change_of(TopicSet, changes, name=name)
        if wanted.keep_ms:
            await self._check_keep(wanted.keep_ms)
        return await self._cluster.ask_meta(Command.TOPIC_SET, wanted, Topic)

    async def _check_keep(self, keep_ms: int) -> None:
        """Refuse a time that no broker keeps: nothing would come of it."""
        if keep_ms < 0:
            raise BadRequest(f"keep_ms is {keep_ms}; it is milliseconds, or 0 for none of its own")
        answers = await self._fan_out.ask(Command.STATUS, StatusQuery(), Status)
        for group, status in answers.items():
            if 0 < status.keep_ms < keep_ms:
                raise BadRequest(
                    f"keep_ms is {keep_ms}; broker group {group!r} keeps messages for "
                    f"{status.keep_ms} ms and no longer: set retention_ms there first"
                )

    async def delete_topic(self, name: str) -> None:
        """Delete a topic with its messages and groups."""
        await self._cluster.ask_meta(Command.TOPIC_DELETE, TopicNamed(name=name), Record)

    async def topic_figures(self, topic: str | Sequence[str]) -> list[TopicFigures]:
        """Rates, refusals and what was put aside, of a topic or several, of each broker group."""
        topics = [topic] if isinstance(topic, str) else list(topic)
        found: list[TopicFigures] = []
        for at in range(0, len(topics), FIGURES_AT_ONCE):
            find = TopicFiguresFind(topics=topics[at : at + FIGURES_AT_ONCE])
            answers = await self._fan_out.ask(Command.TOPIC_FIGURES, find, AllTopicFigures)
            found += [named(name, each) for name, some in answers.items() for each in some.topics]
        return found

    async def topic_keys(self, topic: str) -> list[TopicKey]:
        """The data keys of an encrypted topic, newest first, without what is wrapped."""
        found: list[TopicKey] = []
        while True:
            asked = TopicKeyQuery(topic=topic, before=found[-1].id if found else 0)
            page = (await self._cluster.ask_meta(Command.TOPIC_KEY_LIST, asked, TopicKeys)).keys
            found += page
            if len(page) < asked.limit:
                return found

    async def rewrap_keys(self, topic: str, master_key: str) -> int:
        """Wrap all data keys of a topic by this master key, so that the ones of before can go; this
        client has all of them. Returns how many were wrapped by another one."""
        ids = [key.id for key in await self.topic_keys(topic) if key.master_key != master_key]
        done = 0
        for first in range(0, len(ids), REWRAPPED_AT_ONCE):
            part = ids[first : first + REWRAPPED_AT_ONCE]
            done += await self._cluster.keyring.rewrap(topic, master_key, part)
        return done

    async def erase(self, subject: str, topic: str = "") -> list[str]:
        """Delete the keys of a subject, in one topic or in all: every copy of every body that was
        sent with `subject=` becomes unreadable. Returns the topics that had one. For good."""
        if not subject:
            raise BadRequest("subject is empty; it is what was given to send(subject=…)")
        wanted = KeyErase(digest=subject_digest(subject), topic=topic)
        return (await self._cluster.ask_meta(Command.KEY_ERASE, wanted, KeyErased)).topics

    async def set_limit(self, app: str, **changes: Any) -> AppLimit:
        """Limit an application on all topics together: rate, bytes_rate, consume_rate,
        consume_bytes_rate. 0 is no limit."""
        wanted = change_of(LimitSet, changes, app=app)
        return await self._cluster.ask_meta(Command.LIMIT_SET, wanted, AppLimit)

    async def limits(self) -> list[AppLimit]:
        """Applications that have a limit."""
        return (await self._cluster.ask_meta(Command.LIMIT_LIST, Empty(), AppLimits)).limits

    async def seek(self, topic: str, start: StartLike, broker_group: str = "") -> Sought:
        """Which sequence a start means now, and the bounds of the topic on one broker group."""
        group = await self._fan_out.only("a position", broker_group)
        return (await self._seek(topic, start, [group]))[group]

    async def seek_all(self, topic: str, start: StartLike) -> dict[str, Sought]:
        """Seek on every broker group, by its name."""
        return await self._seek(topic, start, await self._fan_out.chosen(make_start(start)))

    async def _seek(self, topic: str, start: StartLike, groups: list[str]) -> dict[str, Sought]:
        seek = Seek(topic=topic, start=make_start(start))
        try:
            return await self._fan_out.ask(Command.SEEK, seek, Sought, groups)
        except TopicNotFound as error:
            raise topic_missing(topic, error) from None
