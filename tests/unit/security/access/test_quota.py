"""How much a user may have: values and their default, and what is counted of one (S3, quotas)."""

import pytest

from ternmq.core.errors import BadRequest, OverLimit
from ternmq.security.access.access_book import AccessBook, AccessEntry
from ternmq.security.access.quota import AS_DEFAULT, UserUse, changed, check_quota, effective
from ternmq.testing.clock import TurnedClock
from ternmq.wire.messages.limits import Quota


class StoppedPeer:
    def __init__(self) -> None:
        self.went_on = 0

    def go_on_within_quota(self) -> None:
        self.went_on += 1


def use_of(clock: TurnedClock, **values: int) -> UserUse:
    return UserUse("shop", Quota(**values), clock.monotonic)


def test_what_is_not_said_of_a_user_is_what_everybody_has() -> None:
    default = Quota(rate=10, loop_percent=5)
    assert effective(Quota(rate=7), default).rate == 7
    assert effective(Quota(rate=0), default).rate == 0, "no limit, whatever everybody has"
    assert effective(Quota(), default).loop_percent == 5
    assert effective(Quota(), Quota()).rate == 0
    book = AccessBook()
    book.put("shop", AccessEntry(user=True, connections_max=3, quota=Quota(rate=7)))
    book.put("*", AccessEntry(quota=default))
    assert (book.quota("shop").rate, book.quota("shop").connections_max) == (7, 3)
    assert (book.quota("bank").rate, book.quota("bank").connections_max) == (10, 0)


def test_a_change_leaves_what_it_does_not_name_and_can_take_back() -> None:
    held = changed(Quota(rate=5), check_quota({"bytes_rate": 9}))
    assert (held.rate, held.bytes_rate) == (5, 9)
    assert changed(held, check_quota({"rate": AS_DEFAULT})) == Quota(bytes_rate=9)


@pytest.mark.parametrize(
    "values", [{"speed": 1}, {"rate": -2}, {"loop_percent": 101}, {"rate": 2**60}]
)
def test_what_is_no_quota_is_refused_with_what_there_is(values: dict[str, int]) -> None:
    with pytest.raises(BadRequest, match=r"rate|loop_percent"):
        check_quota(values)


def test_connections_and_how_fast_they_come_are_bounded_but_for_the_first_of_an_admin() -> None:
    clock = TurnedClock()
    use = use_of(clock, connections_max=6, connects_rate=5)
    for _ in range(5):
        use.connect(reserved=False)
    with pytest.raises(OverLimit, match="--connects N/s") as caught:
        use.connect(reserved=True)
    assert caught.value.details["wait_ms"] > 0
    clock.turn(1)
    use.connect(reserved=False)
    with pytest.raises(OverLimit, match=r"its 6 connections.*--connections N"):
        use.connect(reserved=False)
    use.connections = 0
    for _ in range(4):
        use.connect(reserved=False)
    use.connections = 0
    with pytest.raises(OverLimit, match="--connects N/s"):
        use.connect(reserved=False)
    use.connect(reserved=True)


def test_a_batch_too_much_is_told_how_long_to_wait() -> None:
    clock = TurnedClock()
    use = use_of(clock, rate=10, bytes_rate=1_000)
    use.check_sending(1, 3_000)
    with pytest.raises(OverLimit, match="10 messages and 1000 bytes a second") as caught:
        use.check_sending(1, 1)
    assert 2_000 <= caught.value.details["wait_ms"] <= 2_100
    clock.turn(2.1)
    use.check_sending(1, 1)
    use.change(Quota())
    use.check_sending(10**6, 10**9)
    assert use.sending is None


def test_requests_that_are_not_answered_and_bytes_on_their_way_are_bounded() -> None:
    clock = TurnedClock()
    use = use_of(clock, waiting_max=2, in_flight_size_max=100)
    use.ask()
    use.ask()
    with pytest.raises(OverLimit, match="2 requests that are not answered"):
        use.ask()
    assert not use.hold(100)
    assert use.hold(1)
    peer = StoppedPeer()
    use.stopped[peer] = None
    assert use.release(40) == [], "more than half is on its way"
    assert use.release(40) == [peer]
    assert use.release(21) == []


def test_who_had_its_share_of_the_loop_rests_until_it_is_paid_back() -> None:
    clock = TurnedClock()
    use = use_of(clock, loop_percent=10)
    assert use.spend(0.05) == 0
    assert use.spend(0.25) == pytest.approx(2.0, abs=0.01)
    clock.turn(2.1)
    assert use.spend(0.0) == 0
    assert use_of(clock).spend(100.0) == 0
