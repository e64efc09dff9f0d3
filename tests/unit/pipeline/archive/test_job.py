"""What an archive job does about topics that are not there, rows that go, topics made anew (P3)."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from ternmq.core.errors import TopicNotFound
from ternmq.pipeline.archive import job as archive_job
from ternmq.pipeline.archive.job import ArchiveJob, Archiver, delivery_tasks
from ternmq.pipeline.archive.log import (
    DELIVERIES,
    MESSAGES,
    ArchivedFile,
    ArchivedRange,
    ArchivePlace,
    ArchiveState,
    Watermark,
)
from ternmq.pipeline.cluster import Bounds
from ternmq.pipeline.positions import DELIVERIES as DELIVERIES_PLACE
from ternmq.pipeline.positions import TopicPlace
from ternmq.pipeline.source.data_loss import DataLoss

PLACE = ArchivePlace(MESSAGES, "orders", "main")


class ClusterDouble:
    """A cluster with one broker group, and topics that the test moves."""

    def __init__(self) -> None:
        self.ids = {"orders": 1}
        self.held = {"orders": Bounds(0, 10)}

    def id(self) -> str:
        return "here"

    def broker_groups(self) -> list[str]:
        return ["main"]

    def topic_ids(self) -> dict[str, int]:
        return dict(self.ids)

    def check_topics(self, topics: tuple[str, ...]) -> None:
        for topic in topics:
            if topic not in self.ids:
                raise TopicNotFound(f"there is no topic {topic!r}")

    def bounds(self, place: TopicPlace) -> Bounds | None:
        return self.held.get(place.topic)

    recent_bounds = bounds


def archiver(
    monkeypatch: pytest.MonkeyPatch, found: ClusterDouble, folder: Path, **options: Any
) -> Archiver:
    """One whose tasks write nothing, and tell what is still held."""

    def write(
        _: Archiver, ranges: list[ArchivedRange]
    ) -> tuple[list[ArchivedFile], dict[str, int]]:
        files: list[ArchivedFile] = []
        gone: dict[str, int] = {}
        for each in ranges:
            if each.place.kind == DELIVERIES:
                gone["main"] = found.held[each.place.topic].first - each.first
                continue
            first = max(each.first, found.held[each.place.topic].first)
            files.append(
                ArchivedFile(
                    path=f"messages/{first}-{each.end}-x{each.end}.parquet",
                    kind=MESSAGES,
                    topic=each.place.topic,
                    date="2026-01-01",
                    broker_group="main",
                    first=first,
                    end=each.end,
                    rows=each.end - first,
                    size=1,
                    from_ms=0,
                    to_ms=1,
                )
            )
        return files, gone

    monkeypatch.setattr(archive_job, "cluster", lambda _: found)
    monkeypatch.setattr(Archiver, "_write", write)
    spark = SimpleNamespace(dataSource=SimpleNamespace(register=lambda _: None))
    job = ArchiveJob(url="", target=str(folder), **{"deliveries": False} | options)
    return Archiver(cast(SparkSession, spark), job)


def test_a_topic_that_is_not_there_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(TopicNotFound, match="no topic 'oders'"):
        archiver(monkeypatch, ClusterDouble(), tmp_path / "a", topics=("orders", "oders"))
    assert not (tmp_path / "a").exists()


def test_rows_that_go_while_they_are_read_are_counted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Retention between the plan and the reading."""
    found = ClusterDouble()
    job = archiver(monkeypatch, found, tmp_path / "a")
    ends = job._ends()
    monkeypatch.setattr(found, "recent_bounds", lambda _: Bounds(0, 10))
    found.held["orders"] = Bounds(4, 10)

    done = job.round(ends)

    assert done is not None and done.messages == 6
    mark = job._store.load().marks[PLACE]
    assert (mark.end, mark.missing, mark.topic_id) == (10, 4, 1)


