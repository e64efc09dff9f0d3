"""Compacts an archive: many small files become few large ones, and old days are removed.

Compaction takes the files of one topic, day and broker group, and writes them again in the order of
their sequence; one commit swaps old for new. Retention is a commit that removes whole days. Old
files are deleted after their commit. Today's files are left alone while they still come.
"""

import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from ternmq.core.errors import Unavailable
from ternmq.core.units import DAY_MS
from ternmq.pipeline.archive import delta_mirror
from ternmq.pipeline.archive.log import (
    MESSAGES,
    ArchivedFile,
    ArchivePlace,
    ArchiveState,
    Commit,
)
from ternmq.pipeline.archive.packed_addresses import mended
from ternmq.pipeline.archive.store import ArchiveStore
from ternmq.pipeline.archive.writer import write_rows

FILES_MIN = 2
ROWS_MAX = 8_000_000
"""In one compacted file."""
STAGED_GRACE_S = 3600.0

Pieces = list[ArchivedFile]


def pieces_to_compact(state: ArchiveState, today: str) -> list[Pieces]:
    """Pure: which files become one; only days that have ended."""

    def place(file: ArchivedFile) -> tuple[str, ...]:
        return file.kind, file.topic, file.date, file.broker_group

    old = sorted(
        (file for file in state.files.values() if file.date < today),
        key=lambda file: (*place(file), file.first, file.path),
    )
    found: list[Pieces] = []
    for _, group in groupby(old, key=place):
        waiting: Pieces = []
        rows = 0
        for file in group:
            if waiting and rows + file.rows > ROWS_MAX:
                found.append(waiting)
                waiting, rows = [], 0
            waiting.append(file)
            rows += file.rows
        found.append(waiting)
    return [pieces for pieces in found if len(pieces) >= FILES_MIN]


def too_old(state: ArchiveState, first_date: str) -> Pieces:
    """Pure: the files of days before `first_date`."""
    return [file for file in state.files.values() if file.date < first_date]


def compact(
    spark: SparkSession, target: str, today: str, on_progress: Callable[[int, int], None]
) -> tuple[int, int]:
    """Compact every day that has ended; returns (files before, files after)."""
    store = ArchiveStore(target)
    store.check()
    state = store.load()
    store.finish(state)
    work = pieces_to_compact(state, today)
    before = after = 0
    for done, pieces in enumerate(work):
        texts = [msgspec.json.encode(file).decode() for file in pieces]
        [made] = spark.sparkContext.parallelize([texts], 1).map(_rewrite(target)).collect()
        added = [msgspec.json.decode(text, type=ArchivedFile) for text in made]
        swap(store, state, added=added, removed=pieces)
        before, after = before + len(pieces), after + len(added)
        on_progress(done + 1, len(work))
    store.drop_staged(state, STAGED_GRACE_S, time.time())
    return before, after


def drop_old(target: str, first_date: str) -> int:
    """Remove the days before `first_date`; returns how many files that were."""
    store = ArchiveStore(target)
    store.check()
    state = store.load()
    store.finish(state)
    old = too_old(state, first_date)
    if old:
        swap(store, state, added=[], removed=old)
    return len(old)


def first_date_kept(keep_ms: int, now_ms: int) -> str:
    """The oldest UTC day of which something is younger than `keep_ms`."""
    day = max(0, now_ms - keep_ms) // DAY_MS
    return time.strftime("%Y-%m-%d", time.gmtime(day * DAY_MS / 1000))


def swap(
    store: ArchiveStore, state: ArchiveState, *, added: Pieces, removed: Iterable[ArchivedFile]
) -> None:
    """One commit that puts files in the place of others, or removes them."""
    paths = [file.path for file in removed]
    commit = Commit(
        number=0,
        job=secrets.token_hex(8),
        made_at_ms=int(time.time() * 1000),
        added=added,
        removed=paths,
    )
    if not store.commit_next(state, commit):  # An archive job may run all the while.
        raise Unavailable("the archive was changed by another job meanwhile; run this again")
    for path in paths:  # Before the new ones are placed: nobody may see a row twice.
        store.delete(path)
    for file in added:
        store.place(file)
    if delta_mirror.is_mirrored(store):
        delta_mirror.mirror(store, state)


def _rewrite(target: str) -> Callable[[list[str]], list[str]]:
    def rewrite(texts: list[str]) -> list[str]:
        store = ArchiveStore(target)
        pieces = [msgspec.json.decode(text, type=ArchivedFile) for text in texts]
        first = pieces[0]
        place = ArchivePlace(first.kind, first.topic, first.broker_group)
        rows = sum(file.rows for file in pieces)
        made = write_rows(store, place, _batches(store, pieces), rows)
        return [msgspec.json.encode(file).decode() for file in made]

    return rewrite


def _batches(store: ArchiveStore, pieces: Pieces) -> Iterator[Any]:
    """The rows of files that do not overlap, one file after the other (messages), or merged."""
    if pieces[0].kind != MESSAGES:
        tables = [_open(store, file).read() for file in pieces]
        merged = pa.concat_tables(tables).sort_by([("at", "ascending"), ("position", "ascending")])
        yield from merged.to_batches(max_chunksize=65_536)
        return
    for file in pieces:
        for batch in _open(store, file).iter_batches(65_536):
            yield mended(batch)


def _open(store: ArchiveStore, file: ArchivedFile) -> pq.ParquetFile:
    return pq.ParquetFile(store.present(file), filesystem=store.filesystem)
