"""The replay job: archived messages once more, into a topic or to one group alone (P5, J14).

Spark chooses: the condition runs where the files are, and what passes comes to the driver step by
step, in the order of the sequences. The driver sends, one batch at a time, at the rate that was
asked for; so order and rate hold exactly, whatever the number of tasks. Messages are stored again,
with the ids they had: they need not be in the cluster any more. For a group they go into its
private lane, which no other group sees.

Exactly once: a line of messages (one broker group's part of the topic) is published as a producer
of its own, whose numbers are the sequences. The broker remembers the highest, so a job that was
killed asks and goes on; a batch that was on its way when it died is recognised when it comes again.
That is simpler than transactions (nothing to end, nothing that expires) and, unlike ids that are
stored once per topic, lets the same messages be replayed again under another name.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from ternmq.batch.encoder import Section
from ternmq.batch.layout import Column, ColumnPart, Type
from ternmq.core.errors import BadRequest, Unavailable
from ternmq.core.ids import check_name
from ternmq.pipeline.archive.log import MESSAGES, ArchiveState
from ternmq.pipeline.archive.reader import END, archived_rows
from ternmq.pipeline.archive.store import ArchiveStore
from ternmq.pipeline.cluster import cluster
from ternmq.pipeline.jobs import replay_plan
from ternmq.pipeline.jobs.replay_plan import PLANS, Block, ReplayDone, ReplayPlan, Step
from ternmq.pipeline.jobs.replay_writer import ReplayWriter
from ternmq.pipeline.sink import rows as sink_rows
from ternmq.pipeline.spark.session import first_line
from ternmq.rpc.address import packed_address
from ternmq.sync.loop_thread import loop_thread
from ternmq.wire.messages.read import ReplayOpen

ROW_COST = 64
"""Bytes that a row counts besides its values."""
NOTES = ("%topic", "%replayed")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayJob:
    """What goes where."""

    url: str
    archive: str
    topic: str
    to_topic: str = ""
    group: str = ""
    where: str = ""
    rate: int = 0
    """Messages a second; 0: as fast as it goes."""
    name: str = ""
    """Empty: derived from the choice, so that the same call goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayCount:
    """What is left to send."""

    name: str
    messages: int
    size: int
    begun: bool
    """Part of it was sent by an earlier run."""
    done: bool = False
    """All of it was."""


