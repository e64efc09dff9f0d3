"""Messages by id or key: takes the index's candidates and looks at the messages themselves.

Blocks; called on reader threads. Only what is safe and still kept is found. `known_ids` is the
question of a publish that must not store anything twice, `find` the question of people.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from ternmq.batch.readability import read_or
from ternmq.batch.view import BatchView
from ternmq.core.errors import Corrupt, Unavailable
from ternmq.storage.consume.consume_log import ConsumeLog
from ternmq.storage.consume.entry import ConsumeEntry, Location
from ternmq.storage.index.index import EntryPlace, MessageIndex
from ternmq.storage.index.rows import hash_values, split_id
from ternmq.storage.messages.message_log import MessageLog

FOUND_MAX = 1_000
LOOKED_AT_MAX = 20_000  # Candidates of one question.
_LOST = int(Location.LOST)
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchFor:
    """What to find; `topic_ids` None means any, times are stored times, the end not included."""

    message_id: bytes | None = None
    key: str | None = None
    topic_ids: frozenset[int] | None = None
    start_ms: int = 0
    end_ms: int = 2**63 - 1
    limit: int = 100


class FoundMessage(NamedTuple):
    """Where one message is."""

    topic_id: int
    sequence: int
    offset: int
    stored_at_ms: int


class _BatchFinder:
    """Reads the batches of places; neighbours share one."""

    def __init__(self, consume: ConsumeLog, messages: MessageLog) -> None:
        self._consume = consume
        self._messages = messages
        self._topic_id = -1
        self._entry: ConsumeEntry | None = None
        self._view: BatchView | None = None

    def look(self, topic_id: int, sequence: int) -> tuple[ConsumeEntry, BatchView] | None:
        """The batch that holds a row; None if it is gone or cannot be read."""
        entry, view = self._entry, self._view
        if entry is not None and view is not None and self._topic_id == topic_id:
            row = sequence - entry.base_sequence
            if 0 <= row < entry.count:
                return entry, view
        first, end = self._consume.bounds(topic_id)
        if not first <= sequence < end:
            return None
        found = self._consume.entries(topic_id, sequence, rows_max=1, size_max=1)
        if not found or found[0].base_sequence > sequence or found[0].location == _LOST:
            return None
        try:
            view = BatchView(self._messages.read(found[0].offset, found[0].size))
        except Corrupt:
            return None
        self._topic_id, self._entry, self._view = topic_id, found[0], view
        return found[0], view


class Search:
    """Finds messages."""

    def __init__(self, index: MessageIndex, consume: ConsumeLog, messages: MessageLog) -> None:
        self._index = index
        self._consume = consume
        self._messages = messages

    def known_ids(self, topic_id: int, ids: list[bytes]) -> dict[int, FoundMessage]:
        """Which of these explicit ids the topic has already: number in the list -> place."""
        finder = _BatchFinder(self._consume, self._messages)
        known: dict[int, FoundMessage] = {}
        for number, (held_by, sequence) in self._with_ids(ids):
            if held_by != topic_id or number in known:
                continue
            seen = finder.look(topic_id, sequence)
            if seen is not None:
                entry, view = seen
                if read_or(view.id_bytes, sequence - entry.base_sequence, b"") == ids[number]:
                    known[number] = FoundMessage(
                        topic_id, sequence, entry.offset, entry.stored_at_ms
                    )
        return known

    def find(self, wanted: SearchFor) -> list[FoundMessage]:
        """At most `limit` messages, those stored last first."""
        finder = _BatchFinder(self._consume, self._messages)
        found: set[FoundMessage] = set()
        for topic_id, sequence in self._candidates(wanted)[:LOOKED_AT_MAX]:
            if wanted.topic_ids is not None and topic_id not in wanted.topic_ids:
                continue
            seen = finder.look(topic_id, sequence)
            if seen is None:
                continue
            entry, view = seen
            if not wanted.start_ms <= entry.stored_at_ms < wanted.end_ms:
                continue
            row = sequence - entry.base_sequence
            if wanted.message_id not in (None, read_or(view.id_bytes, row, None)):
                continue
            if wanted.key not in (None, read_or(view.key, row, None)):
                continue
            found.add(FoundMessage(topic_id, sequence, entry.offset, entry.stored_at_ms))
            if len(found) >= min(wanted.limit, FOUND_MAX):
                break
        return sorted(found, key=lambda one: (one.stored_at_ms, one.sequence), reverse=True)

    def _candidates(self, wanted: SearchFor) -> list[EntryPlace]:
        if wanted.message_id is not None:
            places = [place for _, place in self._with_ids([wanted.message_id])]
            numbers = split_id(wanted.message_id)
            if numbers is not None:
                places += self._ask(lambda: self._index.with_number(*numbers))
            return places
        hashed = int(hash_values([(wanted.key or "").encode()])[0])
        return self._ask(lambda: self._index.with_key(hashed))

    def _with_ids(self, ids: list[bytes]) -> list[tuple[int, EntryPlace]]:
        return self._ask(lambda: self._index.with_ids(hash_values(ids)))

    def _ask(self, question: Callable[[], list[T]]) -> list[T]:
        """An index that lacks something must not answer: a message would be missed."""
        try:
            if self._index.whole:
                self._index.fold()
                return question()
        except Corrupt:
            pass  # Noted as a gap; it is made again.
        raise Unavailable(
            "the index of ids and keys is being made again from the log; ask again in a moment"
        )
