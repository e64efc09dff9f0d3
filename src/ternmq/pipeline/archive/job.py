"""The archive job: every stored message and every delivery record into Parquet, exactly once (P3).

In rounds: where the archive is, where the cluster is, a plan of ranges between the two, one Spark
job whose tasks write files, one commit. The archive's own log is the checkpoint: a job that is
killed anywhere, and restarted anywhere, goes on from the last commit. What retention took before it
was archived, or while it was read, is counted as missing and warned of, never passed over in
silence. A topic that was deleted and made anew counts its messages from 0 again; its place in the
archive is taken, so it is warned of and left to an archive of its own.

Delivery records of all topics lie in one log. A job for all topics has one place for them, a job
for some has one for each topic, in the same positions; each leaves out what the other has archived,
so an archive may be fed by both.
"""

import json
import secrets
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import msgspec
from pyspark.sql import SparkSession

from ternmq.core.log import get_logger
from ternmq.pipeline.archive import delta_mirror
from ternmq.pipeline.archive.log import (
    DELIVERIES,
    MESSAGES,
    ArchivedFile,
    ArchivedRange,
    ArchivePlace,
    ArchiveState,
    Commit,
    TaskResult,
)
from ternmq.pipeline.archive.store import ArchiveStore, staged_path
from ternmq.pipeline.archive.task_source import ArchiveSource
from ternmq.pipeline.cluster import ClusterView, cluster
from ternmq.pipeline.positions import DELIVERIES as DELIVERIES_PLACE
from ternmq.pipeline.positions import TopicPlace
from ternmq.pipeline.source.data_loss import DataLoss
from ternmq.pipeline.source.ranges import Range, limited, split

log = get_logger()

ROUND_ROWS = 4_000_000
TASK_ROWS = 500_000
ROUND_DELIVERY_BYTES = 256 * 1024 * 1024
POLL_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveJob:
    """What to archive, and where to."""

    url: str
    target: str
    topics: tuple[str, ...] = ()
    """Empty: all, those included that are made later."""
    deliveries: bool = True
    fail_on_data_loss: bool = False
    round_rows: int = ROUND_ROWS
    delta: bool = False
    """Keep a Delta log beside the files."""
    keys: str = ""
    """Decrypt bodies of encrypted topics with these master keys; empty: they stay encrypted."""


@dataclass(frozen=True, slots=True)
class ArchiveRound:
    """What one round did."""

    messages: int
    delivery_rows: int
    files: int
    seconds: float
    unreadable: int = 0
    """Messages that are marked, since something of them cannot be read."""


def prepared(job: ArchiveJob) -> ArchiveStore:
    """Check everything that was said, without Spark; the archive, ready to be written to."""
    found = cluster(job.url)
    found.check_topics(job.topics)
    store = ArchiveStore(job.target)
    if job.delta:
        delta_mirror.check(store)
    store.prepare(found.id())
    return store


