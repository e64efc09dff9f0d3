"""Transactions: staging half batches, ending them, asking about them.

HALF's payload is one half batch (see `batch.half`). CHECK goes from server to client, unasked: what
became of this transaction? The client answers with HALF_END, or not at all.
"""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from msgspec import Meta

from ternmq.wire.record import Number, Record

Attempt = Annotated[int, Meta(ge=0, lt=2**32)]
"""Of a detached transaction: four bytes of its key."""

HalfAction = Literal["commit", "rollback"]


DetachedAction = Literal["commit", "rollback", "look"]


HalfState = Literal["committed", "rolled_back", "open", "dropped"]


class HalfStored(Record, frozen=True):
    stored_at_ms: Number
    duplicate: bool = False
    """This very batch was stored before."""
    committed: bool = False
    """Unfenced: the name is committed already, so nothing was stored and nothing needs to be."""


class HalfPlace(Record, frozen=True):
    """Where a committed half batch is visible."""

    topic: str
    sequence: Number
    count: Number
    first_sequence: Number
    """The producer's message number of its first row."""


class HalfEnd(Record, frozen=True):
    transaction: bytes
    """Its 16 bytes."""
    action: HalfAction
    source: Literal["client", "check", "operator"] = "client"


class DetachedEnd(Record, frozen=True):
    """End attempts of a detached transaction, all in one; none named: all that are open."""

    name: str
    attempts: list[Attempt]
    """In the order in which their messages become visible."""
    action: DetachedAction
    """`look` changes nothing and says how it stands; only unfenced."""
    fenced: bool = True
    elsewhere: list[Attempt] = []
    """Unfenced: attempts on other broker groups that count too, remembered with the outcome."""


class HalfEnded(Record, frozen=True):
    state: HalfState
    placed: list[HalfPlace]
    attempts: list[Attempt]
    """Of a detached transaction: those that ended so."""
    repeated: bool = False
    """It had ended so before; this is the first one's answer."""


class HalfCheck(Record, frozen=True):
    """The question."""

    transaction: bytes
    topics: list[str]
    rows: Number
    attempt: Attempt
    """The how manieth check this is."""
    opened_at_ms: Number
    message_id: str
    """Of the first message, like what follows."""
    key: str | None
    properties: dict[str, Any]


class HalfFind(Record, frozen=True):
    """Which open transactions to list; empty means any."""

    transaction: bytes = b""
    name: str = ""
    app: str = ""
    dropped_only: bool = False
    limit: Number = 1_000


class HalfOpen(Record, frozen=True):
    """A transaction that has not ended."""

    transaction: bytes
    name: str
    attempt: Attempt
    app: str
    state: HalfState
    topics: list[str]
    rows: Number
    size: Number
    opened_at_ms: Number
    checks: Number
    next_at_ms: Number
    """When it is checked, dropped or expires next."""
    broker_group: str = ""
    """Filled in by the client that asked."""


class HalfOpens(Record, frozen=True):
    transactions: list[HalfOpen]
    total: Number
    """How many match, whatever the limit."""
    dropped: Number
    """Given up since the broker started."""

    def __iter__(self) -> Iterator[HalfOpen]:
        """Over the transactions: the other lists that clients get are lists."""
        return iter(self.transactions)

    def __len__(self) -> int:
        return len(self.transactions)
