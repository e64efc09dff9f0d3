"""What becomes of a row that was not stored: the broker's fault waits, the message's is parked."""

import pytest

from ternmq.core.errors import (
    BadName,
    Corrupt,
    OverLimit,
    SendUnknown,
    TernError,
    TooLarge,
    TopicNotFound,
    Unavailable,
)
from ternmq.outbox.failure import judge, rest_ms
from ternmq.outbox.table import PARKED_MS


@pytest.mark.parametrize("error", [TooLarge("x"), BadName("x"), Corrupt("x")])
def test_what_can_never_work_is_parked_at_once(error: TernError) -> None:
    verdict = judge(error, attempts=0, attempts_max=16, now_ms=1_000)

    assert verdict.ready_ms == PARKED_MS
    assert verdict.attempts == 1


@pytest.mark.parametrize("error", [Unavailable("x"), SendUnknown("x")])
def test_a_broker_that_is_away_for_a_year_parks_nothing(error: TernError) -> None:
    verdict = judge(error, attempts=15, attempts_max=16, now_ms=1_000)

    assert (verdict.ready_ms, verdict.attempts) == (1_000, 15)


def test_a_refusal_is_tried_again_with_growing_pauses_and_then_parked() -> None:
    error = TopicNotFound("no topic")
    waits = []
    for attempts in range(15):
        ready_ms = judge(error, attempts=attempts, attempts_max=16, now_ms=0).ready_ms
        waits.append(ready_ms)

    assert waits[:3] == [2_000, 4_000, 8_000]
    assert max(waits) == 600_000
    last = judge(error, attempts=15, attempts_max=16, now_ms=0)
    assert (last.ready_ms, last.attempts, last.error) == (
        PARKED_MS,
        16,
        "topic_not_found: no topic",
    )


def test_a_limit_is_waited_for() -> None:
    assert judge(OverLimit("x"), attempts=0, attempts_max=16, now_ms=0).ready_ms == 2_000


def test_a_group_rests_longer_each_time() -> None:
    assert [rest_ms(n) for n in (1, 2, 3, 20)] == [500, 1_000, 2_000, 30_000]
