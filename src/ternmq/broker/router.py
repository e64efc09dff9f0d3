"""From a frame to the part that handles it. A command is one line in one table.

PUBLISH, CONFIRM, PULL, ACK and READ are answered by their parts whenever they are ready; the other
commands are asked rarely and answered by whatever their part returns. Never waits: what takes time
becomes a task of `PendingRequests`, which counts against its peer's bound and is waited for at the
end.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from ternmq.broker.consumer_commands import ConsumerCommands
from ternmq.broker.delivery.read import ReadHandler
from ternmq.broker.operations.admin import AdminCommands
from ternmq.broker.operations.dead_letter_admin import DeadLetterAdmin
from ternmq.broker.operations.group_replay import GroupReplays
from ternmq.broker.operations.lookups import DeliveryRecords
from ternmq.broker.publishing.publish import Publisher
from ternmq.broker.topics import TopicNames
from ternmq.core.errors import BadRequest, ProtocolError, Unavailable
from ternmq.rpc.peer import Peer
from ternmq.rpc.pending_requests import PendingRequests
from ternmq.rpc.stuck_requests import StuckRequests
from ternmq.wire.frame import Frame
from ternmq.wire.messages.dead_letters import DeadFind, DeadHandle
from ternmq.wire.messages.groups import GroupCreate, GroupFind, GroupNamed, GroupReset, GroupSet
from ternmq.wire.messages.limits import ConsumerPause
from ternmq.wire.messages.pull import Join, Leave, Renew
from ternmq.wire.messages.read import (
    DeliveriesRead,
    GroupReplay,
    GroupRetry,
    Read,
    ReplayOpen,
    Seek,
)
from ternmq.wire.messages.stats import Status, StatusQuery
from ternmq.wire.numbers import Command, Flag
from ternmq.wire.record import Record, pack, unpack

_ONE_WAY = int(Flag.ONE_WAY)
_LAST_WORDS = frozenset(
    {int(Command.ACK), int(Command.RENEW), int(Command.LEAVE), int(Command.REPLICATED)}
)
_MAY_BE_ONE_WAY = _LAST_WORDS
"""What is taken while the broker stops: consumers finish, nothing begins."""

Hot = Callable[[Peer, Frame], None]
Slow = Callable[[Peer, Any], Awaitable[Record]]
TakesBatch = Callable[[Peer, Frame], Awaitable[Record]]
Plain = Callable[[Peer, Any], Record]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operating:
    """The parts that operators talk to."""

    admin: AdminCommands
    dead: DeadLetterAdmin
    group_replays: GroupReplays
    delivery_records: DeliveryRecords
    status: Callable[[StatusQuery], Status]


class BrokerRouter:
    """Frames in, parts called."""

    def __init__(
        self,
        *,
        publisher: Publisher,
        consumer_commands: ConsumerCommands,
        read_handler: ReadHandler,
        topics: TopicNames,
        operating: Operating,
    ) -> None:
        admin, dead, group_replays = operating.admin, operating.dead, operating.group_replays
        self._read_handler = read_handler
        self._topics = topics
        self.waits = StuckRequests()
        self._pending_requests = PendingRequests(self.waits)
        self.stopping = False
        self._hot: dict[int, Hot] = {
            Command.PUBLISH: publisher.publish,
            Command.PULL: consumer_commands.pull,
            Command.ACK: consumer_commands.ack,
            Command.READ: self._read,
        }
        self._plain: dict[int, tuple[type[Record], Plain]] = {
            Command.RENEW: (Renew, consumer_commands.renew),
            Command.LEAVE: (Leave, consumer_commands.leave),
            Command.GROUP_LIST: (GroupFind, lambda _, request: admin.groups(request)),
            Command.LEDGER: (GroupFind, lambda _, request: admin.ledger(request)),
            Command.STATUS: (StatusQuery, lambda _, request: operating.status(request)),
        }
        self._slow: dict[int, tuple[type[Record], Slow]] = {
            Command.JOIN: (Join, consumer_commands.join),
            Command.SEEK: (Seek, lambda _, request: read_handler.seek(topics, request)),
            Command.READ_DELIVERIES: (
                DeliveriesRead,
                lambda _, request: operating.delivery_records.read(request),
            ),
            Command.GROUP_CREATE: (GroupCreate, lambda _, request: admin.create(request)),
            Command.GROUP_DELETE: (GroupNamed, lambda _, request: admin.delete(request)),
            Command.GROUP_RESET: (GroupReset, lambda _, request: admin.reset(request)),
            Command.GROUP_SET: (GroupSet, lambda _, request: admin.set(request)),
            Command.CONSUMER_PAUSE: (
                ConsumerPause,
                lambda _, request: admin.pause_consumer(request),
            ),
            Command.DEAD_OPEN: (DeadFind, lambda _, request: dead.open(request)),
            Command.DEAD_RESEND: (DeadHandle, lambda _, request: dead.resend(request)),
            Command.DEAD_DELETE: (DeadHandle, lambda _, request: dead.delete(request)),
            Command.GROUP_REPLAY: (GroupReplay, lambda _, request: group_replays.replay(request)),
            Command.REPLAY_OPEN: (ReplayOpen, group_replays.open),
            Command.GROUP_RETRY: (GroupRetry, lambda _, request: admin.retry_now(request)),
        }

    def add(self, command: Command, hot: Hot) -> None:
        """One more line of the table: a part that answers whenever it is ready."""
        self._hot[command] = hot

    def route(self, peer: Peer, frame: Frame) -> None:
        command = frame.command
        if frame.flags & _ONE_WAY and command not in _MAY_BE_ONE_WAY:
            raise ProtocolError(f"{Command(command).name} needs an answer")
        if self.stopping and command not in _LAST_WORDS:
            raise Unavailable("the broker is stopping; connect again in a moment")
        hot = self._hot.get(command)
        if hot is not None:
            hot(peer, frame)
            return
        plain = self._plain.get(command)
        if plain is not None:
            answer = plain[1](peer, unpack(frame.payload, plain[0]))
            if not frame.flags & _ONE_WAY:
                peer.answer(command, frame.correlation, pack(answer))
            return
        slow = self._slow.get(command)
        if slow is None:
            raise BadRequest(f"a broker does not answer {Command(command).name}; ask a meta server")
        request = unpack(frame.payload, slow[0])
        self._pending_requests.begin(peer, frame, slow[1](peer, request))

    def answers(self, command: Command, kind: type[Record], handler: Slow) -> None:
        """One more command that is answered by whatever its part returns, in time."""
        self._slow[command] = (kind, handler)

    def says(self, command: Command, kind: type[Record], handler: Plain) -> None:
        """The same for an answer that is there at once."""
        self._plain[command] = (kind, handler)

    def takes_batches(self, command: Command, handler: TakesBatch) -> None:
        """The same for a command whose payload is bytes."""

        def begin(peer: Peer, frame: Frame) -> None:
            self._pending_requests.begin(peer, frame, handler(peer, frame))

        self._hot[command] = begin

    async def finish(self) -> None:
        """Wait for what has begun."""
        await self._pending_requests.finish()

    def _read(self, peer: Peer, frame: Frame) -> None:
        request = unpack(frame.payload, Read)
        topic = self._topics.get(request.topic)
        self._topics.check_app(topic, peer)
        self._read_handler.read(peer, frame.correlation, topic.id, request)
