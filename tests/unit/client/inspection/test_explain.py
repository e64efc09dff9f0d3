"""Every line that `explain` can say about a message, and what comes before what."""

from typing import Any

from msgspec.structs import replace

from ternmq.client.inspection.explain import Known, explain
from ternmq.wire.inspection.rows import Holder, MessageState
from ternmq.wire.inspection.trace import TraceEvent
from ternmq.wire.messages.groups import ConsumerInfo, Group, GroupSettings, LedgerLine
from ternmq.wire.messages.stats import GroupFigures, Rates

NOW = 1_700_000_000_000
SHOP = Holder(session="5e55" * 8, app="shop", host="web1", pid=17)
LINE = LedgerLine(
    topic="t",
    group="g",
    lane="topic",
    start=0,
    end=0,
    total=0,
    ready=0,
    in_flight=0,
    waiting_retry=0,
    acked=0,
    filtered=0,
    skipped=0,
    dead=0,
    expired=0,
)
MEMBER = ConsumerInfo(
    session="5e55", app="shop", host="web1", pid=17, address="", in_flight=0, joined_at_ms=0
)
GROUP = Group(id=1, name="g", topic="t", created_at_ms=0, ledger=LINE, members=[MEMBER])
FIGURES = GroupFigures(
    topic="t",
    group="g",
    lane="topic",
    backlog=1,
    backlog_ms=0,
    delivered=Rates(),
    alarm=False,
    held_back="",
)


def state(word: str, **more: Any) -> MessageState:
    row = MessageState(group="g", lane="topic", sequence=5, state="ready", now_ms=NOW)
    return replace(row, state=word, **more)


def why(row: MessageState, group: Any = GROUP, figures: Any = FIGURES, events: Any = ()) -> str:
    return explain(row, Known(group=group, figures=figures, events=tuple(events)))


def settings(**changes: Any) -> Group:
    return replace(GROUP, settings=GroupSettings(**changes))


def event(kind: str, **more: Any) -> TraceEvent:
    return replace(TraceEvent(at_ms=NOW, kind=kind, group="g"), **more)


def test_a_paused_group() -> None:
    said = why(state("ready"), settings(paused=True))

    assert said == "group g is paused: nothing is handed out until it is resumed"


def test_a_topic_whose_consuming_is_paused() -> None:
    figures = replace(FIGURES, held_back="consuming the topic is paused")

    said = why(state("ready"), replace(GROUP, members=[]), figures)

    assert said.startswith("consuming the topic is paused: nothing is handed out to any group")


def test_nobody_consumes() -> None:
    said = why(state("ready"), replace(GROUP, members=[]))

    assert said == "nobody consumes in group g at present"


def test_every_consumer_is_paused() -> None:
    said = why(state("ready"), settings(paused_sessions=["5e55"]))

    assert said == "every consumer of group g is paused"


def test_one_of_two_consumers_is_paused() -> None:
    members = [MEMBER, replace(MEMBER, session="7")]
    two = replace(settings(paused_sessions=["5e55"]), members=members)

    assert why(state("ready"), two) == "it is ready to be handed out"


def test_behind_a_key_that_stands_still() -> None:
    said = why(state("ready", blocking_key="o-17", blocking_sequence=3))

    assert said == "it waits behind message 3 of order key 'o-17', which is not settled"


def test_a_key_that_was_moved() -> None:
    assert "was moved to this broker group" in why(state("ready", slot_held=True))


def test_a_limit_that_is_used_up() -> None:
    said = why(state("ready"), GROUP, replace(FIGURES, held_back="a limit is used up"))

    assert said == "group g is held back: a limit is used up"


def test_ready_again_behind_many() -> None:
    figures = replace(FIGURES, backlog=1200, delivered=Rates(messages_60s=10.0))

    said = why(state("ready", attempt=3), GROUP, figures)

    assert said == (
        "it is ready to be handed out again, as attempt 3: 1200 messages are ready in its group, "
        "and 10.0 a second are handed out (2 min more)"
    )


def test_ready_behind_many_that_nobody_takes() -> None:
    said = why(state("ready"), GROUP, replace(FIGURES, backlog=7))

    assert said.endswith("in its group, and none was handed out in the last minute")


def test_ready_and_nothing_more_is_known() -> None:
    assert why(state("ready"), None, None) == "it is ready to be handed out"


def test_held_by_a_consumer() -> None:
    row = state("in_flight", attempt=1, holder=SHOP, since_ms=NOW - 240_000, until_ms=NOW + 60_000)

    assert why(row) == "it is held by shop@web1:17 for 4 min, attempt 1; its lease ends in 1 min"


def test_being_handled_after_an_error() -> None:
    row = state("in_flight", attempt=2, holder=SHOP, until_ms=NOW, started=True, error="no account")

    assert why(row) == (
        "it is being handled by shop@web1:17, attempt 2; its lease is over; the last error was "
        "'no account'"
    )


def test_held_by_a_consumer_that_is_gone() -> None:
    row = state("in_flight", attempt=1, holder=Holder(session="5e55" * 8), until_ms=NOW + 900)

    said = why(row)

    assert said == (
        "it is held by session 5e555e55, whose connection is gone, attempt 1; its lease ends in "
        "900 ms"
    )


def test_waits_for_a_retry() -> None:
    row = state("waiting", attempt=3, due_ms=NOW + 90_000, error="no account")

    assert why(row) == (
        "it waits for attempt 3, due in 1 min (2023-11-14T22:14:50Z); the last error was "
        "'no account'"
    )


def test_waits_for_a_retry_that_is_due() -> None:
    assert "due now" in why(state("waiting", attempt=2, due_ms=NOW - 5))


def test_stands_still() -> None:
    said = why(state("stopped", attempt=4, error="no account"))

    assert said.startswith("it failed at attempt 3 and stands still")
    assert said.endswith("the last error was 'no account'")


def test_on_its_way_to_the_dead_letters() -> None:
    assert why(state("moving")) == "it is on its way to the dead letters of g"


def test_acked_by_whom_and_when() -> None:
    events = [
        event("handed_out", lease=7, holder=Holder(session="aa")),
        event("handed_out", lease=8, holder=SHOP),
        event("acked", lease=8),
    ]

    said = why(state("acked"), None, None, events)

    assert said == "it was acked at 2023-11-14T22:13:20Z by shop@web1:17"


def test_acked_and_the_records_are_gone() -> None:
    assert why(state("acked")) == "it was acked"


def test_dead() -> None:
    assert why(state("dead")) == "it is a dead letter of g (tern dead list g)"


def test_expired() -> None:
    assert why(state("expired"), events=[event("expired")]).startswith("it expired at 2023")


def test_filtered_by_which_rule() -> None:
    said = why(state("filtered"), replace(GROUP, filter="amount > 10"))

    assert said == "it was filtered by 'amount > 10': the group's consumers do not want it"


def test_skipped() -> None:
    assert "was moved forward" in why(state("skipped"))


def test_before_the_group_began() -> None:
    assert why(state("before")) == "it was stored before group g began, or was last reset"


def test_nothing_is_stored() -> None:
    assert why(state("unstored")) == "nothing is stored at this sequence yet"


def test_settled_long_ago() -> None:
    assert why(state("settled")).startswith("it is settled; how is not remembered any more")
