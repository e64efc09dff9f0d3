"""What the answer about a stored batch says besides its place: how safe it is, if it is traced.

Asked when a batch counts, so what it says of replicas is true of that batch: whoever
is required then has it. One number per batch, nothing per message. Never decides anything.
"""

from typing import Protocol

from ternmq.wire.messages.publish import (
    PUBLISHED_REPLICATED,
    PUBLISHED_SYNCED,
    PUBLISHED_TRACED,
    PUBLISHED_WRITTEN,
)


class Copies(Protocol):
    """Who has to have a batch before it counts; `replication.commit_gate.CommitGate`."""

    @property
    def copied(self) -> bool:
        """What counts is with others too."""


class AnswerFlags:
    """The flags of PUBLISHED on one server."""

    def __init__(self, gate: Copies, *, synced: bool, traced: bool) -> None:
        """`synced`: what counts is on this server's disk; else its operating system has it.
        `traced`: delivery records of it are kept."""
        self._gate = gate
        trace = PUBLISHED_TRACED if traced else 0
        self._alone = trace | (PUBLISHED_SYNCED if synced else PUBLISHED_WRITTEN)
        self._copied = trace | PUBLISHED_REPLICATED

    @property
    def now(self) -> int:
        """Of what counts from this moment on."""
        return self._copied if self._gate.copied else self._alone
