"""Where the console beside a cluster of this machine listens, and when there is none."""

from pathlib import Path

import pytest

from ternmq.cli.processes import child_console
from ternmq.cli.processes.child_console import ConsolePlace
from ternmq.cli.processes.cluster_plan import ClusterPlan, Extra, Shape, make_plan


def plan_of(groups: int) -> ClusterPlan:
    return make_plan(Shape(groups=groups, replicas=0), Path("/data"), 7700, Extra())


def test_it_listens_behind_the_ports_of_the_servers() -> None:
    small = ConsolePlace.beside(plan_of(2), 7700, wanted=True, secured=False)
    large = ConsolePlace.beside(plan_of(90), 7700, wanted=True, secured=False)

    assert (small.runs, small.shown) == (True, "http://127.0.0.1:7780")
    secured = ConsolePlace.beside(plan_of(2), 7700, wanted=True, secured=True)
    assert (secured.runs, secured.shown) == (True, "https://127.0.0.1:7780")
    assert large.port > max(each.port for each in plan_of(90).everybody)


def test_there_is_none_where_none_is_wanted_or_nobody_could_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unwanted = ConsolePlace.beside(plan_of(1), 7700, wanted=False, secured=False)
    monkeypatch.setattr(child_console, "find_spec", lambda name: None)
    missing = ConsolePlace.beside(plan_of(1), 7700, wanted=True, secured=False)

    assert not (unwanted.runs or missing.runs)
    assert unwanted.shown == ""
    assert "pip install" in missing.shown
