"""The leases of one subscription, renewed while rows of them are held or settled and not yet told.

Three times within a lease the broker is told which leases are still wanted, and which of their rows
the application has begun. Those that it does not know any more are lost: their rows that nobody has
seen are not shown. Belongs to one event loop; a lost connection is the subscription's to mend.
"""

import asyncio
from collections.abc import Callable
from functools import partial

from ternmq.client.consuming.held_rows import HeldRows
from ternmq.client.consuming.pending_acks import PendingAcks
from ternmq.client.consuming.subscription_plan import DeliverySink
from ternmq.client.model.delivery import Delivery
from ternmq.core.lifecycle import Background
from ternmq.rpc.connection import Connection
from ternmq.wire.messages.pull import Renew, Renewed
from ternmq.wire.numbers import Command
from ternmq.wire.record import pack, unpack

PART_OF_LEASE = 3


class LeaseRenewal:
    """Keeps the leases of what a subscription holds."""

    def __init__(
        self,
        held: HeldRows,
        pending: PendingAcks,
        sink: DeliverySink,
        background: Background,
        *,
        now: Callable[[], float],
        lost: Callable[[set[int]], None],
    ) -> None:
        """`now` is the clock of leases; `lost` is told which are gone."""
        self._held = held
        self._pending = pending
        self._sink = sink
        self._background = background
        self._now = now
        self._lost = lost
        self._renew_when_due = background.callback(self._renew)
        self._loop = asyncio.get_running_loop()
        self._connection: Connection | None = None
        self._subscription = 0
        self._lease_s = 60.0
        self._timer: asyncio.TimerHandle | None = None

    def joined(self, connection: Connection, subscription: int, lease_s: float) -> None:
        """Renew at this connection from now on."""
        self._connection, self._subscription, self._lease_s = connection, subscription, lease_s
        if self._timer is None:
            self._timer = self._loop.call_later(lease_s / PART_OF_LEASE, self._renew_when_due)

    def away(self) -> None:
        self._connection = None

    def stop(self) -> None:
        self._connection = None
        if self._timer is not None:
            self._timer.cancel()

    def leases(self) -> list[int]:
        """Of rows that are held, and of settled ones that the broker has not been told of: who
        fails a million rows takes longer than a lease to say so."""
        return list(dict.fromkeys([*self._held.leases(), *self._pending.leases()]))

    def started(self, delivery: Delivery) -> None:
        """Report a row to the broker before the application sees it: it may kill the process."""
        connection = self._connection
        if connection is not None and not connection.closed and not delivery.lost:
            base, lease = delivery.base, delivery.lease
            held = [(lease, base + first, base + end) for first, end in delivery.ranges]
            self._send(connection, [lease], held)

    def renew_now(self) -> None:
        leases, connection = self.leases(), self._connection
        if leases and connection is not None:
            self._send(connection, leases, self._held.started(self._sink.unshown))

    def _renew(self) -> None:
        self._timer = self._loop.call_later(self._lease_s / PART_OF_LEASE, self._renew_when_due)
        self.renew_now()

    def _send(
        self, connection: Connection, leases: list[int], started: list[tuple[int, int, int]]
    ) -> None:
        renew = Renew(subscription=self._subscription, leases=leases, started=started)
        renewed = partial(self._renewed, leases, self._now() + self._lease_s)
        answer = connection.call(Command.RENEW, pack(renew))
        answer.add_done_callback(self._background.callback(renewed))

    def _renewed(
        self, leases: list[int], until: float, answer: "asyncio.Future[bytearray]"
    ) -> None:
        if answer.cancelled() or answer.exception() is not None:
            return  # Lost connections are joined again; leases last for two more tries.
        lost = set(unpack(answer.result(), Renewed).lost)
        self._held.extend(set(leases) - lost, until)
        self._lost(lost)
