"""A bar chart for a terminal: one line per value, bars as wide as there is room. Pure text."""

from collections.abc import Sequence

LABEL_GAP = 2
BAR_MIN = 10
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def bar_lines(rows: Sequence[tuple[str, int]], *, width: int, plain: bool = False) -> list[str]:
    """Label, value and bar; the longest bar is the largest value."""
    if not rows:
        return []
    labels = max(len(label) for label, _ in rows)
    numbers = max(len(f"{value:,}") for _, value in rows)
    room = max(BAR_MIN, width - labels - numbers - 2 * LABEL_GAP)
    largest = max(1, *(value for _, value in rows))
    gap = " " * LABEL_GAP
    return [
        f"{label.ljust(labels)}{gap}{f'{value:,}'.rjust(numbers)}{gap}"
        f"{_bar(value, largest, room, plain=plain)}".rstrip()
        for label, value in rows
    ]


def _bar(value: int, largest: int, room: int, *, plain: bool) -> str:
    """Something, however little, never looks like nothing."""
    if value <= 0:
        return ""
    if plain:
        return "#" * max(1, value * room // largest)
    eighths = max(1, value * room * 8 // largest)
    whole, rest = divmod(eighths, 8)
    return "█" * whole + (_EIGHTHS[rest] if rest else "")
