"""The rules of a connection: what ends a stream, what ends everything, and what goes out when."""

import struct

import pytest

from ternmq.rpc.http2.answer_heads import ANSWER_OK
from ternmq.rpc.http2.frames import (
    ACK,
    END_HEADERS,
    END_STREAM,
    PREFACE,
    FaultCode,
    FrameKind,
    Http2Setting,
    settings_frame,
    window_frame,
)
from ternmq.rpc.http2.hpack import encode_headers
from ternmq.rpc.http2.limits import CallLimits
from tests.unit.rpc.http2.frames_of import (
    CALL,
    HELLO,
    CoreUnderTest,
    begun,
    data,
    frame,
    headers,
    message,
    reset,
    resets,
)

PROTOCOL, FLOW = FaultCode.PROTOCOL_ERROR, FaultCode.FLOW_CONTROL_ERROR
SIZE, CLOSED = FaultCode.FRAME_SIZE_ERROR, FaultCode.STREAM_CLOSED
LONG = struct.Struct(">I").pack
BLOCK = encode_headers(CALL)


def test_it_greets_and_answers_settings() -> None:
    one = CoreUnderTest()
    kinds = [seen[0] for seen in one.out()]
    assert kinds == [FrameKind.SETTINGS, FrameKind.WINDOW_UPDATE]

    assert one.take(HELLO) == [(FrameKind.SETTINGS, ACK, 0, b"")]
    assert one.core.settled


def test_bytes_may_come_one_at_a_time() -> None:
    one = CoreUnderTest()
    sent = HELLO + headers(1) + data(1, message(b"hello"), end=True)
    for at in range(len(sent)):
        one.take(sent[at : at + 1])

    assert one.fault is None
    assert one.made[1].bodies == message(b"hello")
    assert one.made[1].told == ["end"]
    assert one.made[1].heads[0].path == "/t/echo"


BROKEN = {
    "other first words": (b"GET / HTTP/1.1\r\n\r\n", PROTOCOL),
    "no settings first": (PREFACE + frame(FrameKind.PING, 0, 0, bytes(8)), PROTOCOL),
}


@pytest.mark.parametrize("name", BROKEN)
def test_who_does_not_greet_is_sent_away(name: str) -> None:
    one = CoreUnderTest()
    sent, code = BROKEN[name]
    seen = one.take(sent)

    assert one.fault is code
    assert seen[-1][0] == FrameKind.GOAWAY


ENDS_ALL = {
    "a frame that is too large": (frame(FrameKind.DATA, 0, 1, bytes(16_385)), SIZE),
    "data of no stream": (data(0, b"x"), PROTOCOL),
    "data of a stream that is not open": (data(1, b"x"), PROTOCOL),
    "headers of no stream": (headers(0), PROTOCOL),
    "headers of the server's stream": (headers(2), PROTOCOL),
    "too much padding": (headers(1) + frame(0, 0x8, 1, b"\x05abc"), PROTOCOL),
    "padding without bytes": (headers(1) + frame(0, 0x8, 1, b""), PROTOCOL),
    "a priority that is cut off": (frame(1, END_HEADERS | 0x20, 1, b"1234"), SIZE),
    "headers that are not continued": (frame(1, 0, 1, BLOCK) + data(1, b"x"), PROTOCOL),
    "headers continued for another": (frame(1, 0, 1, BLOCK) + frame(9, 4, 3, b""), PROTOCOL),
    "a continuation of nothing": (frame(9, 4, 1, b""), PROTOCOL),
    "a block that is none": (frame(1, 4, 1, b"\x80"), FaultCode.COMPRESSION_ERROR),
    "a lower stream": (headers(5) + headers(3), PROTOCOL),
    "headers after a whole call": (headers(1, end=True) + reset(1) + headers(1), CLOSED),
    "a reset of no stream": (frame(3, 0, 0, LONG(8)), PROTOCOL),
    "a reset of an idle stream": (reset(1), PROTOCOL),
    "a short reset": (headers(1) + frame(3, 0, 1, b"x"), SIZE),
    "settings of a stream": (frame(4, 0, 1, b""), PROTOCOL),
    "an answer with settings": (frame(4, ACK, 0, bytes(6)), SIZE),
    "settings that are cut off": (frame(4, 0, 0, bytes(5)), SIZE),
    "push on and off": (settings_frame({Http2Setting.ENABLE_PUSH: 2}), PROTOCOL),
    "a window that cannot be": (settings_frame({Http2Setting.INITIAL_WINDOW_SIZE: 2**31}), FLOW),
    "a small frame size": (settings_frame({Http2Setting.MAX_FRAME_SIZE: 100}), PROTOCOL),
    "a promise": (frame(5, 4, 1, bytes(4)), PROTOCOL),
    "a ping of a stream": (frame(6, 0, 1, bytes(8)), PROTOCOL),
    "a short ping": (frame(6, 0, 0, bytes(7)), SIZE),
    "a short goodbye": (frame(7, 0, 0, bytes(7)), SIZE),
    "a goodbye of a stream": (frame(7, 0, 1, bytes(8)), PROTOCOL),
    "a window that grows by nothing": (window_frame(0, 0), PROTOCOL),
    "a window that overflows": (window_frame(0, 2**31 - 1), FLOW),
    "a window of an idle stream": (window_frame(1, 1), PROTOCOL),
    "a short window": (frame(8, 0, 0, b"123"), SIZE),
    "a priority of no stream": (frame(2, 0, 0, bytes(5)), PROTOCOL),
}


