"""Handled-message table: a message that comes twice takes effect once. See docs/inbox.md."""

from ternmq.inbox.inbox import Inbox
from ternmq.inbox.table import make_inbox_table

__all__ = ["Inbox", "make_inbox_table"]
