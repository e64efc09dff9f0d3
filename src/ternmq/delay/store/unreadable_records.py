"""Records of schedule logs that cannot be read: logged once each, whatever asks for them again.

Their rows stay pending and are listed by DELAY_FIND; nothing about them is kept on disk, because
after a restart the same records fail in the same way. Any thread.
"""

from ternmq.core.log import get_logger

log = get_logger()

REPORTED_MAX = 100_000


class UnreadableRecords:
    """Which records were reported as unreadable since the server started."""

    def __init__(self) -> None:
        self._reported: set[tuple[int, int]] = set()

    def note(self, hour: int, offset: int, rows: int, reason: str) -> None:
        """A record cannot go out; the log says so if it did not before."""
        if (hour, offset) in self._reported or len(self._reported) >= REPORTED_MAX:
            return
        self._reported.add((hour, offset))
        log.error(
            "messages cannot be dispatched: their record cannot be read; they stay pending, see "
            "`tern delay list --unreadable`",
            hour=hour,
            offset=offset,
            rows=rows,
            reason=reason,
        )
