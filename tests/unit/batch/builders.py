"""Builders for batches in tests."""

from dataclasses import replace

from hypothesis import strategies as st

from ternmq.batch import layout
from ternmq.batch.encoder import Origin, Outgoing, encode_messages
from ternmq.batch.layout import Encoding
from ternmq.batch.view import BatchView
from ternmq.core.ids import ProducerId

ORIGIN = Origin(topic="order.paid", app="shop", producer=ProducerId(1_700_000_000_000, 0xABCDEF))
Row = tuple[object, ...]

names = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=20)
values = st.one_of(
    names,
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False),
    st.booleans(),
    st.binary(max_size=20),
)
messages = st.builds(
    Outgoing,
    body=st.binary(max_size=300),
    key=st.none() | names,
    tag=st.none() | st.sampled_from(["", "a", "vip", "é"]),
    properties=st.none() | st.dictionaries(names.filter(bool), values, max_size=4),
    order_key=st.none() | names,
    priority=st.integers(0, 255),
    expire_at_ms=st.none() | st.integers(0, 2**47),
    born_at_ms=st.integers(0, 2**47),
    explicit_id=st.none() | st.binary(min_size=1, max_size=40),
)
encodings = st.sampled_from(list(Encoding))


def a_batch(
    rows: list[Outgoing], *, encoding: Encoding = Encoding.ZSTD, stamped: bool = True
) -> bytearray:
    sealed = any(row.seal is not None for row in rows)
    origin = replace(ORIGIN, sealed=sealed)
    batch = encode_messages(rows, origin=origin, first_sequence=7, encoding=encoding)
    if stamped:
        stamp = layout.Stamp(
            offset=4096,
            topic_id=3,
            base_sequence=1_000,
            epoch=2,
            stored_at_ms=50,
            received_at_ms=49,
            durable_to=4_000,
        )
        layout.stamp(batch, stamp)
    return batch


def rows_of(view: BatchView) -> list[Row]:
    return [
        (
            view.message_id(row),
            view.body(row),
            view.key(row),
            view.tag(row),
            view.properties(row),
            view.order_key(row),
            view.priority(row),
            view.expire_at_ms(row),
            view.born_at_ms(row),
        )
        for row in range(view.count)
    ]
