"""What the clients of a soak wrote down, held against each other and against the cluster.

Everything that was acknowledged came to its group or is among its dead letters; nothing came that
was rolled back; what is rejected for sure is a dead letter; messages of an order key came in order
the first time.
"""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import ternmq
from tests.soak.clients import GROUP, IN_ORDER, ORDERED, TOPICS


class Diaries:
    """All lines of all clients."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def lines(self) -> Iterator[tuple[str, str, str]]:
        for path in sorted(self._folder.glob("*.log")):
            with path.open(encoding="ascii") as file:
                for line in file:
                    what, topic, body = line.split()
                    yield what, topic, body

    def told(self) -> dict[tuple[str, str], set[str]]:
        """(what, topic) -> bodies."""
        found: dict[tuple[str, str], set[str]] = defaultdict(set)
        for what, topic, body in self.lines():
            found[what, topic].add(body)
        return found

    def check(self, dead: set[str]) -> list[str]:
        """What is wrong; empty: nothing."""
        told, wrong = self.told(), []
        for topic in TOPICS:
            missing = told["stored", topic] - told["got", topic]
            if missing:
                wrong.append(f"{topic}: {len(missing)} never came: {sorted(missing)[:3]}")
            ghosts = told["rolled", topic] & told["got", topic]
            if ghosts:
                wrong.append(f"{topic}: {len(ghosts)} were rolled back and came: {min(ghosts)}")
            unburied = told["rejected", topic] - dead
            if unburied:
                wrong.append(f"{topic}: {len(unburied)} rejected, no dead letter: {min(unburied)}")
        return wrong + self._out_of_order()

    def _out_of_order(self) -> list[str]:
        """The first time that they came, in each consumer's diary."""
        wrong = []
        for path in sorted(self._folder.glob("consume*.log")):
            newest: dict[str, int] = {}
            seen: set[str] = set()
            for line in path.read_text(encoding="ascii").splitlines():
                what, topic, body = line.split()
                if what != "got" or topic != ORDERED or body in seen:
                    continue
                seen.add(body)
                life, _, number = body.rpartition(".")
                if int(number) < newest.get(life, -1):
                    wrong.append(f"{path.name}: {body} came behind {newest[life]}")
                newest[life] = max(newest.get(life, -1), int(number))
        return wrong[:3]


async def unsettled(mq: ternmq.Client) -> list[str]:
    """What the groups still have to do."""
    lines = await mq.admin.ledger()
    return [
        f"{line.topic} {line.group}: {waiting}"
        for line in lines
        if line.topic in TOPICS
        and (waiting := line.ready + line.in_flight + line.waiting_retry)
        and line.group == (IN_ORDER if line.topic == ORDERED else GROUP)
    ]


async def dead_letters(mq: ternmq.Client) -> set[str]:
    try:
        return {message.body.decode() async for message in mq.read(f"%dead.{GROUP}")}
    except ternmq.TopicNotFound:
        return set()
