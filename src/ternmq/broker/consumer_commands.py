"""What a consumer says over its connection: pull, ack, renew, leave, by subscription number."""

from collections.abc import Awaitable

from ternmq.batch.selector.filter import parse_filter
from ternmq.broker.acks.ack import AckHandler
from ternmq.broker.acks.large_acks import SLICE
from ternmq.broker.delivery.consumers import Consumers
from ternmq.broker.delivery.pull import PullHandler
from ternmq.broker.groups.consumer_group import ConsumerSession
from ternmq.core.errors import BadFilter, BadRequest
from ternmq.rpc.peer import Peer
from ternmq.wire.frame import Frame
from ternmq.wire.messages.hello import Empty
from ternmq.wire.messages.pull import Ack, Join, Joined, Leave, Pull, Renew
from ternmq.wire.numbers import Flag
from ternmq.wire.record import Record, unpack

VERDICTS_FREE = 100
REST_PER_VERDICT_S = 10e-6  # About what one costs.

_ONE_WAY = int(Flag.ONE_WAY)


class ConsumerCommands:
    """Finds the consumer that a frame speaks for and hands it to the part that acts."""

    def __init__(
        self,
        *,
        consumers: Consumers,
        pull_handler: PullHandler,
        ack_handler: AckHandler,
        sql_filters: bool,
    ) -> None:
        """`sql_filters`: consumers may bring expressions (R10)."""
        self._sql_filters = sql_filters
        self._consumers = consumers
        self._pull_handler = pull_handler
        self._ack_handler = ack_handler

    def join(self, peer: Peer, request: Join) -> Awaitable[Joined]:
        """A filter is parsed (and kept) here and not in the task: its time is its peer's."""
        if request.filter.strip() and not self._sql_filters:
            raise BadFilter(
                "this broker takes no SQL92 filters (sql_filters is off): filter by tag, or ask "
                "its operator"
            )
        parse_filter(request.tag, request.filter)
        return self._consumers.join(peer, request)

    def pull(self, peer: Peer, frame: Frame) -> None:
        request = unpack(frame.payload, Pull)
        consumer = self._consumer(peer, request.subscription)
        if request.done:
            self._ack_handler.settle(consumer, request.done)
            _rest(peer, len(request.done))
        self._pull_handler.pull(consumer, frame.correlation, request)

    def ack(self, peer: Peer, frame: Frame) -> None:
        request = unpack(frame.payload, Ack)
        consumer = self._consumer(peer, request.subscription)
        if len(request.done) > SLICE:
            self._ack_handler.settle_much(peer, frame, consumer, request.done)
        elif frame.flags & _ONE_WAY:
            self._ack_handler.settle(consumer, request.done)
        else:
            self._ack_handler.answer(peer, frame.correlation, consumer, request.done)

    def renew(self, peer: Peer, request: Renew) -> Record:
        return self._consumers.renew(self._consumer(peer, request.subscription), request)

    def leave(self, peer: Peer, request: Leave) -> Record:
        consumer = self._consumers.find(peer, request.subscription)
        if consumer is not None:
            self._ack_handler.leaves(consumer)
            self._consumers.leave(consumer)
        return Empty()

    def _consumer(self, peer: Peer, subscription: int) -> ConsumerSession:
        consumer = self._consumers.find(peer, subscription)
        if consumer is None:
            raise BadRequest(f"subscription {subscription} is not of this connection; join first")
        return consumer


def _rest(peer: Peer, verdicts: int) -> None:
    """Whoever acks a million rows out of order gets about half of the loop, not all of it."""
    if verdicts > VERDICTS_FREE:
        peer.rest(verdicts * REST_PER_VERDICT_S)
