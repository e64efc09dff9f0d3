"""What `tern cluster` starts, and what it remembers of it."""

from pathlib import Path

import pytest

from ternmq.cli.processes.cluster_folder import in_waves, keep_shape, settle_shape
from ternmq.cli.processes.cluster_plan import Extra, Shape, make_plan
from ternmq.core.errors import BadConfig

FOLDER = Path("/data")


def test_ports_follow_each_other_and_every_server_has_a_folder_of_its_own() -> None:
    plan = make_plan(Shape(groups=2, replicas=1, metas=2, delays=1), FOLDER, 7700)

    assert [(each.name, each.port) for each in plan.everybody] == [
        ("meta-1", 7700),
        ("meta-2", 7701),
        ("group-1-a", 7702),
        ("group-1-b", 7703),
        ("group-2-a", 7704),
        ("group-2-b", 7705),
        ("delay-1", 7706),
        ("delay-1-b", 7707),
    ]
    folders = [each.arguments[each.arguments.index("--data-dir") + 1] for each in plan.everybody]
    assert folders == [f"/data/{each.name}" for each in plan.everybody]


def test_members_of_a_broker_group_share_its_name_and_know_all_meta_servers() -> None:
    plan = make_plan(Shape(groups=1, replicas=2, metas=2), FOLDER, 7700)

    for broker in plan.brokers:
        words = broker.arguments
        assert words[words.index("--name") + 1] == "group-1"
        assert words[words.index("--url") + 1] == "tern://127.0.0.1:7700,127.0.0.1:7701"


def test_replicas_of_delay_servers_come_last_so_that_a_cluster_of_before_keeps_its_ports() -> None:
    plan = make_plan(Shape(groups=1, replicas=1, delays=2), FOLDER, 7700)

    names = {each.name: each.arguments[each.arguments.index("--name") + 1] for each in plan.delays}
    assert names == {
        "delay-1": "delay-1",
        "delay-2": "delay-2",
        "delay-1-b": "delay-1",
        "delay-2-b": "delay-2",
    }
    assert [each.port for each in plan.delays] == [7703, 7704, 7705, 7706]


def test_more_arguments_go_to_those_that_take_them() -> None:
    extra = Extra(everybody=("--config", "c.toml"), brokers=("--flush", "async"))
    plan = make_plan(Shape(replicas=0), FOLDER, 7700, extra)

    assert all("c.toml" in each.arguments for each in plan.everybody)
    assert ["--flush" in each.arguments for each in plan.everybody] == [False, True, True, False]


@pytest.mark.parametrize("base", [0, 65_534])
def test_ports_that_do_not_exist_are_refused(base: int) -> None:
    with pytest.raises(BadConfig, match="4 servers need 4 ports"):
        make_plan(Shape(replicas=0), FOLDER, base)


def test_a_cluster_that_starts_again_is_what_it_was(tmp_path: Path) -> None:
    keep_shape(tmp_path, Shape(groups=3, replicas=1))

    assert settle_shape(tmp_path, groups=None, metas=None) == Shape(groups=3, replicas=1)
    assert settle_shape(tmp_path, groups=4, metas=2).groups == 4


def test_servers_that_hold_something_start_before_those_that_are_new(tmp_path: Path) -> None:
    """A group that this registry does not know is led by its first member."""
    for name in ("group-1-a", "delay-1"):
        (tmp_path / name).mkdir()
    plan = make_plan(Shape(groups=1, replicas=1), tmp_path, 7700)
    known, new = in_waves([*plan.brokers, *plan.delays], tmp_path)
    assert [each.name for each in known] == ["group-1-a", "delay-1"]
    assert [each.name for each in new] == ["group-1-b", "delay-1-b"]


@pytest.mark.parametrize("name", ["groups", "replicas", "delays"])
def test_a_cluster_never_loses_a_server_that_holds_messages(tmp_path: Path, name: str) -> None:
    keep_shape(tmp_path, Shape(groups=2, replicas=2, delays=2))

    with pytest.raises(BadConfig, match=f"has --{name} 2, and they hold messages"):
        settle_shape(tmp_path, **{name: 1})


def test_a_damaged_note_of_what_the_cluster_was_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text("{")

    with pytest.raises(BadConfig, match="does not say what the cluster is made of"):
        settle_shape(tmp_path)


def test_a_gateway_for_rocketmq_clients_comes_after_everybody_else(tmp_path: Path) -> None:
    plan = make_plan(Shape(), tmp_path, 7700, Extra(rocketmq_port=8081))

    [gateway] = plan.gateways
    assert plan.everybody[-1] is gateway
    assert (gateway.port, gateway.arguments[:4]) == (8081, ("gateway", "serve", "--url", plan.url))