class Archiver:
    """Runs rounds. One for each archive at a time; a second one does no harm, and no good."""

    def __init__(self, spark: SparkSession, job: ArchiveJob) -> None:
        self._spark = spark
        self._job = job
        self._cluster: ClusterView = cluster(job.url)
        self._topics: dict[str, int] = {}
        self._reported = set[str]()
        self._store = prepared(job)
        self._state = ArchiveState()
        self._unreadable = 0
        spark.dataSource.register(ArchiveSource)

    def run_once(self, on_round: Callable[[ArchiveRound], None]) -> None:
        """Everything that is there now."""
        ends = self._ends()
        while (done := self.round(ends)) is not None:
            on_round(done)

    def run_forever(
        self, on_round: Callable[[ArchiveRound], None], stopping: Callable[[], bool]
    ) -> None:
        """Go on as messages come."""
        while not stopping():
            done = self.round(self._ends())
            if done is None:
                time.sleep(POLL_S)
            else:
                on_round(done)

    def round(self, ends: dict[ArchivePlace, int]) -> ArchiveRound | None:
        """One step towards `ends`; None when there is nothing left to do."""
        started = time.monotonic()
        state = self._state = self._store.load(self._state)
        self._store.finish(state)
        ranges = self._plan(state, ends)
        if not ranges:
            self._mirror(state)
            return None
        files, gone = self._write(ranges)
        ranges = self._counted(ranges, files, gone)
        commit = Commit(
            number=0,
            job=secrets.token_hex(8),
            made_at_ms=int(time.time() * 1000),
            ranges=ranges,
            added=files,
        )
        if not self._store.commit_next(state, commit):
            log.warning("another archive job was first; going on from where it is")
            for file in files:
                self._store.delete(staged_path(file.path))
            self._state = ArchiveState()
            return ArchiveRound(0, 0, 0, time.monotonic() - started)
        for file in files:
            self._store.place(file)
        self._mirror(state)
        return ArchiveRound(
            messages=sum(file.rows for file in files if file.kind == MESSAGES),
            delivery_rows=sum(file.rows for file in files if file.kind == DELIVERIES),
            files=len(files),
            seconds=time.monotonic() - started,
            unreadable=self._unreadable,
        )

    def _mirror(self, state: ArchiveState) -> None:
        if self._job.delta or delta_mirror.is_mirrored(self._store):
            delta_mirror.mirror(self._store, state)

    def waiting(self) -> int:
        """Messages that are not archived yet."""
        state = self._store.load(self._state)
        return sum(
            end - (state.marks[place].end if place in state.marks else 0)
            for place, end in self._ends().items()
            if place.kind == MESSAGES
        )

    def _ends(self) -> dict[ArchivePlace, int]:
        found = self._cluster
        self._topics = found.topic_ids()
        topics = self._job.topics or tuple(self._topics)
        ends: dict[ArchivePlace, int] = {}
        for group in found.broker_groups():
            for topic in topics:
                bounds = found.bounds(TopicPlace(topic, group))
                if bounds is not None:
                    ends[ArchivePlace(MESSAGES, topic, group)] = bounds.end
            if self._job.deliveries:
                bounds = found.bounds(TopicPlace(DELIVERIES_PLACE, group))
                assert bounds is not None
                for topic in self._job.topics or (DELIVERIES_PLACE,):
                    ends[ArchivePlace(DELIVERIES, topic, group)] = bounds.end
        return ends

    def _plan(self, state: ArchiveState, ends: dict[ArchivePlace, int]) -> list[ArchivedRange]:
        ends = {
            place: end
            for place, end in ends.items()
            if not self._deleted(place) and not self._made_anew(state, place, end)
        }
        starts = {place: self._start(state, place) for place in ends}
        messages = {p: end for p, end in ends.items() if p.kind == MESSAGES}
        deliveries = {p: end for p, end in ends.items() if p.kind == DELIVERIES}
        until = _limited(starts, messages, self._job.round_rows)
        until |= _limited(starts, deliveries, ROUND_DELIVERY_BYTES)
        ranges: list[ArchivedRange] = []
        for place in sorted(until):
            mark = state.marks.get(place)
            after = -1 if mark is None else mark.end
            if until[place] > starts[place]:
                ranges.append(
                    ArchivedRange(
                        place=place,
                        after=after,
                        first=starts[place],
                        end=until[place],
                        topic_id=self._topics.get(place.topic, 0) if place.kind == MESSAGES else 0,
                    )
                )
        return ranges

    def _deleted(self, place: ArchivePlace) -> bool:
        """Did its topic go since its end was asked for?"""
        if self._cluster.recent_bounds(_line(place)) is not None:
            return False
        self._tell_not_archived(
            place.topic, f"topic {place.topic!r} was deleted before all of it was archived"
        )
        return True

    def _made_anew(self, state: ArchiveState, place: ArchivePlace, end: int) -> bool:
        """Is this another topic than the one of its name that is archived?"""
        mark = state.marks.get(place)
        if mark is None or place.kind != MESSAGES:
            return False
        known, now = mark.topic_id, self._topics.get(place.topic, 0)
        if end >= mark.end and (known == now or not known or not now):
            return False
        self._tell_not_archived(
            place.topic,
            f"topic {place.topic!r} was deleted and made anew since it was archived; "
            f"archive it to another folder (--topics {place.topic} --to …)",
        )
        return True

    def _tell_not_archived(self, topic: str, text: str) -> None:
        if self._job.fail_on_data_loss:
            raise DataLoss(text)
        if topic not in self._reported:
            log.warning("not archived", what=text)
            self._reported.add(topic)

    def _counted(
        self, ranges: list[ArchivedRange], files: list[ArchivedFile], gone: dict[str, int]
    ) -> list[ArchivedRange]:
        """The ranges, with what retention took out of them while they were read."""
        found: dict[tuple[str, str], int] = {}
        for file in files:
            if file.kind == MESSAGES:
                name = file.topic, file.broker_group
                found[name] = found.get(name, 0) + file.rows
        counted: list[ArchivedRange] = []
        for each in ranges:
            kind, topic, group = each.place
            if kind == MESSAGES:
                lost = each.end - each.first - found.get((topic, group), 0)
            else:
                lost = gone.get(group, 0)
            if lost:
                self._tell_gone(lost, each.place)
            counted.append(msgspec.structs.replace(each, lost=lost))
        return counted

    def _tell_gone(self, count: int, place: ArchivePlace) -> None:
        what = repr(place.topic) if place.kind == MESSAGES else "the bytes of delivery records"
        text = (
            f"{count} of {what} on {place.broker_group!r} were removed before they were archived; "
            "archive more often, or keep more"
        )
        if self._job.fail_on_data_loss:
            raise DataLoss(text)
        log.warning("not archived in time", what=text)

    def _start(self, state: ArchiveState, place: ArchivePlace) -> int:
        bounds = self._cluster.recent_bounds(_line(place))
        assert bounds is not None
        mark = state.marks.get(place)
        done = _archived_with_all(state, place)
        if mark is None:
            return max(bounds.first, done)
        if max(mark.end, done) >= bounds.first:
            return mark.end
        self._tell_gone(bounds.first - mark.end, place)
        return bounds.first

    def _write(self, ranges: Iterable[ArchivedRange]) -> tuple[list[ArchivedFile], dict[str, int]]:
        ranges = list(ranges)
        tasks = delivery_tasks(ranges, self._state)
        for each in ranges:
            kind, topic, group = each.place
            if kind == MESSAGES:
                whole = [Range(TopicPlace(topic, group), each.first, each.end)]
                tasks += [
                    {"kind": kind, "topic": topic, "broker_group": group, "first": a, "end": b}
                    for _, a, b in split(whole, rows_max=TASK_ROWS)
                ]
        reader = self._spark.read.format("tern_archive").options(
            url=self._job.url,
            target=self._job.target,
            plan=json.dumps(tasks),
            keys=self._job.keys,
        )
        found = reader.load().collect()
        results = [msgspec.json.decode(row.manifest, type=TaskResult) for row in found]
        files = [each.file for each in results if each.file is not None]
        self._unreadable = sum(each.unreadable for each in results)
        return files, {each.broker_group: each.lost for each in results if each.lost}


