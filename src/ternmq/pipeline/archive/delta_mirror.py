"""The archive as Delta tables: a Delta log beside the Parquet files, for readers that want one.

The archive's own commit log stays the truth. After each of its commits the difference between the
files it names and those that the Delta log names becomes one Delta commit; so a job that died in
between is made good by the next one, and nothing is ever added twice. No data is written here, and
no jar is needed: the log is written by the package `deltalake`. Folders only, no object stores.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from ternmq.core.errors import BadRequest
from ternmq.pipeline.archive.log import DELIVERIES, MESSAGES, ArchivedFile, ArchiveState
from ternmq.pipeline.archive.store import ArchiveStore

PARTITIONS = ("topic", "date")


def check(store: ArchiveStore) -> None:
    """Refuse what cannot be mirrored, before anything is written."""
    if not store.is_local:
        raise BadRequest("--format delta needs an archive in a folder, not in an object store")
    try:
        import deltalake as _  # noqa: F401
    except ImportError:
        raise BadRequest("--format delta needs the package deltalake: ternmq[delta]") from None


def is_mirrored(store: ArchiveStore) -> bool:
    return store.is_local and any(
        Path(store.absolute(kind), "_delta_log").exists() for kind in (MESSAGES, DELIVERIES)
    )


def mirror(store: ArchiveStore, state: ArchiveState) -> None:
    """Make the Delta logs say what the archive says."""
    for kind in (MESSAGES, DELIVERIES):
        files = [file for file in state.files.values() if file.kind == kind]
        if files or Path(store.absolute(kind), "_delta_log").exists():
            _mirror(store, kind, files)


def _mirror(store: ArchiveStore, kind: str, files: Sequence[ArchivedFile]) -> None:
    from deltalake import DeltaTable, Schema
    from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions

    root = store.absolute(kind)
    wanted = {_path(file): file for file in files}
    adding = [
        AddAction(
            path=path,
            size=file.size,
            modification_time=file.to_ms,
            data_change=True,
            partition_values={"topic": file.topic, "date": file.date},
            stats=f'{{"numRecords": {file.rows}}}',
        )
        for path, file in wanted.items()
    ]
    if not DeltaTable.is_deltatable(root):
        schema = Schema.from_arrow(_schema(store, files[0]))
        create_table_with_add_actions(root, schema, adding, partition_by=list(PARTITIONS))
        return
    table = DeltaTable(root)
    # The log has urls, and so has this list; actions are given plain paths.
    known = {unquote(path) for path in pa.table(table.get_add_actions())["path"].to_pylist()}
    actions: list[AddAction | RemoveAction] = [add for add in adding if add.path not in known]
    now_ms = int(time.time() * 1000)
    actions += [
        RemoveAction(path=path, data_change=True, deletion_timestamp=now_ms)
        for path in sorted(known - wanted.keys())
    ]
    if actions:
        table.create_write_transaction(
            actions, "append", table.schema(), partition_by=list(PARTITIONS)
        )


def _path(file: ArchivedFile) -> str:
    """Below the table."""
    return file.path.partition("/")[2]


def _schema(store: ArchiveStore, file: ArchivedFile) -> pa.Schema:
    found = pq.read_schema(store.present(file)).remove_metadata()
    fields = [field.with_nullable(True) for field in found]
    return pa.schema([*fields, *(pa.field(name, pa.string()) for name in PARTITIONS)])
