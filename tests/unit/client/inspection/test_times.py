"""How long messages take, of several brokers together."""

import pytest

from ternmq.client.inspection.times import TimeSpread, WaitAndHandle, wait_and_handle
from ternmq.wire.inspection.times import GroupTimes, LaneTimes, TimeCounts

SPREAD = TimeSpread(bounds_s=(1.0, 10.0, 100.0), counts=(50, 40, 9, 1))


@pytest.mark.parametrize(
    ("share", "seconds"), [(0.25, 0.5), (0.5, 1.0), (0.9, 10.0), (0.99, 100.0), (1.0, 100.0)]
)
def test_a_share_of_messages_took_so_long_at_most(share: float, seconds: float) -> None:
    assert SPREAD.within(share) == pytest.approx(seconds)


def test_of_nothing_nothing_is_said() -> None:
    assert TimeSpread().within(0.5) is None
    assert wait_and_handle([]) == WaitAndHandle()


def lane(name: str, wait: int, handle: int) -> LaneTimes:
    return LaneTimes(
        lane=name,
        wait=TimeCounts(counts=[wait, 0], recent=[1, 0], total_s=1.0),
        handle=TimeCounts(counts=[0, handle], recent=[0, 1], total_s=1.0),
    )


def test_lanes_and_brokers_add_up_but_not_those_with_other_buckets() -> None:
    east = GroupTimes(bounds_s=[1.0], lanes=[lane("topic", 1, 2), lane("private", 10, 20)])
    west = GroupTimes(bounds_s=[1.0], lanes=[lane("topic", 100, 200)])
    newer = GroupTimes(bounds_s=[2.0], lanes=[lane("topic", 5_000, 5_000)])

    found = wait_and_handle([east, west, newer])

    assert found.wait_ever.counts == (111, 0)
    assert found.handle_ever.counts == (0, 222)
    assert (found.wait.counts, found.handle.counts) == ((3, 0), (0, 3))


def test_a_broker_that_has_seen_nothing_says_nothing() -> None:
    none = LaneTimes(lane="topic", wait=TimeCounts(), handle=TimeCounts())

    assert wait_and_handle([GroupTimes(bounds_s=[1.0], lanes=[none])]).wait.rows == 0
