"""A producer that spools messages to disk before they are sent: `connect(..., spool="dir")`.

The same calls as a plain producer. What differs: a message is on this machine's disk when
`send_nowait` returns; `send` waits until a broker has it, however long that takes; leaving the
client leaves what is not sent to the next start.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ternmq.batch.encoder import Outgoing
from ternmq.client.config import ClientConfig
from ternmq.client.model.outgoing import SendOptions, adopt_outgoing
from ternmq.client.model.receipt import BatchReceipt, Receipt
from ternmq.client.producing.accumulator import Row
from ternmq.client.producing.producer import KeepUnsent, Producer
from ternmq.client.producing.send_buffer import Stats
from ternmq.client.producing.send_once import OnceReceipt, OnceSender
from ternmq.client.spool.spool import Spool, SpooledMessage, joined
from ternmq.client.transport.cluster import Cluster
from ternmq.core.clock import Clock
from ternmq.core.errors import BadRequest, BufferFull, TernError


class SpoolingProducer(Producer):
    """Everything one client sends, through a spool."""

    def __init__(
        self,
        cluster: Cluster,
        config: ClientConfig,
        clock: Clock,
        keep_unsent: KeepUnsent | None = None,
    ) -> None:
        assert config.spool is not None
        super().__init__(cluster, config, clock, keep_unsent)
        self._spool = Spool(
            Path(config.spool),
            _Once(cluster, config, clock),
            size_max=config.spool_size_max,
            clock=clock,
            on_error=self._refused,
            keep_unsent=keep_unsent,
        )

    async def send(self, topic: str, body: Any, options: SendOptions) -> Receipt:
        """Spool one message, wait until a broker has it; its receipt says where."""
        return await self._wait(await self._accept(topic, self.prepare(topic, body, options)[0]))

    async def send_many(
        self, topic: str, bodies: Sequence[Any], options: SendOptions
    ) -> BatchReceipt:
        """Spool all, then wait for all; the first refusal is raised."""
        rows = [self._row(topic, body, options) for body in bodies]
        waiting = [await self._accept(topic, row) for row in rows]
        for one in waiting:
            await self._wait(one)
        return joined([one.published for one in waiting if one.published is not None])

    async def accept_many(
        self, topic: str, bodies: Sequence[Any], options: SendOptions
    ) -> BatchReceipt:
        """Spool all, as there is room; nobody waits until a broker has them."""
        for row in [self._row(topic, body, options) for body in bodies]:
            await self._accept(topic, row, waits=False)
        return BatchReceipt(len(bodies), waited=False)

    def send_many_nowait(self, topic: str, bodies: Sequence[Any], options: SendOptions) -> None:
        """Spool all; they are in the file when this returns."""
        messages = [self._message(self._row(topic, body, options)) for body in bodies]
        for at, message in enumerate(messages):
            try:
                self._spool.put(topic, message, waits=False)
            except BufferFull as error:
                raise BufferFull(f"{at} messages are in the spool: {error.message}") from error

    def send_nowait(self, topic: str, body: Any, options: SendOptions) -> None:
        """Spool one message; it is in the file when this returns."""
        row, _ = self.prepare(topic, body, options)
        self._spool.put(topic, self._message(row), waits=False)

    def _row(self, topic: str, body: Any, options: SendOptions) -> Row:
        if isinstance(body, Outgoing):
            if any(name != "codec" for name in options):
                raise BadRequest("an Outgoing has its own key, tag and so on; pass no options")
            made = adopt_outgoing(body, self.clock.now_ms())
            self.sizes.check(topic, len(made.body))
            return made
        return self.prepare(topic, body, options)[0]

    def _message(self, row: Row) -> Outgoing:
        if isinstance(row, Outgoing):
            if row.explicit_id is not None:
                raise BadRequest("a spool gives messages their ids: leave out explicit_id")
            return row
        return Outgoing(body=row, born_at_ms=self.clock.now_ms())

    async def _accept(self, topic: str, row: Row, *, waits: bool = True) -> SpooledMessage:
        message = self._message(row)
        if self.config.on_full == "raise":
            return self._spool.put(topic, message, waits=waits)
        timeout = self.config.delivery_timeout
        return await self._spool.put_patiently(topic, message, timeout, waits=waits)

    async def _wait(self, waiting: SpooledMessage) -> Receipt:
        assert waiting.future is not None
        return await asyncio.shield(waiting.future)

    def _refused(self, topic: str, error: TernError) -> None:
        self.count(1, error)
        self.report(topic, error)

    def stats(self) -> Stats:
        plain = super().stats()
        return replace(
            plain, sent=plain.sent + self._spool.sent, buffered=plain.buffered + len(self._spool)
        )

    async def flush(self) -> None:
        await self._spool.flush()
        await super().flush()

    async def close(self) -> None:
        """Send what can be sent within `delivery_timeout`; the rest stays in the file."""
        if not self.closed:
            await self._spool.close(self.config.delivery_timeout)
        self.closed = True
        await super().close()

    def abandon(self) -> None:
        """In a forked child: the file is the parent's."""
        self._spool.abandon()


class _Once:
    """`send_once` on this client's connections."""

    def __init__(self, cluster: Cluster, config: ClientConfig, clock: Clock) -> None:
        self._cluster = cluster
        self._sender = OnceSender(cluster, config, clock)

    async def send_once(
        self, topic: str, rows: Sequence[Outgoing], broker_group: str | None = None
    ) -> list[OnceReceipt]:
        return await self._sender.send(topic, rows, broker_group)

    def broker_groups(self) -> list[str]:
        return self._cluster.masters()

    def taking_groups(self) -> list[str]:
        return self._cluster.writable_groups()

    def slot_owner(self, topic: str, order_key: str) -> str | None:
        return self._cluster.slot_owner(topic, order_key)

    async def find_groups(self) -> list[str]:
        return await self._cluster.some_writable_groups()
