"""Token buckets with a clock that tests turn."""

import pytest

from ternmq.security.access.token_bucket import SHUT_MIN_S, Gate, TokenBucket


def passed(gate: Gate, *, rows: int, size: int, until: float, step: float = 0.01) -> int:
    """How many messages get through when somebody tries at every step."""
    count = 0
    for tick in range(round(until / step)):
        now = tick * step
        if gate.wait_s(now) <= 0:
            gate.take(rows, size)
            count += rows
    return count


@pytest.mark.parametrize("rows", [1, 10, 500])
def test_the_average_is_the_rate(rows: int) -> None:
    """J13: at most one second's worth and one batch more than the rate."""
    gate = Gate()
    gate.change(100, 0, 0.0)
    count = passed(gate, rows=rows, size=1, until=60.0)

    assert 100 * 60 - rows <= count <= 100 * 61 + rows


def test_bytes_are_a_limit_of_their_own() -> None:
    gate = Gate()
    gate.change(1_000_000, 1_000, 0.0)

    assert 59 <= passed(gate, rows=1, size=1_000, until=60.0) <= 62


def test_a_batch_larger_than_the_bucket_passes_and_is_paid_back() -> None:
    bucket = TokenBucket(10, 0.0)
    assert bucket.wait_s(0.0) == 0.0
    bucket.take(1_010)

    assert bucket.wait_s(0.0) == pytest.approx(100.0, abs=0.01)
    assert bucket.wait_s(99.0) > 0
    assert bucket.wait_s(100.01) == 0.0


def test_after_the_told_wait_there_is_room() -> None:
    gate = Gate()
    gate.change(50, 0, 0.0)
    now = 0.0
    for _ in range(200):
        wait = gate.wait_s(now)
        now += gate.refuse(wait, now) if wait > 0 else 0.0
        assert gate.wait_s(now) <= 0
        gate.take(7, 0)


def test_nobody_passes_before_the_told_wait_is_over() -> None:
    """Else a batch that was sent behind a refused one would be stored before it."""
    gate = Gate()
    gate.change(1_000_000, 0, 0.0)
    gate.take(1_000_001, 0)
    wait = gate.refuse(gate.wait_s(0.0), 0.0)

    assert wait == SHUT_MIN_S
    assert gate.wait_s(0.04) > 0
    assert gate.wait_s(wait) == 0.0


def test_a_new_rate_counts_at_once_and_a_debt_stays_one() -> None:
    gate = Gate()
    gate.change(10, 0, 0.0)
    gate.take(1_010, 0)
    gate.refuse(gate.wait_s(0.0), 0.0)
    gate.change(1_000, 0, 0.0)
    assert gate.wait_s(0.0) == pytest.approx(1.0, abs=0.01)
    gate.change(0, 0, 0.0)

    assert gate.wait_s(0.0) == 0.0


def test_a_clock_that_stands_or_goes_back_gives_nothing() -> None:
    bucket = TokenBucket(5, 100.0)
    bucket.take(5)

    assert bucket.wait_s(100.0) > 0
    assert bucket.wait_s(50.0) > 0


def test_room_is_what_may_pass_without_a_debt() -> None:
    gate = Gate()
    assert gate.room(100, 1_000) == (100, 1_000)
    gate.change(10, 500, 0.0)
    assert gate.room(100, 1_000) == (10, 500)
    gate.take(9, 499)

    assert gate.room(100, 1_000) == (1, 1)


def test_one_can_wait_for_more_than_one_token() -> None:
    """A limited group is handed two at a time, so that retries leave one for new messages."""
    gate = Gate()
    gate.change(1, 0, 0.0)
    gate.take(3, 0)

    assert gate.wait_s(0.0) == 0.0
    assert gate.wait_s(0.0, 2) == pytest.approx(1.0, abs=0.01)
    assert gate.wait_s(1.01, 2) == 0.0
