"""The servers of one kind that this client sends to, brokers or delay servers.

Which there are comes from the routes, who is next from `choosing`; one that fails is left alone for
a while (`health`), one that is about to stop is passed over. What a server has certainly not stored
may go to another one: three tries in all. What it may have stored stays with it, unless the
application allows duplicates.
"""

import asyncio
import random
from collections.abc import Callable, Iterator

from ternmq.client.config import ClientConfig
from ternmq.client.producing.producer_batch import ProducerBatch
from ternmq.client.producing.sender import REFUSALS_MAX, Sender
from ternmq.client.transport.balancing import Affinity, Balancer, able, at_home
from ternmq.client.transport.circuit_breaker import CircuitBreaker
from ternmq.client.transport.cluster import Cluster, Kind
from ternmq.client.transport.link import back_off
from ternmq.core.errors import TernError


class Senders:
    """One line of parcels per server."""

    def __init__(
        self,
        links: Cluster,
        kind: Kind,
        config: ClientConfig,
        renewed: Callable[[ProducerBatch], ProducerBatch],
    ) -> None:
        self.kind: Kind = kind
        self.finding: asyncio.Task[None] | None = None
        """Somebody asks for routes because none are known."""
        self._links = links
        self._config = config
        self._renewed = renewed
        self._outlets: dict[str, Sender] = {}
        self._groups: list[str] = []
        self._routes: object = None
        self._chooser = Balancer(config.choose, random.random)
        self._loop = asyncio.get_running_loop()

    def __iter__(self) -> Iterator[Sender]:
        return iter(self._outlets.values())

    @property
    def known(self) -> bool:
        """Is there anybody to send to, as far as we know?"""
        if not self._groups:
            self._groups, self._routes = self._links.takers(self.kind), self._links.version
        return bool(self._groups)

    def next(self, topic: str, stretch: Affinity | None = None) -> Sender:
        """The server that gets the next batch; of several in a row, perhaps where the last went."""
        self._look()
        groups = self._homes(topic)
        return self.of(groups[0]) if len(groups) == 1 else self._pick(groups, stretch)

    def _homes(self, topic: str) -> list[str]:
        home = self._links.home(topic) if self.kind == "realtime" else None
        return self._groups if home is None else at_home(topic, self._groups, home)

    def elsewhere(self, parcel: ProducerBatch, *, stored: bool) -> bool:
        """Give a parcel to a server that did not have it yet; False where there is none.

        `stored` says that it may be stored already: then the same bytes go, so that whoever
        handles them can see that they are the same.
        """
        self._look()
        if parcel.bound or len(parcel.tried) >= REFUSALS_MAX:
            return False
        now = self._loop.time()
        homes = self._homes(parcel.published.topic)
        others = [group for group in homes if group not in parcel.tried]
        left = [group for group in others if self.of(group).health.fit(now)]
        if left:
            self._pick(left).put(parcel.again() if stored else self._renewed(parcel))
        return bool(left)

    def of(self, group: str) -> Sender:
        """The line to one server."""
        outlet = self._outlets.get(group)
        if outlet is None:
            link = self._links.server(group, self.kind)
            outlet = self._outlets[group] = Sender(group, link, CircuitBreaker(), self.elsewhere)
            outlet.allow_duplicates = self._config.allow_duplicates
        return outlet

    def _look(self) -> None:
        if self._routes is not self._links.version:
            self._routes = self._links.version
            self._groups = self._links.takers(self.kind) or self._groups

    def _pick(self, groups: list[str], stretch: Affinity | None = None) -> Sender:
        """One that is well if there is one, else the one that has rested longest."""
        now, weights = self._loop.time(), self._links.weights()
        staying = [group for group in groups if not self.of(group).ebbing] or groups
        fit = [group for group in able(staying, weights) if self.of(group).health.fit(now)]
        if fit:
            same = stretch and self._chooser.stay(stretch, fit)
            outlet = self.of(same or self._chooser.pick(fit, weights, stretch))
        else:
            outlet = min(map(self.of, staying), key=lambda each: each.health.rests_until)
        outlet.health.given(now)
        return outlet

    async def find(self) -> None:
        """Ask the meta servers; raises when they know none, or none of them answers."""
        self._groups = await self._links.some_takers(self.kind)

    async def ready(self) -> None:
        """Wait until there is somebody to send to, at most `delivery_timeout`."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + self._config.delivery_timeout
        failures = 0
        while not self.known:
            try:
                await self.find()
            except TernError as error:
                failures += 1
                if not error.retryable or loop.time() > give_up:
                    raise
                await asyncio.sleep(back_off(failures))

    async def stop(self) -> None:
        """Give up everything that is not answered."""
        if self.finding is not None:
            self.finding.cancel()
            await asyncio.wait([self.finding])
        for outlet in self._outlets.values():
            outlet.stop()
