"""Transactions: staging half batches, ending them, asking about them.

HALF's payload is one half batch (see `batch.half`). CHECK goes from server to client, unasked: what
became of this transaction? The client answers with HALF_END, or not at all.
"""

from typing import Any, Literal

from ternmq.wire.record import Record

Action = Literal["commit", "rollback"]


DetachedAction = Literal["commit", "rollback", "look"]


State = Literal["committed", "rolled_back", "open", "dropped"]


class HalfStored(Record, frozen=True):
    stored_at_ms: int
    duplicate: bool = False
    """This very batch was stored before."""
    committed: bool = False
    """Unfenced: the name is committed already, so nothing was stored and nothing needs to be."""


class HalfPlace(Record, frozen=True):
    """Where a committed half batch is visible."""

    topic: str
    sequence: int
    count: int
    first_sequence: int
    """The producer's message number of its first row."""


class HalfEnd(Record, frozen=True):
    transaction: bytes
    """Its 16 bytes."""
    action: Action
    source: Literal["client", "check", "operator"] = "client"


class DetachedEnd(Record, frozen=True):
    """End attempts of a detached transaction, all in one; none named: all that are open."""

    name: str
    attempts: list[int]
    """In the order in which their messages become visible."""
    action: DetachedAction
    """`look` changes nothing and says how it stands; only unfenced."""
    fenced: bool = True
    elsewhere: list[int] = []
    """Unfenced: attempts on other broker groups that count too, remembered with the outcome."""


class HalfEnded(Record, frozen=True):
    state: State
    placed: list[HalfPlace]
    attempts: list[int]
    """Of a detached transaction: those that ended so."""
    repeated: bool = False
    """It had ended so before; this is the first one's answer."""


class HalfCheck(Record, frozen=True):
    """The question."""

    transaction: bytes
    topics: list[str]
    rows: int
    attempt: int
    """The how manieth check this is."""
    opened_at_ms: int
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
    limit: int = 1_000


class HalfOpen(Record, frozen=True):
    """A transaction that has not ended."""

    transaction: bytes
    name: str
    attempt: int
    app: str
    state: State
    topics: list[str]
    rows: int
    size: int
    opened_at_ms: int
    checks: int
    next_at_ms: int
    """When it is checked, dropped or expires next."""
    broker_group: str = ""
    """Filled in by the client that asked."""


class HalfOpens(Record, frozen=True):
    transactions: list[HalfOpen]
    total: int
    """How many match, whatever the limit."""
    dropped: int
    """Given up since the broker started."""
