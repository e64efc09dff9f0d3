"""Where reading begins, as it is typed: the same words as in the console and the HTTP API."""

from ternmq.client.reading.written_start import (
    HELP,
    SEQUENCE_MAX,
    StartPoint,
    as_start,
    parse_start,
)

__all__ = ["HELP", "SEQUENCE_MAX", "StartPoint", "as_start", "parse_start"]
