"""Messages that wait for a person: dead letters of a group, and what a topic refused.

A `LetterBox` is one of them: `read` gives the open ones, the newest first and at most so many, for
there may be millions; `more` says that there are others. `handle` sends those whose ids are named
again, or deletes them, by the client's `letters`: each at most once, with a result for each.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ternmq.client.client import Client
from ternmq.client.reading.letters import ChosenLetters, Letter, LettersDone, letter_notes
from ternmq.client.transport.fan_out import Missing
from ternmq.core.errors import TopicNotFound, Unavailable
from ternmq.core.range_set import RangeSet
from ternmq.wire.messages.dead_letters import DeadOpen

LOOKED_AT_MAX = 2_000
GAP_MAX = 200
"""Letters that are handled already, read for nothing between two that are not."""
STRETCH_MAX = 4 * LOOKED_AT_MAX
NOT_OPEN = "not among the open ones"
Ranges = list[tuple[int, int]]
LetterVerb = Literal["resend", "delete"]


@dataclass(slots=True, kw_only=True)
class LettersRead:
    """What was looked at."""

    letters: list[Letter] = field(default_factory=list)
    open: int = 0
    """How many are open, all together."""
    missing: Missing = field(default_factory=dict)

    @property
    def more(self) -> int:
        return self.open - len(self.letters)


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterBox:
    """Dead letters of `group`, or without one what `topic` refused."""

    mq: Client
    group: str = ""
    topic: str = ""

    async def count(self) -> int:
        """How many are open, on the broker groups that answer."""
        return sum(_count(part) for part in (await self._open(1)).values())

    async def read(self, limit: int = LOOKED_AT_MAX) -> LettersRead:
        """The newest of each broker group."""
        found = LettersRead()
        for broker_group, part in (await self._open(limit, found.missing)).items():
            left = limit - len(found.letters)
            found.open += _count(part)
            for span in reversed(read_together(part.ranges)):
                if left <= 0:
                    break
                letters = await self._letters(span, broker_group)
                found.letters += letters[-left:]
                left -= len(letters)
        found.letters.sort(key=lambda each: int(each.notes.get("%died_at", 0)), reverse=True)
        return found

    async def handle(self, verb: LetterVerb, ids: Collection[str]) -> LettersDone:
        """Each of these once; whoever was faster is named."""
        wanted = {id.upper() for id in ids}
        chosen = ChosenLetters()
        for letter in (await self.read()).letters:
            if letter.message.id.upper() in wanted:
                chosen.add(letter)
        box = self.mq.letters(self.group, self.topic)
        done = await (box.resend(chosen) if verb == "resend" else box.delete(chosen))
        known = {id.upper() for id in chosen.ids.values()}
        for id in sorted(wanted - known):
            done.results.append({"id": id, "result": NOT_OPEN})
        return done

    async def _open(self, newest: int, missing: Missing | None = None) -> dict[str, DeadOpen]:
        found: dict[str, DeadOpen] = {}
        admin = self.mq.admin
        for broker_group in await admin.broker_groups():
            try:
                found[broker_group] = await admin.newest_letters(
                    self.group, "" if self.group else self.topic, newest, broker_group
                )
            except TopicNotFound:
                continue  # It never had one.
            except Unavailable as error:
                if missing is not None:
                    missing[broker_group] = error.message
        return found

    async def _letters(self, ranges: Ranges, broker_group: str) -> list[Letter]:
        """Letters of one stretch; what is handled in between is read and left out."""
        box = self.mq.letters(self.group, self.topic)
        first, end, is_open = ranges[0][0], ranges[-1][1], RangeSet(ranges)
        reader = self.mq.read(box.hidden_topic, start=first, end=end, broker_group=broker_group)
        by = "" if self.group else self.topic
        return [
            Letter(message, letter_notes(message, by))
            async for message in reader
            if message.sequence in is_open
        ]


def _count(found: DeadOpen) -> int:
    return found.open if found.open >= 0 else RangeSet(found.ranges).count


def read_together(ranges: Sequence[tuple[int, int]]) -> list[Ranges]:
    """Ranges in stretches, each to be read at once: reading what lies between two that are near is
    cheaper than asking twice."""
    found: list[Ranges] = []
    for first, end in ranges:
        near = found and first - found[-1][-1][1] <= GAP_MAX
        if near and end - found[-1][0][0] <= STRETCH_MAX:
            found[-1].append((first, end))
        else:
            found.append([(first, end)])
    return found
