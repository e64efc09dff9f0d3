"""The figures of a message log, for Prometheus."""

from ternmq.metrics.samples import Samples
from ternmq.storage.messages.message_log import MessageLog


def log_figures(out: Samples, role: str, messages: MessageLog) -> None:
    """Size of the log, and how long writing and syncing it takes."""
    out.add("tern_server_log_bytes", messages.safe_offset - messages.start_offset, role)
    out.histogram("tern_server_append_seconds", messages.append_seconds, role)
    out.histogram("tern_server_sync_seconds", messages.sync_seconds, role)
