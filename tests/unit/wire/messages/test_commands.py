"""Messages: what a peer may leave out, what is refused, and errors that travel."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ternmq.core.errors import ERRORS, BadRequest, ProtocolError, TernError, TopicNotFound
from ternmq.wire.messages.hello import Hello, Welcome, failure, read_failure
from ternmq.wire.messages.pull import Done, Pull
from ternmq.wire.messages.topics import TopicFind
from ternmq.wire.record import pack as pack_record
from ternmq.wire.record import unpack


def test_a_record_reads_back() -> None:
    pull = Pull(
        subscription=1, rows_max=2, size_max=3, wait_ms=4, done=[Done(lease=5, first=6, end=7)]
    )

    assert unpack(pack_record(pull), Pull) == pull


@pytest.mark.parametrize("value", [TopicFind(prefix="\ud800"), TopicFind(limit=10**30)])
def test_what_no_record_can_carry_is_the_callers_mistake(value: TopicFind) -> None:
    """A lone surrogate (a command line that is not UTF-8) and a huge number: no stack trace."""
    with pytest.raises(BadRequest, match="TopicFind cannot be sent"):
        pack_record(value)


def test_fields_at_the_end_may_be_missing_from_an_older_peer() -> None:
    older = msgspec.msgpack.encode([1, "shop", "0.1", bytes(16)])

    assert unpack(older, Hello) == Hello(protocol=1, app="shop", version="0.1", session=bytes(16))


def test_fields_at_the_end_that_a_newer_peer_has_are_ignored() -> None:
    newer = msgspec.msgpack.encode(["order.", "", 10, "something new"])

    assert unpack(newer, TopicFind) == TopicFind(prefix="order.", limit=10)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xc1",
        b"\x90",
        b"not msgpack",
        pack_record(TopicFind()),
        b"\x94\x01\xa1\xff\xa1a\xc4\x00",
    ],
)
def test_other_bytes_are_a_protocol_error(payload: bytes) -> None:
    with pytest.raises(ProtocolError, match="not a Hello"):
        unpack(payload, Hello)


@given(st.binary(max_size=60))
def test_random_bytes_are_read_or_refused(payload: bytes) -> None:
    for kind in (Hello, Welcome, Pull):
        try:
            unpack(payload, kind)
        except ProtocolError:
            continue


@pytest.mark.parametrize("kind", ERRORS.values(), ids=lambda kind: kind.code)
def test_every_error_travels_as_itself(kind: type[TernError]) -> None:
    got = read_failure(failure(kind("what to do", topic="t")))

    assert type(got) is kind
    assert (got.message, got.details) == ("what to do", {"topic": "t"})


def test_an_error_of_a_newer_server_is_still_an_error() -> None:
    payload = msgspec.msgpack.encode(["brand_new", "text", {}])

    got = read_failure(payload)

    assert type(got) is TernError
    assert got.message == "text"


def test_details_that_an_error_does_not_know_do_not_hurt() -> None:
    got = read_failure(msgspec.msgpack.encode(["topic_not_found", "text", {"message": "clash"}]))

    assert isinstance(got, TopicNotFound)
