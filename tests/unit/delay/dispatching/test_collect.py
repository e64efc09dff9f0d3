"""One batch from rows of many records: in the order asked for, each row as it was sent (Q7)."""

from random import Random
from typing import Any

import numpy as np
import pytest

from ternmq.batch.check import check_incoming
from ternmq.batch.encoder import Origin, Outgoing, Section, assemble
from ternmq.batch.layout import Column, ColumnPart, Encoding, Type
from ternmq.batch.rows.merge import ChosenRows
from ternmq.batch.view import BatchView
from ternmq.core.errors import DiskFailed
from ternmq.core.ids import ProducerId
from ternmq.delay.dispatching.collect import _merged
from ternmq.delay.formats.decision import Decision, DecisionKind
from ternmq.delay.store.record_cache import RecordCache
from tests.unit.batch.builders import a_batch, rows_of
from tests.unit.delay.builders import START_MS, Bench

ORIGIN = Origin(topic="order.paid", app="%delay", producer=ProducerId(7, 8))


@pytest.mark.parametrize("encoding", list(Encoding))
def test_rows_in_any_order_over_records_are_one_batch_in_that_order(encoding: Encoding) -> None:
    random = Random(encoding)
    views = [
        BatchView(
            a_batch(
                [
                    Outgoing(
                        body=random.randbytes(30) * 9,
                        key=f"k{number}.{row}",
                        tag="vip",
                        properties={"n": row},
                        order_key="o",
                        priority=row,
                        expire_at_ms=10**12,
                    )
                    for row in range(20)
                ],
                encoding=encoding,
            )
        )
        for number in range(3)
    ]
    wanted = [(number, row) for number in range(3) for row in range(20)]
    random.shuffle(wanted)
    chosen = [ChosenRows(views[number], np.array([row])) for number, row in wanted]

    batch = _merged(chosen, ORIGIN, 50)

    incoming = check_incoming(batch)
    assert (incoming.producer, incoming.first_sequence, incoming.row_count) == ((7, 8), 50, 60)
    assert rows_of(BatchView(batch)) == [rows_of(views[number])[row] for number, row in wanted]
    assert [BatchView(batch).origin_app(row) for row in range(3)] == ["shop"] * 3


def test_a_disk_that_cannot_read_costs_the_rows_and_not_the_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench()
    bench.send([START_MS + 100])
    bench.prepare()
    bench.tick(0.2)
    work = bench.next()
    assert work is not None

    def broken(*_: Any) -> bytes:
        raise DiskFailed("input/output error")

    monkeypatch.setattr(bench.store.schedule_files, "read", broken)
    bench.store._records = RecordCache(bench.store.schedule_files)
    found = bench.collect(work)

    assert found.batch is None
    assert found.unreadable.tolist() == [0]
    assert bench.ledger() == (1, 1, 0, 0)


def test_of_records_that_go_out_together_only_the_bad_ones_stay() -> None:
    """Good, bad, good, bad in one tick: the good ones go out, the rest is pending and counted."""
    bench = Bench()
    due = START_MS + 60_000
    poison = (
        Section(Column.KEY, ColumnPart.DATA, Type.UTF8, b"abc"),
        Section(Column.EXPLICIT_ID, ColumnPart.DATA, Type.BINARY, b"abc"),
        Section(Column.BORN, ColumnPart.VALUES, Type.UINT8, b"a"),
        Section(Column.PRIORITY, ColumnPart.VALUES, Type.INT64, bytes(8)),
    )
    for number, piece in enumerate(poison):
        bench.send([due, due])
        bench.store_batch(one_row(due, piece, number))
    bench.send([due])

    for _ in range(2):  # A restart meets the same.
        bench.prepare()
        bench.tick(61)
        bench.send_out()
        assert bench.ledger() == (13, 4, 9, 0)
        assert bench.engine.aside == 4
        assert bench.next() is None
        bench.kill()

    bench.prepare()
    bench.tick(1)
    bench.send_out()
    (hour,) = bench.engine.hours.values()
    rows = np.array(sorted(hour.aside)[:3], np.uint32)
    bench.decide(
        hour.start,
        Decision(kind=DecisionKind.CANCELLED, at_ms=bench.clock.now_ms(), topic_id=1, rows=rows),
    )
    assert bench.ledger() == (13, 1, 9, 3)
    assert bench.engine.aside == 1


def one_row(due: int, piece: Section, number: int) -> bytearray:
    pieces = [
        Section(Column.BODY, ColumnPart.OFFSETS, Type.BINARY, np.array([0, 1], "<i4").tobytes()),
        Section(Column.BODY, ColumnPart.DATA, Type.BINARY, b"7"),
        Section(Column.DUE, ColumnPart.VALUES, Type.INT64, np.array([due], "<i8").tobytes()),
        piece,
    ]
    origin = Origin(topic="t", app="old", producer=ProducerId(3, number))
    return assemble(pieces, 1, 1, origin, 0, START_MS, 0)