class Replayer:
    """One replay. `count` first, then `run`."""

    def __init__(self, spark: SparkSession, job: ReplayJob) -> None:
        replay_plan.check_choice(job.topic, job.to_topic, job.group)
        self._spark = spark
        self._job = job
        self.name = job.name or replay_plan.derived_name(
            job.topic, job.to_topic, job.group, job.where
        )
        check_name("replay", self.name)
        self._store = ArchiveStore(job.archive)
        self._origin = self._store.check().cluster
        self._cluster = cluster(job.url)
        self._state: ArchiveState = self._store.load()
        self._plan = self._planned()
        self._chosen = self._choose()
        self._steps: list[Step] = []

    def count(self, *, dry_run: bool) -> ReplayCount:
        """Check the target and count what is left; a dry run makes nothing anywhere."""
        if self._store.read(f"{PLANS}/{self.name}.done") is not None:
            return ReplayCount(name=self.name, messages=0, size=0, begun=True, done=True)
        begun = {line: self._writer(line, dry_run=True) for line in sorted(self._plan.ends)}
        positions = {line: loop_thread().run(writer.open()) for line, writer in begun.items()}
        blocks = self._blocks(positions)
        self._steps = replay_plan.steps(blocks, positions, self._plan.ends)
        if not dry_run:
            self._pin()
        return ReplayCount(
            name=self.name,
            messages=sum(block.rows for block in blocks),
            size=sum(block.size for block in blocks),
            begun=any(positions.values()),
        )

    def run(self, on_progress: Callable[[int], None], stopping: Callable[[], bool]) -> int:
        """Send what `count` counted; returns how many. Stopped early, it goes on another time."""
        sent, begun = 0, time.monotonic()
        for line in sorted(self._plan.ends):
            writer = self._writer(line, dry_run=False)
            position = loop_thread().run(writer.open())
            for rows in self._batches(line, position):
                if stopping():
                    return sent
                self._send(writer, rows)
                sent += rows.num_rows
                on_progress(sent)
                ahead = begun + sent / self._job.rate - time.monotonic() if self._job.rate else 0
                if ahead > 0:
                    time.sleep(ahead)
        ended = ReplayDone(name=self.name, ended_at_ms=int(time.time() * 1000))
        self._store.create(f"{PLANS}/{self.name}.done", replay_plan.encode(ended))
        return sent

    def _pin(self) -> None:
        """Write the plan down, unless it is: runs with plans of their own would send doubles."""
        path = f"{PLANS}/{self.name}.json"
        if self._store.create(path, replay_plan.encode(self._plan)):
            return
        known = self._store.read(path)
        if known is None or replay_plan.decode(path, known) != self._plan:
            raise Unavailable(
                f"replay {self.name!r} was begun by another run just now; start this one again to "
                "go on with its plan"
            )

    def _planned(self) -> ReplayPlan:
        """The plan of an earlier run under this name, or a new one."""
        job, path = self._job, f"{PLANS}/{self.name}.json"
        wanted = (job.topic, job.to_topic, job.group, job.where)
        here = self._cluster.id()
        known = self._store.read(path)
        if known is not None:
            plan = replay_plan.decode(path, known)
            if plan.choice() != wanted:
                raise BadRequest(
                    f"replay {self.name!r} began with another choice (topic {plan.topic!r}, "
                    f"to {plan.to_topic or plan.group!r}, where {plan.where!r}); "
                    "give this one another --name"
                )
            if plan.cluster != here:
                raise BadRequest(
                    f"replay {self.name!r} goes to cluster {plan.cluster}, this is {here}; "
                    "give this one another --name"
                )
            return plan
        marks = {
            place.broker_group: mark
            for place, mark in self._state.marks.items()
            if place.kind == MESSAGES and place.topic == job.topic
        }
        ends = {line: mark.end for line, mark in marks.items()}
        if not ends:
            known_topics = sorted({p.topic for p in self._state.marks if p.kind == MESSAGES})
            raise BadRequest(
                f"{job.archive} holds nothing of topic {job.topic!r}; it has: "
                f"{', '.join(known_topics) or 'nothing'}"
            )
        return ReplayPlan(
            name=self.name,
            topic=job.topic,
            to_topic=job.to_topic,
            group=job.group,
            where=job.where,
            cluster=here,
            batch_rows=replay_plan.batch_rows(job.rate),
            ends=ends,
            targets=replay_plan.targets(ends, self._cluster.broker_groups()),
            sources={
                line: f"{self._origin} {mark.topic_id} {line}" for line, mark in marks.items()
            },
        )

    def _choose(self, first: int = 0, end: int = END) -> DataFrame:
        """The archived rows that the condition takes; all that have these sequences."""
        files = [
            file
            for file in self._state.files.values()
            if file.kind == MESSAGES and file.topic == self._job.topic
        ]
        if not files:
            raise BadRequest(f"the archive let go of all messages of topic {self._job.topic!r}")
        rows = archived_rows(self._spark, self._store, files, first=first, end=end)
        if not self._job.where:
            return rows
        try:
            rows = rows.where(self._job.where)
            certain = rows._jdf.queryExecution().analyzed().deterministic()
        except PySparkException as error:
            raise BadRequest(f"--where {self._job.where!r}: {first_line(error)}") from None
        if not certain:
            raise BadRequest(
                f"--where {self._job.where!r} chooses others each time; a replay that goes on "
                "needs the same"
            )
        return rows

    def _blocks(self, positions: dict[str, int]) -> list[Block]:
        left = " or ".join(
            f"(broker_group = '{line}' and sequence >= {positions[line]} and sequence < {end})"
            for line, end in self._plan.ends.items()
        )
        number = f.floor(f.col("sequence") / replay_plan.BLOCK_ROWS)
        counted = (
            self._chosen.where(left)
            .groupBy(f.col("broker_group").alias("line"), number.alias("number"))
            .agg(f.count("*").alias("rows"), f.sum("size").alias("size"))
        )
        return [Block(**row) for row in _collected(counted, self._job.where).to_pylist()]

    def _batches(self, line: str, position: int) -> Iterator[pa.RecordBatch]:
        """The rows of a line from a number on, as they are sent together."""
        steps = [step for step in self._steps if step.line == line and step.end > position]
        over: pa.Table | None = None
        for step in steps:
            rows = self._rows(step, max(step.first, position))
            table = rows if over is None else pa.concat_tables([over, rows])
            if not table.num_rows:
                continue
            whole = table.combine_chunks().to_batches()[0]
            ranges = replay_plan.cut(
                row_sizes(whole), self._plan.batch_rows, last=step is steps[-1]
            )
            for first, end in ranges:
                yield whole.slice(first, end - first)
            over = pa.Table.from_batches([whole.slice(ranges[-1][1] if ranges else 0)])

    def _rows(self, step: Step, first: int) -> pa.Table:
        kept = f.map_filter(f.col("properties"), lambda name, _: ~name.isin(*NOTES))
        notes = f.create_map(
            f.lit(NOTES[0]),
            f.lit(self._job.topic),
            f.lit(NOTES[1]),
            f.col("sequence").cast("string"),
        )
        rows = (
            self._choose(first, step.end)
            .where(f.col("broker_group") == step.line)
            .where((f.col("sequence") >= first) & (f.col("sequence") < step.end))
            .select(
                "sequence",
                "id",
                "body",
                "key",
                "tag",
                "order_key",
                "born_at",
                "app",
                "client_address",
                f.map_concat(
                    f.coalesce(kept, f.create_map().cast("map<string,string>")), notes
                ).alias("properties"),
            )
            .orderBy("sequence")
        )
        return _collected(rows, self._job.where)

    def _writer(self, line: str, *, dry_run: bool) -> ReplayWriter:
        job = self._job
        request = ReplayOpen(
            topic=job.to_topic or job.topic,
            into=job.group,
            replay=self.name,
            source=self._plan.sources.get(line, line),
            dry_run=dry_run,
        )
        return ReplayWriter(self._cluster.client, self._plan.targets[line], request)

    def _send(self, writer: ReplayWriter, rows: pa.RecordBatch) -> None:
        last = int(rows.column("sequence")[rows.num_rows - 1].as_py())
        others = ["sequence", "app", "client_address"]
        [made] = sink_rows.batches(rows.drop_columns(others), 0)
        origins = origin_pieces(rows.column("app"), rows.column("client_address"))
        pieces = [*made.pieces, *origins]
        loop_thread().run(
            writer.send(pieces, made.count, made.body_size, last=last, attributes=made.attributes)
        )


