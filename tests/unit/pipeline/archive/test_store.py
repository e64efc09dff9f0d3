"""The commit log on a disk: steps beside other jobs, a log with a hole, a job that died early."""

from pathlib import Path

import pytest

from ternmq.core.errors import BadRequest, Corrupt
from ternmq.pipeline.archive.log import ArchiveState
from ternmq.pipeline.archive.store import CONTROL, ArchiveStore
from tests.unit.pipeline.archive.test_log import PLACE, a_commit


@pytest.fixture
def store(tmp_path: Path) -> ArchiveStore:
    found = ArchiveStore(str(tmp_path / "archive"))
    found.prepare("here")
    return found


def test_a_step_comes_after_what_others_did_meanwhile(store: ArchiveStore) -> None:
    """P3: a compaction beside an archive job that commits all the while."""
    own = store.load()
    store.commit(ArchiveState(), a_commit(1, -1, 0, 10))
    removal = a_commit(1, 10, 10, 12)

    assert store.commit_next(own, removal)
    assert (own.number, own.marks[PLACE].end) == (2, 12)
    assert not store.commit_next(own, removal), "it does not follow on any more"
    assert store.load().number == 2


def test_a_log_with_a_hole_is_refused(store: ArchiveStore) -> None:
    """What comes after the hole would be written over, in silence."""
    state = store.load()
    for number in range(3):
        store.commit(state, a_commit(number + 1, number * 10 or -1, number * 10, number * 10 + 10))
    Path(store.absolute(f"{CONTROL}/commits/{2:020d}.json")).unlink()

    with pytest.raises(Corrupt, match=f"{2:020d}.json is missing"):
        store.load()


def test_a_job_that_died_before_its_header_is_no_harm(tmp_path: Path) -> None:
    (tmp_path / CONTROL / "commits").mkdir(parents=True)
    store = ArchiveStore(str(tmp_path))

    store.prepare("here")

    store.check()
    with pytest.raises(BadRequest, match="archive of cluster here"):
        store.prepare("there")


@pytest.mark.parametrize(
    ("target", "said"),
    [("", "say where"), (" ", "say where"), ("s3://", "no bucket"), ("file:///", "no bucket")],
)
def test_a_place_that_is_none_is_refused(target: str, said: str) -> None:
    with pytest.raises(BadRequest, match=said):
        ArchiveStore(target)
