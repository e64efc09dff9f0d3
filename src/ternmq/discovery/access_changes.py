"""Keeps a server's book of identities and grants as the registry has them.

An identity is the settings of a hidden topic (`%access.NAME`: one line in `apps`, closed to
everybody), so it comes to every server by the same news as topics do, into the same memory, and
every kind of registry keeps it. Hears of changes and writes them into the book; never asks.
"""

from collections.abc import Callable

from ternmq.core.errors import Corrupt
from ternmq.core.log import get_logger
from ternmq.discovery.directory import TopicDirectory
from ternmq.discovery.hidden_topics import (
    ACCESS_PREFIX,
    DEAD_PREFIX,
    LANE_PREFIX,
    ORIGIN_PREFIX,
    REFUSED_PREFIX,
    access_identity,
    lane_owner,
    origin_group,
    plain_name,
)
from ternmq.security.access.access_book import AccessBook, AccessEntry, read_entry
from ternmq.security.access.rights import Right
from ternmq.wire.actions import Action
from ternmq.wire.messages.topics import Topic, TopicSettings

log = get_logger()


def entry_settings(entry: AccessEntry) -> TopicSettings:
    """How an identity is kept."""
    return TopicSettings(closed=True, apps=[entry.line()])


def entry_of(topic: Topic) -> AccessEntry | None:
    """What a topic says of an identity; None: it is about something else, or cannot be read, and
    nobody gets in by that."""
    if not topic.name.startswith(ACCESS_PREFIX):
        return None
    try:
        return read_entry(topic.settings.apps)
    except Corrupt as error:
        log.error("an identity is left out", topic=topic.name, reason=error.message)
        return None


def follow_access(book: AccessBook, directory: TopicDirectory) -> None:
    """Fill the book, and keep it so."""

    def learn(topic: Topic) -> None:
        if topic.name.startswith(ACCESS_PREFIX):
            book.put(access_identity(topic.name), entry_of(topic))

    def forget(topic: Topic) -> None:
        if topic.name.startswith(ACCESS_PREFIX):
            book.put(access_identity(topic.name), None)

    for topic in directory.topics():
        learn(topic)
    directory.on_topic_changed(learn)
    directory.on_topic_deleted(forget)


class DirectoryFacts:
    """Implements `rpc.guarded.guard.TopicFacts`."""

    def __init__(self, directory: TopicDirectory, silent_s: Callable[[], float]) -> None:
        self._directory = directory
        self.silent_s = silent_s
        self._origins: dict[str, dict[int, str]] = {}
        """By group: the topics that it has dead letters from, by the number of what says so."""
        for topic in directory.topics():
            self._learn(topic)
        directory.on_topic_changed(self._learn)
        directory.on_topic_deleted(self._forget)

    def _learn(self, topic: Topic) -> None:
        if topic.name.startswith(ORIGIN_PREFIX) and topic.settings.apps:
            of_group = self._origins.setdefault(origin_group(topic.name), {})
            of_group[topic.id] = topic.settings.apps[0]

    def _forget(self, topic: Topic) -> None:
        if topic.name.startswith(ORIGIN_PREFIX):
            self._origins.get(origin_group(topic.name), {}).pop(topic.id, None)

    def exists(self, topic: str) -> bool:
        return self._directory.topic(topic) is not None

    def owners(self, hidden: str, action: Action) -> list[Right] | None:
        """What is kept for people is looked at by who may operate on what it was kept for; of
        messages from outside only those of a replay go into one, a group's private lane."""
        if action is Action.SUBSCRIBE or (
            action is Action.PUBLISH and not hidden.startswith(LANE_PREFIX)
        ):
            return None
        if hidden.startswith(DEAD_PREFIX):
            return self.letter_owners(plain_name(hidden))
        if hidden.startswith(REFUSED_PREFIX):
            return [(Action.OPERATE, "topic", plain_name(hidden))]
        if hidden.startswith(LANE_PREFIX) and self.exists(hidden):
            beside, group = lane_owner(hidden), hidden.removeprefix(LANE_PREFIX).partition(".")[2]
            names = [topic.name for topic in self._directory.topics() if topic.id == beside]
            return [(Action.OPERATE, "topic", name) for name in names] + [
                (Action.OPERATE, "group", group)
            ]
        return None

    def letter_owners(self, group: str) -> list[Right]:
        """The group, and every topic that it has dead letters from: bodies of a topic are not read
        by who may do nothing with it."""
        names = sorted(set(self._origins.get(group, {}).values()))
        return [
            (Action.OPERATE, "group", group),
            *((Action.OPERATE, "topic", name) for name in names),
        ]
