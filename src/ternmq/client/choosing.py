"""Which of several servers gets the next batch: in turn, by chance, or by chance and weight.

Pure. What has an order key does not come here: its slot says where it goes (`client.ordered`). A
weight of 0 means that a server gets nothing new, whatever the way of choosing; where all have that,
weights mean nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Literal

from crc32c import crc32c

from ternmq.wire.placement import Home

Choosing = Literal["round_robin", "random", "weighted"]
WEIGHT = 100
"""Of a group that nobody gave another one."""


class Chooser:
    """Picks one name of several."""

    def __init__(self, way: Choosing, chance: Callable[[], float]) -> None:
        self._way = way
        self._chance = chance
        self._turn = 0

    def pick(self, names: Sequence[str], weights: Mapping[str, int]) -> str:
        """One of `names`, which are not empty."""
        if self._way == "round_robin":
            self._turn += 1
            return names[self._turn % len(names)]
        point = self._chance()
        if self._way == "random":
            return names[int(point * len(names))]
        ends = list(accumulate(weights.get(name, WEIGHT) for name in names))
        at = point * ends[-1]
        return next((name for name, end in zip(names, ends, strict=True) if at < end), names[-1])


def at_home(topic: str, names: Sequence[str], home: Home) -> list[str]:
    """The groups that a topic lives on: those it names, or as many as it wants of those that are
    there, for every client the same ones, and few others when one comes or goes."""
    if home.groups:
        return [name for name in names if name in home.groups] or list(home.groups)
    ranked = sorted(names, key=lambda name: crc32c(f"{topic}\0{name}".encode()))
    return sorted(ranked[: home.count])


def able(names: Sequence[str], weights: Mapping[str, int]) -> list[str]:
    """Without those of weight 0, unless all are."""
    return [name for name in names if weights.get(name, WEIGHT) > 0] or list(names)
