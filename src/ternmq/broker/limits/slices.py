"""Makes long lists in slices, so that other requests get the event loop in between.

One slice in each turn of the loop, however many lists are being made: they take turns. So ten
thousand groups asked for forty times over delay nobody by more than a slice.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

SLICE = 200
OVER = object()

A = TypeVar("A")
B = TypeVar("B")


class Slices:
    """Long lists in the making, a slice of each in turn."""

    def __init__(self, size: int = SLICE) -> None:
        self._size = size
        self._turn = asyncio.Lock()

    async def make(self, items: Sequence[A], make: Callable[[A], B]) -> list[B]:
        """What `make` returns for each of them, in their order."""
        made: list[B] = []
        for at in range(0, len(items), self._size):
            async with self._turn:
                made += map(make, items[at : at + self._size])
                if len(items) > self._size:
                    await asyncio.sleep(0)
        return made

    async def run(self, steps: Iterator[None]) -> None:
        """Work that is cut into steps by who does it: one in each turn of the loop."""
        going = True
        while going:
            async with self._turn:
                going = next(steps, OVER) is not OVER
                await asyncio.sleep(0)
