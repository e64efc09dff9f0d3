"""Rates as people type them."""

import pytest

from ternmq.core.errors import BadRequest
from ternmq.core.units import KIB, MIB, parse_rate, parse_size_rate


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("1000", 1000),
        ("1000/s", 1000),
        ("2k/s", 2000),
        ("1.5M/s", 1_500_000),
        ("600/m", 10),
        ("7200 / h", 2),
        ("none", 0),
        ("0", 0),
    ],
)
def test_messages_a_second(text: str, rate: int) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize(
    ("text", "rate"), [("10MB/s", 10 * MIB), ("64KiB", 64 * KIB), ("60K/m", KIB), ("none", 0)]
)
def test_bytes_a_second(text: str, rate: int) -> None:
    assert parse_size_rate(text) == rate


@pytest.mark.parametrize("text", ["", "fast", "10/x", "-5/s", "1/m", "/s"])
def test_what_is_not_a_rate_is_said(text: str) -> None:
    with pytest.raises(BadRequest):
        parse_rate(text)
    with pytest.raises(BadRequest):
        parse_size_rate(text if text != "1/m" else "1 x")