@pytest.mark.parametrize("name", ENDS_ALL)
def test_what_breaks_a_rule_of_the_connection_ends_it(name: str) -> None:
    one = begun()
    sent, code = ENDS_ALL[name]
    seen = one.take(sent)

    assert one.fault is code
    kind, _, _, payload = seen[-1]
    assert kind == FrameKind.GOAWAY
    assert int.from_bytes(payload[4:8], "big") == code
    assert not one.core.streams
    assert one.held.answers == 0


ENDS_STREAM = {
    "upper case": (headers(1, [("X-Own", "v")]), PROTOCOL),
    "a pseudo header that is none": (headers(1, [(":own", "v")]), PROTOCOL),
    "a pseudo header of answers": (headers(1, [(":status", "200")]), PROTOCOL),
    "a pseudo header that comes late": (headers(1, [(":path", "/")]), PROTOCOL),
    "a header of HTTP/1": (headers(1, [("connection", "close")]), PROTOCOL),
    "another te": (headers(1, [("te", "gzip")]), PROTOCOL),
    "no path": (frame(1, 5, 1, encode_headers([(":method", "POST")])), PROTOCOL),
    "less than announced": (headers(1, [("content-length", "3")]) + data(1, b"x", end=True), 1),
    "more than announced": (headers(1, [("content-length", "1")]) + data(1, b"xy"), PROTOCOL),
    "nothing of what was announced": (headers(1, [("content-length", "1")], end=True), PROTOCOL),
    "data after the end": (headers(1, end=True) + data(1, b"x"), CLOSED),
    "headers after the end": (headers(1, end=True) + headers(1, end=True), CLOSED),
    "headers in the middle": (headers(1) + headers(1), PROTOCOL),
    "a pseudo header at the end": (headers(1) + headers(1, end=True), PROTOCOL),
    "a window that grows by nothing": (headers(1) + window_frame(1, 0), PROTOCOL),
    "a window that overflows": (headers(1) + window_frame(1, 2**31 - 1), FLOW),
    "a priority of itself": (frame(2, 0, 1, LONG(1) + b"x"), PROTOCOL),
    "a short priority": (frame(2, 0, 1, b"x"), SIZE),
}


@pytest.mark.parametrize("name", ENDS_STREAM)
def test_what_breaks_a_rule_of_a_stream_ends_that_one_alone(name: str) -> None:
    one = begun()
    sent, code = ENDS_STREAM[name]
    seen = one.take(sent)

    assert one.fault is None
    assert resets(seen) == [(1, int(code))]
    assert not one.core.streams
    if 1 in one.made:
        assert one.made[1].told[-1] == "gone"
    one.take(headers(3))
    assert 3 in one.core.streams


def test_what_is_not_known_is_passed_over() -> None:
    one = begun()

    assert one.take(frame(77, 0xFF, 9, b"whatever"), settings_frame({})) == [
        (FrameKind.SETTINGS, ACK, 0, b"")
    ]


def test_padding_and_priorities_are_taken_off() -> None:
    one = begun()
    padded = b"\x03" + LONG(0) + b"x" + BLOCK + bytes(3)
    one.take(frame(1, END_HEADERS | 0x28, 1, padded), frame(0, 0x9, 1, b"\x02okxx"))

    assert one.made[1].bodies == b"ok"
    assert one.made[1].told == ["end"]


def test_headers_may_come_in_pieces() -> None:
    one = begun()
    one.take(frame(1, END_STREAM, 1, BLOCK[:3]), frame(9, 0, 1, BLOCK[3:9]))
    assert not one.made
    one.take(frame(9, END_HEADERS, 1, BLOCK[9:]))

    assert one.made[1].told == ["end"]


