"""`mq.letters`: what waits for a person's decision. Chosen, sent again, taken back, deleted.

Two kinds: the dead letters of a group, or what was over a topic's limit and put aside. Both lie in
hidden topics whose rows are open until they are handled. There may be millions: they pass one by
one, and of those that are chosen only ids and places are kept. Every letter gets an honest result:
what was handled is counted, what failed is named, and so is what somebody else handled meanwhile.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, NamedTuple

from ternmq.client.admin.admin import Admin
from ternmq.client.config import ClientConfig
from ternmq.client.model.arguments import typed_calls
from ternmq.client.model.message import Message
from ternmq.client.model.start import milliseconds
from ternmq.client.reading.reader import Reader
from ternmq.client.transport.cluster import Cluster
from ternmq.client.transport.fan_out import Missing, not_answered
from ternmq.core.errors import BadRequest, TernError, TopicNotFound, Unavailable
from ternmq.core.range_set import RangeSet
from ternmq.discovery.hidden_topics import dead_topic, refused_topic
from ternmq.wire.messages.dead_letters import DeadDone

ERROR_NOTES = ("%reason", "%error_type", "%error_text")
ENDLESS_MS = 2**63
AT_ONCE_MAX = 100
RATE = 1_000
MEANWHILE = "handled meanwhile"
WORDS = {"resend": "sent again", "delete": "deleted"}

Verb = Literal["resend", "delete"]
Notes = dict[str, Any]
Ids = dict[tuple[str, int], str]
"""Ids of letters, by broker group and sequence in the hidden topic."""


class Letter(NamedTuple):
    """A message that waits for a decision."""

    message: Message
    notes: Notes
    """Why and when it came here, from where, how often it was tried: `%reason`, `%died_at` …"""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterChoice:
    """Which letters are meant; what is left out does not matter."""

    ids: Collection[str] = ()
    error: str = ""
    """In the reason, the error's type or its text; case does not matter."""
    topic: str = ""
    """Where they came from."""
    since: datetime | None = None
    """Dead since."""
    until: datetime | None = None
    """Dead before."""

    def takes(self, message_id: str, notes: Notes) -> bool:
        return (
            (not self.ids or message_id.upper() in self._upper())
            and any(self.error.lower() in str(notes.get(n, "")).lower() for n in ERROR_NOTES)
            and (not self.topic or notes.get("%topic") == self.topic)
            and _ms(self.since, 0) <= int(notes.get("%died_at", 0)) < _ms(self.until, ENDLESS_MS)
        )

    def not_among(self, ids: Collection[str]) -> list[str]:
        """Ids that were asked for and are not among these."""
        return sorted(self._upper() - {each.upper() for each in ids}) if self.ids else []

    def _upper(self) -> set[str]:
        return {each.upper() for each in self.ids}


def _ms(moment: datetime | None, otherwise: int) -> int:
    return otherwise if moment is None else milliseconds(moment, "a time of the choice")


ALL = DeadLetterChoice()


@dataclass(slots=True)
class ChosenLetters:
    """What is to be handled: ids and places, without the letters."""

    ids: Ids = field(default_factory=dict)
    again: int = 0
    """How many were sent again before, and died again."""

    def add(self, letter: Letter) -> None:
        message = letter.message
        self.ids[message.broker_group, message.sequence] = message.id
        self.again += bool(letter.notes.get("%resent"))


@dataclass(slots=True)
class LettersDone:
    """What became of chosen letters."""

    chosen: int
    handled: int = 0
    failed: list[str] = field(default_factory=list)
    """`ID: WHY` of each that could not be handled."""
    results: list[dict[str, str]] = field(default_factory=list)
    """`id` and `result` of every one of them."""

    def note(self, word: str, named: dict[int, str], done: DeadDone) -> None:
        """What a broker says of letters, by their sequence."""
        lost = {
            int(sequence): why
            for sequence, _, why in (line.partition(": ") for line in done.failed)
        }
        gone = RangeSet(done.gone)
        self.handled += done.handled
        for sequence, message_id in named.items():
            result = MEANWHILE if sequence in gone else lost.get(sequence, word)
            self.results.append({"id": message_id, "result": result})
            if sequence in lost:
                self.failed.append(f"{message_id}: {lost[sequence]}")

    def note_all(self, named: dict[int, str], why: str) -> None:
        """None of these could be handled."""
        self.results += [{"id": message_id, "result": why} for message_id in named.values()]
        self.failed += [f"{message_id}: {why}" for message_id in named.values()]


OnProgress = Callable[[LettersDone], None]
"""Hears of every step."""


