"""The settings that a client is told: everything it needs is always set.

A value of 0, or a retry policy of the kind that a client does not know, makes one or another of
them send nothing, receive nothing, or give a message up at its first failure. Pure.
"""

from dataclasses import dataclass
from typing import Any

from ternmq.core.retry import delay_ms
from ternmq.gateway.protocol.incoming_message import BODY_SIZE_MAX
from ternmq.gateway.protocol.languages import ClientHabits
from ternmq.gateway.protocol.messages import RocketSettings
from ternmq.gateway.protocol.spans import put_ms

PRODUCER_ATTEMPTS = 3
PRODUCER_FIRST_MS, PRODUCER_MOST_MS, PRODUCER_FACTOR = 10, 1_000, 2.0
ATTEMPTS_WITHOUT_LIMIT = 10_000
"""What "no limit" is to a client: it computes with it."""
STEPS_MAX = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPolicy:
    """What a group of consumers is told about itself."""

    fifo: bool
    retry: str
    """As `core.retry` writes it."""
    attempts_max: int
    """0: no limit."""


def complete_producer(settings: Any) -> Any:
    """Answer the settings of a producer."""
    made = RocketSettings()
    made.CopyFrom(settings)
    made.publishing.max_body_size = BODY_SIZE_MAX
    made.publishing.validate_message_type = True
    made.metric.on = False
    made.backoff_policy.Clear()
    made.backoff_policy.max_attempts = PRODUCER_ATTEMPTS
    backoff = made.backoff_policy.exponential_backoff
    put_ms(backoff.initial, PRODUCER_FIRST_MS)
    put_ms(backoff.max, PRODUCER_MOST_MS)
    backoff.multiplier = PRODUCER_FACTOR
    return made


def complete_consumer(
    settings: Any, policy: GroupPolicy, habits: ClientHabits, poll_ms: int
) -> Any:
    """Answer the settings of a consumer of a group that has this policy."""
    made = RocketSettings()
    made.CopyFrom(settings)
    made.metric.on = False
    made.subscription.fifo = policy.fifo
    made.subscription.receive_batch_size = habits.batch_size
    put_ms(made.subscription.long_polling_timeout, poll_ms)
    _put_policy(made.backoff_policy, policy, habits)
    return made


def _put_policy(target: Any, policy: GroupPolicy, habits: ClientHabits) -> None:
    attempts = policy.attempts_max or ATTEMPTS_WITHOUT_LIMIT
    target.Clear()
    target.max_attempts = attempts
    steps = [
        max(1, delay_ms(policy.retry, attempt))
        for attempt in range(1, min(STEPS_MAX, max(2, attempts)))
    ]
    if habits.customized_backoff:
        for step in steps:
            put_ms(target.customized_backoff.next.add(), step)
        return
    backoff = target.exponential_backoff
    put_ms(backoff.initial, steps[0])
    put_ms(backoff.max, max(steps))
    backoff.multiplier = PRODUCER_FACTOR