def test_data_that_was_on_its_way_to_a_stream_we_reset_is_passed_over() -> None:
    one = begun()
    one.take(headers(1))
    one.core.reset(one.made[1], FaultCode.CANCEL)
    one.out()

    assert one.take(data(1, b"late"), headers(1, end=True)) == []
    assert resets(one.take(data(1, b"after the end"))) == [(1, int(CLOSED))]


def test_both_windows_of_a_sender_are_given_back_as_it_is_read() -> None:
    limits = CallLimits(window=1_000, connection_window=70_000)
    one = begun(limits)
    one.take(headers(1))
    for _ in range(100):
        seen = one.take(data(1, bytes(900)))
        one.core.credit(one.made[1], 900)
        seen += one.out()
        assert (FrameKind.WINDOW_UPDATE, 0, 1, LONG(900)) in seen
    assert one.fault is None
    assert len(one.made[1].bodies) == 90_000


def test_more_than_a_window_is_not_taken() -> None:
    one = begun(CallLimits(window=1_000))
    seen = one.take(headers(1), data(1, bytes(900)), data(1, bytes(900)))
    assert resets(seen) == [(1, int(FLOW))]

    two = begun(CallLimits(window=2**20, connection_window=70_000))
    two.core._limits = CallLimits(connection_window=2**30)  # It does not give back.
    two.take(headers(1), *(data(1, bytes(16_000)) for _ in range(5)))
    assert two.fault is FLOW


# What goes out.


def test_an_answer_leaves_whole_in_one_go() -> None:
    one = begun()
    one.take(headers(1, end=True))
    one.made[1].write(b"answer")
    one.made[1].finish(ANSWER_OK)

    seen = one.out()
    assert [(kind, flags) for kind, flags, _, _ in seen] == [(1, 4), (0, 0), (1, 5)]
    assert seen[1][3] == message(b"answer")
    assert not one.core.streams
    assert one.held.answers == 0


def test_messages_of_one_turn_share_a_frame() -> None:
    one = begun()
    one.take(headers(1, end=True))
    for body in (b"a", b"b", b"c"):
        one.made[1].write(body)

    assert [seen[3] for seen in one.out() if seen[0] == 0] == [
        message(b"a") + message(b"b") + message(b"c")
    ]
    assert one.made[1].told == ["end", "drained"]


def test_nothing_leaves_without_a_window_and_all_of_it_when_there_is_one() -> None:
    one = CoreUnderTest()
    one.take(PREFACE + settings_frame({Http2Setting.INITIAL_WINDOW_SIZE: 0}), headers(1, end=True))
    one.made[1].write(b"x" * 100)
    one.made[1].finish(ANSWER_OK)
    assert [seen[0] for seen in one.out()] == [FrameKind.HEADERS]
    assert one.core.waiting
    assert one.held.answers == 105

    assert [len(seen[3]) for seen in one.take(window_frame(1, 10))] == [10]
    assert [
        len(seen[3]) for seen in one.take(settings_frame({Http2Setting.INITIAL_WINDOW_SIZE: 30}))
    ] == [0, 30]
    seen = one.take(window_frame(1, 1_000))
    assert [len(each[3]) for each in seen if each[0] == 0] == [65]
    assert seen[-1][1] == 5
    assert one.held.answers == 0
    assert not one.core.waiting


def test_the_window_of_the_connection_is_shared_in_turns() -> None:
    one = CoreUnderTest()
    one.take(PREFACE + settings_frame({Http2Setting.INITIAL_WINDOW_SIZE: 10**6}))
    one.take(headers(1, end=True), headers(3, end=True))
    for stream in one.made.values():
        stream.write(bytes(99_995))
        stream.finish(ANSWER_OK)
    seen = one.out()
    sizes = {
        number: sum(len(s[3]) for s in seen if s[0] == 0 and s[2] == number) for number in (1, 3)
    }
    assert sum(sizes.values()) == 65_535
    assert min(sizes.values()) > 30_000

    for _ in range(20):
        seen += one.take(window_frame(0, 10_000))
    assert sum(len(each[3]) for each in seen if each[0] == 0) == 200_000
    assert not one.core.streams


def test_frames_are_no_larger_than_the_other_side_takes() -> None:
    one = begun()
    one.take(window_frame(0, 10**6), settings_frame({Http2Setting.INITIAL_WINDOW_SIZE: 10**6}))
    one.take(headers(1, end=True))
    body = bytes(range(256)) * 400
    one.made[1].write(body)
    seen = one.out()

    assert max(len(each[3]) for each in seen) == 16_384
    assert b"".join(each[3] for each in seen if each[0] == 0) == message(body)


