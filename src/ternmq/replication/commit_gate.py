"""When what is written counts: at once for a server that is alone, else when others have it.

Whoever writes (a broker's committer, a delay server's rounds) passes bytes on (`offer`), says what
is on its own disk (`wrote`) and lets count what is below `mark`. `Leader` is the one with replicas.
"""

from collections.abc import Callable
from typing import Protocol

from ternmq.core.errors import TernError
from ternmq.storage.files.disk import Buffer


class CommitGate(Protocol):
    """Says when what is written counts, and passes it on to those who have to have it."""

    refusal: TernError | None
    """Why no messages are taken at present."""
    paused: bool
    """Messages wait: a member is about to come, or to take over."""
    lacks: str
    """What was acknowledged and is not here, as another member says; empty: nothing."""

    @property
    def alone(self) -> bool:
        """Nobody else has to have what is written here."""

    @property
    def copied(self) -> bool:
        """What counts is with others too."""

    def offer(self, log: int, offset: int, buffers: list[Buffer], *, sync: bool) -> None:
        """Bytes that are on their way to our own disk, or there."""

    def wrote(self, log: int, end: int, durable: int) -> None:
        """Everything of this log below `end` is written here, below `durable` it is as safe here
        as it has to be."""

    def mark(self, log: int) -> int:
        """Everything below counts."""

    def undone(self, error: TernError) -> bool:
        """Bytes that were offered could not be written: others may have them, we do not. Or the
        disk failed: others may have a better one. True: there are others, so that what was
        offered may count one day."""

    def watch(self, moved: Callable[[], None]) -> None:
        """Call this whenever a mark moved."""
