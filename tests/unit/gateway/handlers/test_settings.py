"""The settings that clients are told."""

from ternmq.gateway.handlers.settings import GroupPolicy, complete_consumer, complete_producer
from ternmq.gateway.protocol.languages import habits_of
from ternmq.gateway.protocol.messages import RocketSettings

POLICY = GroupPolicy(fifo=True, retry="table:1s,10s", attempts_max=17)


def test_a_producer_is_told_everything_that_it_needs() -> None:
    given = RocketSettings(client_type=1)
    given.publishing.topics.add().name = "t"

    made = complete_producer(given)

    assert made.publishing.topics[0].name == "t"
    assert made.publishing.max_body_size > 0
    assert made.backoff_policy.WhichOneof("strategy") == "exponential_backoff"
    assert not made.metric.on


def test_python_is_told_a_table_and_node_first_most_and_factor() -> None:
    given = RocketSettings(client_type=2)

    table = complete_consumer(given, POLICY, habits_of("PYTHON"), 10_000)
    node = complete_consumer(given, POLICY, habits_of("HTTP"), 10_000)

    assert [step.seconds for step in table.backoff_policy.customized_backoff.next][:3] == [
        1,
        10,
        10,
    ]
    assert node.backoff_policy.exponential_backoff.initial.seconds == 1
    assert node.backoff_policy.exponential_backoff.max.seconds == 10
    for made in (table, node):
        assert made.subscription.fifo
        assert made.subscription.receive_batch_size > 0
        assert made.subscription.long_polling_timeout.seconds == 10
        assert made.backoff_policy.max_attempts == 17


def test_no_limit_is_a_large_number_to_a_client() -> None:
    policy = GroupPolicy(fifo=False, retry="default", attempts_max=0)

    made = complete_consumer(RocketSettings(client_type=2), policy, habits_of("JAVA"), 10_000)

    assert made.backoff_policy.max_attempts == 10_000
    assert len(made.backoff_policy.customized_backoff.next) < 100
