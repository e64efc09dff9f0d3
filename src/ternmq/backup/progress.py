"""How far a backup, a restore or a check is: bytes done, of how many."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

Progress = Callable[[int, int], None]
"""Hears how many bytes are done, of how many."""
T = TypeVar("T")


def silent(done: int, total: int) -> None:
    """Nobody looks."""


def counted(items: Sequence[T], size_of: Callable[[T], int], progress: Progress) -> Iterator[T]:
    """One after the other; each counts when the next one is asked for."""
    sizes = [size_of(item) for item in items]
    done, total = 0, sum(sizes)
    for item, size in zip(items, sizes, strict=True):
        yield item
        done += size
        progress(done, total)
