"""Messages in the application's own transaction: `Outbox`, and `Relay`, which sends what is left.

Needs SQLAlchemy 2 and a driver of the application's database. See docs/outbox.md.
"""

from ternmq.outbox.outbox import Outbox
from ternmq.outbox.relay import Counts, Relay, RelaySettings
from ternmq.outbox.rows import OutboxRow, OutboxRows
from ternmq.outbox.table import make_table

__all__ = [
    "Counts",
    "Outbox",
    "OutboxRow",
    "OutboxRows",
    "Relay",
    "RelaySettings",
    "make_table",
]
