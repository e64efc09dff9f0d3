"""Decides about an outbox row that could not be sent: it waits, or is parked.

The relay sends and writes. Needs no database and no connection.

Three kinds of failure. The broker group is away, full or unsure: the row waits as long as it takes,
nothing is counted, because the message is not to blame. The message is refused but may be taken
later (no such topic, not allowed): counted, with growing pauses, parked after `attempts_max`. The
message can never be stored (too large, a bad name, unreadable content): parked at once.
"""

from dataclasses import dataclass

from ternmq.client.producing.deliver_once import away
from ternmq.core.errors import BadRequest, Corrupt, OverLimit, TernError
from ternmq.core.retry import delay_ms
from ternmq.outbox.table import PARKED_MS

ERROR_SIZE_MAX = 1_000
REFUSED_POLICY = "exponential:2s..10m"
AWAY_POLICY = "exponential:500ms..30s"
MOVED_MS = 100  # Until the routes say where the order key is now.


@dataclass(frozen=True, slots=True)
class RowOutcome:
    """The new values of a row."""

    ready_ms: int
    attempts: int
    error: str


def judge(error: TernError, *, attempts: int, attempts_max: int, now_ms: int) -> RowOutcome:
    """What to write into a row that was sent `attempts` times in vain before."""
    text = f"{error.code}: {error.message}"[:ERROR_SIZE_MAX].replace("\0", "")
    if isinstance(error, BadRequest | Corrupt):
        return RowOutcome(PARKED_MS, attempts + 1, text)
    if away(error):
        wait = delay_ms(REFUSED_POLICY, 1) if isinstance(error, OverLimit) else 0
        return RowOutcome(now_ms + wait, attempts, text)
    if attempts + 1 >= attempts_max:
        return RowOutcome(PARKED_MS, attempts + 1, text)
    return RowOutcome(now_ms + delay_ms(REFUSED_POLICY, attempts + 1), attempts + 1, text)


def rest_ms(failures: int) -> int:
    """How long a broker group is left alone after so many failures in a row."""
    return delay_ms(AWAY_POLICY, failures)
