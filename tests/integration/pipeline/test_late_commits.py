"""A driver that is away between staging and commit: for a day nothing happens, for too long it is
said, and the rows are written again (P2)."""

from pathlib import Path

import pytest

from ternmq.core.errors import Unavailable
from ternmq.pipeline.cluster import ClusterView
from ternmq.pipeline.sink import commit as sink_commit
from ternmq.pipeline.sink.rows import batches
from ternmq.pipeline.sink.stage import Stage, TaskDone
from ternmq.sync import connect
from tests.integration.processes import Node, NodeFactory
from tests.integration.turned_clock import SharedClock
from tests.waiting import wait_until

pa = pytest.importorskip("pyarrow")
HOURS = 3_600.0


@pytest.fixture
def clock(tmp_path: Path) -> SharedClock:
    return SharedClock(tmp_path / "clock")


@pytest.fixture
def node(node_factory: NodeFactory, clock: SharedClock) -> Node:
    return node_factory(prefix=clock.prefix)


def staged(node: Node, name: str, *bodies: bytes) -> TaskDone:
    """What a task does."""
    stage = Stage(ClusterView(node.url), TaskDone(name, ["main"], 0, "main"))
    for columns in batches(pa.RecordBatch.from_pydict({"body": list(bodies)}), 1_000):
        stage.add("orders", columns)
    return stage.finish()


def commit(node: Node, done: TaskDone) -> int:
    """What a driver does, in whichever process."""
    return sink_commit.commit(ClusterView(node.url), [done])


def bodies(node: Node) -> list[bytes]:
    with connect(node.url, app="test") as mq:
        return [message.body for message in mq.read("orders")]


@pytest.mark.long
def test_a_day_between_staging_and_commit_changes_nothing(node: Node, clock: SharedClock) -> None:
    """Nor do two days between it and its repetition by a driver that did not hear the answer."""
    done = staged(node, "query:1", b"a", b"b")
    clock.turn(24 * HOURS)
    node.kill()
    node.start()
    assert bodies(node) == []
    assert commit(node, done) == 2
    clock.turn(48 * HOURS)
    assert commit(node, done) == 0
    again = staged(node, "query:1", b"a", b"b")
    assert (again.committed, again.rows, commit(node, again)) == (True, 0, 0)
    assert bodies(node) == [b"a", b"b"]


def test_after_the_limit_it_is_said_and_the_next_run_writes_the_rows(
    node: Node, clock: SharedClock
) -> None:
    done = staged(node, "query:1", b"a", b"b")
    clock.turn(71 * HOURS)
    node.kill()
    node.start()
    with connect(node.url) as mq:
        assert mq.admin.halves().total == 1
    clock.turn(2 * HOURS)
    node.kill()
    node.start()
    with connect(node.url) as mq:
        wait_until(lambda: mq.admin.halves().total == 0, "nobody waits any longer")
    with pytest.raises(Unavailable, match=r"are gone: they wait 72 h .* run it again"):
        commit(node, done)
    assert bodies(node) == []
    again = staged(node, "query:1", b"a", b"b")
    assert commit(node, again) == 2
    assert bodies(node) == [b"a", b"b"]
