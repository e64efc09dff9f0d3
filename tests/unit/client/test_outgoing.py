"""What `send` refuses, and what it says."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import ternmq
from ternmq.client.codec import Json
from ternmq.client.outgoing import make_body, make_outgoing
from ternmq.core.errors import BadConfig, BadName, BadRequest, TooLarge


def test_a_ttl_may_be_seconds_or_a_timedelta() -> None:
    assert make_outgoing(b"", {"ttl": 1.5}, 1000).expire_at_ms == 2500
    assert make_outgoing(b"", {"ttl": timedelta(minutes=1)}, 0).expire_at_ms == 60_000
    assert make_outgoing(b"", {"ttl": None}, 0).expire_at_ms is None


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
        ({"delay": 5}, "need the delay server, which is not part of this release"),
        ({"at": datetime(2027, 1, 1, tzinfo=UTC)}, "need the delay server"),
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
