"""What Spark hands over is what a consumer will read."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ternmq.batch.check import check_incoming
from ternmq.batch.encoder import Origin, assemble
from ternmq.batch.view import BatchView
from ternmq.core.errors import BadRequest
from ternmq.core.ids import ProducerId, explicit_id_text, id_to_text
from ternmq.pipeline.sink import rows as sink_rows

SCHEMA = pa.schema(
    [
        ("body", pa.binary()),
        ("key", pa.utf8()),
        ("tag", pa.utf8()),
        ("order_key", pa.utf8()),
        ("properties", pa.map_(pa.utf8(), pa.utf8())),
    ]
)
texts = st.none() | st.text(max_size=8)
rows_ = st.fixed_dictionaries(
    {
        "body": st.binary(max_size=300),
        "key": texts,
        "tag": st.none() | st.sampled_from(["a", "b", "ü"]),
        "order_key": texts,
        "properties": st.none()
        | st.dictionaries(st.text(min_size=1, max_size=4), st.text(max_size=5), max_size=3).map(
            lambda found: list(found.items())
        ),
    }
)


def views(batch: pa.RecordBatch) -> list[BatchView]:
    origin = Origin(topic="orders", app="spark", producer=ProducerId(1, 2))
    found = []
    for made in sink_rows.batches(batch, 1_000):
        packed = assemble(
            made.pieces, made.count, made.body_size, origin, 0, made.born_at_ms, made.attributes
        )
        check_incoming(packed)
        found.append(BatchView(packed))
    return found


@settings(max_examples=120, deadline=None)
@given(rows=st.lists(rows_, min_size=1, max_size=30), skip=st.integers(0, 5))
def test_every_field_arrives_also_from_a_slice(rows: list[dict[str, Any]], skip: int) -> None:
    """P2."""
    before = [{"body": b"x", "key": "no", "properties": [("p", "q")]}] * skip
    table = pa.RecordBatch.from_pylist(before + rows, schema=SCHEMA).slice(skip)

    [view] = views(table)

    for number, row in enumerate(rows):
        assert view.body(number) == row["body"]
        assert view.key(number) == row["key"]
        assert view.tag(number) == row["tag"]
        assert view.order_key(number) == row["order_key"]
        assert view.properties(number) == dict(row["properties"] or [])


def test_many_rows_become_batches_of_a_good_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_rows, "SIZE_MAX", 1_000)
    monkeypatch.setattr(sink_rows, "ROWS_MAX", 7)
    bodies = [bytes(n % 400) for n in range(50)] + [bytes(5_000)]

    found = views(pa.RecordBatch.from_pydict({"body": bodies}))

    assert [body for view in found for body in view.bodies()] == bodies
    assert all(view.count <= 7 for view in found)


@settings(max_examples=50, deadline=None)
@given(numbers=st.lists(st.integers(0, 2**128 - 1), min_size=1, max_size=20))
def test_ids_are_kept(numbers: list[int]) -> None:
    texts = pa.array([id_to_text(number) for number in numbers])

    found = sink_rows.ids(texts).to_pylist()

    assert found == [number.to_bytes(16, "big") for number in numbers]
    assert [explicit_id_text(each) for each in found] == texts.to_pylist()


def test_ids_from_elsewhere_are_kept_too() -> None:
    texts = pa.array([id_to_text(7), "c0ffee"])

    assert sink_rows.ids(texts).to_pylist() == [(7).to_bytes(16, "big"), bytes.fromhex("c0ffee")]


@pytest.mark.parametrize("text", ["", "zz", "c0 ff", "8" + "0" * 25, "Z" * 26])
def test_what_is_no_id_is_refused_and_not_made_another_one(text: str) -> None:
    """P2: an id of 130 bits lost its first two in silence."""
    with pytest.raises(BadRequest, match="is not a message id"):
        sink_rows.ids(pa.array([text]))


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"key": "k" * 1025}, "key has 1025 bytes; at most 1024"),
        ({"tag": "ü" * 513}, "tag has 1026 bytes"),
        ({"order_key": "k" * 1025}, "order_key has 1025 bytes"),
        ({"properties": [("", "x")]}, "an empty name"),
        ({"properties": [(str(n), "x") for n in range(257)]}, "257 properties; at most 256"),
    ],
)
def test_what_send_would_refuse_is_refused_here_too(row: dict[str, Any], said: str) -> None:
    fine = {"body": b"1", "key": "k" * 1024, "tag": "t", "properties": [("a", "b")]}
    rows = [fine, {"body": b"2"}, {"body": b"3", **row}]
    batch = pa.RecordBatch.from_pylist(rows, schema=SCHEMA)

    sink_rows.check_rows(batch.slice(0, 2))
    sink_rows.check_rows(batch.slice(1, 1))
    with pytest.raises(BadRequest, match=said):
        sink_rows.check_rows(batch.slice(1))


def test_rows_go_to_the_topic_of_their_column() -> None:
    batch = pa.RecordBatch.from_pydict({"body": [b"1", b"2", b"3"], "topic": ["a", "b", "a"]})

    found = {topic: part.column(0).to_pylist() for topic, part in sink_rows.split_topics(batch, "")}

    assert found == {"a": [b"1", b"3"], "b": [b"2"]}


@pytest.mark.parametrize(
    ("names", "topic", "said"),
    [
        (["key"], "t", "needs a column 'body'"),
        (["body"], "", "say where to"),
        (["body", "value"], "t", "no column 'value'; it takes body, key"),
        (["body", "tags"], "t", "did you mean 'tag'"),
    ],
)
def test_a_frame_that_cannot_be_sent_is_refused(names: list[str], topic: str, said: str) -> None:
    with pytest.raises(BadRequest, match=said):
        sink_rows.check_columns(names, topic=topic)


def test_rows_for_later_are_told_apart_and_rounded_up() -> None:
    def split(*times: int | None) -> list[tuple[bool, list[bytes]]]:
        bodies = [b"%d" % number for number in range(len(times))]
        batch = pa.RecordBatch.from_pydict(
            {"body": bodies, "deliver_at": pa.array(times, pa.timestamp("us", "UTC"))}
        )
        found = list(sink_rows.split_due(batch, now_ms=1_000))
        assert all(("deliver_at" in rows.schema.names) == later for later, rows in found)
        return [(later, rows.column(0).to_pylist()) for later, rows in found]

    assert split(None, 1_000_000, 999_999) == [(False, [b"0", b"1", b"2"])]
    assert split(None, 1_000_001, 5) == [(False, [b"0", b"2"]), (True, [b"1"])]
    assert split(2_000_000) == [(True, [b"0"])]
    with pytest.raises(BadRequest, match="more than 731 days ahead"):
        split(732 * 86_400_000_000)
    due = sink_rows._due(pa.array([1_000_001, 2_000_000], pa.timestamp("us", "UTC")))
    assert np.frombuffer(due.data, "<i8").tolist() == [1_001, 2_000]


def test_keys_and_properties_count_for_the_size_of_a_batch() -> None:
    rows = [{"body": b"x", "properties": [("p", "q" * 1_000)]}] * 10_000

    found = views(pa.RecordBatch.from_pylist(rows, schema=SCHEMA))

    assert sum(view.count for view in found) == 10_000
    assert len(found) > 1


def test_nulls_where_there_must_be_something_are_refused() -> None:
    with pytest.raises(BadRequest, match="'body' has a null"):
        views(pa.RecordBatch.from_pydict({"body": pa.array([b"x", None])}))
    with pytest.raises(BadRequest, match="'topic' has a null"):
        list(
            sink_rows.split_topics(pa.RecordBatch.from_pydict({"topic": pa.array([None, "a"])}), "")
        )
