"""Bars: as wide as the terminal, never nothing for something."""

from ternmq.cli.messages.bars import bar_lines


def test_the_largest_value_fills_the_line_and_a_small_one_is_seen() -> None:
    lines = bar_lines([("a", 1_000_000), ("bb", 500_000), ("c", 1), ("d", 0)], width=40)

    assert len(lines[0]) == 40
    assert lines[0].count("█") == 2 * lines[1].count("█") + 1, "and a half"
    assert lines[2].endswith("▏")
    assert lines[3].endswith(" 0")
    assert lines[1].startswith("bb    500,000  █")


def test_plain_bars_are_plain_text() -> None:
    assert bar_lines([("a", 4), ("b", 2)], width=10, plain=True) == [
        "a  4  ##########",
        "b  2  #####",
    ]


def test_nothing_is_no_chart() -> None:
    assert bar_lines([], width=80) == []
