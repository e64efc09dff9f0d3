"""What `send` refuses, and what it says."""

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

import ternmq
from ternmq.batch.properties import PropertyValue
from ternmq.client.codecs.codec import Json
from ternmq.client.model.outgoing import adopt_outgoing, make_body, make_outgoing
from ternmq.client.model.times import TIME_MAX_MS, time_from_ms
from ternmq.core.errors import BadConfig, BadName, BadRequest, TooLarge


def test_a_ttl_may_be_seconds_or_a_timedelta() -> None:
    assert make_outgoing(b"", {"ttl": 1.5}, 1000).expire_at_ms == 2500
    assert make_outgoing(b"", {"ttl": timedelta(minutes=1)}, 0).expire_at_ms == 60_000
    assert make_outgoing(b"", {"ttl": None}, 0).expire_at_ms is None


def test_a_ttl_begins_when_the_message_is_due() -> None:
    """Else a message for tomorrow that lives an hour would be dead on arrival."""
    later = datetime(1970, 1, 1, 0, 1, tzinfo=UTC)

    assert make_outgoing(b"", {"ttl": 1, "delay": 10}, 1000).expire_at_ms == 12_000
    assert make_outgoing(b"", {"ttl": 1, "at": later}, 1000).expire_at_ms == 61_000
    assert make_outgoing(b"", {"ttl": 1, "at": later}, 90_000).expire_at_ms == 91_000


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"priority": 256}, "priority is 256; it can be 0"),
        ({"priority": True}, "priority is True"),
        ({"ttl": 0}, "ttl is 0; it is a number of seconds above 0"),
        ({"key": 7}, "key is 7; it is a str"),
        ({"tag": b"vip"}, "tag is b'vip'; it is a str"),
        ({"key": "k" * 2000}, "key has 2000 bytes; at most 1024"),
        ({"key": "\ud800"}, "cannot be written as UTF-8"),
        ({"properties": {"when": datetime(2026, 1, 1, tzinfo=UTC)}}, "use str, int, float"),
        ({"properties": {"": 1}}, "non-empty"),
        ({"properties": [1]}, "it is a dict"),
        ({"delay": -1}, "delay is -1; it cannot be below 0"),
        ({"at": datetime(2027, 1, 1)}, "which has no time zone"),
        ({"proprties": {}}, "did you mean 'properties'?"),
    ],
)
def test_a_wrong_value_is_named(options: Any, text: str) -> None:
    with pytest.raises(BadRequest) as caught:
        make_outgoing(b"", options, 0)

    assert text in str(caught.value)


def test_text_is_no_body() -> None:
    with pytest.raises(BadRequest, match=r"a body is bytes, not str: encode it"):
        make_body("text", None)


def test_a_body_over_64_mib_is_refused_before_it_is_compressed() -> None:
    with pytest.raises(TooLarge, match="send a link"):
        make_body(bytes(64 * 1024 * 1024 + 1), None)


def test_a_codec_that_fails_is_named() -> None:
    with pytest.raises(BadRequest, match="could not encode object"):
        make_body(object(), Json())


async def test_a_bad_topic_name_says_the_rule(mq: ternmq.Client) -> None:
    for name in ("", "a b", "%dead", "x" * 128, "ä"):
        with pytest.raises(BadName, match="use 1 to 127 letters"):
            await mq.send(name, b"")
        with pytest.raises(BadName, match="use 1 to 127 letters"):
            await mq.send_many(name, [b""])
        with pytest.raises(BadName, match="use 1 to 127 letters"):
            mq.send_nowait(name, b"")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"buffer_message_max": 1}, "did you mean 'buffer_messages_max'?"),
        ({"on_full": "drop"}, "on_full is 'drop'; it can be 'wait', 'raise'"),
        ({"compression": "gzip"}, "it can be 'zstd', 'lz4', 'none'"),
        ({"delivery_timeout": 0}, "delivery_timeout is 0"),
        ({"batch_rows_max": 70_000}, "it can be 1 to 65535"),
        ({"codec": "xml"}, "codec is 'xml'"),
        ({"codec": 5}, "is no codec"),
        ({"app": "my app"}, "cannot be the name of a application"),
    ],
)
def test_a_wrong_option_of_connect_is_named(options: Any, text: str) -> None:
    with pytest.raises(BadRequest) as caught:
        ternmq.connect("tern://127.0.0.1:7700", **options)

    assert text in str(caught.value)


def test_a_wrong_url_is_refused_where_it_is_written() -> None:
    with pytest.raises(BadRequest, match="is not a TernMQ URL"):
        ternmq.connect("http://127.0.0.1:7700")


