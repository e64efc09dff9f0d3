"""Bytes that are no message are the peer's mistake, whatever they are (security finding H2)."""

import msgspec
import pytest

from ternmq.core.errors import ProtocolError
from ternmq.wire.messages.hello import Hello
from ternmq.wire.messages.order_keys import SlotsFind
from ternmq.wire.messages.servers import GroupIdFind
from ternmq.wire.messages.transactions import DetachedEnd
from ternmq.wire.record import NUMBER_MAX, Record, unpack


def nested(depth: int) -> bytes:
    return b"\x91" * depth + b"\x90"


@pytest.mark.parametrize("depth", [100, 3_500, 100_000, 1_000_000])
def test_a_field_nested_at_will_is_refused_or_skipped(depth: int) -> None:
    """A field that this version does not know, behind the known ones of HELLO."""
    known = msgspec.msgpack.encode([1, "app", "0.1.0", b"s" * 16, "host", 7])
    payload = b"\x97" + known[1:] + nested(depth)
    try:
        hello = unpack(payload, Hello)
    except ProtocolError:
        return
    assert hello.protocol == 1


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (GroupIdFind, [NUMBER_MAX + 1, "group"]),
        (GroupIdFind, [2**64 - 1, "group"]),
        (SlotsFind, ["topic", "group", [1_024]]),
        (SlotsFind, ["topic", "group", [-1]]),
        (DetachedEnd, ["name", [2**32], "commit"]),
    ],
)
def test_a_number_out_of_its_limits_is_refused(kind: type[Record], fields: list[object]) -> None:
    with pytest.raises(ProtocolError, match="Expected"):
        unpack(msgspec.msgpack.encode(fields), kind)
