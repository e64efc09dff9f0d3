"""Who a delay server is as a producer when it takes rows of transactions."""

from ternmq.delay.intake.take_committed import producer_of
from ternmq.storage.messages.producers import DURABLE


def test_a_topic_on_a_broker_group_is_one_producer_for_ever() -> None:
    made = {producer_of(topic, group) for topic in range(50) for group in ("main", "other")}
    assert len(made) == 100
    assert all(producer.start_ms & DURABLE for producer in made)
