"""Hidden topics by their owners, and a book that follows the directory."""

from collections.abc import Callable, Collection

import pytest

from ternmq.discovery.access_changes import DirectoryFacts, entry_settings, follow_access
from ternmq.discovery.hidden_topics import access_identity, access_topic
from ternmq.discovery.topic_table import TopicTable
from ternmq.security.access.access_book import AccessBook, AccessEntry
from ternmq.security.access.rights import Right
from ternmq.wire.actions import Action
from ternmq.wire.messages.topics import Topic, TopicSettings

OPERATE = Action.OPERATE


class Table(TopicTable):
    """A directory in memory that a test changes."""

    async def create_topic(self, name: str, settings: TopicSettings) -> Topic:
        raise NotImplementedError

    async def gone_topics(self, ids: Collection[int]) -> frozenset[int]:
        raise NotImplementedError

    def put(self, name: str, settings: TopicSettings | None = None) -> None:
        topic = Topic(
            id=len(self._topics) + 1,
            name=name,
            created_at_ms=0,
            settings=settings or TopicSettings(),
        )
        self._put(topic)
        self._tell_changed(topic)

    def drop(self, name: str) -> None:
        self._tell_deleted(self._topics.pop(name))


def facts(table: Table) -> DirectoryFacts:
    silent: Callable[[], float] = lambda: 0.0  # noqa: E731
    return DirectoryFacts(table, silent)


@pytest.mark.parametrize(
    ("hidden", "action", "owners"),
    [
        ("%dead.g", Action.READ, [(OPERATE, "group", "g")]),
        ("%refused.t", Action.READ, [(OPERATE, "topic", "t")]),
        ("%lane.1.g", Action.READ, [(OPERATE, "topic", "t"), (OPERATE, "group", "g")]),
        ("%lane.1.g", Action.PUBLISH, [(OPERATE, "topic", "t"), (OPERATE, "group", "g")]),
        ("%dead.g", Action.PUBLISH, None),
        ("%refused.t", Action.PUBLISH, None),
        ("%dead.g", Action.SUBSCRIBE, None),
        ("%lane.1.g", Action.SUBSCRIBE, None),
        ("%lane.x.g", Action.READ, None),
        ("%access.admin", Action.READ, None),
        ("%control", Action.READ, None),
    ],
)
def test_a_hidden_topic_is_reached_by_its_owner_only(
    hidden: str, action: Action, owners: list[Right] | None
) -> None:
    table = Table()
    table.put("t")
    table.put("%lane.1.g")

    assert facts(table).owners(hidden, action) == owners


def test_the_book_has_what_the_directory_has() -> None:
    table, book = Table(), AccessBook()
    table.put(access_topic("first"), entry_settings(AccessEntry(user=True)))
    table.put("orders")
    follow_access(book, table)
    assert book.user("first") is not None
    table.put(access_topic("second"), entry_settings(AccessEntry(user=True)))
    table.put(access_topic("sh*"), entry_settings(AccessEntry()))
    assert [user.name for user in book.users()] == ["first", "second", "sh*"]
    table.drop(access_topic("first"))
    assert book.user("first") is None


def test_who_cannot_be_read_any_more_is_nobody() -> None:
    table, book = Table(), AccessBook()
    follow_access(book, table)
    table.put(access_topic("a"), entry_settings(AccessEntry(user=True)))
    table.put(access_topic("a"), TopicSettings(apps=["rubbish"]))

    assert book.user("a") is None


def test_a_pattern_has_a_topic_of_its_own() -> None:
    for identity in ("shop", "order-*", "*"):
        assert access_identity(access_topic(identity)) == identity
    assert access_topic("a*") != access_topic("a")
