"""Producer ids and message numbers."""

from ternmq.client.producing.producer_id import ProducerIdentity
from ternmq.core.ids import MESSAGE_SEQUENCE_MAX


class Clock:
    """A clock that the test turns."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def now_ms(self) -> int:
        return int(self.seconds * 1000)

    def monotonic(self) -> float:
        return self.seconds


def test_numbers_are_given_out_once_and_in_order() -> None:
    identity = ProducerIdentity(Clock())
    runs = [identity.take(count)[1] for count in (1, 5, 2)]

    assert runs == [0, 1, 6]


def test_an_incarnation_lasts_an_hour() -> None:
    clock = Clock()
    identity = ProducerIdentity(clock)
    before, _ = identity.take(10)
    clock.seconds += 3599
    assert identity.take(1) == (before, 10)
    clock.seconds += 1
    after, first = identity.take(1)

    assert after != before
    assert after.start_ms == 4_600_000
    assert first == 0


def test_numbers_never_run_over_their_40_bits() -> None:
    identity = ProducerIdentity(Clock())
    before, _ = identity.take(MESSAGE_SEQUENCE_MAX - 5)
    after, first = identity.take(10)

    assert after != before
    assert first == 0