def test_unknown_options_are_bad_config() -> None:
    with pytest.raises(BadConfig):
        ternmq.connect("tern://127.0.0.1:7700", bufer=1)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"properties": {"a": "\ud800"}}, "property 'a' cannot be written as UTF-8"),
        ({"properties": {"\ud800": "v"}}, r"property name '\ud800' cannot be written as UTF-8"),
        ({"properties": {"a": 10**5000}}, "property 'a' is an int of more than 4000 digits"),
        ({"properties": {"a": None}}, "property 'a' is a NoneType"),
        ({"tag": "\udfff"}, "tag cannot be written as UTF-8"),
        ({"order_key": "\udfff"}, "order_key cannot be written as UTF-8"),
        ({"ttl": 1e30}, "ttl is 1e+30; it would end after the year 9999"),
        ({"ttl": float("inf")}, "ttl is inf; it would end after the year 9999"),
        ({"ttl": float("nan")}, "ttl is nan; it is a number of seconds above 0"),
        ({"ttl": timedelta.max}, "it would end after the year 9999"),
        ({"ttl": 10**5000}, "ttl is a int that cannot be shown; it would end after"),
        ({"priority": 10**5000}, "priority is a int that cannot be shown"),
        ({"key": 10**5000}, "key is a int that cannot be shown"),
    ],
)
def test_what_cannot_be_written_is_refused_at_the_call(options: Any, text: str) -> None:
    with pytest.raises(BadRequest) as caught:
        make_outgoing(b"", options, 1_700_000_000_000)

    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"born_at_ms": 10**17}, "born_at_ms is 100000000000000000; it is milliseconds"),
        ({"born_at_ms": -1}, "born_at_ms is -1"),
        ({"born_at_ms": 1.5}, "born_at_ms is 1.5"),
        ({"expire_at_ms": 10**30}, "expire_at_ms is 1000000"),
        ({"expire_at_ms": True}, "expire_at_ms is True"),
        ({"explicit_id": "str"}, "explicit_id is 'str'; it is bytes"),
        ({"due_at_ms": -1}, "due_at_ms is -1; it is milliseconds since 1970"),
        ({"delay_ms": 1.5}, "delay_ms is 1.5; it is milliseconds, 0 to"),
        ({"due_at_ms": 1, "delay_ms": 1}, "not both"),
        ({"properties": {"a": "\ud800"}}, "property 'a' cannot be written as UTF-8"),
    ],
)
async def test_a_wrong_field_of_an_outgoing_is_named_with_its_message(
    mq: ternmq.Client, fields: Any, text: str
) -> None:
    with pytest.raises(BadRequest) as caught:
        await mq.send_many("orders", [b"fine", ternmq.Outgoing(body=b"", **fields)])

    assert str(caught.value).startswith("message 1: ")
    assert text in str(caught.value)


def test_the_last_millisecond_of_9999_is_a_time() -> None:
    message = adopt_outgoing(
        ternmq.Outgoing(body=b"", born_at_ms=TIME_MAX_MS, expire_at_ms=TIME_MAX_MS), 0
    )

    assert time_from_ms(message.born_at_ms) == datetime(9999, 12, 31, 23, 59, 59, 999_000, UTC)


def test_properties_are_copied_so_a_dict_may_be_used_again() -> None:
    mine: dict[str, PropertyValue] = {"n": 1}
    made = make_outgoing(b"", {"properties": mine}, 0)
    adopted = adopt_outgoing(ternmq.Outgoing(body=b"", properties=mine), 0)
    mine["n"] = 2

    assert made.properties == adopted.properties == {"n": 1}


def test_subclasses_become_the_type_they_stand_for() -> None:
    class Shouting(str):
        def __str__(self) -> str:
            return "LOUD"

    made = make_outgoing(b"", {"key": Shouting("quiet"), "tag": Shouting("t")}, 0)

    assert (made.key, type(made.key)) == ("quiet", str)
    assert (made.tag, type(made.tag)) == ("t", str)
    assert type(make_body(np.bytes_(b"x"), None)) is bytes


def test_a_message_of_a_list_takes_the_options_of_send() -> None:
    made = ternmq.outgoing({"n": 1}, key="k", delay=2, ttl=timedelta(minutes=1), codec="json")
    assert (made.body, made.key, made.delay_ms) == (b'{"n":1}', "k", 2000)
    assert made.expire_at_ms == made.born_at_ms + 62_000

    with pytest.raises(BadRequest, match="a body is bytes"):
        ternmq.outgoing("text")
    with pytest.raises(BadRequest, match=r"delay= .* or at="):
        ternmq.outgoing(b"", delay=1, at=datetime(2030, 1, 1, tzinfo=UTC))
    with pytest.raises(BadRequest, match="waits for nobody"):
        ternmq.outgoing(b"", confirm_group="g")
