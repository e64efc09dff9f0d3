"""Delivery records that retention takes between plan and reading: told, or read around (P1)."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from ternmq.pipeline.cluster import ClusterView
from ternmq.pipeline.options import source_options
from ternmq.pipeline.positions import DELIVERIES, TopicPlace
from ternmq.pipeline.source import batch_reader
from ternmq.pipeline.source.batch_reader import ArrowRangeReader, RangePartition
from ternmq.pipeline.source.columns import full_schema
from ternmq.pipeline.source.data_loss import DataLoss
from ternmq.wire.messages.read import DeliveriesPage


def pages(first: int, end: int) -> Any:
    """A cluster whose pull log begins at `first` now, in pages of 100 bytes."""

    def page(_: str, position: int, stop: int) -> DeliveriesPage:
        at = min(max(position, first), min(stop, end))
        following = min(at + 100, stop, end)
        return DeliveriesPage(first=first, end=end, following=following, records=b"", names=[])

    return SimpleNamespace(_deliveries=page)


def read(log: Any, first: int, end: int) -> tuple[list[int], list[int]]:
    gone: list[int] = []
    place = TopicPlace(DELIVERIES, "main")
    found = [
        page.following for page in ClusterView.read_deliveries(log, place, first, end, gone.append)
    ]
    return found, gone


def test_what_was_removed_is_told_in_bytes() -> None:
    assert read(pages(0, 1_000), 0, 200) == ([100, 200], [])
    assert read(pages(150, 1_000), 0, 300) == ([250, 300], [150])
    assert read(pages(700, 1_000), 0, 300) == ([300], [300]), "all of it"


@pytest.mark.parametrize("strict", ["true", "false"])
def test_a_query_fails_or_goes_on_as_it_was_told(
    monkeypatch: pytest.MonkeyPatch, strict: str
) -> None:
    log = pages(150, 1_000)

    def read_deliveries(*given: Any) -> Iterator[DeliveriesPage]:
        return ClusterView.read_deliveries(log, *given)

    log.read_deliveries = read_deliveries
    monkeypatch.setattr(batch_reader, "cluster", lambda _: log)
    options = source_options({"stream": "deliveries", "failOnDataLoss": strict}, streaming=False)
    reader = ArrowRangeReader(options, full_schema("deliveries", properties=True))
    rows = reader.rows(RangePartition(DELIVERIES, "main", 0, 300))
    if strict == "true":
        with pytest.raises(DataLoss, match="150 bytes of the delivery records 0 to 300 of 'main'"):
            list(rows)
    else:
        assert list(rows) == []
