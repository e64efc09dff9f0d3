"""The contract of every registry backend, for standings, liveness and slots of broker groups."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from ternmq.discovery.hidden_topics import PLACEMENT
from ternmq.meta.placement import changed as placed
from ternmq.meta.registries.registry import (
    Registry,
)
from ternmq.wire.messages.order_keys import PlaceChange
from ternmq.wire.messages.standings import Member, Standing
from ternmq.wire.messages.topics import TopicSettings
from tests.unit.meta.conftest import Opener
from tests.unit.meta.registries.test_registry import made


def a_standing(version: int = 1, *, epoch: int = 0, **changes: Any) -> Standing:
    one = Member(id="0123456789abcdef", name="one", address="10.0.0.1:7701")
    two = Member(id="fedcba9876543210", name="two", address="[::1]:7701")
    made = Standing(
        broker_group="main",
        version=version,
        epoch=epoch,
        master=one.id,
        in_sync=[one.id, two.id],
        members=[one, two],
    )
    return msgspec.structs.replace(made, **changes)


def test_a_standing_is_replaced_only_by_who_knew_it(registry: Registry, opener: Opener) -> None:
    """Q12, design 10: compare-and-set, whichever meta server asks."""
    other = opener()
    first, second = a_standing(1), a_standing(2, epoch=7, in_sync=[])
    assert registry.standing("main", "realtime") is None
    assert not registry.put_standing(second, 1), "there is none to replace"
    assert registry.put_standing(first, 0)
    assert not other.put_standing(a_standing(1, epoch=9), 0), "there is one already"
    assert other.standing("main", "realtime") == first
    assert other.put_standing(second, 1)
    assert not registry.put_standing(a_standing(2, epoch=8), 1), "it is at version 2 by now"
    registry.close()
    other.close()
    reopened = opener()

    assert reopened.standing("main", "realtime") == second
    assert reopened.standings() == [second]
    reopened.close()


def test_a_refused_change_is_no_news(registry: Registry) -> None:
    registry.put_standing(a_standing(1), 0)
    before = registry.version()

    assert not registry.put_standing(a_standing(1), 0)
    assert not registry.put_standing(a_standing(5), 4)
    assert registry.version() == before


def test_brokers_and_delay_servers_of_one_name_are_two_groups(registry: Registry) -> None:
    later, now = a_standing(1, kind="delay"), a_standing(1)
    assert registry.put_standing(now, 0) and registry.put_standing(later, 0)
    assert registry.put_standing(a_standing(1, broker_group="east"), 0)

    assert registry.standing("main", "delay") == later
    assert registry.standing("main", "realtime") == now
    names = [(each.kind, each.broker_group) for each in registry.standings()]
    assert names == [("delay", "main"), ("realtime", "east"), ("realtime", "main")]


def test_standings_are_in_the_news(registry: Registry, opener: Opener) -> None:
    other, since = opener(), registry.version()
    registry.put_standing(a_standing(1), 0)
    told = other.news(since)
    registry.put_standing(a_standing(2), 1)

    assert told.standings == [a_standing(1)] and not told.everything
    assert other.news(told.version).standings == [a_standing(2)]
    made(registry)
    assert other.news(registry.version() - 1).standings == []
    assert other.news(registry.version() + 1).standings == [a_standing(2)], "everything"
    other.close()


def test_of_many_who_change_a_standing_at_once_one_wins_each_time(opener: Opener) -> None:
    registries = [opener() for _ in range(4)]
    assert registries[0].put_standing(a_standing(1), 0)

    def work(registry: Registry) -> list[int]:
        won: list[int] = []
        for _ in range(10):
            held = registry.standing("main", "realtime")
            assert held is not None
            new = msgspec.structs.replace(held, version=held.version + 1, epoch=held.epoch + 1)
            if registry.put_standing(new, held.version):
                won.append(new.version)
        return won

    with ThreadPoolExecutor(4) as pool:
        won = sorted(version for each in pool.map(work, registries) for version in each)

    last = registries[0].standing("main", "realtime")
    assert last is not None
    assert won == list(range(2, last.version + 1)) and last.epoch == len(won) >= 10
    for registry in registries:
        registry.close()


def test_the_last_epoch_is_told_without_giving_one_out(registry: Registry) -> None:
    assert registry.last_epoch("a") == 0
    registry.new_epoch("a")
    registry.new_epoch("a")
    assert registry.last_epoch("a") == 2
    assert registry.last_epoch("b") == 0


def test_whom_a_meta_server_hears_the_others_know_while_it_lives(
    registry: Registry, opener: Opener
) -> None:
    """Q10: a server that one meta server cannot hear may be heard by another."""
    other, dying = opener(), opener()
    registry.hold({"a": 0.0, "b": 4.0})
    dying.hold({"b": 1.0, "c": 30.0})
    found = other.held()
    assert found.keys() == {"a", "b", "c"}
    if found["a"] is not None:  # Else it only knows that somebody hears them.
        assert {name: int(found[name] or 0) for name in found} == {"a": 0, "b": 1, "c": 30}
        assert int(dying.held()["b"] or 0) == 4, "what it said itself it knows better"
    registry.hold({"a": 0.0})
    dying.hold({"b": 0.0})
    assert other.held().keys() == {"a", "b"}
    dying.close()
    left = other.held()
    assert left.keys() == {"a"} or (left["b"] is not None), "it is gone, or grows old"
    other.close()


def test_slots_that_two_meta_servers_move_at_once_are_all_moved(
    registry: Registry, opener: Opener
) -> None:
    """The placement is a topic's settings: every change is one transaction, and news."""
    made(registry, PLACEMENT)
    masters = ["east", "west"]

    def place(where: Registry, wanted: PlaceChange) -> None:
        def change(settings: TopicSettings) -> TopicSettings:
            placement = placed(settings.placement, wanted, masters)
            return msgspec.structs.replace(settings, placement=placement)

        where.update_topic(PLACEMENT, change)

    place(registry, PlaceChange(action="assign"))
    since, other = registry.version(), opener()

    def move(where: Registry, first: int) -> None:
        for slot in range(first, first + 10, 2):
            place(where, PlaceChange(action="move", broker_group="west", slots=[slot]))

    with ThreadPoolExecutor(2) as pool:
        for moving in [pool.submit(move, registry, 0), pool.submit(move, other, 10)]:
            moving.result()
    [topic] = other.news(since).topics
    other.close()

    assert topic.settings.placement is not None
    assert sorted(topic.settings.placement.closing) == list(range(0, 20, 2))
    assert topic.settings.placement.version == 11
