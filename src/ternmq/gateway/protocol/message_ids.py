"""Message ids on both sides.

A RocketMQ client makes 17 bytes and writes them as 34 hex digits that begin with 01; here they are
the message's explicit id. An id of another shape is kept as its text behind a letter that no such
id begins with. Ids of TernMQ, 26 characters, are text to every RocketMQ client. Pure.
"""

import re

from ternmq.core.ids import ID_TEXT_SIZE, id_from_text
from ternmq.gateway.protocol.codes import Code, Refused

CLIENT_ID = re.compile(r"01[0-9A-Fa-f]{32}", re.ASCII)
CLIENT_ID_SIZE = 17
TEXT_MARK = b"t"
TEXT_SIZE_MAX = 200


def explicit_id(text: str) -> bytes:
    """The bytes that TernMQ keeps for the id that a client gave."""
    if CLIENT_ID.fullmatch(text) is not None:
        return bytes.fromhex(text)
    written = text.encode()
    if not 0 < len(written) <= TEXT_SIZE_MAX:
        raise Refused(
            Code.ILLEGAL_MESSAGE_ID, f"a message id has 1 to {TEXT_SIZE_MAX} bytes, not {len(text)}"
        )
    return TEXT_MARK + written


def client_id_text(message_id: str) -> str:
    """The id that a client is shown for a message whose id TernMQ writes so."""
    if len(message_id) == ID_TEXT_SIZE:
        raw = id_from_text(message_id).to_bytes(16, "big")
        return _text(raw) if raw[:1] == TEXT_MARK and _is_text(raw) else message_id
    raw = bytes.fromhex(message_id)
    return _text(raw) if raw[:1] == TEXT_MARK and _is_text(raw) else message_id.upper()


def _text(raw: bytes) -> str:
    return raw[1:].decode()


def _is_text(raw: bytes) -> bool:
    try:
        return raw[1:].decode().isprintable()
    except UnicodeDecodeError:
        return False
