"""The line between two threads."""

import threading

from ternmq.kombu.arrival_queue import ArrivalQueue


def test_many_that_arrive_together_wake_once_and_come_in_order() -> None:
    arrivals: ArrivalQueue[int] = ArrivalQueue()

    def put() -> None:
        for number in range(100_000):
            arrivals.put(number)
            arrivals.wake()

    thread = threading.Thread(target=put)
    thread.start()
    found: list[int] = []
    while len(found) < 100_000:
        assert arrivals.wait(20)
        found += arrivals.take_all()
    thread.join()

    assert found == list(range(100_000))
    assert arrivals.take_all() == []
    assert not arrivals.wait(0)
    arrivals.close()
    arrivals.wake()  # Late news harm nobody.
