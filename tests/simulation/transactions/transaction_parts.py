"""What stands beside the half messages of a broker in their simulation: names, rounds, a client."""

from types import SimpleNamespace
from typing import Any

from ternmq.core.errors import TernError
from ternmq.storage.consume.entry import ConsumeEntry
from ternmq.storage.log.append import Append
from ternmq.storage.store import Store
from ternmq.wire.messages.topics import Topic
from ternmq.wire.messages.transactions import HalfCheck
from ternmq.wire.numbers import Command
from ternmq.wire.record import unpack

TOPICS = {
    name: Topic(id=number, name=name, created_at_ms=0) for number, name in enumerate("abc", 1)
}


class Names:
    """Topics and directory of a broker."""

    def topics(self) -> list[Topic]:
        return list(TOPICS.values())

    def topic(self, name: str) -> Topic | None:
        return TOPICS.get(name)

    all, find = topics, topic

    async def get_or_create(self, name: str, peer: object = None) -> Topic:
        return TOPICS[name]


class Door:
    """A publisher that lets everything in."""

    def admit(self, *_: object) -> None: ...

    def turn_away(self, *_: object) -> None: ...

    def to_append(self, _: object, batch: bytearray, incoming: Any, topic_id: int) -> Append:
        return Append(
            batch=batch,
            topic_id=topic_id,
            count=incoming.row_count,
            received_at_ms=1,
            tag_bloom=incoming.tag_bloom,
            producer=incoming.producer,
            first_sequence=incoming.first_sequence,
            searchable=incoming.searchable,
        )


class Rounds:
    """The committer: what waits goes to the disk when the test says so."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.waiting: list[tuple[Append, Any]] = []

    def append(self, append: Append, told: Any) -> None:
        self.waiting.append((append, told))

    def run(self) -> None:
        waiting, self.waiting = self.waiting, []
        if not waiting:
            return
        messages = self.store.messages
        error: TernError | None = None
        staged = messages.stage([append for append, _ in waiting])
        try:
            messages.write(staged)
        except TernError as failed:
            messages.abandon(staged)
            error = failed
        else:
            messages.commit(staged)
        for append, told in waiting:
            told(append, error)


class Shelf:
    """A fetcher without threads."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def now(self, entries: list[ConsumeEntry]) -> list[bytes]:
        return [self._store.messages.read(entry.offset, entry.size) for entry in entries]


class Producer:
    """A live client of the application: a `Peer` that is asked."""

    def __init__(self) -> None:
        self.hello = SimpleNamespace(app="shop")
        self.rights = self.use = None  # No security.
        self.questions: list[HalfCheck] = []

    def push(self, command: int, payload: bytes) -> None:
        assert command == Command.CHECK
        self.questions.append(unpack(payload, HalfCheck))
