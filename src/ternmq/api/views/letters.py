"""Messages that wait for a person: dead letters of a group, and what a topic refused.

Both lie in hidden topics on every broker group and are open until they are sent again or deleted. A
`LetterBox` is one of them: `read` gives the open ones, newest first and at most so many; `resend`
and `delete` handle those whose ids are named, each at most once, and say what became of each.
There may be millions: what is looked at is bounded, and `more` says that there are others.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Literal

from ternmq.client.client import Client
from ternmq.client.model.message import Message
from ternmq.client.transport.fan_out import Missing
from ternmq.core.errors import BadRequest, TernError, TopicNotFound, Unavailable
from ternmq.core.range_set import RangeSet
from ternmq.discovery.hidden_topics import dead_topic, refused_topic

LOOKED_AT_MAX = 2_000
STEP = 100
Ranges = list[tuple[int, int]]
LetterVerb = Literal["resend", "delete"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenLetter:
    """One, with what is known about its end."""

    message: Message
    notes: dict[str, Any]

    @property
    def id(self) -> str:
        return self.message.id


@dataclass(slots=True, kw_only=True)
class LettersRead:
    """What was looked at."""

    letters: list[OpenLetter] = field(default_factory=list)
    open: int = 0
    """How many are open, all together."""
    missing: Missing = field(default_factory=dict)

    @property
    def more(self) -> int:
        return self.open - len(self.letters)


@dataclass(slots=True, kw_only=True)
class LettersHandled:
    """What became of each that was chosen."""

    handled: int = 0
    results: dict[str, str] = field(default_factory=dict)
    """By id."""

    @property
    def failed(self) -> int:
        return len(self.results) - self.handled


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterBox:
    """Dead letters of `group`, or without one what `topic` refused."""

    mq: Client
    group: str = ""
    topic: str = ""

    @property
    def hidden_topic(self) -> str:
        return dead_topic(self.group) if self.group else refused_topic(self.topic)

    async def count(self) -> int:
        """How many are open, on the broker groups that answer."""
        return sum(RangeSet(part).count for part in (await self._open()).values())

    async def read(self, limit: int = LOOKED_AT_MAX) -> LettersRead:
        """The newest of each broker group."""
        found = LettersRead()
        for broker_group, ranges in (await self._open(found.missing)).items():
            left = limit - len(found.letters)
            found.open += RangeSet(ranges).count
            for first, end in reversed(ranges):
                if left <= 0:
                    break
                start = max(first, end - left)
                part = await self._letters(start, end, broker_group)
                found.letters += part
                left -= len(part)
        found.letters.sort(key=lambda each: int(each.notes.get("%died_at", 0)), reverse=True)
        return found

    async def handle(self, verb: LetterVerb, ids: Collection[str]) -> LettersHandled:
        """Each of these once; whoever was faster is named."""
        wanted = {id.upper() for id in ids}
        chosen = [each for each in (await self.read()).letters if each.id.upper() in wanted]
        done = LettersHandled(results=dict.fromkeys(sorted(wanted), "not among the open ones"))
        for broker_group in sorted({each.message.broker_group for each in chosen}):
            here = [each for each in chosen if each.message.broker_group == broker_group]
            for at in range(0, len(here), STEP):
                await self._handle_some(verb, here[at : at + STEP], broker_group, done)
        return done

    async def _handle_some(
        self, verb: LetterVerb, letters: list[OpenLetter], broker_group: str, done: LettersHandled
    ) -> None:
        ranges = [(each.message.sequence, each.message.sequence + 1) for each in letters]
        try:
            answer = await self._order(verb, ranges, broker_group)
        except TernError as error:
            done.results |= {each.id.upper(): error.message for each in letters}
            return
        failed = dict(line.split(": ", 1) for line in answer.failed)
        gone = RangeSet(answer.gone)
        word = "sent again" if verb == "resend" else "deleted"
        for each in letters:
            sequence = each.message.sequence
            result = failed.get(str(sequence), word)
            if sequence in gone:
                result = "handled by somebody else meanwhile"
            done.results[each.id.upper()] = result
            done.handled += result == word

    async def _order(self, verb: LetterVerb, ranges: Ranges, broker_group: str) -> Any:
        admin = self.mq.admin
        if verb not in ("resend", "delete"):
            raise BadRequest(f"{verb[:40]!r} is nothing to do with a letter: resend or delete it")
        if self.group:
            call = admin.resend_dead_letters if verb == "resend" else admin.delete_dead_letters
            return await call(self.group, ranges, broker_group)
        refused = admin.resend_refused if verb == "resend" else admin.delete_refused
        return await refused(self.topic, ranges, broker_group)

    async def _open(self, missing: Missing | None = None) -> dict[str, Ranges]:
        found: dict[str, Ranges] = {}
        admin = self.mq.admin
        for broker_group in await admin.broker_groups():
            try:
                if self.group:
                    found[broker_group] = await admin.open_dead_letters(self.group, broker_group)
                else:
                    found[broker_group] = await admin.open_refused(self.topic, broker_group)
            except TopicNotFound:
                continue  # It never had one.
            except Unavailable as error:
                if missing is not None:
                    missing[broker_group] = error.message
        return found

    async def _letters(self, first: int, end: int, broker_group: str) -> list[OpenLetter]:
        reader = self.mq.read(self.hidden_topic, start=first, end=end, broker_group=broker_group)
        return [OpenLetter(message=each, notes=self._notes(each)) async for each in reader]

    def _notes(self, letter: Message) -> dict[str, Any]:
        """Why and when it came here, from where, how often it was tried."""
        notes = dict(letter.properties)
        if self.group:
            return notes
        at_ms = int(letter.stored_at.timestamp() * 1000)
        own = {"%topic": self.topic, "%reason": "over the limit", "%died_at": at_ms}
        return own | {"%attempt": 0} | notes
