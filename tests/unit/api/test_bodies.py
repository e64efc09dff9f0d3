"""Bodies for people: every kind of bytes is shown as something, and nothing raises."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from ternmq.api.bodies import KINDS, PREVIEW_LETTERS, as_field, decoded, hex_dump, preview


def test_each_kind_is_recognised() -> None:
    bodies = {
        b"": "empty",
        b'{"a": [1, 2]}': "json",
        b"hello": "text",
        "订单".encode(): "text",
        b"12": "text",
        msgspec.msgpack.encode({"a": b"\x01"}): "msgpack",
        b"\x00\x01\xff": "hex",
        b'{"specversion":"1.0","id":"1","type":"t","source":"s"}': "cloudevent",
        b'{"broken": ': "text",
    }

    assert {body: decoded(body).kind for body in bodies} == bodies


def test_json_is_indented_and_msgpack_is_shown_as_json() -> None:
    assert decoded(b'{"a":1}').text == '{\n  "a": 1\n}'
    assert decoded(msgspec.msgpack.encode({1: b"\x02"})).text == '{\n  "1": "02"\n}'


def test_a_large_body_is_cut_and_says_so() -> None:
    shown = decoded(b"x" * 5_000_000)

    assert shown.cut and shown.size == 5_000_000 and len(shown.text) <= 64 * 1024


def test_deep_json_is_no_trap() -> None:
    assert decoded(b"[" * 500_000).text


@given(st.binary(max_size=300), st.sampled_from(KINDS))
def test_whatever_it_is_it_can_be_shown(body: bytes, show: str) -> None:
    shown = decoded(body, show)
    letters = set(shown.text + preview(body)) - {"\n", "\t"}

    assert all(letter.isprintable() for letter in letters)
    assert len(preview(body)) <= PREVIEW_LETTERS + 1
    msgspec.json.encode(as_field(body))


def test_a_hex_dump_has_offsets_bytes_and_letters() -> None:
    line = hex_dump(b"ab\x00", 1)

    assert line.startswith("00000000  61 62 00 ") and line.endswith("  ab·")
