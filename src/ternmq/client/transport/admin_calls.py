"""The base of all calls of `mq.admin`: the cluster, and which answers may be missing."""

from ternmq.client.transport.cluster import Cluster
from ternmq.client.transport.fan_out import FanOut, Missing


class AdminCalls:
    """The base of every noun of `mq.admin`."""

    def __init__(self, cluster: Cluster, missing: Missing | None = None) -> None:
        self._cluster = cluster
        self._fan_out = FanOut(cluster, missing)

    @property
    def missing(self) -> Missing:
        """Of `tolerant()`: broker groups whose part is missing in what was answered, and why."""
        return self._fan_out.missing or {}
