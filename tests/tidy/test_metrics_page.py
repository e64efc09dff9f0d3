"""docs/metrics.md has every metric there is, with its kind, labels and text."""

import re

from ternmq.metrics.table import LANES_MAX, METRICS, SERVERS_MAX, TOPICS_MAX
from tests.tidy.source import ROOT

PAGE = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| `(tern_\w+)` \| (\w+) \| ([\w, ]*) \| (.+) \|$", re.MULTILINE)


def test_the_table_of_metrics_is_what_is_registered() -> None:
    """On failure, write the rows of METRICS into the table of docs/metrics.md."""
    expected = [(name, kind, ", ".join(labels), text) for name, kind, labels, text in METRICS]

    assert ROW.findall(PAGE) == expected


def test_the_page_names_the_bounds() -> None:
    assert TOPICS_MAX == LANES_MAX == SERVERS_MAX == 1_000
    assert "1,000" in PAGE
