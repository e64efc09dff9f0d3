"""Runs of chosen rows: from one byte a row to half-open ranges.

Filters answer with ranges because a group's progress is ranges: a batch that matches as a whole is
one pair, however many rows it has. The search is two `bytes.find` per run, nothing per row.
"""


def runs(chosen: bytes) -> list[tuple[int, int]]:
    """The ranges of rows whose byte is 1; all others must be 0."""
    found: list[tuple[int, int]] = []
    first = chosen.find(1)
    while first >= 0:
        end = chosen.find(0, first)
        if end < 0:
            end = len(chosen)
        found.append((first, end))
        first = chosen.find(1, end)
    return found
