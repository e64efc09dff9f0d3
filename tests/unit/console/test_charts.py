"""Charts are text: whole, within their frame, said in words, and safe."""

import re
from xml.etree import ElementTree

import pytest

from ternmq.console.charts import (
    BAR_WIDTH,
    bar_widths,
    columns,
    flow_chart,
    gauge,
    ledger_bars,
    nice_top,
    spark,
)

COUNTS = {
    "ready": 1,
    "in_flight": 0,
    "waiting_retry": 0,
    "dead": 3,
    "acked": 1_000_000,
    "filtered": 0,
    "skipped": 0,
    "expired": 0,
}


def test_every_drawing_is_well_formed_and_says_what_it_shows() -> None:
    drawings = [
        spark([1.0, 5.0, 2.0]),
        spark([]),
        flow_chart({"in": [1.0], "out": []}, from_ms=0, to_ms=60_000),
        ledger_bars(COUNTS, 1_000_004),
        columns([(0, 5)], step_ms=3_600_000, from_ms=0, count=24, base="/delayed?"),
        gauge(50, 100, 'a "quoted" <label>'),
    ]

    for drawing in drawings:
        root = ElementTree.fromstring(str(drawing))
        assert [each for each in root.iter() if each.get("aria-label")]


def test_a_sliver_is_seen_and_the_bar_stays_as_wide_as_it_is() -> None:
    widths = bar_widths([1, 1_000_000, 3], BAR_WIDTH)

    assert sum(widths) == pytest.approx(BAR_WIDTH)
    assert min(widths) > 3
    assert bar_widths([0, 0], BAR_WIDTH) == []


def test_the_second_row_shows_only_what_is_open() -> None:
    whole, opened = re.findall(r"<svg.*?</svg>", str(ledger_bars(COUNTS, 1_000_004)))

    assert "state-acked" in whole and "state-acked" not in opened
    assert "open messages: 1 ready, 3 dead" in opened
    assert "1,000,000 (" in whole and "dead: 3 (&lt; 0.1 %)" in whole


def test_a_scale_ends_at_a_round_number() -> None:
    assert [nice_top(value) for value in (0, 0.3, 3, 12, 70, 101)] == [1, 1, 5, 20, 100, 200]


def test_a_column_links_to_its_hour() -> None:
    drawn = str(columns([(3_600_000, 7)], step_ms=3_600_000, from_ms=0, count=3, base="/d?"))

    assert 'href="/d?from=3600000&amp;to=7200000"' in drawn
    assert drawn.count("<a ") == 1
