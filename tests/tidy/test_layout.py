"""Tests lie where their sources do, whatever boots a node lies with the integration tests, and
nobody waits by hand."""

import ast
import re
from pathlib import Path

from tests.tidy.source import PACKAGE, ROOT, modules, settled

UNIT = ROOT / "tests" / "unit"
INTEGRATION = ROOT / "tests" / "integration"
SIMULATION = ROOT / "tests" / "simulation"
FOLDER_FILES_MAX = 20

BOOTS_A_NODE = re.compile(
    r"^from ternmq\.testing(\.node)? import (.*\b)?node\b"
    r"|ternmq\.testing\.pytest_plugin|\bserving_(node|meta|broker_alone|delay_alone|meta_alone)\b",
    re.MULTILINE,
)

BEHAVIOURS = {
    "broker/groups/test_lane_reset.py",
    "client/consuming/test_stop_pulling.py",
    "client/producing/test_used_up_limits.py",
    "client/test_contract.py",
    "delay/store/test_damage.py",
    "delay/store/test_many_hours.py",
    "delay/store/test_replica.py",
    "delay/timing/test_hot_hour.py",
    "meta/registries/test_registry_documents.py",
    "meta/registries/test_registry_standings.py",
    "replication/leading/test_needed_log.py",
    "replication/member/test_damage.py",
    "rpc/test_bad_peers.py",
    "rpc/test_open_files.py",
    "storage/test_replica.py",
    "wire/messages/test_commands.py",
}
"""Tests of what several modules do together, beside those modules. The list only shrinks."""

POLLERS = {
    "tests/simulation/cluster/load.py",
    "tests/waiting.py",
}
"""The one poller, and one that waits in virtual time. The list only shrinks."""


def test_every_folder_of_unit_tests_is_a_folder_of_sources() -> None:
    folders = [path.parent.relative_to(UNIT) for path in UNIT.rglob("*.py")]

    assert not [folder.as_posix() for folder in folders if not (PACKAGE / folder).is_dir()]


def test_a_unit_test_has_the_name_of_its_module() -> None:
    others = [
        path.relative_to(UNIT).as_posix()
        for path in UNIT.rglob("test_*.py")
        if not source_of(path).is_file()
    ]

    assert not settled(others, allowed=BEHAVIOURS)


def test_no_unit_test_boots_a_node() -> None:
    booting = [
        module.name
        for module in modules()
        if module.path.is_relative_to(UNIT) and BOOTS_A_NODE.search(module.text)
    ]

    assert not booting


def test_integration_tests_and_simulations_are_in_rooms() -> None:
    assert not list(INTEGRATION.glob("test_*.py"))
    full = [
        room.relative_to(ROOT).as_posix()
        for tests in (INTEGRATION, SIMULATION)
        for room in tests.iterdir()
        if room.is_dir() and len(list(room.glob("*.py"))) > FOLDER_FILES_MAX
    ]

    assert not full
    assert not list(SIMULATION.glob("test_*.py"))


def test_nobody_polls_by_hand() -> None:
    """`tests/waiting.py` does: with a deadline, and it says what it waited for."""
    found = [
        module.name
        for module in modules()
        if module.path.is_relative_to(ROOT / "tests")
        for node in ast.walk(module.tree)
        if isinstance(node, ast.While) and polls(node)
    ]

    assert not settled(set(found), allowed=POLLERS)


def polls(loop: ast.While) -> bool:
    """Does it do nothing but look and sleep? One that goes on for a time is no poller."""
    sleeps = [is_sleep(step) for step in loop.body]
    looks = [isinstance(step, ast.Assert | ast.If | ast.With) for step in loop.body]
    for_a_time = any(word in ast.unparse(loop.test) for word in ("monotonic()", "time()"))
    return any(sleeps) and all(map(any, zip(sleeps, looks, strict=True))) and not for_a_time


def is_sleep(step: ast.stmt) -> bool:
    value = step.value if isinstance(step, ast.Expr) else None
    call = value.value if isinstance(value, ast.Await) else value
    return isinstance(call, ast.Call) and ast.unparse(call.func).split(".")[-1] == "sleep"


def source_of(test: Path) -> Path:
    """`tests/unit/storage/log/test_recovery.py` is about `storage/log/recovery.py`."""
    folder = PACKAGE / test.parent.relative_to(UNIT)
    return folder / f"{test.stem.removeprefix('test_')}.py"
