"""Who fails too often waits, and only who."""

import pytest

from ternmq.core.errors import OverLimit
from ternmq.rpc.guarded.failed_logins import (
    OF_ADDRESS_MAX,
    OF_USER_MAX,
    SOURCES_MAX,
    WINDOW_S,
    FailedLogins,
)


class Moment:
    """Now, as the test says."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_ten_failures_of_one_user_from_one_address_are_enough() -> None:
    clock = Moment()
    failed = FailedLogins(clock)
    for _ in range(OF_USER_MAX):
        failed.check("10.0.0.1", "shop")
        failed.note("10.0.0.1", "shop")

    with pytest.raises(OverLimit) as caught:
        failed.check("10.0.0.1", "shop")
    assert caught.value.wait == pytest.approx(WINDOW_S, abs=0.1)
    failed.check("10.0.0.1", "billing")
    failed.check("10.0.0.2", "shop")
    clock.now += WINDOW_S + 1
    failed.check("10.0.0.1", "shop")


def test_many_users_tried_from_one_address_are_too_many() -> None:
    failed = FailedLogins(Moment())
    for number in range(OF_ADDRESS_MAX):
        failed.note("10.0.0.1", f"user-{number}")

    with pytest.raises(OverLimit):
        failed.check("10.0.0.1", "another")
    failed.check("10.0.0.2", "another")


def test_a_crowd_of_addresses_costs_a_bounded_memory() -> None:
    failed = FailedLogins(Moment())
    for number in range(SOURCES_MAX + 100):
        failed.note(f"10.0.{number // 256}.{number % 256}", "shop")

    assert len(failed._counts) <= SOURCES_MAX
    assert failed.total == SOURCES_MAX + 100


def test_all_addresses_of_one_network_of_ipv6_are_one() -> None:
    failed = FailedLogins(Moment())
    for number in range(OF_USER_MAX):
        failed.note(f"2001:db8:0:1:{number:x}::{number:x}", "shop")

    with pytest.raises(OverLimit):
        failed.check("2001:db8:0:1:ffff::1", "shop")
    failed.check("2001:db8:0:2::1", "shop")
    for _ in range(OF_USER_MAX):
        failed.note("::ffff:10.0.0.1", "shop")
        failed.note("fe80::1%eth0", "shop")
    with pytest.raises(OverLimit):
        failed.check("10.0.0.1", "shop")
    failed.check("::ffff:10.0.0.2", "shop")
    failed.check("fe80::2%eth0", "shop")
