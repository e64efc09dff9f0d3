"""Other brokers of the cluster, as one of them asks: routes and links are made when first needed.

A broker that never has to wait for another one never asks. Never sends messages.
"""

from ternmq.client.transport.cluster import Cluster
from ternmq.core.errors import Unavailable
from ternmq.discovery.cluster_access import ClusterAccess
from ternmq.wire.messages.hello import BROKER
from ternmq.wire.messages.order_keys import SlotsFind, SlotsOpen
from ternmq.wire.numbers import Command

ANSWER_S = 5.0


class PeerBrokers:
    """Reached by the meta servers of `access`; without one nobody is."""

    def __init__(self, own: str, access: ClusterAccess) -> None:
        self.own = own
        """The broker group that asks."""
        self._access = access
        self._links: Cluster | None = None

    async def open_slots(self, group: str, find: SlotsFind) -> SlotsOpen:
        """Which of these slots has the consumer group not settled on that broker group?"""
        if not self._access.url:
            raise Unavailable("this broker knows no meta server, so it finds no other broker")
        if self._links is None:
            self._links = Cluster.of_server(self._access, app=BROKER, timeout=ANSWER_S)
        link = self._links.broker(group)
        return await self._links.ask(link, Command.SLOTS_OPEN, find, SlotsOpen)

    async def close(self) -> None:
        if self._links is not None:
            await self._links.close()
