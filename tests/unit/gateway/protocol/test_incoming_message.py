"""Messages of RocketMQ clients, checked with the codes that they expect."""

import gzip
import json
from typing import Any

import pytest

from ternmq.gateway.protocol.codes import Code, Refused
from ternmq.gateway.protocol.enums import MessageKind
from ternmq.gateway.protocol.incoming_message import BODY_SIZE_MAX, RESERVED, read_incoming
from ternmq.gateway.protocol.messages import RocketMessage

ID = "01AABBCCDDEEFF0011223344550000000A"
NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000


def message(body: bytes = b"x", kind: int = 1) -> Any:
    made = RocketMessage()
    made.topic.name = "t"
    made.body = body
    made.system_properties.message_id = ID
    made.system_properties.message_type = kind
    return made


def read(made: Any) -> Any:
    return read_incoming(made, now_ms=NOW_MS, delay_ms_max=DAY_MS)


def refused(made: Any) -> Code:
    with pytest.raises(Refused) as error:
        read(made)
    return error.value.code


def test_a_plain_message_leaves_nothing_behind() -> None:
    row = read(message()).row

    assert row.properties is None
    assert row.explicit_id == bytes.fromhex(ID)
    assert (row.order_key, row.due_at_ms, row.priority) == (None, None, 0)


def test_what_has_no_place_of_its_own_goes_into_one_property() -> None:
    made = message()
    made.system_properties.keys.extend(["a", "b"])
    made.system_properties.born_host = "host"
    made.user_properties["n"] = "1"

    row = read(made).row

    assert row.key == "a"
    assert row.properties["n"] == "1"
    assert json.loads(row.properties[RESERVED]) == {"keys": ["a", "b"], "host": "host"}


def test_each_kind_sets_its_own_field() -> None:
    fifo = message(kind=MessageKind.FIFO)
    fifo.system_properties.message_group = "g"
    assert read(fifo).row.order_key == "g"
    high = message(kind=MessageKind.PRIORITY)
    high.system_properties.priority = 1_000
    assert read(high).row.priority == 255
    later = message(kind=MessageKind.DELAY)
    later.system_properties.delivery_timestamp.seconds = NOW_MS // 1000 + 60
    assert read(later).row.due_at_ms == NOW_MS + 60_000


def test_a_body_that_is_gzip_is_stored_as_it_was_before() -> None:
    made = message(gzip.compress(b"hello"))
    made.system_properties.body_encoding = 2

    assert read(made).row.body == b"hello"


def test_gzip_that_grows_without_end_is_refused() -> None:
    made = message(gzip.compress(bytes(BODY_SIZE_MAX + 2)))
    made.system_properties.body_encoding = 2
    assert refused(made) == Code.MESSAGE_BODY_TOO_LARGE
    made.body = b"no gzip"
    assert refused(made) == Code.BAD_REQUEST
    made.body = gzip.compress(b"hello")[:-9]
    assert refused(made) == Code.BAD_REQUEST


def test_bodies_have_limits() -> None:
    assert refused(message(b"")) == Code.MESSAGE_BODY_EMPTY
    assert refused(message(bytes(BODY_SIZE_MAX + 1))) == Code.MESSAGE_BODY_TOO_LARGE
    assert len(read(message(bytes(BODY_SIZE_MAX))).row.body) == BODY_SIZE_MAX


@pytest.mark.parametrize("tag", [" a", "a|b", "a\x01", "\t"])
def test_bad_tags_are_refused(tag: str) -> None:
    made = message()
    made.system_properties.tag = tag

    assert refused(made) == Code.ILLEGAL_MESSAGE_TAG


def test_bad_keys_and_groups_are_refused() -> None:
    made = message()
    made.system_properties.keys.append("a\x00b")
    assert refused(made) == Code.ILLEGAL_MESSAGE_KEY
    made = message(kind=MessageKind.FIFO)
    made.system_properties.message_group = "\x07"
    assert refused(made) == Code.ILLEGAL_MESSAGE_GROUP


def test_properties_have_limits_and_reserved_names() -> None:
    for name in ("KEYS", "TAGS", RESERVED, "a\nb", ""):
        made = message()
        made.user_properties[name] = "x"
        assert refused(made) == Code.ILLEGAL_MESSAGE_PROPERTY_KEY
    made = message()
    made.user_properties["a"] = "x" * 16_385
    assert refused(made) == Code.MESSAGE_PROPERTIES_TOO_LARGE
    made = message()
    for number in range(129):
        made.user_properties[str(number)] = ""
    assert refused(made) == Code.MESSAGE_PROPERTIES_TOO_LARGE


def test_a_kind_needs_the_field_that_makes_it_one() -> None:
    assert refused(message(kind=MessageKind.FIFO)) == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
    assert refused(message(kind=MessageKind.DELAY)) == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
    assert refused(message(kind=MessageKind.LITE)) == Code.UNSUPPORTED
    assert refused(message(kind=99)) == Code.UNSUPPORTED


def test_a_delay_beyond_the_limit_is_refused() -> None:
    made = message(kind=MessageKind.DELAY)
    made.system_properties.delivery_timestamp.seconds = (NOW_MS + 2 * DAY_MS) // 1000

    assert refused(made) == Code.ILLEGAL_DELIVERY_TIME


def test_times_from_another_age_do_no_harm() -> None:
    made = message(kind=MessageKind.DELAY)
    made.system_properties.delivery_timestamp.seconds = -(2**62)
    made.system_properties.born_timestamp.seconds = 2**62
    row = read(made).row

    assert (row.due_at_ms, row.born_at_ms) == (1, NOW_MS)
