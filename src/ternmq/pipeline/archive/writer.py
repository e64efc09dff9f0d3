"""What an archive task does: rows of one place into Parquet files, one for each topic and date.

Written by pyarrow in the task itself, so that bodies never cross into the JVM: zstd, a bloom filter
on id and key, page index, rows in the order of their sequence. Dates are UTC days of `stored_at`
(messages) or `at` (deliveries). The topic is not in the files: as readers of partitioned Parquet
expect, the folder says it. Files are synced before they are told to the driver.
"""

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ternmq.pipeline.archive.log import DELIVERIES, SCHEMA_VERSION, ArchivedFile, ArchivePlace
from ternmq.pipeline.archive.store import ArchiveStore, file_path

DAY_US = 86_400_000_000
ROW_GROUP_ROWS = 122_880
ROWS_WAITING_MAX = 65_536
"""Rows held for one file before they are written out."""

PLAIN = ["id", "body", "key", "order_key", "text"]  # Values that do not repeat: no dictionary.
BLOOMS = ("id", "key")


class FileWriter:
    """One Parquet file that is being written to staging."""

    def __init__(self, store: ArchiveStore, schema: pa.Schema, rows_expected: int) -> None:
        self._store = store
        self.staged = store.new_staged()
        self._path = store.absolute(self.staged)
        metadata = {**(schema.metadata or {}), b"tern.schema": b"%d" % SCHEMA_VERSION}
        options: dict[str, Any] = {}
        blooms = {name: {"ndv": rows_expected, "fpp": 0.01} for name in BLOOMS}
        options["bloom_filter_options"] = {
            name: setting for name, setting in blooms.items() if name in schema.names
        } or None
        self._writer = pq.ParquetWriter(
            self._path,
            schema.with_metadata(metadata),
            filesystem=store.filesystem,
            compression="zstd",
            compression_level=1,
            use_dictionary=[name for name in schema.names if name not in PLAIN],
            write_page_index=True,
            **options,
        )
        self._waiting: list[pa.RecordBatch] = []
        self._count = 0
        self.rows = 0
        self.first, self.end = 2**63, 0
        self.from_us, self.to_us = 2**63, 0

    def add(self, batch: pa.RecordBatch, times: np.ndarray, sequences: np.ndarray) -> None:
        self._waiting.append(batch)
        self._count += batch.num_rows
        self.rows += batch.num_rows
        self.from_us = min(self.from_us, int(times.min()))
        self.to_us = max(self.to_us, int(times.max()))
        self.first = min(self.first, int(sequences.min()))
        self.end = max(self.end, int(sequences.max()) + 1)
        if self._count >= ROWS_WAITING_MAX:
            self._write()

    def close(self) -> int:
        """Everything on disk; returns the size of the file."""
        self._write()
        self._writer.close()
        if self._store.is_local:
            file = os.open(self._path, os.O_RDONLY)
            try:
                os.fsync(file)
            finally:
                os.close(file)
        return int(self._store.filesystem.get_file_info(self._path).size)

    def _write(self) -> None:
        if self._waiting:
            table = pa.Table.from_batches(self._waiting)
            self._writer.write_table(table, row_group_size=ROW_GROUP_ROWS)
            self._waiting, self._count = [], 0


def write_rows(
    store: ArchiveStore, place: ArchivePlace, batches: Iterator[pa.RecordBatch], rows_expected: int
) -> Iterator[ArchivedFile]:
    """Write everything; the files are staged, on disk, and not yet part of the archive."""
    writers: dict[tuple[str, str], FileWriter] = {}
    column = "at" if place.kind == DELIVERIES else "stored_at"
    for batch in batches:
        for topic, date, part in _parts(place, batch, column):
            writer = writers.get((topic, date))
            if writer is None:
                writer = FileWriter(store, part.schema, max(rows_expected, 1))
                writers[topic, date] = writer
            writer.add(part, _numbers(part, column), _numbers(part, "sequence"))
    for (topic, date), writer in writers.items():
        size = writer.close()
        name = f"{place.broker_group}-{writer.first:020d}-{writer.end:020d}-"
        yield ArchivedFile(
            path=file_path(place.kind, topic, date, name + writer.staged.rpartition("/")[2]),
            kind=place.kind,
            topic=topic,
            date=date,
            broker_group=place.broker_group,
            first=writer.first,
            end=writer.end,
            rows=writer.rows,
            size=size,
            from_ms=writer.from_us // 1000,
            to_ms=writer.to_us // 1000,
        )


def _parts(
    place: ArchivePlace, batch: pa.RecordBatch, column: str
) -> Iterator[tuple[str, str, pa.RecordBatch]]:
    """The batch by topic and day; nearly always it is one part, whole."""
    days = _numbers(batch, column) // DAY_US
    if "topic" in batch.schema.names and place.kind == DELIVERIES:
        topics = batch.column("topic").dictionary_encode()
        codes = topics.indices.to_numpy(zero_copy_only=False)
        names = topics.dictionary.to_pylist()
    else:
        codes, names = np.zeros(len(days), np.int64), [place.topic]
    if "topic" in batch.schema.names:
        batch = batch.drop_columns(["topic"])  # The folder says it.
    keys = codes.astype(np.int64) * 10_000_000 + days
    if len(keys) == 0:
        return
    if keys[0] == keys[-1] and (keys == keys[0]).all():
        yield names[int(codes[0])], _date(int(days[0])), batch
        return
    for key in np.unique(keys):
        chosen = np.flatnonzero(keys == key)
        part = batch.take(pa.array(chosen))
        yield names[int(codes[chosen[0]])], _date(int(days[chosen[0]])), part


def _numbers(batch: pa.RecordBatch, column: str) -> np.ndarray:
    values = pc.cast(batch.column(column), pa.int64())
    return values.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def _date(day: int) -> str:
    return str(np.datetime64(day, "D"))
