"""What a consumer says over its connection: pull, ack, renew, leave, by subscription number."""

from ternmq.broker.acks.ack import AckHandler
from ternmq.broker.acks.large_acks import SLICE
from ternmq.broker.delivery.consumers import Consumers, members_of
from ternmq.broker.delivery.pull import PullHandler
from ternmq.broker.groups.groups import ConsumerSession
from ternmq.core.errors import BadRequest
from ternmq.rpc.peer import Peer
from ternmq.wire.frame import Frame
from ternmq.wire.messages.hello import Empty
from ternmq.wire.messages.pull import Ack, Leave, Pull, Renew
from ternmq.wire.numbers import Flag
from ternmq.wire.record import Record, unpack

VERDICTS_FREE = 100
REST_PER_VERDICT_S = 10e-6  # About what one costs.

_ONE_WAY = int(Flag.ONE_WAY)


class ConsumerCommands:
    """Finds the member that a frame speaks for and hands it to the part that acts."""

    def __init__(self, *, members: Consumers, deliverer: PullHandler, settler: AckHandler) -> None:
        self._members = members
        self._deliverer = deliverer
        self._settler = settler
        self.join = members.join

    def pull(self, peer: Peer, frame: Frame) -> None:
        request = unpack(frame.payload, Pull)
        member = _member(peer, request.subscription)
        if request.done:
            self._settler.settle(member, request.done)
            _rest(peer, len(request.done))
        self._deliverer.pull(member, frame.correlation, request)

    def ack(self, peer: Peer, frame: Frame) -> None:
        request = unpack(frame.payload, Ack)
        member = _member(peer, request.subscription)
        if len(request.done) > SLICE:
            self._settler.settle_much(peer, frame, member, request.done)
        elif frame.flags & _ONE_WAY:
            self._settler.settle(member, request.done)
        else:
            self._settler.answer(peer, frame.correlation, member, request.done)

    def renew(self, peer: Peer, request: Renew) -> Record:
        return self._members.renew(_member(peer, request.subscription), request)

    def leave(self, peer: Peer, request: Leave) -> Record:
        member = members_of(peer).get(request.subscription)
        if member is not None:
            self._settler.leaves(member)
            self._members.leave(peer, member)
        return Empty()


def _rest(peer: Peer, verdicts: int) -> None:
    """Whoever acks a million rows out of order gets about half of the loop, not all of it."""
    if verdicts > VERDICTS_FREE:
        peer.rest(verdicts * REST_PER_VERDICT_S)


def _member(peer: Peer, subscription: int) -> ConsumerSession:
    member = members_of(peer).get(subscription)
    if member is None:
        raise BadRequest(f"subscription {subscription} is not of this connection; join first")
    return member
