"""Archives of release 0.1, with addresses as bytes: read, found, compacted, mended (P3, R23)."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from ternmq.pipeline.archive import compaction, repair
from ternmq.pipeline.archive.log import MESSAGES, ArchivePlace, Commit
from ternmq.pipeline.archive.packed_addresses import is_packed, mended
from ternmq.pipeline.archive.search import ArchiveSearch, SearchTerms
from ternmq.pipeline.archive.store import ArchiveStore
from ternmq.pipeline.archive.writer import write_rows
from ternmq.pipeline.source.columns import full_schema
from ternmq.rpc.address import packed_address

DAY = datetime(2026, 1, 2, 12, tzinfo=UTC)
SCHEMA = to_arrow_schema(full_schema("messages", properties=True), timezone="UTC")
TEXTS = ["127.0.0.1:7700", "[::1]:1234", "10.1.2.3:1", "[2001:db8::7]:65535", ""]


def rows(first: int, addresses: list[bytes]) -> pa.RecordBatch:
    """Rows as 0.1 wrote them: whatever bytes, in a column of text."""
    count = len(addresses)
    values: dict[str, list[Any]] = {
        "id": [f"{first + at:026d}" for at in range(count)],
        "sequence": list(range(first, first + count)),
        "body": [b"x"] * count,
        "properties": [[]] * count,
        "born_at": [DAY] * count,
        "stored_at": [DAY] * count,
        "size": [1] * count,
        "topic": ["orders"] * count,
        "broker_group": ["main"] * count,
        "app": ["shop"] * count,
    }
    raw = pa.array(addresses, pa.binary())
    text = pa.Array.from_buffers(pa.utf8(), count, raw.buffers())
    arrays = [
        text
        if field.name == "client_address"
        else pa.array(values.get(field.name, [None] * count), field.type)
        for field in SCHEMA
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def archive(folder: Path, *files: list[bytes]) -> str:
    """An archive with these addresses in its files."""
    store = ArchiveStore(str(folder))
    store.prepare("here")
    state = store.load()
    first = 0
    for addresses in files:
        place = ArchivePlace(MESSAGES, "orders", "main")
        added = list(write_rows(store, place, iter([rows(first, addresses)]), 9))
        assert store.commit_next(state, Commit(number=0, job="j", made_at_ms=0, added=added))
        for file in added:
            store.place(file)
        first += len(addresses)
    return str(folder)


def shown(target: str) -> list[str]:
    found = ArchiveSearch(target).messages(SearchTerms(topic="orders"))
    return [row["client_address"] for row in found]


def packed() -> list[bytes]:
    return [packed_address(text) for text in TEXTS]


def test_an_archive_with_bytes_is_found_in_as_text_and_mended_once(tmp_path: Path) -> None:
    right = [text.encode() for text in TEXTS]
    target = archive(tmp_path / "a", right, packed(), right)
    before = sorted(Path(target, "messages").rglob("*.parquet"))
    assert shown(target) == TEXTS * 3

    told: list[str] = []
    assert len(repair.repair(target, told.append, dry_run=True)) == len(told) == 1
    assert sorted(Path(target, "messages").rglob("*.parquet")) == before
    assert len(repair.repair(target, told.append)) == 1

    assert shown(target) == TEXTS * 3
    table = pq.read_table(f"{target}/messages").sort_by("sequence")
    table.validate(full=True)
    assert table.column("client_address").to_pylist() == TEXTS * 3
    assert table.column("sequence").to_pylist() == list(range(3 * len(TEXTS)))
    after = sorted(Path(target, "messages").rglob("*.parquet"))
    assert len(set(before) & set(after)) == 2, "files that are right are left alone"
    assert repair.repair(target, told.append) == []


def test_a_repair_that_was_killed_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between its commit and the placing of the file: the old one is gone by then."""
    target = archive(tmp_path / "a", packed(), packed())
    with monkeypatch.context() as patched:
        patched.setattr(ArchiveStore, "place", lambda *_: (_ for _ in ()).throw(OSError("dead")))
        with pytest.raises(OSError, match="dead"):
            repair.repair(target, lambda _: None)
    assert shown(target) == TEXTS * 2

    assert len(repair.repair(target, lambda _: None)) == 1

    table = pq.read_table(f"{target}/messages").sort_by("sequence")
    assert table.column("client_address").to_pylist() == TEXTS * 2


def test_compaction_mends_what_it_joins(tmp_path: Path) -> None:
    target = archive(tmp_path / "a", packed(), packed())
    store = ArchiveStore(target)

    batches = list(compaction._batches(store, list(store.load().files.values())))

    found = [text for batch in batches for text in batch.column("client_address").to_pylist()]
    assert found == TEXTS * 2


@pytest.mark.parametrize("text", [*TEXTS, "127.100.200.30:123", "[::ffff:1234:5678]:80", "x" * 17])
def test_text_is_never_taken_for_bytes(text: str) -> None:
    assert not is_packed(text.encode())
    batch = rows(0, [text.encode()])
    assert mended(batch) is batch
