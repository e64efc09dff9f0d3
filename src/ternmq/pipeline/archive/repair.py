"""Mends an archive that release 0.1 wrote: addresses of delayed messages as text (P3).

File by file: one that holds packed addresses is written again with text, and one commit swaps old
for new, as compaction does it; killed anywhere, it goes on where it was. Files that are right are
left alone. Needs no Spark.
"""

from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from ternmq.pipeline.archive.compaction import swap
from ternmq.pipeline.archive.log import MESSAGES, ArchivedFile, ArchivePlace
from ternmq.pipeline.archive.packed_addresses import has_packed, mended
from ternmq.pipeline.archive.store import ArchiveStore
from ternmq.pipeline.archive.writer import write_rows

ROWS_AT_ONCE = 65_536


def repair(target: str, on_file: Callable[[str], None], *, dry_run: bool = False) -> list[str]:
    """Mend every file that needs it; tells and returns their paths. A dry run only looks."""
    store = ArchiveStore(target)
    store.check()
    state = store.load()
    store.finish(state)
    files = [file for file in state.files.values() if file.kind == MESSAGES]
    found: list[str] = []
    for file in files:
        with _open(store, file) as opened:
            damaged = has_packed(opened)
        if damaged:
            found.append(file.path)
            on_file(file.path)
            if not dry_run:
                swap(store, state, added=_mended(store, file), removed=[file])
    return found


def _mended(store: ArchiveStore, file: ArchivedFile) -> list[ArchivedFile]:
    place = ArchivePlace(file.kind, file.topic, file.broker_group)
    return list(write_rows(store, place, _batches(store, file), file.rows))


def _batches(store: ArchiveStore, file: ArchivedFile) -> Iterator[pa.RecordBatch]:
    with _open(store, file) as opened:
        for batch in opened.iter_batches(ROWS_AT_ONCE):
            yield mended(batch)


def _open(store: ArchiveStore, file: ArchivedFile) -> pq.ParquetFile:
    return pq.ParquetFile(store.present(file), filesystem=store.filesystem)
