"""Who is there."""

from ternmq.meta.routing.route_table import RouteTable
from ternmq.wire.messages.servers import Route

MASTER = Route(broker_group="a", address="10.0.0.1:7701")


def test_announced_servers_are_listed_in_a_stable_order() -> None:
    table = RouteTable(first_version=1)
    other = Route(broker_group="b", address="10.0.0.2:7701")
    table.announce(other)
    table.announce(MASTER)

    assert table.current().servers == [MASTER, other]


def test_the_version_grows_with_each_change_and_only_then() -> None:
    table = RouteTable(first_version=100)
    table.announce(MASTER)
    once = table.current()
    table.announce(MASTER)
    assert table.current() is once
    table.withdraw(MASTER)
    table.withdraw(MASTER)

    assert once.version == 101
    assert table.current().version == 102
    assert table.current().servers == []


def test_a_new_role_replaces_the_old_one() -> None:
    table = RouteTable(first_version=1)
    table.announce(MASTER)
    replica = Route(broker_group="a", address="10.0.0.1:7701", role="replica")
    table.announce(replica)

    assert table.current().servers == [replica]
