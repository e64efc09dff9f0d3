"""Delivery records as rows: one row for each message that a record speaks of.

The records come as bytes of the pull log. Ranges become rows by numpy, so a record about ten
thousand messages costs as much Python as one about a single message. The event is the record's kind
in small letters: handed_out, acked, retry, dead … A group that is made or reset is one row with the
sequence where it goes on; other records without messages make no rows. `text` says why: the error
as `Type: what it said`, then its traceback.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from ternmq.broker.groups.failure_notes import read_failure
from ternmq.storage.pull.record import (
    FIELDS,
    FRAME,
    NO_SESSION,
    PullKind,
    PullRecord,
    decode,
)
from ternmq.wire.messages.read import DeliveriesNames, DeliveriesPage

PLACES = {PullKind.GROUP_MADE: "made", PullKind.RESET: "reset"}
"""Where a group goes on: one row, whose sequence is that place."""
ROWS_MIN = 8_192
NOWHERE = 2**63


class Event(NamedTuple):
    """A record about messages, and where it lies."""

    position: int
    record: PullRecord


def events(page: DeliveriesPage) -> Iterator[Event]:
    """The records of a page that speak of messages."""
    data = memoryview(page.records)
    at = 0
    while at < len(data):
        fields = FIELDS.unpack_from(data, at + FRAME.size)
        size, kind, range_count, position = fields[0], fields[1], fields[3], fields[4]
        if range_count or kind == PullKind.GROUP_MADE:
            yield Event(position, _with_rows(decode(data[at : at + size])))
        at += size


def _with_rows(record: PullRecord) -> PullRecord:
    """A record about a place in the sequence gets that place as its only row."""
    if record.kind == PullKind.GROUP_MADE:
        start = int(msgspec.msgpack.decode(record.text)[1])
        return replace(record, ranges=((start, start + 1, 0),), text=b"")
    if record.kind == PullKind.RESET:
        target = record.ranges[0][0]
        return replace(record, ranges=((target, target + 1, 0),))
    return record


class DeliveryRowMaker:
    """Makes the rows of one broker group, in the columns of a schema."""

    def __init__(
        self, schema: pa.Schema, *, broker_group: str, wanted: dict[str, int] | None = None
    ) -> None:
        """`wanted`: topics whose records make rows, each from this position on; else all do.
        The name "" stands for every topic that is not named."""
        self._wanted = wanted
        self._schema = schema
        self._broker_group = broker_group
        self._names: dict[int, DeliveriesNames] = {}

    def record_batches(self, pages: Iterator[DeliveriesPage]) -> Iterator[pa.RecordBatch]:
        waiting: list[Event] = []
        count = 0
        for page in pages:
            self._names |= {names.group_id: names for names in page.names}
            for event in events(page):
                if self._wanted is not None and not self._is_wanted(event, self._wanted):
                    continue
                waiting.append(event)
                count += sum(end - first for first, end, _ in event.record.ranges)
                if count >= ROWS_MIN:
                    yield self._made(waiting)
                    waiting, count = [], 0
        if waiting:
            yield self._made(waiting)

    def _is_wanted(self, event: Event, wanted: dict[str, int]) -> bool:
        first = wanted.get(self._topic(event.record), wanted.get("", NOWHERE))
        return event.position >= first

    def _made(self, found: list[Event]) -> pa.RecordBatch:
        ranges = [part for event in found for part in event.record.ranges]
        sizes = np.array([end - first for first, end, _ in ranges], np.int64)
        owners = np.repeat(np.arange(len(found)), [len(event.record.ranges) for event in found])
        rows = np.repeat(owners, sizes)
        starts = np.array([first for first, _, _ in ranges], np.int64)
        before = np.cumsum(sizes) - sizes
        sequences = np.arange(sizes.sum()) - np.repeat(before - starts, sizes)
        attempts = np.repeat(np.array([attempt for _, _, attempt in ranges], np.int32), sizes)
        arrays = {
            "sequence": pa.array(sequences),
            "attempt": pa.array(attempts, mask=attempts == 0),
        }
        return pa.RecordBatch.from_arrays(
            [
                arrays[field.name]
                if field.name in arrays
                else self._per_record(found, field).take(pa.array(rows))
                for field in self._schema
            ],
            schema=self._schema,
        )

    def _per_record(self, found: list[Event], field: pa.Field) -> pa.Array:
        name = field.name
        if name == "at":
            return pa.array([event.record.at_ms * 1000 for event in found]).cast(field.type)
        return pa.array([self._value(name, event) for event in found], field.type)

    def _value(self, name: str, event: Event) -> str | int | None:
        record = event.record
        if name == "broker_group":
            return self._broker_group
        if name == "event":
            return PLACES.get(record.kind, record.kind.name.lower())
        if name == "position":
            return event.position
        if name == "lease":
            return record.lease or None
        if name == "consumer":
            return record.session.hex() if record.session != NO_SESSION else None
        if name == "text":
            return text_of(record) or None
        if name == "topic":
            return self._topic(record)
        names = self._names.get(record.group_id)
        if names is None:  # The group is deleted: its number is all that is left.
            return "topic" if name == "lane" else f"%group.{record.group_id}"
        return names.lane if name == "lane" else names.group

    def _topic(self, record: PullRecord) -> str:
        names = self._names.get(record.group_id)
        return f"%topic.{record.lane_id}" if names is None else names.topic


def text_of(record: PullRecord) -> str:
    """Why, as people read it; empty where nobody said."""
    if record.kind == PullKind.HANDED_OUT:
        return ""  # The lock of a detached lease: nothing to read.
    failed = read_failure(record.text, record.at_ms)
    if failed is None:  # Plain text.
        return record.text.decode("utf-8", "replace")
    headline = ": ".join(part for part in (failed.type, failed.text) if part)
    return "\n".join(part for part in (headline, failed.traceback.rstrip()) if part)
