"""Rows come off the wheel when they are due, not before, and a backlog waits its turn (Q7)."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ternmq.delay.timing.wheel import LATE_MS, Wheel

MANY = 10**9


def popped(wheel: Wheel, now_ms: int, *, late_max: int = MANY) -> list[int]:
    fresh, late = wheel.pop(now_ms, fresh_max=MANY, late_max=late_max)
    return [int(row) for due in [*fresh, *late] for row in due.rows]


def add(wheel: Wheel, dues: list[int], *, hour: int = 0, first: int = 0) -> None:
    rows = np.arange(first, first + len(dues), dtype=np.uint32)
    wheel.add(hour, rows, np.array(dues, np.int64))


def test_nothing_is_popped_before_its_millisecond() -> None:
    wheel = Wheel()
    add(wheel, [1_000, 1_001])

    assert popped(wheel, 999) == []
    assert popped(wheel, 1_000) == [0]
    assert wheel.next_due() == 1_001
    assert popped(wheel, 1_001) == [1]
    assert len(wheel) == 0
    assert wheel.next_due() is None


@settings(max_examples=100, deadline=None)
@given(
    dues=st.lists(st.integers(0, 10_000), max_size=80),
    times=st.lists(st.integers(0, 12_000), min_size=1, max_size=10),
    late_max=st.integers(0, 20),
)
def test_each_row_comes_once_and_never_early(
    dues: list[int], times: list[int], late_max: int
) -> None:
    wheel = Wheel()
    for at, due in enumerate(dues):  # Many small runs, so that they are merged.
        add(wheel, [due], hour=at % 3, first=at)
    seen: list[int] = []
    for now_ms in times:  # In any order: the clock may be set back.
        rows = popped(wheel, now_ms, late_max=late_max)
        assert all(dues[row] <= now_ms for row in rows)
        seen += rows
    while wheel.next_due() is not None:
        seen += popped(wheel, 20_000, late_max=late_max + 1)
    assert sorted(seen) == list(range(len(dues)))


def test_a_backlog_goes_oldest_first_and_leaves_what_is_due_now_alone() -> None:
    """D12: an outage does not hold up what is due now."""
    wheel = Wheel()
    now_ms = 1_000_000
    add(wheel, list(range(0, 100_000)), hour=1)
    add(wheel, [50_000, 10, now_ms], hour=2, first=200_000)

    fresh, late = wheel.pop(now_ms, fresh_max=MANY, late_max=10_000)

    assert [due.rows.tolist() for due in fresh] == [[200_002]]
    rows = [
        (int(ms), int(row)) for due in late for ms, row in zip(due.due_ms, due.rows, strict=True)
    ]
    assert len(rows) == 10_000
    assert max(ms for ms, _ in rows) <= 10_000 + 1_000
    assert (10, 200_001) in rows


def test_what_waits_for_lack_of_room_becomes_late() -> None:
    wheel = Wheel()
    add(wheel, [100] * 10)

    fresh, late = wheel.pop(100, fresh_max=4, late_max=0)
    assert sum(len(due.rows) for due in fresh) == 4
    fresh, late = wheel.pop(100 + LATE_MS + 1, fresh_max=4, late_max=6)
    assert not fresh
    assert sum(len(due.rows) for due in late) == 6


def test_a_row_on_the_wheel_costs_twelve_bytes() -> None:
    wheel = Wheel()
    count = 100_000
    wheel.add(1, np.arange(count, dtype=np.uint32), np.arange(count, dtype=np.int64))
    run = wheel._runs[1][0]
    assert run.due_ms.nbytes + run.rows.nbytes == 12 * count
