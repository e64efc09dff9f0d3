"""A group over lanes and broker groups is one line that adds up; what is left, and for how long."""

from dataclasses import replace

from ternmq.api.views.attention import needs_attention
from ternmq.api.views.snapshot import NEVER, STATES, GroupView, Snapshot, group_views, growth
from ternmq.wire.messages.groups import Group, LedgerLine
from ternmq.wire.messages.stats import GroupFigures, Rates


def line(lane: str, **counts: int) -> LedgerLine:
    given = dict.fromkeys(STATES, 0) | counts
    total = sum(given.values())
    return LedgerLine(
        topic="t",
        group="g",
        lane=lane,
        start=0,
        end=total,
        total=total,
        **given,  # type: ignore[arg-type]
    )


def group(lane: str, broker_group: str, **counts: int) -> Group:
    return Group(
        id=1,
        name="g",
        topic="t",
        created_at_ms=0,
        ledger=line(lane, **counts),
        members=[],
        broker_group=broker_group,
    )


def view(**changes: object) -> GroupView:
    [found] = group_views([group("topic", "east", ready=10, acked=5)], []).values()
    return replace(found, **changes)  # type: ignore[arg-type]


def test_lanes_and_broker_groups_are_added_up() -> None:
    parts = [
        group("topic", "east", ready=10, acked=5),
        group("topic", "west", ready=1, dead=2),
        group("private", "east", in_flight=3),
    ]
    figures = [
        GroupFigures(
            topic="t",
            group="g",
            lane="topic",
            backlog=11,
            backlog_ms=500,
            delivered=Rates(messages_10s=2.0),
            alarm=False,
            held_back="",
        )
    ]
    found = group_views(parts, figures)["t", "g"]

    assert (found.ready, found.dead, found.open, found.total) == (11, 2, 14, 21)
    assert found.adds_up
    assert (found.age_ms, found.rate_out) == (500, 2.0)


def test_when_it_is_empty_is_said_only_while_it_becomes_less() -> None:
    assert view(growth=-2.0).empty_in_s == 5.0
    assert view(growth=0.0).empty_in_s == NEVER
    assert growth([(0.0, 100), (10.0, 50)]) == -5.0
    assert growth([(0.0, 100)]) == 0.0


def test_what_needs_attention_is_said_the_worst_first() -> None:
    wrong = view(total=99, members=1)
    snapshot = Snapshot(at_ms=0, number=1, groups={("t", "a"): view(), ("t", "g"): wrong})
    texts = [(each.level, each.text) for each in needs_attention(snapshot)]

    assert texts == [
        ("critical", "the ledger of group g of t does not add up: please report this"),
        ("warning", "nobody consumes group g of t: 10 messages wait"),
    ]
