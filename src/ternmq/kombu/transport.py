"""The kombu transport of TernMQ: one client for each connection, one line of arrivals.

`drain_events` waits on that line; Celery's event loop watches its descriptor, so nothing polls. A
message is handed out only while its channel may have more in hand; the rest waits here, leased, and
leases are renewed by the client. The broker being away is the client's affair: it goes on when it
is back. What cannot be sent within the delivery timeout is a connection error, and kombu tries
again.
"""

import time
from collections import deque
from datetime import UTC, datetime
from typing import Any

from kombu.transport import virtual

from ternmq.client.client import Client, connect
from ternmq.client.consuming.consumer import Consumer
from ternmq.core.errors import BufferFull, TernError, Unavailable
from ternmq.core.process import VERSION
from ternmq.kombu.aliases import SCHEME
from ternmq.kombu.arrival_queue import ArrivalQueue
from ternmq.kombu.channel import TernChannel
from ternmq.kombu.options import TransportOptions
from ternmq.kombu.payload import KombuMessage, options_of, pack_payload
from ternmq.kombu.puller import PulledMessage, SinglePuller
from ternmq.kombu.readers import Arrival, Arrivals, BroadcastReader, QueueReader
from ternmq.sync.loop_thread import loop_thread, run
from ternmq.wire.messages.topics import TopicSettings

PREFETCH = 100
"""Where kombu has no limit."""
BROADCAST_KEEP_MS = 3_600_000
"""Replies and events are for those who listen now."""