def test_a_job_told_so_stops_where_rows_went(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = ClusterDouble()
    job = archiver(monkeypatch, found, tmp_path / "a", fail_on_data_loss=True)
    monkeypatch.setattr(found, "recent_bounds", lambda _: Bounds(0, 10))
    found.held["orders"] = Bounds(4, 10)

    with pytest.raises(DataLoss, match="4 of 'orders' on 'main' were removed"):
        job.round({PLACE: 10})
    assert job._store.load().number == 0


@pytest.mark.parametrize("strict", [False, True])
def test_delivery_records_that_go_while_they_are_read_are_counted_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, strict: bool
) -> None:
    """In bytes: that is what there is to count."""
    found = ClusterDouble()
    place = ArchivePlace(DELIVERIES, DELIVERIES_PLACE, "main")
    found.held[DELIVERIES_PLACE] = Bounds(0, 800)
    options = {"deliveries": True, "fail_on_data_loss": strict}
    job = archiver(monkeypatch, found, tmp_path / "a", **options)
    monkeypatch.setattr(found, "recent_bounds", lambda _: Bounds(0, 800))
    found.held[DELIVERIES_PLACE] = Bounds(300, 800)

    if strict:
        with pytest.raises(DataLoss, match="300 of the bytes of delivery records on 'main'"):
            job.round({place: 800})
        assert job._store.load().number == 0
    else:
        job.round({place: 800})
        mark = job._store.load().marks[place]
        assert (mark.end, mark.missing) == (800, 300)


@pytest.mark.parametrize("end", [3, 30])
def test_a_topic_made_anew_is_told_and_not_mixed_with_the_old_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, end: int
) -> None:
    """Its sequences begin at 0 again; those of the archive are taken."""
    found = ClusterDouble()
    archiver(monkeypatch, found, tmp_path / "a").run_once(lambda _: None)
    found.ids["orders"], found.held["orders"] = 2, Bounds(0, end)

    rounds: list[Any] = []
    archiver(monkeypatch, found, tmp_path / "a").run_once(rounds.append)

    assert rounds == []
    with pytest.raises(DataLoss, match="'orders' was deleted and made anew"):
        archiver(monkeypatch, found, tmp_path / "a", fail_on_data_loss=True).run_once(print)


def test_a_topic_that_is_deleted_meanwhile_does_not_stop_the_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Between two rounds towards the same ends."""
    found = ClusterDouble()
    found.ids["bills"], found.held["bills"] = 2, Bounds(0, 5)
    job = archiver(monkeypatch, found, tmp_path / "a")
    ends = job._ends()
    del found.ids["bills"], found.held["bills"]

    done = job.round(ends)

    assert done is not None and done.messages == 10
    assert job.round(ends) is None
    strict = archiver(monkeypatch, found, tmp_path / "b", fail_on_data_loss=True)
    with pytest.raises(DataLoss, match="'bills' was deleted"):
        strict.round(ends)


def test_jobs_for_all_topics_and_for_some_leave_out_what_the_other_has() -> None:
    """B5: one log of delivery records, read once for topics that are equally far."""
    everything = ArchivePlace(DELIVERIES, DELIVERIES_PLACE, "main")
    orders, bills = (ArchivePlace(DELIVERIES, name, "main") for name in ("orders", "bills"))
    state = ArchiveState(marks={orders: Watermark(0, 100)})

    def tasks(*ranges: tuple[ArchivePlace, int, int]) -> list[tuple[Any, ...]]:
        wanted = [
            ArchivedRange(place=place, after=-1, first=first, end=end)
            for place, first, end in ranges
        ]
        made = delivery_tasks(wanted, state)
        return [(task["first"], task["end"], task["wanted"]) for task in made]

    assert tasks((everything, 0, 500)) == [(0, 500, {"": 0, "orders": 100})]
    state.marks[everything] = Watermark(0, 300)
    assert tasks((orders, 100, 500), (bills, 300, 500)) == [
        (300, 500, {"orders": 300}),
        (300, 500, {"bills": 300}),
    ]
    assert tasks((orders, 300, 500), (bills, 300, 500)) == [
        (300, 500, {"orders": 300, "bills": 300})
    ]
    assert tasks((PLACE, 0, 10)) == []
