"""The pages about the source name every option and column, and no others (P7)."""

import re
from pathlib import Path

from ternmq.pipeline.options import SOURCE
from ternmq.pipeline.source.columns import DELIVERIES, MESSAGES

PAGE = (Path(__file__).parents[2] / "docs" / "spark-source.md").read_text(encoding="utf-8")


def test_the_page_has_every_option_of_the_source() -> None:
    table = PAGE.partition("## Options")[2].partition("\n## ")[0]

    assert sorted(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == sorted(SOURCE)


def test_the_page_has_every_column_of_the_source() -> None:
    section = PAGE.partition("## Columns")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (\w+(?:, \w+)*) \| \w+", section, re.MULTILINE)
    named = [name for row in rows[1:] for name in row.split(", ")]

    assert sorted(named) == sorted(MESSAGES)
    events = re.search(r"pull logs: `([^`]+)`", section)
    assert events is not None
    assert re.split(r",\s+", events[1]) == list(DELIVERIES)
