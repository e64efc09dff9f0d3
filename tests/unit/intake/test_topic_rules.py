"""What a topic takes (D7, D2): the same on a broker and on a delay server."""

import pytest

from ternmq.batch.check import check_incoming
from ternmq.batch.encoder import Outgoing
from ternmq.core.errors import BadName, TooLarge, TopicNotFound, Unauthorized
from ternmq.intake.topic_rules import check_app, check_body_sizes, check_new_topic
from ternmq.wire.messages.topics import Topic, TopicSettings
from tests.unit.batch.builders import a_batch


def topic(**settings: object) -> Topic:
    kept = TopicSettings(**settings)  # type: ignore[arg-type]
    return Topic(id=7, name="order.paid", created_at_ms=1, settings=kept)


def test_a_closed_topic_names_whom_it_refuses_and_who_can_help() -> None:
    check_app(topic(), "anybody")
    check_app(topic(closed=True, apps=["shop"]), "shop")

    with pytest.raises(Unauthorized, match="application 'thief' is not on its list; ask its owner"):
        check_app(topic(closed=True, apps=["shop"]), "thief")


def test_one_body_over_the_topics_limit_is_refused_however_small_the_others_are() -> None:
    batch = a_batch([Outgoing(body=b"x" * size) for size in (10, 101, 10)], stamped=False)
    incoming = check_incoming(batch)

    check_body_sizes(topic(body_size_max=101), incoming, batch)
    with pytest.raises(TooLarge, match=r"a body of 101 bytes.*at most 100"):
        check_body_sizes(topic(body_size_max=100), incoming, batch)


def test_without_a_limit_of_its_own_a_topic_counts_nothing() -> None:
    """The door's own limit is on what is sent, which is compressed."""
    batch = a_batch([Outgoing(body=b"x" * 5_000_000)], stamped=False)

    check_body_sizes(topic(), check_incoming(batch), batch)


def test_hidden_names_bad_names_and_unknown_names_make_no_topic() -> None:
    check_new_topic("order.paid", auto_create=True)

    with pytest.raises(BadName, match="servers' own"):
        check_new_topic("%dead.g", auto_create=True)
    with pytest.raises(BadName):
        check_new_topic("white space", auto_create=True)
    with pytest.raises(TopicNotFound, match=r"tern topic create order.paid.*auto_create_topics"):
        check_new_topic("order.paid", auto_create=False)
