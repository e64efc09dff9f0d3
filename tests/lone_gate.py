"""The commit gate of a server without replicas: what is on its disk counts."""

from collections.abc import Callable

from ternmq.core.errors import TernError
from ternmq.storage.files.disk import Buffer

_EVERYTHING = 2**63


class LoneGate:
    """A `CommitGate` that waits for nobody."""

    refusal: TernError | None = None
    paused = False
    lacks = ""
    alone = True
    copied = False

    def offer(self, log: int, offset: int, buffers: list[Buffer], *, sync: bool) -> None:
        pass

    def wrote(self, log: int, end: int, durable: int) -> None:
        pass

    def mark(self, log: int) -> int:
        return _EVERYTHING

    def undone(self, error: TernError) -> bool:
        return False

    def watch(self, moved: Callable[[], None]) -> None:
        pass
