"""Batches that are encrypted after they were encoded: every column stays, sealed rows as well."""

from ternmq.batch.check import check_incoming
from ternmq.batch.encoder import Origin, Outgoing, encode_messages
from ternmq.batch.layout import Encoding
from ternmq.batch.view import BatchView
from ternmq.client.transactions.seal_batch import seal_batch
from tests.unit.client.sealing.test_keyring import PRODUCER, Ring

ORIGIN = Origin(topic="orders", app="a", producer=PRODUCER)


def a_batch(encoding: Encoding) -> bytearray:
    rows = [
        Outgoing(body=b"body " * 90, key="k", tag="t", properties={"n": 1}, born_at_ms=1),
        Outgoing(body=b"", key=None, order_key="o", born_at_ms=2, explicit_id=b"mine"),
    ]
    return encode_messages(rows, origin=ORIGIN, first_sequence=5, encoding=encoding)


async def test_the_rows_are_the_same_with_bodies_that_only_keys_open() -> None:
    ring = Ring()
    await ring.keyring.prepare("orders", [b""])
    for encoding in Encoding:
        plain = a_batch(encoding)

        sealed = seal_batch(plain, ring.keyring, Encoding.ZSTD)

        check_incoming(sealed)
        assert b"body body" not in sealed
        view, before = BatchView(sealed), BatchView(plain)
        assert await ring.bodies(view) == [b"body " * 90, b""]
        for row in range(2):
            assert (view.key(row), view.tag(row), view.order_key(row), view.message_id(row)) == (
                before.key(row),
                before.tag(row),
                before.order_key(row),
                before.message_id(row),
            )
            assert view.properties(row) == before.properties(row)


async def test_rows_that_are_encrypted_stay_as_they_are() -> None:
    ring = Ring()
    await ring.keyring.prepare("orders", [b""])
    once = seal_batch(a_batch(Encoding.PLAIN), ring.keyring, Encoding.ZSTD)

    twice = seal_batch(once, ring.keyring, Encoding.ZSTD)

    assert BatchView(twice).seals() == BatchView(once).seals()
    assert BatchView(twice).bodies() == BatchView(once).bodies()
