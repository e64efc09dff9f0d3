"""Who is there."""

from ternmq.meta.routing.route_table import BODY_SIZES_MAX, RouteTable
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


def test_clients_are_told_which_topics_take_only_small_bodies() -> None:
    """D2: of very many such topics some, since every client gets them all."""
    table = RouteTable(first_version=1)
    table.limit_bodies("small", 100)
    before = table.current()
    table.limit_bodies("small", 100)
    assert table.current() is before, "no news"
    assert before.body_sizes == {"small": 100}

    for number in range(BODY_SIZES_MAX):
        table.limit_bodies(f"t{number}", 100)
    assert len(table.current().body_sizes) == BODY_SIZES_MAX
    table.limit_bodies("small", None)
    assert "small" not in table.current().body_sizes
