"""Finding messages in an archive without Spark: by id, by key, by topic and time (P3, R23).

The commit log says which files count and what times each holds; most are passed over by that alone.
An id carries the time at which its producer began, so the files of the two hours after it are
looked at first; only if the message is not there (it was delayed, or its id came from outside) the
others are. Inside the files the bloom filters on id and key lead DuckDB to the rows; files that are
not on this machine are read by pyarrow, and so are those that DuckDB does not read: release 0.1
wrote addresses that are no text.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ternmq.core.errors import BadRequest, Corrupt
from ternmq.core.ids import ID_TEXT_SIZE, RANDOM_BITS, SEQUENCE_BITS, id_from_text
from ternmq.core.log import get_logger
from ternmq.core.units import HOUR_MS
from ternmq.pipeline.archive.log import DELIVERIES, MESSAGES, ArchivedFile, ArchiveState
from ternmq.pipeline.archive.packed_addresses import mended_table
from ternmq.pipeline.archive.store import ArchiveStore

if TYPE_CHECKING:
    import pyarrow.dataset as ds

log = get_logger()

LIKELY_MS = 2 * HOUR_MS
FOUND_MAX = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchTerms:
    """What to look for; empty means any."""

    id: str = ""
    key: str = ""
    topic: str = ""
    from_ms: int = 0
    to_ms: int = 2**62
    limit: int = 100

    def __post_init__(self) -> None:
        if not (self.id or self.key or self.topic):
            raise BadRequest("say what to find: an id, a key, or a topic")
        if not 1 <= self.limit <= FOUND_MAX:
            raise BadRequest(f"at most {FOUND_MAX} messages can be shown, not {self.limit}")


class _NotText(Exception):
    """DuckDB met text that is not UTF-8."""


class ArchiveSearch:
    """Questions about one archive."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._store = ArchiveStore(target)
        self._store.check()
        self._state: ArchiveState = self._store.load()

    def messages(self, wanted: SearchTerms) -> list[dict[str, Any]]:
        """The messages, in the order in which they were stored."""
        files = [file for file in self._files(MESSAGES) if _may_hold(file, wanted)]
        born_ms = _born_ms(wanted.id)
        if born_ms is not None:
            near = [f for f in files if f.to_ms >= born_ms and f.from_ms <= born_ms + LIKELY_MS]
            found = self._query(near, wanted)
            if found:
                return found
            files = [file for file in files if file not in set(near)]
        return self._query(files, wanted)

    def timeline(self, message: dict[str, Any]) -> list[dict[str, Any]]:
        """What happened to one message, as far as it is archived: each delivery and its outcome."""
        stored_ms = int(message["stored_at"].timestamp() * 1000)
        files = [
            file
            for file in self._files(DELIVERIES)
            if file.topic == message["topic"]
            and file.broker_group == message["broker_group"]
            and file.to_ms >= stored_ms
            and file.first <= message["sequence"] < file.end
        ]
        if not files:
            return []
        import pyarrow.compute as pc

        where = pc.field("sequence") == message["sequence"]
        with self._readable():
            found = self._scan(files, where, 1_000)
        rows = [row for row in found if row["lane"] == "topic"]
        return sorted(rows, key=lambda row: (row["at"], row["position"]))

    def _files(self, kind: str) -> list[ArchivedFile]:
        found = [file for file in self._state.files.values() if file.kind == kind]
        return sorted(found, key=lambda file: (file.from_ms, file.path))

    def _query(self, files: Sequence[ArchivedFile], wanted: SearchTerms) -> list[dict[str, Any]]:
        if not files:
            return []
        with self._readable():
            if self._store.is_local:
                try:
                    return self._duckdb(files, wanted)
                except _NotText:
                    log.warning("read slowly; mend it: tern pipeline repair", archive=self._target)
            rows = self._scan(files, _condition(wanted), wanted.limit)
        return sorted(rows, key=lambda row: (row["stored_at"], row["sequence"]))

    @contextmanager
    def _readable(self) -> Iterator[None]:
        """A file that is damaged or gone, in one line."""
        import duckdb

        try:
            yield
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            text = str(error).partition("\n")[0]
            raise Corrupt(f"a file of {self._store.target} cannot be read: {text}") from error

    def _duckdb(self, files: Sequence[ArchivedFile], wanted: SearchTerms) -> list[dict[str, Any]]:
        import duckdb

        conditions, values = ["stored_at >= make_timestamptz(?)"], [wanted.from_ms * 1000]
        texts: list[Any] = list(values)
        if wanted.to_ms < 2**62:
            conditions.append("stored_at < make_timestamptz(?)")
            texts.append(wanted.to_ms * 1000)
        for name, value in (("id", wanted.id), ("key", wanted.key)):
            if value:
                conditions.append(f'"{name}" = ?')
                texts.append(value)
        topics = {self._store.present(file): file.topic for file in files}
        with duckdb.connect() as database:
            found = database.sql(
                "select * from read_parquet(?, hive_partitioning=false, filename=true) where "
                + " and ".join(conditions)
                + " order by stored_at, sequence limit ?",
                params=[list(topics), *texts, wanted.limit],
            )
            assert found is not None
            try:
                table: pa.Table = found.to_arrow_table()
            except duckdb.InvalidInputException as error:
                raise _NotText from error
        rows = mended_table(table).to_pylist(maps_as_pydicts="lossy")
        return [{"topic": topics[row.pop("filename")]} | row for row in rows]

    def _scan(
        self, files: Iterable[ArchivedFile], where: "ds.Expression", limit: int
    ) -> list[dict[str, Any]]:
        """The rows that match, by pyarrow; file by file, since the topic is the file's."""
        import pyarrow.dataset as ds  # Brings pandas along, a quarter of a second.

        found: list[dict[str, Any]] = []
        for file in files:
            path = self._store.present(file)
            dataset = ds.dataset(path, filesystem=self._store.filesystem, format="parquet")
            table = dataset.head(limit - len(found), filter=where)
            rows = mended_table(table).to_pylist(maps_as_pydicts="lossy")
            found += [{"topic": file.topic} | row for row in rows]
            if len(found) >= limit:
                break
        return found


def _may_hold(file: ArchivedFile, wanted: SearchTerms) -> bool:
    in_time = file.to_ms >= wanted.from_ms and file.from_ms < wanted.to_ms
    return in_time and (not wanted.topic or file.topic == wanted.topic)


def _born_ms(text: str) -> int | None:
    """When the producer of this id began; None for an id from outside."""
    if len(text) != ID_TEXT_SIZE:
        return None
    return id_from_text(text) >> (RANDOM_BITS + SEQUENCE_BITS)


def _condition(wanted: SearchTerms) -> "ds.Expression":
    import pyarrow.compute as pc

    kind = pa.timestamp("us", tz="UTC")
    where = pc.field("stored_at") >= pa.scalar(wanted.from_ms * 1000, kind)
    if wanted.to_ms < 2**62:
        where &= pc.field("stored_at") < pa.scalar(wanted.to_ms * 1000, kind)
    for name, value in (("id", wanted.id), ("key", wanted.key)):
        if value:
            where &= pc.field(name) == value
    return where
