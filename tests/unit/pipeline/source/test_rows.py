"""Rows for Spark are what the batch says, whatever columns it has."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema

from ternmq.batch.encoder import Outgoing, encode_columns
from ternmq.batch.envelope import Envelope
from ternmq.batch.layout import Encoding
from ternmq.batch.properties import value_to_text
from ternmq.batch.rows.cut import project
from ternmq.batch.view import BatchView
from ternmq.client.sealing.decryption import KeyName, open_batch
from ternmq.core.errors import Erased
from ternmq.pipeline.sink import rows as sink_rows
from ternmq.pipeline.source.columns import full_schema, needed
from ternmq.pipeline.source.rows import RowMaker
from ternmq.security.sealing.data_key import DataKey
from tests.unit.batch.builders import ORIGIN, a_batch, encodings, messages

SCHEMA = full_schema("messages", properties=True)


def rows(view: BatchView, names: list[str] | None = None) -> list[dict[str, Any]]:
    schema = to_arrow_schema(SCHEMA, timezone="UTC")
    if names is not None:
        schema = pa.schema([schema.field(name) for name in names])
    maker = RowMaker(schema, topic="orders", broker_group="main")
    envelope = Envelope(0, 0, view, [(0, view.count)], [], True)

    def pieces() -> Iterator[list[Envelope]]:
        yield [envelope]

    [batch] = maker.record_batches(pieces())
    batch.validate(full=True)
    assert batch.schema.equals(schema)
    for at, field in enumerate(schema):
        if pa.types.is_timestamp(field.type):  # Python has no years after 9999.
            batch = batch.set_column(at, field.name, batch.column(at).cast(pa.int64()))
    return list(batch.to_pylist())


@settings(max_examples=80, deadline=None)
@given(sent=st.lists(messages, min_size=1, max_size=40), encoding=encodings)
def test_every_column_is_what_was_sent(sent: list[Outgoing], encoding: Encoding) -> None:
    """P1."""
    view = BatchView(a_batch(sent, encoding=encoding))

    for number, row in enumerate(rows(view)):
        assert row["id"] == view.message_id(number)
        assert row["sequence"] == view.base_sequence + number
        assert row["body"] == view.body(number)
        assert row["size"] == len(view.body(number))
        assert row["key"] == view.key(number)
        assert row["tag"] == view.tag(number)
        assert row["order_key"] == view.order_key(number)
        expected = {
            name: value_to_text(value)[1].decode()
            for name, value in view.properties(number).items()
        }
        assert dict(row["properties"]) == expected
        assert row["born_at"] == view.born_at_ms(number) * 1000
        assert row["stored_at"] == view.stored_at_ms * 1000
        assert row["app"] == view.app


@settings(max_examples=40, deadline=None)
@given(
    sent=st.lists(messages, min_size=1, max_size=20),
    names=st.lists(st.sampled_from(SCHEMA.names), min_size=1, unique=True),
)
def test_a_projected_batch_has_all_that_its_columns_need(
    sent: list[Outgoing], names: list[str]
) -> None:
    whole = a_batch(sent)
    smaller = BatchView(project(whole, needed(names)))

    expected = [{name: row[name] for name in names} for row in rows(BatchView(whole))]
    assert rows(smaller, names) == expected


@given(
    ids=st.lists(st.binary(min_size=16, max_size=16), min_size=1, max_size=40), odd=st.booleans()
)
def test_ids_that_rows_bring_are_shown_as_everywhere(ids: list[bytes], odd: bool) -> None:
    """P1: of 16 bytes all at once, others one by one."""
    sent = [Outgoing(body=b"x", born_at_ms=1, explicit_id=one) for one in ids]
    if odd:
        sent.append(Outgoing(body=b"x", born_at_ms=1, explicit_id=b"short"))
        sent.append(Outgoing(body=b"x", born_at_ms=1))
    view = BatchView(a_batch(sent))

    found = [row["id"] for row in rows(view, ["id"])]

    assert found == [view.message_id(number) for number in range(view.count)]


KEY = DataKey(70, "order.paid", bytes(32))


def a_sealed_batch() -> BatchView:
    """Two bodies that are encrypted and one that is not."""
    sent = [Outgoing(body=b"body %d" % at, born_at_ms=1, properties={"n": at}) for at in range(3)]
    for at, row in enumerate(sent[:2]):
        number = ORIGIN.producer.message_id(7 + at).to_bytes(16, "big")
        row.body, row.seal = KEY.encrypt(row.body, number, number, Encoding.PLAIN)
    return BatchView(a_batch(sent, encoding=Encoding.PLAIN))


def test_without_keys_an_encrypted_body_is_ciphertext_with_its_seal() -> None:
    view = a_sealed_batch()
    found = rows(view)

    assert [row["body"] for row in found] == view.bodies()
    notes = [dict(row["properties"]).get("%seal") for row in found]
    assert [None if note is None else bytes.fromhex(note) for note in notes] == view.seals()


def test_what_was_opened_is_plain_and_what_could_not_be_is_marked() -> None:
    def find(name: KeyName) -> DataKey:
        return KEY

    view = a_sealed_batch()
    open_batch(view, [(0, 3)], find)
    assert [row["body"] for row in rows(view)] == [b"body 0", b"body 1", b"body 2"]

    def gone(name: KeyName) -> DataKey:
        raise Erased("gone")

    view = a_sealed_batch()
    open_batch(view, [(0, 3)], gone)
    found = rows(view)
    assert [row["body"] for row in found] == [b"", b"", b"body 2"]
    marks = [dict(row["properties"]).get("%unreadable") for row in found]
    assert marks == ["body", "body", None]


def test_encrypted_rows_are_read_where_only_some_columns_are_wanted() -> None:
    view = a_sealed_batch()
    whole = BatchView(project(view.data, needed(["body"])))

    open_batch(whole, [(0, 3)], lambda name: KEY)

    assert [row["body"] for row in rows(whole, ["body"])] == [b"body 0", b"body 1", b"body 2"]


def test_ciphertext_that_is_sent_on_under_its_id_is_the_same_message() -> None:
    view = a_sealed_batch()
    schema = to_arrow_schema(SCHEMA, timezone="UTC")
    maker = RowMaker(schema, topic="orders", broker_group="main")
    [batch] = maker.record_batches(iter([[Envelope(0, 0, view, [(0, 3)], [], True)]]))
    sent = batch.select(["body", "id", "properties"])

    [columns] = sink_rows.batches(sent, 1)
    again = BatchView(
        encode_columns(columns, origin=ORIGIN, first_sequence=500, transaction=b"t" * 40)
    )
    open_batch(again, [(0, 3)], lambda name: KEY)

    assert again.bodies() == [b"body 0", b"body 1", b"body 2"]
    assert [again.properties(row) for row in range(3)] == [{"n": "0"}, {"n": "1"}, {"n": "2"}]
