"""What a client has in one process: connections, producer, consumers; each made when first used.

A session is told apart by the life of the process it was made in (`transport/fork.py`). A forked
child abandons the session of its parent, closing sockets and the spool's file without a word to the
servers, and makes one of its own: own connections, own session id, own producer id. Belongs to one
event loop.
"""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from ternmq.client.config import ClientConfig
from ternmq.client.consuming.consumer import Consumer
from ternmq.client.consuming.subscription_plan import SubscriptionPlan
from ternmq.client.producing.producer import KeepUnsent, Producer
from ternmq.client.producing.send_once import OnceSender
from ternmq.client.sealing.keyring import ClientKeys
from ternmq.client.transactions.checker import Checker, CheckFunction
from ternmq.client.transactions.half_sender import HalfSender
from ternmq.client.transport.attempts import Attempts
from ternmq.client.transport.cluster import Cluster
from ternmq.client.transport.fork import life
from ternmq.client.transport.user_login import Login
from ternmq.core.clock import Clock
from ternmq.core.errors import TernError, Unavailable
from ternmq.core.log import get_logger
from ternmq.security.sealing.master_keys import MasterKeys

if TYPE_CHECKING:
    from ternmq.client.spool.spooling_producer import SpoolingProducer

log = get_logger()


class ClientSession:
    """The parts of one client."""

    def __init__(
        self,
        url: str,
        config: ClientConfig,
        clock: Clock,
        login: Login | None,
        masters: MasterKeys,
    ) -> None:
        self.life = life.number
        self.cluster = Cluster(
            url,
            app=config.app,
            timeout=config.request_timeout,
            login=login,
            keys=ClientKeys(masters=masters, clock=clock),
            refresh_s=config.refresh_interval,
        )
        self.producer: Producer | None = None
        self.spooling: SpoolingProducer | None = None
        """The producer, if there is a spool."""
        self.checker: Checker | None = None
        self._config = config
        self._clock = clock
        self._once: OnceSender | None = None
        self._halves: HalfSender | None = None
        self._consumers: list[Consumer] = []
        self._looking: asyncio.Task[None] | None = None

    async def find_servers(self, url: str) -> None:
        """Ask for the routes; while nobody answers, wait or go on without, as the config says."""
        config, attempts = self._config, Attempts(self._config.wait)
        while True:
            try:
                await self.cluster.refresh()
                return
            except Unavailable as error:
                if self.spooling is not None:
                    log.warning("nobody is there yet, messages are spooled", reason=error.message)
                    return
                if config.lazy:
                    log.warning(
                        "nobody is there yet, going on without", url=url, reason=error.message
                    )
                    self._looking = asyncio.create_task(self._look(url), name="tern-look")
                    return
                if not config.wait:
                    raise
                if not attempts.failures:
                    log.warning("nobody is there yet, waiting", url=url, reason=error.message)
                await attempts.failed(error)

    async def _look(self, url: str) -> None:
        """In the background, until a server answers; from then on routes come by themselves."""
        attempts = Attempts()
        while True:
            await attempts.wait()
            try:
                await self.cluster.refresh()
            except TernError as error:
                if not error.retryable:  # Nobody waits for this: sends will be told the same.
                    log.error("the servers refuse this client", url=url, reason=error.message)
                    return
            else:
                log.info("the servers are there", url=url)
                return

    def make_producer(self) -> Producer:
        """The producer; made in the event loop's thread."""
        if self.producer is None:
            if self._config.spool is None:
                self.producer = Producer(
                    self.cluster, self._config, self._clock, self._make_keeper()
                )
            else:  # Brings the storage along.
                from ternmq.client.spool.spooling_producer import SpoolingProducer

                self.spooling = SpoolingProducer(
                    self.cluster, self._config, self._clock, self._make_keeper()
                )
                self.producer = self.spooling
        return self.producer

    def _make_keeper(self) -> KeepUnsent | None:
        if self._config.unsent is None:
            return None
        from ternmq.client.spool.unsent_file import keeper

        return keeper(Path(self._config.unsent), self._clock)

    def once_sender(self) -> OnceSender:
        if self._once is None:
            self._once = OnceSender(self.cluster, self._config, self._clock)
        return self._once

    def half_sender(self) -> HalfSender:
        if self._halves is None:
            self._halves = HalfSender(self.cluster, self._config, self._clock)
        return self._halves

    def check_with(self, function: CheckFunction) -> None:
        """Answer for the application's transactions with this function from now on."""
        if self.checker is not None:
            self.checker.answer_with(function)
        else:
            self.checker = Checker(self.cluster, self._config, function)

    def make_consumer(self, plan: SubscriptionPlan) -> Consumer:
        consumer = Consumer(self.cluster, plan)
        self._consumers = [each for each in self._consumers if not each.closed] + [consumer]
        return consumer

    async def finish(self) -> None:
        """Leave all groups and send what was accepted; the connections stay."""
        if self._looking is not None:
            self._looking.cancel()
        if self.checker is not None:
            await self.checker.close()
        await asyncio.gather(*(consumer.close() for consumer in self._consumers))
        if self.producer is not None:
            await self.producer.close()

    def abandon(self) -> None:
        """In a forked child: nothing of the parent's may be used."""
        self.cluster.abandon()
        if self.spooling is not None:
            self.spooling.abandon()
