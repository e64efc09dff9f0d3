"""The Delta log follows the archive's own: what it adds, what it removes, and nothing twice."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from ternmq.core.errors import BadRequest
from ternmq.pipeline.archive import delta_mirror
from ternmq.pipeline.archive.log import MESSAGES, ArchivedFile, ArchiveState
from ternmq.pipeline.archive.store import ArchiveStore, file_path


@pytest.fixture
def store(tmp_path: Path) -> ArchiveStore:
    found = ArchiveStore(str(tmp_path / "archive"))
    found.prepare("here")
    return found


def write(store: ArchiveStore, topic: str, first: int, end: int) -> ArchivedFile:
    path = file_path(MESSAGES, topic, "2026-01-31", f"main-{first}-{end}-x.parquet")
    full = Path(store.absolute(path))
    full.parent.mkdir(parents=True, exist_ok=True)
    schema = pa.schema([pa.field("sequence", pa.int64(), False)])
    pq.write_table(pa.table({"sequence": range(first, end)}, schema=schema), full)
    return ArchivedFile(
        path=path,
        kind=MESSAGES,
        topic=topic,
        date="2026-01-31",
        broker_group="main",
        first=first,
        end=end,
        rows=end - first,
        size=full.stat().st_size,
        from_ms=0,
        to_ms=1,
    )


def state(*files: ArchivedFile) -> ArchiveState:
    return ArchiveState(files={file.path: file for file in files})


def table(store: ArchiveStore) -> DeltaTable:
    return DeltaTable(store.absolute(MESSAGES))


def rows(store: ArchiveStore) -> list[tuple[str, int]]:
    found = table(store).to_pyarrow_table()
    return sorted(zip(found["topic"].to_pylist(), found["sequence"].to_pylist(), strict=True))


def test_files_that_come_and_go_come_and_go_there(store: ArchiveStore) -> None:
    one, two = write(store, "orders", 0, 3), write(store, "orders", 3, 5)

    delta_mirror.mirror(store, state(one))
    delta_mirror.mirror(store, state(one, two))
    assert rows(store) == [("orders", n) for n in range(5)]
    joined = write(store, "orders", 0, 5)
    delta_mirror.mirror(store, state(joined))
    store.delete(one.path)
    store.delete(two.path)

    assert rows(store) == [("orders", n) for n in range(5)]
    assert table(store).version() == 2


def test_saying_the_same_again_adds_nothing(store: ArchiveStore) -> None:
    files = state(write(store, "orders", 0, 3), write(store, "%odd name", 0, 2))

    delta_mirror.mirror(store, files)
    delta_mirror.mirror(store, files)

    assert table(store).version() == 0
    assert rows(store) == [("%odd name", 0), ("%odd name", 1), *(("orders", n) for n in range(3))]
    delta_mirror.mirror(store, state(write(store, "orders", 0, 3)))
    assert rows(store) == [("orders", n) for n in range(3)], "the odd one is gone"


def test_an_archive_without_delta_gets_none(store: ArchiveStore) -> None:
    assert not delta_mirror.is_mirrored(store)
    delta_mirror.mirror(store, state())
    assert not delta_mirror.is_mirrored(store)


def test_an_object_store_is_refused() -> None:
    with pytest.raises(BadRequest, match="needs an archive in a folder"):
        delta_mirror.check(ArchiveStore("s3://lake/archive?region=us-east-1"))
