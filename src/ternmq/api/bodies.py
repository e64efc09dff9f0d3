"""Bodies for people: text, JSON, MessagePack, CloudEvents, or a hex dump. Pure.

A body is bytes that somebody else wrote. What it is is guessed from the bytes alone, or said by the
reader (`show`). Whatever it is, `decoded` returns something to show, cut to a bound: never raises
for strange bytes, never shows a control character as itself.
"""

from dataclasses import dataclass
from typing import Any

import msgspec

from ternmq.core.errors import BadRequest
from ternmq.core.units import KIB, MIB

KINDS = ("auto", "text", "json", "msgpack", "hex")
SHOWN_MAX = 64 * KIB
PARSED_MAX = MIB
"""Larger bodies are not parsed: they are shown as the text or bytes that they are."""
HEX_ROWS_MAX = 256
PREVIEW_LETTERS = 160
ROW = 16
_OPENERS = b'{["'


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedBody:
    """A body as it is shown."""

    kind: str
    """'empty', 'text', 'json', 'cloudevent', 'msgpack' or 'hex'."""
    text: str
    size: int
    """Bytes of the whole."""
    cut: bool = False
    """There is more than is shown."""


def decoded(body: bytes, show: str = "auto", *, letters_max: int = SHOWN_MAX) -> DecodedBody:
    """A body in the best form there is; `show` insists on one, and falls back to hex."""
    if show not in KINDS:
        raise BadRequest(f"show is {show[:40]!r}; it can be {', '.join(KINDS)}")
    if not body:
        return DecodedBody(kind="empty", text="", size=0)
    tries = {
        "auto": (_json, _text, _msgpack),
        "json": (_json,),
        "text": (_text,),
        "msgpack": (_msgpack,),
        "hex": (),
    }
    for attempt in tries[show]:
        found = attempt(body, strict=show == "auto")
        if found is not None:
            kind, text = found
            return _cut(kind, text, body, letters_max)
    rows = min(HEX_ROWS_MAX, max(1, letters_max // 80))
    return DecodedBody(
        kind="hex", text=hex_dump(body, rows), size=len(body), cut=len(body) > rows * ROW
    )


def preview(body: bytes) -> str:
    """The beginning of a body on one line."""
    if not body:
        return ""
    head = body[: PREVIEW_LETTERS * 4]
    text = head.decode("utf-8", "replace")
    strange = sum(letter == "\ufffd" or not _shown(letter) for letter in text)
    if strange > len(text) // 8 + 1:
        found = _msgpack(body, strict=True) if len(body) <= PARSED_MAX else None
        text = " ".join(found[1].split()) if found else body[: PREVIEW_LETTERS // 3].hex(" ")
    line = " ".join("".join(x if _shown(x) or x in " \t\n" else "·" for x in text).split())
    more = len(line) > PREVIEW_LETTERS or len(body) > len(head)
    return line[:PREVIEW_LETTERS] + "…" if more else line


def as_field(body: bytes) -> dict[str, Any]:
    """A body for JSON: one of `json`, `text`, `base64`."""
    if body[:1] in (b"{", b"[") and len(body) <= PARSED_MAX:
        try:
            return {"json": msgspec.json.decode(body)}
        except (msgspec.DecodeError, RecursionError):
            pass
    try:
        return {"text": body.decode()}
    except UnicodeDecodeError:
        return {"base64": body}  # msgspec writes bytes as base64.


def hex_dump(body: bytes, rows: int) -> str:
    """Offset, bytes, letters, as `hexdump -C` writes them."""
    lines = []
    for at in range(0, min(len(body), rows * ROW), ROW):
        part = body[at : at + ROW]
        letters = "".join(chr(x) if 32 <= x < 127 else "·" for x in part)
        lines.append(f"{at:08x}  {part.hex(' '):<47}  {letters}")
    return "\n".join(lines)


def _cut(kind: str, text: str, body: bytes, letters_max: int) -> DecodedBody:
    more = len(text) > letters_max
    return DecodedBody(kind=kind, text=text[:letters_max], size=len(body), cut=more)


def _json(body: bytes, *, strict: bool) -> tuple[str, str] | None:
    if len(body) > PARSED_MAX or (strict and body.lstrip()[:1] not in _OPENERS):
        return None
    try:
        value = msgspec.json.decode(body)
        shown = msgspec.json.format(body, indent=2).decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    event = isinstance(value, dict) and {"specversion", "type", "source", "id"} <= value.keys()
    return "cloudevent" if event else "json", _printable(shown)


def _text(body: bytes, *, strict: bool) -> tuple[str, str] | None:
    try:
        text = body.decode()
    except UnicodeDecodeError:
        if strict:
            return None
        text = body.decode("utf-8", "replace")
    if strict and not all(_shown(letter) or letter in "\t\r\n" for letter in text[:SHOWN_MAX]):
        return None
    return "text", _printable(text)


def _msgpack(body: bytes, *, strict: bool) -> tuple[str, str] | None:
    if len(body) > PARSED_MAX:
        return None
    try:
        value = msgspec.msgpack.decode(body)
        if strict and not isinstance(value, dict | list):
            return None  # One byte is a valid number: that says nothing.
        plain = _plain(value)
        return "msgpack", _printable(msgspec.json.format(msgspec.json.encode(plain)).decode())
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, TypeError, ValueError):
        return None


def _plain(value: Any) -> Any:
    """What JSON can hold: MessagePack has other keys, and bytes."""
    if isinstance(value, dict):
        return {key if isinstance(key, str) else str(key): _plain(x) for key, x in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(x) for x in value]
    if isinstance(value, bytes):
        return value.hex()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)


def _shown(letter: str) -> bool:
    return letter.isprintable()


def _printable(text: str) -> str:
    """Control characters by their picture: a page stays a page."""
    if text.isprintable():
        return text
    return "".join(x if _shown(x) or x in "\t\n" else _picture(x) for x in text)


def _picture(letter: str) -> str:
    code = ord(letter)
    return chr(0x2400 + code) if code < 32 else f"\\u{code:04x}"
