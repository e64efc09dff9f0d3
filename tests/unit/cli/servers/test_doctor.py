"""How `tern doctor` judges what it found."""

from typing import Any

import msgspec
import pytest

from ternmq.cli.servers.doctor import (
    judge_advertised,
    judge_clock,
    judge_delays,
    judge_disk,
    judge_port,
    judge_registry,
    judge_routes,
    judge_security,
    judge_standing,
    judge_state,
    judge_tls,
)
from ternmq.cli.servers.doctor_report import Level
from ternmq.core.units import DAY_MS, GIB, MIB
from ternmq.wire.messages.servers import Route
from ternmq.wire.messages.standings import Member, Standing
from ternmq.wire.messages.stats import Status


def a_status(**changed: Any) -> Status:
    values: dict[str, Any] = {
        "node": "n1",
        "role": "broker",
        "state": "ok",
        "address": "127.0.0.1:7701",
        "data_dir": "/data",
        "started_at_ms": 0,
        "now_ms": 0,
        "disk_free": 50 * GIB,
        "disk_size": 100 * GIB,
        "cpu_s": 1.0,
        "memory": 64 * MIB,
        "connections": 1,
        "log_start": 0,
        "log_end": 0,
    }
    return Status(**(values | changed))


def test_an_unreachable_port_says_what_to_do() -> None:
    found = judge_port("meta", "127.0.0.1:7700", "Connection refused")

    assert found.level is Level.FAIL
    assert "tern up" in found.advice
    assert judge_port("meta", "127.0.0.1:7700", None).level is Level.OK


@pytest.mark.parametrize(
    ("node_ms", "level", "said"),
    [
        (1_050, Level.OK, "0 ms"),
        (1_100 + 999, Level.OK, "999 ms ahead"),
        (1_100 + 1_000, Level.WARN, "1000 ms ahead"),
        (1_000 - 5_000, Level.WARN, "5000 ms behind"),
        (1_100 + 60_000, Level.FAIL, "60000 ms ahead"),
    ],
)
def test_only_a_clock_outside_the_time_of_asking_is_wrong(
    node_ms: int, level: Level, said: str
) -> None:
    found = judge_clock(node_ms, before_ms=1_000, after_ms=1_100)

    assert found.level is level
    assert said in found.found


@pytest.mark.parametrize(
    ("free", "level"),
    [(50 * GIB, Level.OK), (10 * GIB, Level.WARN), (4 * GIB, Level.FAIL), (0, Level.FAIL)],
)
def test_a_disk_that_fills_up_is_told_in_time(free: int, level: Level) -> None:
    assert judge_disk(a_status(disk_free=free)).level is level


def test_a_small_disk_fails_by_size_not_by_part() -> None:
    found = judge_disk(a_status(disk_free=200 * MIB, disk_size=300 * MIB))

    assert found.level is Level.FAIL


def test_a_node_that_refuses_messages_fails_with_its_own_reason() -> None:
    found = judge_state(a_status(state="disk full"))

    assert (found.level, found.found) == (Level.FAIL, "disk full")
    assert judge_state(a_status()).level is Level.OK
    assert judge_registry(a_status(registry="sqlite")).level is Level.OK
    gone = judge_registry(a_status(registry="zk h:1", state="silent", registry_at_ms=1_000))
    assert (gone.level, gone.found) == (
        Level.FAIL,
        "zk h:1, last heard 1970-01-01T00:00:01.000Z: silent",
    )


def test_loopback_advertised_by_another_machine_fails_even_if_something_answers_here() -> None:
    """The commonest complaint about every peer (design 10)."""
    route = Route(broker_group="main", address="127.0.0.1:7701")

    assert judge_advertised(route, ["10.0.0.5:7700"], None).level is Level.FAIL
    assert judge_advertised(route, ["127.0.0.1:7700"], None).level is Level.OK
    assert judge_advertised(route, ["127.0.0.1:7700"], "refused").level is Level.FAIL


def test_no_broker_at_all_fails() -> None:
    assert judge_routes([]).level is Level.FAIL
    assert judge_routes([Route(broker_group="main", address="a:1")]).level is Level.OK


def test_without_a_delay_server_there_is_a_warning_and_a_way_out() -> None:
    broker = Route(broker_group="main", address="h:1")
    delay = Route(broker_group="later", address="h:2", kind="delay")

    assert judge_delays([broker, delay]).found == "later"
    missing = judge_delays([broker])
    assert (missing.level, "tern delay serve" in missing.advice) == (Level.WARN, True)
    assert judge_routes([delay]).level is Level.FAIL, "a delay server is no broker"


def test_a_group_without_a_master_fails_and_one_with_a_member_behind_is_a_warning() -> None:
    one = Member(id="1" * 16, name="one", address="h:1")
    two = Member(id="2" * 16, name="two", address="h:2")
    group = Standing(
        broker_group="main", epoch=3, master=one.id, in_sync=[one.id, two.id], members=[one, two]
    )
    well = judge_standing(group)
    assert (well.level, well.found) == (Level.OK, "2 of 2 in sync, epoch 3")
    late = judge_standing(msgspec.structs.replace(group, in_sync=[one.id]))
    assert (late.level, "behind: two" in late.found) == (Level.WARN, True)
    headless = judge_standing(msgspec.structs.replace(group, master=""))
    assert (headless.level, "tern broker promote main" in headless.advice) == (Level.FAIL, True)


def test_replicas_alone_take_no_messages() -> None:
    replica = Route(broker_group="main", address="a:1", role="replica")

    assert judge_routes([replica]).level is Level.FAIL


def test_a_cluster_that_lets_everybody_in_is_named_every_time() -> None:
    assert judge_security(a_status()) == []
    [finding] = judge_security(a_status(insecure=True))
    assert finding.level is Level.WARN and "insecure" in finding.found
    for guarded, said in ((True, "a:1 let everybody in"), (False, "a:1 let in only who logs in")):
        [finding] = judge_security(a_status(guarded=guarded, guarded_otherwise=["a:1"]))
        assert finding.level is Level.FAIL
        assert said in finding.found


def test_a_certificate_is_named_in_time_and_so_are_files_that_are_not_taken() -> None:
    now = a_status().now_ms
    assert judge_tls(a_status()) == []
    [good] = judge_tls(a_status(tls_expires_at_ms=now + 90 * DAY_MS))
    [soon] = judge_tls(a_status(tls_expires_at_ms=now + 10 * DAY_MS))
    [over] = judge_tls(a_status(tls_expires_at_ms=now - DAY_MS))
    [bad] = judge_tls(a_status(tls_expires_at_ms=now + 90 * DAY_MS, tls_trouble="no PEM"))

    assert [each.level for each in (good, soon, over, bad)] == [
        Level.OK,
        Level.WARN,
        Level.FAIL,
        Level.FAIL,
    ]
    assert "tern secure cert" in soon.advice
    assert "no PEM" in bad.found