def delivery_tasks(ranges: Iterable[ArchivedRange], state: ArchiveState) -> list[dict[str, object]]:
    """Pure: one task for each piece of a log, whichever topics want it, and what each wants."""
    found: dict[tuple[str, int, int], dict[str, int]] = {}
    for each in ranges:
        kind, topic, group = each.place
        if kind != DELIVERIES:
            continue
        wanted = found.setdefault((group, each.first, each.end), {})
        if topic == DELIVERIES_PLACE:
            wanted |= {"": each.first} | {
                place.topic: mark.end
                for place, mark in state.marks.items()
                if place.kind == DELIVERIES and place.broker_group == group and place != each.place
            }
        else:
            wanted[topic] = max(each.first, _archived_with_all(state, each.place))
    return [
        {
            "kind": DELIVERIES,
            "topic": DELIVERIES_PLACE,
            "broker_group": group,
            "first": min(end, max(first, min(wanted.values()))),
            "end": end,
            "wanted": wanted,
        }
        for (group, first, end), wanted in found.items()
    ]


def _archived_with_all(state: ArchiveState, place: ArchivePlace) -> int:
    """How far a job for all topics has archived the delivery records of this one."""
    if place.kind != DELIVERIES:
        return 0
    mark = state.marks.get(ArchivePlace(DELIVERIES, DELIVERIES_PLACE, place.broker_group))
    return 0 if mark is None else mark.end


def _line(place: ArchivePlace) -> TopicPlace:
    """Where the cluster has it: delivery records of all topics lie in one log."""
    topic = place.topic if place.kind == MESSAGES else DELIVERIES_PLACE
    return TopicPlace(topic, place.broker_group)


def _limited(
    starts: dict[ArchivePlace, int], ends: dict[ArchivePlace, int], most: int
) -> dict[ArchivePlace, int]:
    """`ranges.limited` for places of an archive."""
    names = {TopicPlace(place.topic, place.broker_group): place for place in ends}
    found = limited(
        {name: starts[place] for name, place in names.items()},
        {name: ends[place] for name, place in names.items()},
        most,
    )
    return {names[name]: end for name, end in found.items()}
