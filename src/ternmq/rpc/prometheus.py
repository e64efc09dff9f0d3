"""The figures that every server has, for Prometheus."""

from ternmq.metrics.samples import Samples
from ternmq.rpc.server import Listener
from ternmq.wire.messages.stats import Status


def server_figures(out: Samples, status: Status, listener: Listener) -> None:
    """Add the figures that servers of every role have."""
    role = status.role
    out.add("tern_server_healthy", status.state == "ok", role)
    out.add("tern_server_connections", len(listener.peers), role)
    out.add("tern_server_refused_connections_total", listener.refused, role)
    out.add("tern_server_held_bytes", listener.held, role)
    out.add("tern_server_disk_free_bytes", status.disk_free, role)
    out.add("tern_server_disk_size_bytes", status.disk_size, role)
