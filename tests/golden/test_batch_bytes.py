"""The bytes of a batch and of an envelope do not change between releases.

The stored files were written by version 1. If a change here is wanted, it is a new version: raise
`layout.VERSION`, keep the old reader, add a file.
"""

from pathlib import Path

from ternmq.batch.encoder import Outgoing
from ternmq.batch.envelope import ALONE, WHOLE, pack_envelope, read_envelopes, read_errors
from ternmq.batch.layout import Encoding, check_whole
from ternmq.batch.seal import key_of
from ternmq.batch.view import BatchView
from ternmq.security.sealing.data_key import DataKey
from tests.unit.batch.builders import ORIGIN, a_batch, rows_of

HERE = Path(__file__).parent


def stored(name: str) -> bytes:
    return bytes.fromhex((HERE / name).read_text())


def the_batch() -> bytearray:
    rows = [
        Outgoing(
            body=b"one",
            key="k-1",
            tag="vip",
            order_key="o",
            priority=3,
            born_at_ms=10,
            properties={"amount": 12, "rate": 0.5, "ok": True, "raw": b"\x00\xff", "s": "é"},
            expire_at_ms=99,
        ),
        Outgoing(body=b"", key="", tag=None, born_at_ms=11, explicit_id=b"outside"),
        Outgoing(body=b"three", key=None, tag="vip", born_at_ms=12),
    ]
    return a_batch(rows, encoding=Encoding.PLAIN)


def test_a_batch_is_written_as_version_1_wrote_it() -> None:
    assert bytes(the_batch()) == stored("batch_v1.hex")


def test_a_batch_of_version_1_can_be_read() -> None:
    batch = stored("batch_v1.hex")

    check_whole(batch, at_offset=4096)
    assert rows_of(BatchView(batch)) == rows_of(BatchView(the_batch()))


def test_an_envelope_is_written_as_version_1_wrote_it() -> None:
    batch = the_batch()

    head = pack_envelope(
        lease=5,
        lane=3,
        selection=[(0, 1), (2, 3)],
        attempts=[2, 1],
        batch_size=len(batch),
        flags=WHOLE,
    )

    assert head == stored("envelope_v1.hex")
    envelope = read_envelopes(head + batch, 1)[0]
    assert (envelope.lease, envelope.lane, envelope.whole) == (5, 3, True)
    assert (envelope.selection, envelope.attempts) == ([(0, 1), (2, 3)], [2, 1])


def test_the_errors_of_an_envelope_are_written_as_version_1_wrote_them() -> None:
    batch = the_batch()
    errors = [(7, 9, "ValueError", "bad é", "Traceback …", 1234), (9, 10, "", "later", "", 5)]

    head = pack_envelope(
        lease=5,
        lane=3,
        selection=[(0, 3)],
        attempts=[2, 2, 3],
        batch_size=len(batch),
        flags=WHOLE | ALONE,
        errors=errors,
    )

    assert head == stored("envelope_errors_v1.hex")
    envelope = read_envelopes(head + batch, 1)[0]
    assert (envelope.alone, envelope.attempts) == (True, [2, 2, 3])
    assert read_errors(envelope.errors) == errors
    assert rows_of(envelope.batch) == rows_of(BatchView(batch))


def test_errors_of_a_version_to_come_are_passed_over() -> None:
    batch = the_batch()
    head = bytearray(
        pack_envelope(
            lease=5,
            lane=3,
            selection=[(0, 3)],
            attempts=[],
            batch_size=len(batch),
            flags=WHOLE,
            errors=[(7, 9, "T", "t", "", 1)],
        )
    )
    head[44] = 2

    envelope = read_envelopes(head + batch, 1)[0]

    assert read_errors(envelope.errors) == []
    assert rows_of(envelope.batch) == rows_of(BatchView(batch))


def the_sealed_batch() -> bytearray:
    """One body under a key of a period, one about a subject, one that is plain."""
    period, subject = DataKey(70, "t", bytes(32)), DataKey(71, "t", bytes(range(32)))
    rows = [
        Outgoing(body=b"one", key="k-1", born_at_ms=10),
        Outgoing(body=b"two " * 60, born_at_ms=10, explicit_id=b"outside"),
        Outgoing(body=b"plain", born_at_ms=10),
    ]
    made = []
    for at, (row, key) in enumerate(zip(rows, (period, subject, None), strict=True)):
        number = ORIGIN.producer.message_id(7 + at).to_bytes(16, "big")
        if key is not None:
            known_as = row.explicit_id or number
            row.body, row.seal = key.encrypt(row.body, number, known_as, Encoding.PLAIN)
        made.append(row)
    return a_batch(made, encoding=Encoding.PLAIN)


def test_a_sealed_batch_is_written_as_the_first_release_with_seals_wrote_it() -> None:
    assert bytes(the_sealed_batch()) == stored("batch_sealed_v1.hex")


def test_a_sealed_batch_of_that_release_can_be_opened() -> None:
    keys = {70: DataKey(70, "t", bytes(32)), 71: DataKey(71, "t", bytes(range(32)))}
    batch = stored("batch_sealed_v1.hex")
    check_whole(batch, at_offset=4096)
    view = BatchView(batch)

    opened = [
        body if seal is None else keys[key_of(seal)].decrypt(body, seal, view.id_bytes(row))
        for row, (body, seal) in enumerate(zip(view.bodies(), view.seals(), strict=True))
    ]

    assert opened == [b"one", b"two " * 60, b"plain"]


def the_traced_batch() -> bytearray:
    """A context with a state, none, one without."""
    context = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    rows = [
        Outgoing(body=b"one", born_at_ms=10, trace=f"{context};a=b"),
        Outgoing(body=b"two", born_at_ms=10),
        Outgoing(body=b"three", born_at_ms=10, trace=context),
    ]
    return a_batch(rows, encoding=Encoding.PLAIN)


def test_a_traced_batch_is_written_as_the_first_release_with_contexts_wrote_it() -> None:
    assert bytes(the_traced_batch()) == stored("batch_traced_v1.hex")


def test_the_contexts_of_that_release_can_be_read() -> None:
    batch = stored("batch_traced_v1.hex")
    check_whole(batch, at_offset=4096)
    view = BatchView(batch)

    context = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    assert [view.trace(row) for row in range(3)] == [f"{context};a=b", None, context]
