"""Picks the server for the next batch: in turn, at random, or at random by weight.

In turn means: whoever got the fewest batches while there was the same choice, so that calls which
give several in a row to one server (`Affinity`) leave nobody behind, and one that was away does not
catch up.

Pure. What has an order key does not come here: its slot says where it goes
(`producing/ordered_sender.py`). A weight of 0 means that a server gets nothing new, whatever the
way of choosing; where all have that, weights mean nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate

from crc32c import crc32c

from ternmq.client.config import Choosing
from ternmq.wire.messages.order_keys import Home

WEIGHT = 100
"""Of a group that nobody gave another one."""
AFFINITY_BATCHES = 4
"""Batches of one call that go to one server before the next has its turn. A round of a broker takes
all that came meanwhile, so these cost it less than as many calls. Half of what a call has under way
by default: two servers are at work at any time."""
CHOICES_MAX = 64
"""Sets of servers that are remembered: topics have their own, and who rests is missing in some."""


class Affinity:
    """Where one call sends, and how many more batches go there."""

    __slots__ = ("left", "name")

    def __init__(self) -> None:
        self.name = ""
        self.left = 0


class Balancer:
    """Picks one name of several."""

    def __init__(self, way: Choosing, chance: Callable[[], float]) -> None:
        self._way = way
        self._chance = chance
        self._turn = 0
        self._given: dict[tuple[str, ...], dict[str, int]] = {}
        """Batches of each, by those there were to choose from."""

    def stay(self, affinity: Affinity, names: Sequence[str]) -> str | None:
        """Where a call goes on sending; None: `pick`, the next has its turn."""
        if affinity.left <= 0 or affinity.name not in names:
            return None
        affinity.left -= 1
        self._counts(names)[affinity.name] += 1
        return affinity.name

    def pick(
        self, names: Sequence[str], weights: Mapping[str, int], affinity: Affinity | None = None
    ) -> str:
        """One of `names`, which are not empty; where an affinity begins, if there is one."""
        name = self._next(names) if self._way == "round_robin" else self._drawn(names, weights)
        if affinity is not None:
            affinity.name, affinity.left = name, AFFINITY_BATCHES - 1
        return name

    def _next(self, names: Sequence[str]) -> str:
        given = self._counts(names)
        self._turn += 1
        at = self._turn % len(names)
        name = min((*names[at:], *names[:at]), key=given.__getitem__)
        given[name] += 1
        return name

    def _counts(self, names: Sequence[str]) -> dict[str, int]:
        counts = self._given.get(tuple(names))
        if counts is None:
            if len(self._given) >= CHOICES_MAX:
                self._given.clear()
            counts = self._given[tuple(names)] = dict.fromkeys(names, 0)
        return counts

    def _drawn(self, names: Sequence[str], weights: Mapping[str, int]) -> str:
        point = self._chance()
        if self._way == "random":
            return names[int(point * len(names))]
        ends = list(accumulate(weights.get(name, WEIGHT) for name in names))
        at = point * ends[-1]
        return next((name for name, end in zip(names, ends, strict=True) if at < end), names[-1])


def at_home(topic: str, names: Sequence[str], home: Home) -> list[str]:
    """The groups that a topic lives on: those it names, or as many as it wants of those that are
    there, for every client the same ones, and few others when one comes or goes."""
    if home.broker_groups:
        return [name for name in names if name in home.broker_groups] or list(home.broker_groups)
    ranked = sorted(names, key=lambda name: crc32c(f"{topic}\0{name}".encode()))
    return sorted(ranked[: home.count])


def able(names: Sequence[str], weights: Mapping[str, int]) -> list[str]:
    """Without those of weight 0, unless all are."""
    return [name for name in names if weights.get(name, WEIGHT) > 0] or list(names)
