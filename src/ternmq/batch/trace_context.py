"""The trace context of a message: W3C `traceparent` and `tracestate`, as text and as column TRACE.

Applications see `00-TRACE-SPAN-FLAGS`, with `;` and the state behind it where there is one. In a
batch it is 25 bytes (trace 16, span 8, flags 1), then the state. What a reader does not understand
is no context: whatever `read_trace` gives, `pack_trace` takes, so that brokers can copy any row.
"""

import re
from collections.abc import Iterable
from functools import lru_cache

from ternmq.core.errors import BadRequest

TRACE_SIZE = 25
STATE_SIZE_MAX = 512
_FORM = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:;([\x20-\x7e]*))?")
_STATE = re.compile(rb"[\x20-\x7e]*")


def pack_trace(text: str) -> bytes:
    """The bytes of a context; raises `BadRequest`."""
    if not isinstance(text, str):
        raise BadRequest(f"trace is of type {type(text).__name__}; it is a str, or None for none")
    return _packed(text)


@lru_cache(maxsize=256)
def _packed(text: str) -> bytes:
    found = _FORM.fullmatch(text)
    if found is None or not int(found[1], 16) or not int(found[2], 16):
        raise BadRequest(
            f"trace is {text[:80]!r}; it is a W3C traceparent of version 00, and perhaps "
            "';' and a tracestate"
        )
    state = (found[4] or "").encode()
    if len(state) > STATE_SIZE_MAX:
        raise BadRequest(f"the tracestate has {len(state)} bytes; at most {STATE_SIZE_MAX}")
    return bytes.fromhex(found[1] + found[2] + found[3]) + state


def pack_traces(texts: Iterable[str | None]) -> list[bytes | None]:
    """Of all rows of a batch; most of them have the same."""
    return [pack_trace(text) if text else None for text in texts]


def read_trace(packed: bytes | None) -> str | None:
    """The text of a context; None where there is none, or none that this release reads."""
    if not packed or len(packed) < TRACE_SIZE:
        return None
    if not any(packed[:16]) or not any(packed[16:24]):
        return None
    text = f"00-{packed[:16].hex()}-{packed[16:24].hex()}-{packed[24:25].hex()}"
    state = packed[TRACE_SIZE:]
    if not state or len(state) > STATE_SIZE_MAX or _STATE.fullmatch(state) is None:
        return text
    return f"{text};{state.decode('ascii')}"
