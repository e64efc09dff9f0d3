"""The content column: everything `send` takes comes back as it was."""

import msgspec
import pytest

from ternmq.batch.encoder import Outgoing
from ternmq.client.model.stored_message import order_hash, pack, unpack
from ternmq.core.errors import Corrupt
from ternmq.core.ids import id_to_text

ID = id_to_text(2**127 + 5)


def test_a_message_comes_back_with_its_id() -> None:
    message = Outgoing(
        body=b"\x00\xff",
        key="k",
        tag="t",
        order_key="o",
        priority=9,
        born_at_ms=5,
        expire_at_ms=6,
        due_at_ms=7,
        properties={"s": "x", "i": 2**80, "f": 0.5, "b": True, "y": b"\x00"},
    )

    read = unpack(pack(message), ID)

    assert read.explicit_id == (2**127 + 5).to_bytes(16, "big")
    read.explicit_id = None
    read.due_at_ms = 7  # Known to the row, not to the broker: it is due when it is sent.
    assert read == message
    assert read.properties is not None
    assert read.properties["b"] is True


@pytest.mark.parametrize("data", [b"", b"\xff", msgspec.msgpack.encode([1, "text"])])
def test_bytes_of_somebody_else_are_refused(data: bytes) -> None:
    with pytest.raises(Corrupt, match="cannot be read"):
        unpack(data, ID)


def test_a_newer_version_is_refused_and_not_half_read() -> None:
    with pytest.raises(Corrupt, match="update the relay"):
        unpack(msgspec.msgpack.encode([3, b"body"]), ID)


def test_a_subject_is_kept_and_refused_by_a_relay_that_would_lose_it() -> None:
    packed = pack(Outgoing(body=b"b", subject="ada"))

    assert unpack(packed, ID).subject == "ada"
    assert msgspec.msgpack.decode(packed)[0] == 2
    assert msgspec.msgpack.decode(pack(Outgoing(body=b"b")))[0] == 1
    assert unpack(msgspec.msgpack.encode([1, b"body"]), ID).subject is None


def test_an_order_hash_fits_a_column_and_knows_topic_and_key() -> None:
    """Pinned: a relay of another release must see the same order."""
    assert order_hash("t", "k") == 700568420212997364
    assert order_hash("t", None) is None
    different = {order_hash(topic, key) for topic in ("t", "T") for key in ("k", "K", "")}
    assert len(different) == 6