def origin_pieces(apps: pa.Array, addresses: pa.Array) -> list[Section]:
    """The application that sent each row first, and from where."""
    words = pc.cast(pc.fill_null(addresses, ""), pa.utf8()).dictionary_encode()
    known = pa.array([packed_address(text) for text in words.dictionary.to_pylist()], pa.binary())
    names = pc.cast(pc.fill_null(apps, ""), pa.utf8())
    return [
        *_pieces(Column.ORIGIN_APP, Type.UTF8, names),
        *_pieces(Column.ORIGIN_ADDRESS, Type.BINARY, known.take(words.indices)),
    ]


def _pieces(column: Column, kind: Type, values: pa.Array) -> list[Section]:
    whole = pa.concat_arrays([values])
    ends = np.frombuffer(whole.buffers()[1], "<i4")[whole.offset :][: len(whole) + 1]
    data = memoryview(whole.buffers()[2] or b"")[int(ends[0]) : int(ends[-1])]
    offsets = (ends - ends[0]).astype("<i4").tobytes()
    return [
        Section(column, ColumnPart.OFFSETS, kind, offsets),
        Section(column, ColumnPart.DATA, kind, data),
    ]


def row_sizes(rows: pa.RecordBatch) -> np.ndarray:
    """What each row adds to a batch, in bytes."""
    sizes = np.full(rows.num_rows, ROW_COST, np.int64)
    for name in ("body", "key", "tag", "order_key"):
        lengths = pc.fill_null(pc.binary_length(rows.column(name)), 0)
        sizes += lengths.to_numpy(zero_copy_only=False)
    properties = rows.column("properties")
    assert properties.offset == 0, "sizes are taken of whole columns"
    entries = pc.add(pc.binary_length(properties.keys), pc.binary_length(properties.items))
    ends = np.concatenate(([0], np.cumsum(entries.to_numpy(zero_copy_only=False))))
    sizes += np.diff(ends[np.frombuffer(properties.buffers()[1], "<i4")[: rows.num_rows + 1]])
    return sizes


def _collected(frame: DataFrame, where: str) -> pa.Table:
    try:
        return frame.toArrow()
    except PySparkException as error:
        raise BadRequest(f"Spark cannot choose (where {where!r}): {first_line(error)}") from None
