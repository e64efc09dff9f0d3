"""A message as applications see it, alone or in a batch: two references, all else is lazy."""

from collections.abc import Generator, Iterator
from datetime import datetime
from threading import get_ident
from typing import Any, TypeVar, overload

from ternmq.batch.arrow import record_batch
from ternmq.batch.properties import PropertyValue
from ternmq.client.codecs.body_type import body_type
from ternmq.client.codecs.codec import decode_body
from ternmq.client.model.delivery import (
    ACK,
    BACK,
    Delivery,
    Fence,
    Outcome,
    SettleReceipt,
    reject_outcome,
    retry_outcome,
)
from ternmq.client.model.durations import Duration
from ternmq.client.model.last_error import LastError
from ternmq.client.model.times import time_from_ms
from ternmq.core.errors import Erased
from ternmq.discovery.hidden_topics import LANE_PREFIX

T = TypeVar("T")


class Message:
    """One delivered message."""

    __slots__ = ("_delivery", "_row")

    def __init__(self, delivery: Delivery, row: int) -> None:
        self._delivery = delivery
        self._row = row

    @property
    def body(self) -> bytes:
        return self._delivery.batch.body(self._row)

    @property
    def erased(self) -> bool:
        """The key was deleted (`tern erase`): `body` raises `Erased`, all else can be read."""
        return isinstance(self._delivery.batch.why_closed(self._row), Erased)

    @property
    def value(self) -> Any:
        """The body as the codec reads it; without a codec, the bytes."""
        return decode_body(self._delivery.codec, self.body)

    def decode(self, kind: type[T]) -> T:
        """The body as an object of that type, which Pydantic or msgspec can read: a model, a
        struct, a dataclass, `list[int]` …; raises `DecodeError`. See `client.codecs.body_type`."""
        decoded: T = body_type(kind).decode(self.body, self._delivery.codec)
        return decoded

    @property
    def id(self) -> str:
        return self._delivery.batch.message_id(self._row)

    @property
    def topic(self) -> str:
        topic = self._delivery.topic
        if topic.startswith(LANE_PREFIX):  # Sent again to this group alone: where it came from.
            return str(self.properties.get("%topic", topic))
        return topic

    @property
    def app(self) -> str:
        """The application that sent it."""
        return self._delivery.batch.origin_app(self._row)

    @property
    def key(self) -> str | None:
        return self._delivery.batch.key(self._row)

    @property
    def tag(self) -> str | None:
        return self._delivery.batch.tag(self._row)

    @property
    def order_key(self) -> str | None:
        return self._delivery.batch.order_key(self._row)

    @property
    def properties(self) -> dict[str, PropertyValue]:
        return self._delivery.batch.properties(self._row)

    @property
    def trace(self) -> str | None:
        """The context in which it was sent, as a W3C traceparent; None where nobody traced."""
        return self._delivery.batch.trace(self._row)

    @property
    def priority(self) -> int:
        return self._delivery.batch.priority(self._row)

    @property
    def sequence(self) -> int:
        """The message's number in its topic, in its broker group."""
        return self._delivery.base + self._row

    @property
    def broker_group(self) -> str:
        """Where it is stored; with `sequence` the message's place."""
        return self._delivery.broker_group

    @property
    def attempt(self) -> int:
        """1 at the first delivery."""
        return self._delivery.attempt(self._row)

    @property
    def last_error(self) -> LastError | None:
        """Why the attempt before this one failed; None at the first, and where it is not known."""
        return self._delivery.last_error(self._row)

    @property
    def fence(self) -> Fence:
        """Larger than at every earlier hand-out of this key: let storage refuse smaller ones, and a
        consumer that lost its lease cannot undo what its successor wrote. (0, 0) from `read`."""
        return Fence(self._delivery.epoch, self._delivery.lease)

    @property
    def born_at(self) -> datetime:
        return time_from_ms(self._delivery.batch.born_at_ms(self._row))

    @property
    def expires_at(self) -> datetime | None:
        """When nobody wants it any more (`ttl`); None: never."""
        at_ms = self._delivery.batch.expire_at_ms(self._row)
        return None if at_ms is None else time_from_ms(at_ms)

    @property
    def stored_at(self) -> datetime:
        return time_from_ms(self._delivery.batch.stored_at_ms)

    @property
    def settled(self) -> bool:
        """Acked, given back or rejected already."""
        return bool(self._delivery.settled[self._row])

    def ack(self) -> SettleReceipt:
        """Handled. Sent along with others soon; await the result to know that it arrived."""
        delivery = self._delivery
        source = delivery.source
        if get_ident() == source.thread:
            return source.acked(delivery, self._row)
        return source.settle_later(delivery, (self._row, self._row + 1), ACK)

    def retry(
        self, after: Duration | None = None, reason: str = "", error: BaseException | None = None
    ) -> SettleReceipt:
        """Not handled: deliver it again, after a while that the group's policy says, or `after`.

        `error` is what went wrong: the next attempt sees it as `last_error`.
        """
        return self._settle(retry_outcome(after, reason, error))

    def reject(self, reason: str = "", error: BaseException | None = None) -> SettleReceipt:
        """Never deliver it to this group again; it is kept as a dead letter."""
        return self._settle(reject_outcome(reason, error))

    def release(self) -> SettleReceipt:
        """Not looked at: give it back as it was, for any consumer at once; no attempt counts."""
        return self._settle(BACK)

    def _settle(self, outcome: Outcome) -> SettleReceipt:
        source = self._delivery.source
        rows = (self._row, self._row + 1)
        if get_ident() == source.thread:
            return source.settle(self._delivery, rows, outcome)
        return source.settle_later(self._delivery, rows, outcome)

    def held(self) -> "HeldMessage":
        """This message, for a handler whose caller settles it when its transaction has ended.

        Used by `ternmq.inbox`.
        """
        return HeldMessage(self._delivery, self._row)

    def __repr__(self) -> str:
        return f"Message(topic={self.topic!r}, sequence={self.sequence}, id={self.id!r})"


