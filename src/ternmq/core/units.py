"""Sizes and durations: constants for code, parsers for what people type.

Names carry their unit (`size` is bytes, `_ms` is milliseconds, `_s` is seconds).
"""

import re

from ternmq.core.errors import BadRequest

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

SECOND_MS = 1_000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)", re.ASCII)
_DURATION_MS = {"ms": 1, "s": SECOND_MS, "m": MINUTE_MS, "h": HOUR_MS, "d": DAY_MS}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", re.ASCII | re.IGNORECASE)
_SIZE_FACTOR = {"": 1, "k": KIB, "m": MIB, "g": GIB, "t": 1024 * GIB}
_COUNT = re.compile(r"(\d+(?:\.\d+)?)\s*([km]?)", re.ASCII | re.IGNORECASE)
_COUNT_FACTOR = {"": 1, "k": 1_000, "m": 1_000_000}
_RATE_S = {"s": 1, "m": 60, "h": 3_600}


def align8(size: int) -> int:
    """Round up to the next multiple of eight: every buffer and record starts there."""
    return (size + 7) & ~7


def parse_duration_ms(text: str) -> int:
    """Read `1.5h`, `30s`, `1h30m`, `250ms`."""
    stripped = text.strip().lower()
    parts = _DURATION.findall(stripped)
    if not parts or _DURATION.sub("", stripped).strip():
        raise BadRequest(f"{text!r} is not a duration; write for example 30s, 5m, 1h30m, 250ms")
    return int(sum(float(number) * _DURATION_MS[unit] for number, unit in parts))


def parse_size(text: str) -> int:
    """Read `64KiB`, `1GB`, `100`; K, M, G are powers of 1,024."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise BadRequest(f"{text!r} is not a size; write for example 4096, 64KiB, 1GiB")
    return int(float(match[1]) * _SIZE_FACTOR[match[2].lower()])


def parse_rate(text: str) -> int:
    """Messages a second: `1000/s`, `2k/s`, `600/m`; `none` for no limit."""
    number, per = _per_second(text)
    match = _COUNT.fullmatch(number)
    if match is None:
        raise BadRequest(f"{text!r} is not a rate; write for example 1000/s, 600/m, or none")
    return _whole(text, float(match[1]) * _COUNT_FACTOR[match[2].lower()] / per)


def parse_size_rate(text: str) -> int:
    """Bytes a second: `10MB/s`, `512KiB/s`; `none` for no limit."""
    number, per = _per_second(text)
    try:
        return _whole(text, parse_size(number) / per)
    except BadRequest:
        raise BadRequest(f"{text!r} is not a rate; write for example 10MB/s, or none") from None


def _per_second(text: str) -> tuple[str, int]:
    """The amount, and in how many seconds."""
    stripped = text.strip()
    if stripped.lower() == "none":
        return "0", 1
    number, slash, unit = stripped.partition("/")
    seconds = _RATE_S.get(unit.strip().lower() if slash else "s")
    return number.strip() if seconds else "", seconds or 1


def _whole(text: str, rate: float) -> int:
    if 0 < rate < 1:
        raise BadRequest(f"{text!r} is less than one a second, the lowest rate there is")
    return int(rate)
