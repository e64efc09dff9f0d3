"""Chooses the server for each batch, among brokers or among delay servers.

Which there are comes from the routes, which is next from a `Balancer`; one that fails is left alone
for a while (`CircuitBreaker`), one that is about to stop is passed over. What a server has
certainly not stored may go to another one. What it may have stored stays with it, unless the
application allows duplicates.
"""

import asyncio
import random
from collections.abc import Callable, Iterator

from ternmq.client.config import ClientConfig
from ternmq.client.producing.accumulator import Accumulator
from ternmq.client.producing.balancer import Affinity, Balancer, able, at_home
from ternmq.client.producing.producer_batch import ProducerBatch
from ternmq.client.producing.sender import Sender
from ternmq.client.transport.attempts import Attempts
from ternmq.client.transport.cluster import Cluster
from ternmq.core.errors import TernError
from ternmq.core.lifecycle import Background
from ternmq.rpc.connection import Connection
from ternmq.wire.messages.order_keys import Home
from ternmq.wire.messages.servers import Routes
from ternmq.wire.messages.standings import BrokerGroupKind


class Senders:
    """One line of batches per server."""

    def __init__(
        self,
        cluster: Cluster,
        kind: BrokerGroupKind,
        config: ClientConfig,
        renewed: Callable[[ProducerBatch], ProducerBatch],
        background: Background,
    ) -> None:
        self._background = background
        self.kind: BrokerGroupKind = kind
        self.finding: asyncio.Task[None] | None = None
        """The task that asks for routes while none are known."""
        self.trouble: TernError | None = None
        """What the last one that asked was told."""
        self._cluster = cluster
        self._config = config
        self._renewed = renewed
        self._senders: dict[str, Sender] = {}
        self._groups: list[str] = []
        self._routes: Routes | None = None
        self._homes_by_topic: dict[str, Home] = {}
        """Of topics that do not live on every group."""
        self._balancer = Balancer(config.choose, random.random)
        self._loop = asyncio.get_running_loop()

    def __iter__(self) -> Iterator[Sender]:
        return iter(self._senders.values())

    @property
    def known(self) -> bool:
        """Is a server known to send to?"""
        if not self._groups:
            self._learn()
        return bool(self._groups)

    def cork(self) -> list[Connection]:
        """Let what is sent from here on leave together; `uncork` these then."""
        found = [sender.connection for sender in self._senders.values()]
        connections = [connection for connection in found if connection is not None]
        for connection in connections:
            connection.cork()
        return connections

    def next(self, topic: str, affinity: Affinity | None = None) -> Sender:
        """The server that gets the next batch; of several in a row, perhaps where the last went."""
        self._look()
        groups = self._homes(topic)
        return self.of(groups[0]) if len(groups) == 1 else self._pick(groups, affinity)

    def _homes(self, topic: str) -> list[str]:
        home = self._homes_by_topic.get(topic)
        return self._groups if home is None else at_home(topic, self._groups, home)

    def elsewhere(self, batch: ProducerBatch, *, stored: bool) -> bool:
        """Give a batch to a server that did not have it yet; False where there is none.

        `stored` says that it may be stored already: then the same bytes go, so that whoever
        handles them can see that they are the same.
        """
        self._look()
        if batch.bound:
            return False
        now, here = self._loop.time(), batch.tried[-1]
        homes = self._homes(batch.published.topic)
        fit = [group for group in homes if group != here and self._fit(group, now)]
        left = [group for group in fit if group not in batch.tried] or [
            group for group in fit if not stored and group not in batch.refused_by
        ]
        if left:
            self._pick(left).put(batch.again() if stored else self._renewed(batch))
        return bool(left)

    def left(self, batch: ProducerBatch) -> bool:
        """Is there a server that has not refused it yet?"""
        self._look()
        return not batch.bound and not batch.refused_by.issuperset(
            self._homes(batch.published.topic)
        )

    def of(self, group: str) -> Sender:
        """The line to one server."""
        sender = self._senders.get(group)
        if sender is None:
            link = self._cluster.server(group, self.kind)
            duplicates = self._config.allow_duplicates
            sender = Sender(group, link, self, self._background, allow_duplicates=duplicates)
            self._senders[group] = sender
        return sender

    def _look(self) -> None:
        if self._routes is not self._cluster.known_routes:
            self._learn()

    def _learn(self) -> None:
        """Work out once what routes say; groups that are all away at once stay where to send to."""
        self._routes = routes = self._cluster.known_routes
        self._groups = self._cluster.writable_groups(self.kind) or self._groups
        if routes is not None and self.kind == "realtime":
            self._homes_by_topic = routes.homes

    def _pick(self, groups: list[str], affinity: Affinity | None = None) -> Sender:
        """One that is well if there is one, else the one that has rested longest."""
        now, weights = self._loop.time(), self._cluster.weights()
        staying = [group for group in groups if not self.of(group).stopping] or groups
        fit = [group for group in able(staying, weights) if self._fit(group, now)]
        if fit:
            same = affinity and self._balancer.stay(affinity, fit)
            sender = self.of(same or self._balancer.pick(fit, weights, affinity))
        else:
            sender = min(map(self.of, staying), key=lambda each: each.breaker.rests_until)
        sender.breaker.given(now)
        return sender

    def _fit(self, group: str, now: float) -> bool:
        """May it be given something now? One that failed is left alone, unless that is off."""
        return not self._config.avoid_failing or self.of(group).breaker.fit(now)

    async def find(self) -> None:
        """Ask the meta servers; raises when they know none, or none of them answers."""
        self._groups = await self._cluster.some_writable_groups(self.kind)

    async def ready(self) -> None:
        """Wait until a server is known to send to, at most `delivery_timeout`."""
        attempts = Attempts(self._config.delivery_timeout)
        while not self.known:
            try:
                await self.find()
            except TernError as error:
                await attempts.failed(error)

    async def stop(self) -> None:
        """Give up everything that is not answered."""
        if self.finding is not None:
            self.finding.cancel()
            await asyncio.wait([self.finding])
        for sender in self._senders.values():
            sender.stop()


class NextTurn:
    """Accumulators that are cut in the next turn of the loop, so that all rows of this one share
    batches. What is cut in one turn leaves in that turn, in one write."""

    def __init__(self, senders: Senders, cut: Callable[[Accumulator], None]) -> None:
        """`cut` must not raise."""
        self._senders = senders
        self._cut = cut
        self._accumulators: list[Accumulator] = []
        self._loop = asyncio.get_running_loop()

    def cut(self, accumulator: Accumulator) -> None:
        if not self._accumulators:
            self._loop.call_soon(self._cut_all)
        self._accumulators.append(accumulator)

    def _cut_all(self) -> None:
        accumulators, self._accumulators = self._accumulators, []
        corked = self._senders.cork()
        for accumulator in accumulators:
            self._cut(accumulator)
        for connection in corked:
            connection.uncork()
