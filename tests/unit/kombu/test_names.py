"""Queues and exchanges as topics: valid names, and never one for two."""

from hypothesis import given
from hypothesis import strategies as st

from ternmq.core.ids import check_name
from ternmq.kombu.names import topic_of_exchange, topic_of_queue


def test_plain_names_stay_and_others_are_escaped() -> None:
    assert topic_of_queue("celery") == "celery"
    assert topic_of_queue("mails_high", "eu.") == "eu.mails_high"
    assert topic_of_queue("w@host.celery.pidbox") == "w_x40_host.celery.pidbox"
    assert topic_of_queue("a_x40_b") == "a_x5f_x40_b"
    assert topic_of_exchange("celeryev") == "fanout.celeryev"


@given(st.text(min_size=1, max_size=200), st.text(min_size=1, max_size=200))
def test_two_queues_never_share_a_topic(one: str, other: str) -> None:
    check_name("topic", topic_of_queue(one))
    check_name("topic", topic_of_exchange(other, "shop."))

    assert (topic_of_queue(one) == topic_of_queue(other)) == (one == other)
