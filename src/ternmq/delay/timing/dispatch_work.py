"""Rows on their way from the wheel to a broker, as a worker of the dispatcher holds them. Pure."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

TURN_MS = 100  # Rows go out in order of their due times, to so many milliseconds.


@dataclass(slots=True)
class DispatchWork:
    """Rows of one topic in one hour that a worker holds."""

    hour: int
    topic_id: int
    rows: np.ndarray
    """By due time, to `TURN_MS`."""
    fragment: int = -1
    due_ms: int = 0
    """When the first of them was due."""
    late: bool = False


class RowPlace(NamedTuple):
    """Rows of one record."""

    hour: int
    offset: int
    size: int
    first_row: int
    rows: np.ndarray


def in_turn(rows: np.ndarray, due_ms: np.ndarray) -> np.ndarray:
    """Rows by due time to `TURN_MS`, and as they lie in the file within that."""
    turns = due_ms // TURN_MS
    if len(turns) and turns.min() == turns.max():
        return np.sort(rows)
    ordered: np.ndarray = rows[np.lexsort((rows, turns))]
    return ordered


def once(rows: np.ndarray) -> np.ndarray:
    """Rows in the same order, each once: one that was moved may be there twice."""
    _, first = np.unique(rows, return_index=True)
    return rows if len(first) == len(rows) else rows[np.sort(first)]