class Transport(virtual.Transport):  # type: ignore[misc]
    """What kombu calls for `tern://`."""

    Channel = TernChannel
    can_parse_url = True
    default_port = 7700
    driver_type = SCHEME
    driver_name = "ternmq"
    connection_errors = (Unavailable, ConnectionError, OSError)
    channel_errors = (TernError,)
    implements = virtual.Transport.implements.extend(
        asynchronous=True, exchange_type=frozenset(["direct", "topic", "fanout"]), heartbeats=False
    )

    def __init__(self, client: Any, **kwargs: Any) -> None:
        super().__init__(client, **kwargs)
        self.options = TransportOptions.of(client.transport_options)
        self.mq: Client
        self._arrivals: Arrivals
        """From connecting on: kombu makes transports that it only asks what they are."""
        self._held_back: deque[Arrival] = deque()
        self._readers: dict[str, QueueReader] = {}
        self._broadcasts: dict[str, BroadcastReader] = {}
        self._consumed_by: dict[str, tuple[Any, bool]] = {}
        """Channel of a queue, and whether its messages are acked when they are handed out."""
        self._pullers: dict[str, SinglePuller] = {}
        self._made: set[str] = set()
        """Topics whose group is there."""
        self._connected = False

    def driver_version(self) -> str:
        return VERSION

    # Coming and going.

    def establish_connection(self) -> Any:
        self.mq = connect(self._url(), app=self.options.app)  # kombu itself tries again.
        run(self.mq.__aenter__())
        self._arrivals = ArrivalQueue()
        self._connected = True
        return super().establish_connection()

    def verify_connection(self, connection: Any) -> bool:
        return self._connected

    def close_connection(self, connection: Any) -> None:
        super().close_connection(connection)
        for queue in list(self._readers):
            self.leave(queue)
        for broadcast in self._broadcasts.values():
            broadcast.stop()
        self._broadcasts.clear()
        for puller in self._pullers.values():
            puller.close()
        self._pullers.clear()
        if self._connected:
            self._connected = False
            run(self.mq.close())
            self._arrivals.close()

    def _url(self) -> str:
        given = self.client
        if "://" in (given.hostname or ""):
            return str(given.hostname)
        # kombu has switched to another host of a list, and taken its address apart.
        who = f"{given.userid}:{given.password}@" if given.userid else ""
        return f"tern://{who}{given.hostname or '127.0.0.1'}:{given.port or self.default_port}"

    # What channels ask for.

    def send(self, topic: str, message: Any) -> None:
        """Returns when the message is stored, or (`confirm="nowait"`) accepted."""
        body, options = pack_payload(message), options_of(message, datetime.now(UTC))
        if self.options.confirm == "stored":
            run(self.mq.send(topic, body, **options))
            return
        try:
            send = self.mq.send_nowait
            loop_thread().call(lambda: send(topic, body, **options))
        except BufferFull:
            run(self.mq.send(topic, body, **options))

    def consume(self, channel: Any, queue: str, topic: str | None, no_ack: bool) -> None:
        """Begin to take from a queue; None: it is fed by broadcasts."""
        self._consumed_by[queue] = (channel, no_ack)
        if topic is None or queue in self._readers:
            self._arrivals.wake()  # Some may be here already.
            return
        self._make_group(topic)
        consumer = loop_thread().call(lambda: self._consumer(topic, channel))
        reader = QueueReader(queue, consumer, self._arrivals)
        reader.start()
        self._readers[queue] = reader

    def _consumer(self, topic: str, channel: Any) -> Consumer:
        options = self.options
        return self.mq.consumer(
            topic,
            group=options.group,
            prefetch=channel.qos.prefetch_count or PREFETCH,
            attempts_max=0,  # Celery counts its own retries.
            ordered=options.ordered,
        )

    def _make_group(self, topic: str) -> None:
        """The group is there before anything is handed out: so the first is the most urgent."""
        if topic in self._made:
            return
        admin, group, ordered = self.mq.admin, self.options.group, self.options.ordered

        async def make() -> None:
            await admin.create_topic(topic)
            await admin.create_group(topic, group, exist_ok=True)
            if not ordered:
                await admin.set_group(topic, group, priority=True, attempts_max=0)

        run(make())
        self._made.add(topic)

    def leave(self, queue: str) -> None:
        """Take no more from it; what was not handed out goes back."""
        self._consumed_by.pop(queue, None)
        for arrival in self._taken():
            if arrival.queue == queue and arrival.message is not None:
                arrival.message.release()
            elif arrival.queue != queue:
                self._held_back.append(arrival)
        reader = self._readers.pop(queue, None)
        if reader is not None:
            reader.stop()

    def listen(self, channel: Any, exchange: str, topic: str) -> None:
        """Read along what everybody gets; from the binding on nothing is missed."""
        if exchange in self._broadcasts:
            return

        def queues(routing_key: str) -> list[str]:
            table = self.state.exchanges[exchange]["table"]
            kinds = channel.exchange_types or {}
            kind = kinds.get(self.state.exchanges[exchange]["type"])
            return sorted(kind.lookup(table, exchange, routing_key, None)) if kind else []

        settings = TopicSettings(keep_ms=BROADCAST_KEEP_MS)
        run(self.mq.admin.create_topic(topic, settings))
        broadcast = BroadcastReader(self.mq, topic, self._arrivals, queues)
        broadcast.start()
        self._broadcasts[exchange] = broadcast

    def set_prefetch(self, channel: Any, prefetch: int) -> None:
        for queue, reader in self._readers.items():
            if self._consumed_by.get(queue, (None,))[0] is channel:
                reader.set_prefetch(prefetch or PREFETCH)
        self.freed()

    def pull_one(self, topic: str) -> tuple[PulledMessage, KombuMessage] | None:
        """For `basic_get`: one message of a queue, if one is ready now."""
        puller = self._pullers.get(topic)
        if puller is None:
            self._make_group(topic)
            group = self.options.group
            puller = self._pullers[topic] = SinglePuller(self.mq, topic, group)
        return puller.pull()

    def freed(self) -> None:
        if self._held_back:
            self._arrivals.wake()

    # Handing out.

    def drain_events(self, connection: Any, timeout: float | None = None) -> None:
        until = None if timeout is None else time.monotonic() + timeout
        while not self._hand_out():
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                raise TimeoutError
            self._arrivals.wait(left)

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        loop.add_reader(self._arrivals.fileno(), self._hand_out)
        self._arrivals.wake()

    def unregister_from_event_loop(self, connection: Any, loop: Any) -> None:
        loop.remove_reader(self._arrivals.fileno())

    def _taken(self) -> list[Arrival]:
        taken = [*self._held_back, *self._arrivals.take_all()]
        self._held_back.clear()
        return taken

    def _hand_out(self) -> int:
        """All that is there and may be handed out; how many."""
        waiting, count = deque(self._taken()), 0
        try:
            while waiting:
                arrival = waiting.popleft()
                if arrival.error is not None:
                    raise arrival.error
                if arrival.payload is not None and not self._hand_over(arrival, arrival.payload):
                    self._held_back.append(arrival)
                else:
                    count += arrival.payload is not None
        finally:
            self._held_back.extend(waiting)  # A callback has raised: the rest is not lost.
        return count

    def _hand_over(self, arrival: Arrival, payload: Any) -> bool:
        channel, no_ack = self._consumed_by.get(arrival.queue, (None, False))
        if channel is None or channel.closed:
            return False
        if not no_ack and not channel.qos.can_consume():
            return False
        payload["properties"]["delivery_tag"] = tag = channel._next_delivery_tag()
        if arrival.message is not None and no_ack:
            arrival.message.ack()
        elif arrival.message is not None:
            channel.qos.lease(tag, arrival.message)
        self._callbacks[arrival.queue](payload)
        return True