def test_a_caller_that_made_its_table_smaller_is_told_that_it_is_not_used() -> None:
    one = CoreUnderTest()
    one.take(PREFACE + settings_frame({Http2Setting.HEADER_TABLE_SIZE: 0}), headers(1, end=True))
    one.made[1].finish_at_once(ANSWER_OK)

    assert one.out()[-1][3] == b"\x20" + ANSWER_OK


def test_an_answer_before_the_end_of_the_request_stops_the_caller() -> None:
    one = begun()
    one.take(headers(1))
    one.made[1].finish_at_once(ANSWER_OK)

    assert resets(one.out()) == [(1, int(FaultCode.NO_ERROR))]


def test_after_goodbye_no_call_begins_and_those_that_are_there_end() -> None:
    one = begun()
    one.take(headers(1, end=True))
    one.core.leave()
    assert one.out()[-1][0] == FrameKind.GOAWAY
    assert one.take(headers(3), data(3, b"x")) == []
    assert list(one.made) == [1]
    one.made[1].write(b"x")
    one.made[1].finish(ANSWER_OK)

    assert one.out()[-1][1] == 5


# Bounds.


def test_headers_without_an_end_are_refused() -> None:
    """CONTINUATION flood: many small pieces, and few large ones."""
    for piece, most in ((b"", 40), (bytes(16_000), 6)):
        one = begun()
        one.take(frame(1, 0, 1, BLOCK))
        for _ in range(most):
            one.take(frame(9, 0, 1, piece))
        assert one.fault is FaultCode.ENHANCE_YOUR_CALM


def test_headers_that_are_too_large_are_refused_with_a_reason() -> None:
    one = begun(CallLimits(header_list_max=1_000))
    one.take(headers(1, [("own", "v" * 600), ("other", "v" * 600)]))

    refusal = one.made[1].heads[0].refusal
    assert refusal is not None
    assert "too large" in refusal.message


def test_more_calls_than_allowed_are_refused_and_may_come_again() -> None:
    one = begun(CallLimits(streams_max=2))
    seen = one.take(headers(1), headers(3), headers(5), data(5, b"x"))
    assert resets(seen) == [(5, int(FaultCode.REFUSED_STREAM))]
    one.take(reset(1))
    one.take(headers(7))

    assert sorted(one.core.streams) == [3, 7]


FLOODS = {
    "pings": frame(6, 0, 0, bytes(8)),
    "answers to pings": frame(6, ACK, 0, bytes(8)),
    "settings": settings_frame({}),
    "answers to settings": frame(4, ACK, 0),
    "windows": window_frame(0, 1),
    "priorities": frame(2, 0, 1, bytes(5)),
    "unknown frames": frame(99, 0, 0, b""),
    "goodbyes": frame(7, 0, 0, bytes(8)),
    "data of nobody": data(1, b""),
}


@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_of_frames_that_carry_nothing_ends_the_connection(name: str) -> None:
    one = begun()
    one.take(headers(1), reset(1))
    sent = 0
    while one.fault is None and sent < 10_000:
        one.take(FLOODS[name])
        sent += 1

    assert one.fault is FaultCode.ENHANCE_YOUR_CALM


def test_calls_that_are_reset_as_soon_as_they_begin_end_the_connection() -> None:
    """Rapid reset."""
    one = begun()
    number = 1
    while one.fault is None and number < 20_000:
        one.take(headers(number), reset(number))
        number += 2

    assert one.fault is FaultCode.ENHANCE_YOUR_CALM
    assert number < 5_000


def test_empty_data_without_an_end_ends_the_connection() -> None:
    one = begun()
    one.take(headers(1))
    for _ in range(5_000):
        one.take(data(1, b""))

    assert one.fault is FaultCode.ENHANCE_YOUR_CALM


def test_an_honest_caller_never_runs_out_of_patience() -> None:
    """Ten thousand calls at one moment, each with a ping and two windows, some given up."""
    one = begun()
    for number in range(1, 20_001, 2):
        one.take(headers(number, end=True), frame(6, 0, 0, bytes(8)))
        if number % 40 == 1:
            one.take(reset(number))
            continue
        one.made[number].write(b"x")
        one.made[number].finish(ANSWER_OK)
        one.take(window_frame(0, 6), window_frame(number, 6))
        del one.made[number]
    assert one.fault is None


def test_time_brings_patience_back() -> None:
    one = begun()
    for _ in range(20):
        for _ in range(400):
            one.take(frame(6, 0, 0, bytes(8)))
        one.now += 1
    assert one.fault is None
