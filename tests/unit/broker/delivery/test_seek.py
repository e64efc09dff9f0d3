"""How many messages so many stored bytes are: the SEEK that a stream limited by bytes asks."""

from ternmq.broker.delivery.seek import weighed
from ternmq.storage.consume.entry import ConsumeEntry, Location


def entry(base: int, count: int, size: int, location: int = Location.MESSAGE_LOG) -> ConsumeEntry:
    return ConsumeEntry(base, 0, size, count, 0, 0, 0, location)


def test_a_batch_counts_by_the_rows_that_are_wanted_of_it() -> None:
    assert weighed([entry(0, 10, 1_000), entry(10, 5, 300)], 8) == (15, 500)
    assert weighed([entry(0, 10, 1_000, Location.LOST)], 0) == (10, 0)
    assert weighed([], 7) == (7, 0)
