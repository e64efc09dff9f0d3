"""One message at a time, for `basic_get`: pulled alone and settled by its handle.

No consumer stays behind that would take the next one. The lease is not renewed: what takes longer
than it comes again.
"""

from ternmq.client.client import Client
from ternmq.client.consuming.detached_consumer import HandleVerdict
from ternmq.core.errors import DecodeError, TopicNotFound
from ternmq.kombu.payload import KombuMessage, unpack_payload
from ternmq.sync.loop_thread import loop_thread, run

LEASE_S = 600.0


class SinglePuller:
    """Pulls from one queue."""

    def __init__(self, mq: Client, topic: str, group: str) -> None:
        make = mq.detached_consumer
        self._consumer = loop_thread().call(lambda: make(topic, group=group, attempts_max=0))

    def pull(self) -> "tuple[PulledMessage, KombuMessage] | None":
        """A message that is ready now; what no kombu has sent becomes a dead letter."""
        while True:
            try:
                found = run(self._consumer.pull(1, wait=0, lease=LEASE_S))
            except TopicNotFound:
                return None
            if not found:
                return None
            [(handle, message)] = found
            pulled = PulledMessage(self, handle)
            try:
                return pulled, unpack_payload(message.body)
            except DecodeError as error:
                pulled.reject(error.message)

    def settle(self, verdict: HandleVerdict) -> None:
        run(self._consumer.settle([verdict]))

    def close(self) -> None:
        run(self._consumer.close())


class PulledMessage:
    """A message to be settled; the broker has the verdict when the call returns."""

    def __init__(self, puller: SinglePuller, handle: str) -> None:
        self._puller = puller
        self._handle = handle

    def ack(self) -> None:
        self._puller.settle(HandleVerdict(handle=self._handle))

    def reject(self, reason: str = "", /) -> None:
        self._puller.settle(HandleVerdict(handle=self._handle, outcome="reject", reason=reason))

    def release(self) -> None:
        self._puller.settle(HandleVerdict(handle=self._handle, outcome="back"))