class HeldMessage(Message):
    """A message whose ack waits for a commit, and that remembers whether it was given back."""

    __slots__ = ("given_back",)

    def __init__(self, delivery: Delivery, row: int) -> None:
        super().__init__(delivery, row)
        self.given_back = False
        """The handler has said `retry` or `reject`: nothing of its work may count."""

    def ack(self) -> SettleReceipt:
        """Does nothing: the inbox acks the message after the commit."""
        return self._delivery.source.flushing

    def _settle(self, outcome: Outcome) -> SettleReceipt:
        self.given_back = True
        return super()._settle(outcome)


class AllSettled:
    """What became of several parts; await it to be sure of all."""

    __slots__ = ("_receipts",)

    def __init__(self, receipts: list[SettleReceipt]) -> None:
        self._receipts = receipts

    def __await__(self) -> Generator[Any, None, None]:
        for receipt in self._receipts:
            yield from receipt.__await__()


class MessageBatch:
    """Messages of one topic that arrived together: `len()`, `.bodies`, `[i]`, `.to_arrow()`."""

    __slots__ = ("_count", "_parts")

    def __init__(self, parts: list[tuple[Delivery, int, int]]) -> None:
        assert parts
        self._parts = parts
        self._count = sum(end - first for _, first, end in parts)

    def __len__(self) -> int:
        return self._count

    @property
    def parts(self) -> list[tuple[Delivery, int, int]]:
        """What it is made of: delivery, first row, end."""
        return self._parts

    @property
    def topic(self) -> str:
        return self._parts[0][0].topic

    @property
    def bodies(self) -> list[bytes]:
        """All bodies, in order."""
        if len(self._parts) == 1:
            delivery, first, end = self._parts[0]
            return delivery.batch.bodies_of(first, end)
        found: list[bytes] = []
        for delivery, first, end in self._parts:
            found += delivery.batch.bodies_of(first, end)
        return found

    @property
    def values(self) -> list[Any]:
        """All bodies, each read by the codec."""
        codec = self._parts[0][0].codec
        return [decode_body(codec, body) for body in self.bodies]

    @overload
    def __getitem__(self, at: int) -> Message: ...

    @overload
    def __getitem__(self, at: slice) -> list[Message]: ...

    def __getitem__(self, at: int | slice) -> Message | list[Message]:
        if isinstance(at, slice):
            return [self[index] for index in range(*at.indices(self._count))]
        index = at + self._count if at < 0 else at
        if not 0 <= index < self._count:
            raise IndexError(f"message {at} of {self._count}")
        for delivery, first, end in self._parts:
            if index < end - first:
                return Message(delivery, first + index)
            index -= end - first
        raise AssertionError("the parts add up to the count")

    def __iter__(self) -> Iterator[Message]:
        for delivery, first, end in self._parts:
            for row in range(first, end):
                yield Message(delivery, row)

    def to_arrow(self) -> Any:
        """The messages as a `pyarrow.RecordBatch` (needs pyarrow)."""
        batches = [
            record_batch(delivery.batch).slice(delivery.batch.place(first), end - first)
            for delivery, first, end in self._parts
        ]
        if len(batches) == 1:
            return batches[0]
        import pyarrow as pa

        tables = [pa.Table.from_batches([batch]) for batch in batches]
        table = pa.concat_tables(tables, promote_options="default").unify_dictionaries()
        return table.combine_chunks().to_batches()[0]

    @property
    def settled(self) -> bool:
        """Every message of it is acked, given back or rejected already."""
        return all(delivery.settled.find(0, first, end) < 0 for delivery, first, end in self._parts)

    def ack(self) -> SettleReceipt:
        """All messages that are not settled yet are handled."""
        return self._settle(ACK)

    def retry(
        self, after: Duration | None = None, reason: str = "", error: BaseException | None = None
    ) -> SettleReceipt:
        """Deliver all that are not settled yet again, by the group's policy or `after` seconds."""
        return self._settle(retry_outcome(after, reason, error))

    def reject(self, reason: str = "", error: BaseException | None = None) -> SettleReceipt:
        """Keep all that are not settled yet as dead letters."""
        return self._settle(reject_outcome(reason, error))

    def release(self) -> SettleReceipt:
        """Give back all that are not settled yet, as they were; no attempt counts."""
        return self._settle(BACK)

    def _settle(self, outcome: Outcome) -> SettleReceipt:
        source = self._parts[0][0].source
        settle = source.settle if get_ident() == source.thread else source.settle_later
        receipts = [settle(delivery, (first, end), outcome) for delivery, first, end in self._parts]
        return receipts[0] if len(receipts) == 1 else AllSettled(receipts)

    def __repr__(self) -> str:
        return f"MessageBatch(topic={self.topic!r}, messages={self._count})"
