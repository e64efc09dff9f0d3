"""Index rows of many batches are those of each batch by itself (R15)."""

import random

import numpy as np

from ternmq.batch.encoder import Outgoing
from ternmq.batch.layout import Column, ColumnPart
from ternmq.batch.view import BatchView
from ternmq.storage.index.rows import PLACE, IndexRows, PlaceColumns
from tests.unit.batch.builders import a_batch


def rows_of(views: list[tuple[BatchView, int, int]]) -> tuple[IndexRows, IndexRows]:
    places = PlaceColumns()
    for view, topic_id, base in views:
        places.add(view, topic_id, base)
    return places.rows()


def each_alone(views: list[tuple[BatchView, int, int]]) -> tuple[IndexRows, IndexRows]:
    alone = [rows_of([one]) for one in views]
    empty = np.empty(0, PLACE)
    return (
        np.concatenate([empty, *(ids for ids, _ in alone)]),
        np.concatenate([empty, *(keys for _, keys in alone)]),
    )


def same(left: IndexRows, right: IndexRows) -> bool:
    return sorted(left.tolist()) == sorted(right.tolist())


def made(seed: int) -> list[tuple[BatchView, int, int]]:
    """Small and large batches; with keys, with ids, with both, with gaps, without."""
    chance = random.Random(seed)
    views: list[tuple[BatchView, int, int]] = []
    for number in range(40):
        count = chance.choice([1, 1, 1, 2, 7, 64, 65, 200])
        keyed, named = chance.choice([0.0, 0.5, 1.0]), chance.choice([0.0, 1.0])
        rows = [
            Outgoing(
                body=b"x",
                key="k" * chance.randrange(20) if chance.random() < keyed else None,
                explicit_id=chance.randbytes(16) if named else None,
            )
            for _ in range(count)
        ]
        views.append((BatchView(a_batch(rows)), chance.randrange(5), number * 1_000))
    return views


def test_hashing_many_batches_together_gives_the_rows_of_each() -> None:
    for seed in range(20):
        views = made(seed)
        ids, keys = rows_of(views)
        alone_ids, alone_keys = each_alone(views)

        assert same(ids, alone_ids) and same(keys, alone_keys), f"seed {seed}"
        assert len(ids) == sum(
            view.count for view, *_ in views if view.buffer(Column.EXPLICIT_ID, ColumnPart.DATA)
        )


def test_a_batch_with_bad_offsets_harms_no_other() -> None:
    good = BatchView(a_batch([Outgoing(body=b"x", key="order-1")]))
    for at, value in ((0, 3), (1, -5), (1, 2_000)):
        batch = a_batch([Outgoing(body=b"x", key="order-2")])
        place = BatchView(batch).parts()[Column.KEY, ColumnPart.OFFSETS][0]
        batch[place + 4 * at : place + 4 * at + 4] = value.to_bytes(4, "little", signed=True)
        _, keys = rows_of([(good, 1, 10), (BatchView(batch), 2, 20), (good, 3, 30)])

        wanted = rows_of([(good, 1, 10)])[1].tolist() + rows_of([(good, 3, 30)])[1].tolist()
        assert [row for row in keys.tolist() if row[1] != 2] == wanted
