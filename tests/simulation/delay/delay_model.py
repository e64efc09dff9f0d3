"""What must come out of a delay server: the messages, and brokers that remember their producers."""

from random import Random

from ternmq.batch.check import check_incoming
from ternmq.batch.view import BatchView
from ternmq.storage.messages.producers import ProducerTable, StoredBatch
from ternmq.testing import TurnedClock

Key = tuple[tuple[int, int], int, int]


class Message:
    """One delayed message and what may be true of it."""

    def __init__(self, message_id: bytes, due_ms: int) -> None:
        self.id = message_id
        self.dues = {due_ms}
        self.certain = False
        self.cancelled = False
        self.cancel_asked = False
        self.delivered = 0
        self.was_due = False
        self._before = self.dues

    def asked(self, due_ms: int | None) -> None:
        """A change is on its way: until it is known, both may be true."""
        self._before = set(self.dues)
        if due_ms is None:
            self.cancel_asked = True
        else:
            self.dues = {*self.dues, due_ms}

    def done(self, due_ms: int | None) -> None:
        if due_ms is None:
            self.cancelled = True
        else:
            self.dues = {due_ms}
            self.was_due = False

    def not_done(self) -> None:
        self.dues = self._before

    def intended(self) -> None:
        """It shall go out. Found due by a tick, it stays so when the clock is set back."""
        assert self.was_due, "early"
        assert not self.cancelled, "cancelled"

    def deliver(self) -> None:
        self.delivered += 1
        assert self.delivered == 1, "twice"
        assert not self.cancelled, "cancelled"
        assert self.was_due, "early"


class Model:
    """All messages of one life."""

    def __init__(self, clock: TurnedClock) -> None:
        self.clock = clock
        self._by_id: dict[bytes, Message] = {}
        self._sent: dict[Key, list[Message]] = {}
        self._unknown: list[Key] = []

    @property
    def accepted(self) -> int:
        return sum(message.certain for message in self._by_id.values())

    def message(self, message_id: bytes) -> Message:
        return self._by_id[message_id]

    def ticked(self, now_ms: int) -> None:
        """A tick at this time: what is due now may go out."""
        for message in self._by_id.values():
            message.was_due |= now_ms >= min(message.dues)

    def any(self, random: Random) -> Message | None:
        known = [message for message in self._by_id.values() if message.certain]
        return random.choice(known) if known else None

    def sending(self, key: Key, messages: list[Message]) -> None:
        self._sent[key] = messages
        self._by_id |= {message.id: message for message in messages}
        self._unknown.append(key)

    def stored(self, key: Key) -> None:
        self._unknown.remove(key)
        for message in self._sent[key]:
            message.certain = True

    def refused(self, key: Key) -> None:
        """Certainly not stored: it must never come."""
        self._unknown.remove(key)
        for message in self._sent.pop(key):
            message.cancelled = True

    def restarted(self, producers: ProducerTable) -> None:
        """A start settles what nobody knew: a repeat would be recognised, or is new."""
        for key in list(self._unknown):
            if producers.find(*key) is None:
                self.refused(key)
            else:
                self.stored(key)
        for key, messages in self._sent.items():
            assert producers.find(*key) is not None or producers.too_old(key[0], key[1])
            assert all(message.certain for message in messages)

    def all_came(self) -> None:
        for message in self._by_id.values():
            if message.certain and not message.cancel_asked:
                assert message.delivered == 1, "lost"
            if message.certain and message.cancelled:
                assert message.delivered == 0


class Group:
    """A broker group, as a dispatcher sees it."""

    def __init__(self, name: str, model: Model) -> None:
        self.name = name
        self.up = True
        self._model = model
        self._producers = ProducerTable()

    def knows(self, batch: bytearray) -> bool:
        incoming = check_incoming(batch)
        place = (incoming.producer, incoming.first_sequence, incoming.row_count)
        return self._producers.find(*place) is not None

    def publish(self, batch: bytearray) -> None:
        incoming = check_incoming(batch)
        if self.knows(batch):
            return
        assert not self._producers.too_old(incoming.producer, incoming.first_sequence)
        stored = StoredBatch(1, 0, self._model.clock.now_ms())
        self._producers.remember(
            incoming.producer, incoming.first_sequence, incoming.row_count, stored
        )
        view = BatchView(batch)
        for row in range(view.count):
            self._model.message(view.id_bytes(row)).deliver()