@typed_calls
class Letters:
    """The dead letters of a group, or without one what was over a topic's limit."""

    def __init__(self, cluster: Cluster, config: ClientConfig, group: str, topic: str) -> None:
        if not group and not topic:
            raise BadRequest("say which: a group, or a topic for what was over its limit")
        self._cluster = cluster
        self._config = config
        self._group = group
        self._topic = topic
        self._admin = Admin(cluster)

    @property
    def hidden_topic(self) -> str:
        """The topic that keeps them; it can be read."""
        return dead_topic(self._group) if self._group else refused_topic(self._topic)

    async def open(
        self, choice: DeadLetterChoice = ALL, missing: Missing | None = None
    ) -> AsyncIterator[Letter]:
        """Letters that nobody has handled yet, the oldest first of each broker group. `missing`
        takes the names of broker groups that do not answer; without it that is an error."""
        unknown: TopicNotFound | None = None
        groups = await self._admin.broker_groups()
        for broker_group in groups:
            try:
                async for letter in self._of(broker_group):
                    if choice.takes(letter.message.id, letter.notes):
                        yield letter
            except Unavailable as error:
                if missing is None:
                    raise not_answered({broker_group: error.message}, []) from None
                missing[broker_group] = error.message
            except TopicNotFound as error:
                unknown = error
        if unknown is not None and len(groups) == 1:
            raise unknown

    async def choose(
        self, choice: DeadLetterChoice = ALL, missing: Missing | None = None
    ) -> ChosenLetters:
        """Which letters that are now: a dry run, and what `resend` and `delete` take."""
        chosen = ChosenLetters()
        async for letter in self.open(choice, missing):
            chosen.add(letter)
        return chosen

    async def resend(
        self, chosen: ChosenLetters, rate: int = RATE, on_progress: OnProgress = lambda _: None
    ) -> LettersDone:
        """Send them again, at most so many a second: to their group alone, at attempt 1; what was
        refused goes to its topic."""
        return await self._handle("resend", chosen.ids, rate, on_progress)

    async def delete(
        self, chosen: ChosenLetters, rate: int = 1_000_000, on_progress: OnProgress = lambda _: None
    ) -> LettersDone:
        """Let them go for good."""
        return await self._handle("delete", chosen.ids, rate, on_progress)

    async def _of(self, broker_group: str) -> AsyncIterator[Letter]:
        for first, end in await self._open_ranges(broker_group):
            reader = Reader(
                self._cluster,
                self.hidden_topic,
                {"start": first, "end": end, "broker_group": broker_group},
                self._config,
            )
            async for message in reader:
                yield Letter(message, letter_notes(message, "" if self._group else self._topic))

    async def _open_ranges(self, broker_group: str) -> list[tuple[int, int]]:
        if self._group:
            return await self._admin.open_dead_letters(self._group, broker_group)
        return await self._admin.open_refused(self._topic, broker_group)

    async def _handle(
        self, verb: Verb, ids: Ids, rate: int, on_progress: OnProgress
    ) -> LettersDone:
        """In steps of a tenth of a second's worth, so that the rate holds and a bar can move."""
        if rate < 1:
            raise BadRequest(f"rate is {rate}; it is at least 1 a second")
        done = LettersDone(len(ids))
        for broker_group, sequences in _steps(list(ids), max(1, min(rate // 10, AT_ONCE_MAX))):
            if done.results:
                await asyncio.sleep(len(sequences) / rate)
            named = {sequence: ids[broker_group, sequence] for sequence in sequences}
            ranges = [(sequence, sequence + 1) for sequence in sequences]
            try:
                done.note(WORDS[verb], named, await self._order(verb, ranges, broker_group))
            except TernError as error:
                done.note_all(named, error.message)
            on_progress(done)
        return done

    async def _order(
        self, verb: Verb, ranges: list[tuple[int, int]], broker_group: str
    ) -> DeadDone:
        admin, group, topic = self._admin, self._group, self._topic
        if group and verb == "resend":
            return await admin.resend_dead_letters(group, ranges, broker_group)
        if group:
            return await admin.delete_dead_letters(group, ranges, broker_group)
        if verb == "resend":
            return await admin.resend_refused(topic, ranges, broker_group)
        return await admin.delete_refused(topic, ranges, broker_group)


def letter_notes(message: Message, refused_by: str = "") -> Notes:
    """Why and when a message of a hidden topic came there; who refused it has no such notes."""
    if not refused_by:
        return dict(message.properties)
    stored_at_ms = int(message.stored_at.timestamp() * 1000)
    own = {"%topic": refused_by, "%reason": "over the limit", "%died_at": stored_at_ms}
    return own | {"%attempt": 0} | dict(message.properties)


def _steps(rows: Sequence[tuple[str, int]], size: int) -> Iterator[tuple[str, list[int]]]:
    """So many at a time, each time of one broker group."""
    for broker_group, some in itertools.groupby(rows, key=lambda row: row[0]):
        sequences = [sequence for _, sequence in some]
        for at in range(0, len(sequences), size):
            yield broker_group, sequences[at : at + size]
