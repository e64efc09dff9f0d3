"""The contract of every registry backend, for topics, groups, ids and servers.

`tests/integration/cluster/test_registries.py` runs it against real servers.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from ternmq.core.errors import Conflict, TopicNotFound
from ternmq.discovery.directory import InUse
from ternmq.meta.policies import topic_change
from ternmq.meta.registries.registry import (
    NEWS_KEPT,
    Behind,
    GroupRow,
    NewGroup,
    News,
    NewTopic,
    Registry,
)
from ternmq.wire.messages.limits import TopicSet
from ternmq.wire.messages.servers import Route
from ternmq.wire.messages.topics import Topic, TopicSettings
from tests.unit.meta.conftest import Opener


def a_topic(name: str = "orders", *, at_ms: int = 5) -> NewTopic:
    return NewTopic(name=name, settings=TopicSettings(), created_at_ms=at_ms)


def a_group(topic_id: int, name: str = "billing") -> NewGroup:
    return NewGroup(topic_id=topic_id, name=name, created_at_ms=6)


def made(registry: Registry, name: str = "orders") -> Topic:
    [topic] = registry.create_topics([a_topic(name)])
    return topic


def made_group(registry: Registry, topic_id: int, name: str = "billing") -> GroupRow:
    [row] = registry.create_groups([a_group(topic_id, name)])
    assert row is not None
    return row


def test_a_topic_keeps_everything_it_was_made_with(registry: Registry, opener: Opener) -> None:
    settings = TopicSettings(closed=True, apps=["shop", "bill"], body_size_max=99)
    new = NewTopic(name="Orders.v2_x-y", settings=settings, created_at_ms=1_700_000_000_123)
    [topic] = registry.create_topics([new])
    registry.close()
    reopened = opener()

    assert topic.id > 0
    assert (topic.name, topic.created_at_ms, topic.settings) == (
        "Orders.v2_x-y",
        1_700_000_000_123,
        settings,
    )
    assert reopened.topics() == [topic]
    reopened.close()


def test_making_a_topic_that_is_there_returns_it_unchanged(registry: Registry) -> None:
    first = made(registry)
    other = NewTopic(name="orders", settings=TopicSettings(closed=True), created_at_ms=9)

    assert registry.create_topics([other]) == [first]


def test_many_topics_are_made_in_the_order_asked_with_repeats(registry: Registry) -> None:
    there = made(registry, "t7")
    names = [f"t{number}" for number in range(1_500)] + ["t3", "t7"]

    topics = registry.create_topics([a_topic(name) for name in names])

    assert [topic.name for topic in topics] == names
    assert topics[7] == topics[-1] == there
    assert topics[3] == topics[-2]
    assert len(registry.topics()) == 1_500
    assert len({topic.id for topic in topics}) == 1_500


def test_names_differ_by_case(registry: Registry) -> None:
    assert made(registry, "orders").id != made(registry, "Orders").id


def test_a_topic_made_again_is_a_new_one(registry: Registry) -> None:
    """R24, design 1: ids are never reused, so nothing comes back from the dead."""
    ids = []
    for _ in range(3):
        topic = made(registry)
        ids.append(topic.id)
        assert registry.delete_topic("orders", deleted_at_ms=7) == topic
        assert registry.topics() == []

    assert ids == sorted(set(ids))


def test_ids_are_not_reused_over_a_restart_either(registry: Registry, opener: Opener) -> None:
    """The highest row deleted, then the process restarted: the trap of plain row ids."""
    topic = made(registry)
    group = made_group(registry, topic.id)
    registry.delete_topic("orders", deleted_at_ms=7)
    registry.close()
    reopened = opener()

    again = made(reopened)
    assert again.id > topic.id
    assert made_group(reopened, again.id).id > group.id
    reopened.close()


def test_deleting_what_is_not_there_says_so(registry: Registry) -> None:
    with pytest.raises(TopicNotFound, match="'orders'"):
        registry.delete_topic("orders", deleted_at_ms=7)
    made(registry)
    registry.delete_topic("orders", deleted_at_ms=7)
    with pytest.raises(TopicNotFound):
        registry.delete_topic("orders", deleted_at_ms=8)


def test_a_group_has_one_id_per_topic(registry: Registry) -> None:
    orders, logs = made(registry, "orders"), made(registry, "logs")

    first = made_group(registry, orders.id)
    other_topic = made_group(registry, logs.id)
    other_name = made_group(registry, orders.id, "audit")

    assert made_group(registry, orders.id) == first
    assert len({first.id, other_topic.id, other_name.id}) == 3
    assert registry.groups() == [first, other_topic, other_name]


def test_many_groups_at_once_in_the_order_asked(registry: Registry) -> None:
    topics = registry.create_topics([a_topic(f"t{number}") for number in range(700)])
    wanted = [a_group(topic.id, name) for topic in topics for name in ("a", "b")]
    rows = registry.create_groups([*wanted, wanted[0]])

    assert [(row.topic_id, row.name) for row in rows if row is not None] == [
        (new.topic_id, new.name) for new in [*wanted, wanted[0]]
    ]
    assert rows[0] == rows[-1]


def test_a_group_on_a_topic_that_is_gone_is_not_made(registry: Registry) -> None:
    gone, there = made(registry, "gone"), made(registry, "there")
    registry.delete_topic("gone", deleted_at_ms=7)

    rows = registry.create_groups([a_group(gone.id), a_group(there.id), a_group(999_999)])

    assert rows[0] is None and rows[2] is None
    assert registry.groups() == [rows[1]]


def test_deleting_a_topic_deletes_its_groups_only(registry: Registry) -> None:
    orders, logs = made(registry, "orders"), made(registry, "logs")
    made_group(registry, orders.id)
    kept = made_group(registry, logs.id)

    registry.delete_topic("orders", deleted_at_ms=7)

    assert registry.groups() == [kept]


def test_a_group_made_again_has_a_new_id(registry: Registry) -> None:
    topic = made(registry)
    first = made_group(registry, topic.id)

    assert registry.delete_group(topic.id, "billing", deleted_at_ms=7)
    assert not registry.delete_group(topic.id, "billing", deleted_at_ms=7)
    assert registry.groups() == []
    assert made_group(registry, topic.id).id > first.id


def test_epochs_grow_strictly_for_each_broker_group_over_restarts(opener: Opener) -> None:
    given: list[int] = []
    for _ in range(4):
        registry = opener()
        given += [registry.new_epoch("a"), registry.new_epoch("a")]
        registry.close()
    other = opener()

    assert given == list(range(1, 9))
    assert other.new_epoch("b") == 1
    assert other.new_epoch("a") == 9
    other.close()


def in_use(*topic_ids: int, group_id: int = 0, epoch: int = 0) -> InUse:
    return InUse(broker_group="a", topic_ids=frozenset(topic_ids), group_id=group_id, epoch=epoch)


def test_only_a_topic_that_was_deleted_here_is_said_to_be_gone(registry: Registry) -> None:
    """A live one is not, nor one that this registry has never heard of: it may be an older copy."""
    deleted, live = made(registry, "orders"), made(registry, "bills")
    registry.reserve(in_use(99), now_ms=1)
    registry.delete_topic("orders", deleted_at_ms=2)
    again = made(registry, "orders")

    asked = [deleted.id, live.id, again.id, 99, 12345]
    assert registry.gone_topics(asked) == {deleted.id}


def test_what_is_in_use_is_never_given_out_over_restarts(
    registry: Registry, opener: Opener
) -> None:
    topic = made(registry, "old")
    used = in_use(topic.id, 7, 9, group_id=20, epoch=5)
    behind = registry.reserve(used, now_ms=8)
    registry.close()
    again = opener()

    assert behind == Behind(topic_ids=frozenset({7, 9}), group_ids=True, epoch=True)
    assert again.topics() == [topic]
    assert again.groups() == []
    assert made(again, "new").id == 10
    assert made_group(again, topic.id).id == 21
    assert again.new_epoch("a") == 6
    assert again.new_epoch("b") == 1
    again.close()


def test_ids_without_a_meaning_stay_unknown_and_nothing_else_is_behind(registry: Registry) -> None:
    used = in_use(3, group_id=4, epoch=5)
    registry.reserve(used, now_ms=8)

    assert registry.reserve(used, now_ms=9) == Behind(topic_ids=frozenset({3}))


def test_a_registry_that_knows_more_is_not_behind_and_does_not_change(registry: Registry) -> None:
    deleted, live = made(registry, "gone"), made(registry, "there")
    group = made_group(registry, live.id)
    registry.delete_topic("gone", deleted_at_ms=7)
    registry.new_epoch("a")
    used = in_use(deleted.id, live.id, group_id=group.id, epoch=1)

    assert not registry.reserve(used, now_ms=8)
    assert not registry.reserve(in_use(), now_ms=8)
    assert made(registry, "next").id == live.id + 1
    assert made_group(registry, live.id, "next").id == group.id + 1
    assert registry.new_epoch("a") == 2


def test_it_says_where_it_is(registry: Registry) -> None:
    assert registry.description


def test_settings_are_changed_for_ever_and_one_after_the_other(
    registry: Registry, opener: Opener
) -> None:
    """J13: what was set before stays, also over a restart."""
    topic = made(registry)
    registry.update_topic("orders", topic_change(TopicSet(name="orders", rate=5)))
    changed = registry.update_topic("orders", topic_change(TopicSet(name="orders", paused=True)))
    registry.close()
    reopened = opener()

    assert changed.settings == TopicSettings(rate=5, paused=True)
    assert (changed.id, changed.created_at_ms) == (topic.id, topic.created_at_ms)
    assert reopened.topics() == [changed]
    reopened.close()


def test_settings_of_a_topic_that_is_not_there_cannot_be_changed(registry: Registry) -> None:
    made(registry)
    registry.delete_topic("orders", deleted_at_ms=9)

    with pytest.raises(TopicNotFound):
        registry.update_topic("orders", lambda settings: settings)


def a_server(name: str = "d1", address: str = "10.0.0.1:7703") -> Route:
    return Route(broker_group=name, address=address, kind="delay")


def test_servers_are_remembered_with_their_latest_address_and_forgotten(
    registry: Registry, opener: Opener
) -> None:
    """Q10: one that is away holds messages; that must be known after a restart too."""
    registry.remember_server(a_server("d2"), now_ms=5)
    registry.remember_server(a_server(), now_ms=6)
    registry.remember_server(a_server(address="10.0.0.2:7703"), now_ms=7)
    registry.forget_server(a_server("d2"))
    registry.forget_server(a_server("never"))
    registry.close()
    reopened = opener()

    assert reopened.servers() == [a_server(address="10.0.0.2:7703")]
    reopened.close()


def test_the_news_tell_what_others_did(registry: Registry, opener: Opener) -> None:
    """Q10: meta servers keep no state that another would need, so each must hear of the rest."""
    other = opener()
    start = other.news(other.version()).version
    kept, gone = made(registry, "kept"), made(registry, "gone")
    changed = registry.update_topic("kept", topic_change(TopicSet(name="kept", rate=5)))
    registry.delete_topic("gone", deleted_at_ms=9)

    told = other.news(start)

    assert told == News(version=registry.version(), topics=[changed], deleted=frozenset({gone.id}))
    assert changed.id == kept.id
    assert other.news(told.version) == News(version=told.version, topics=[])
    registry.remember_server(a_server(), now_ms=5)
    assert other.news(told.version).servers
    other.close()


def test_who_was_away_for_too_long_is_told_everything(registry: Registry) -> None:
    topics = [made(registry, "a"), made(registry, "b")]

    for since in (registry.version() + 1, registry.version() - NEWS_KEPT):
        told = registry.news(since)
        assert told.everything and told.servers
        assert told.topics == topics


def test_many_meta_servers_that_make_the_same_names_agree(opener: Opener) -> None:
    """Q10: one registry, several meta servers, all at once."""
    registries = [opener() for _ in range(4)]

    def work(registry: Registry) -> list[tuple[str, int, int]]:
        said: list[tuple[str, int, int]] = []
        for number in range(10):
            [topic] = registry.create_topics([a_topic(f"t{number}")])
            [group] = registry.create_groups([a_group(topic.id)])
            assert group is not None
            said.append((topic.name, topic.id, group.id))
        return said

    with ThreadPoolExecutor(4) as pool:
        said = list(pool.map(work, registries))
        epochs = sorted(
            epoch
            for given in pool.map(lambda each: [each.new_epoch("a") for _ in range(10)], registries)
            for epoch in given
        )

    assert said[0] == said[1] == said[2] == said[3]
    assert len({topic for _, topic, _ in said[0]}) == 10
    assert epochs == list(range(1, 41))
    for registry in registries:
        registry.close()


def test_a_thousand_topics_made_by_others_are_all_in_the_news(registry: Registry) -> None:
    since = registry.version()
    topics = registry.create_topics([a_topic(f"t{number}") for number in range(1_000)])

    told = registry.news(since)

    assert sorted(topic.id for topic in told.topics) == [topic.id for topic in topics]
    assert registry.news(told.version).topics == []


def test_numbers_go_on_where_they_are_told_to_over_a_restart_too(
    registry: Registry, opener: Opener
) -> None:
    """Another registry, or a copy of this one, goes on elsewhere (R1)."""
    topic = made(registry, "old")
    made_group(registry, topic.id)
    registry.leap(lambda last: 1000 + last)
    registry.close()
    again = opener()

    new = made(again, "new")
    assert new.id == 1000 + topic.id + 1
    assert made_group(again, new.id).id == 1002
    assert again.topics() == [topic, new]
    assert again.reserve(in_use(topic.id, new.id), now_ms=1) == Behind()
    again.close()


def test_numbers_that_are_another_topic_in_the_data_are_refused_and_nothing_changes(
    registry: Registry,
) -> None:
    orders = made(registry, "orders")

    def used(name: str) -> InUse:
        ids = frozenset({orders.id, orders.id + 7})
        return replace(in_use(*ids), names={orders.id: name, orders.id + 7: "unknown"})

    with pytest.raises(Conflict, match=f"topic number {orders.id} is 'salaries'.*'orders'"):
        registry.reserve(used("salaries"), now_ms=1)
    assert made(registry, "next").id == orders.id + 1
    assert registry.reserve(used("orders"), now_ms=1).topic_ids == {orders.id + 7}


def test_whoever_is_told_everything_is_told_what_was_deleted(registry: Registry) -> None:
    """What an older copy has never heard of was not deleted."""
    gone, kept = made(registry, "gone"), made(registry, "kept")
    registry.delete_topic("gone", deleted_at_ms=2)

    news = registry.news(registry.version() + 5)
    assert (news.everything, news.topics, news.deleted) == (True, [kept], frozenset({gone.id}))
