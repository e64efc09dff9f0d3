"""From a frame to the part that handles it: every command of a broker is a line in one table.

PUBLISH, CONFIRM, PULL, ACK and READ get the frame and answer whenever they are ready. The other
commands are asked rarely: they get the unpacked request, and what they return is the answer. Never
waits: what takes time becomes a task of `PendingRequests`, which counts against its peer's bound
and is waited for at the end. HELLO and PING are the connection's own (`rpc/peer.py`).
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from ternmq.broker.acks.detached_leases import DetachedLeases
from ternmq.broker.consumer_commands import ConsumerCommands
from ternmq.broker.delivery.read import ReadHandler
from ternmq.broker.inspection.delivery_trace import DeliveryTrace
from ternmq.broker.inspection.figure_pages import FigurePages
from ternmq.broker.inspection.rows import RowInspection
from ternmq.broker.inspection.sessions import SessionInspection
from ternmq.broker.operations.admin import AdminCommands
from ternmq.broker.operations.dead_letter_admin import DeadLetterCommands, RefusedCommands
from ternmq.broker.operations.dead_letter_recall import DeadLetterRecall
from ternmq.broker.operations.group_replay import GroupReplays
from ternmq.broker.operations.lookups import DeliveryRecords, MessageLookup
from ternmq.broker.operations.stats import BrokerStats
from ternmq.broker.operations.status import LeaderStatus
from ternmq.broker.operations.stopped_keys import StoppedKeys
from ternmq.broker.publishing.confirm import Confirmer
from ternmq.broker.publishing.publish import Publisher
from ternmq.broker.publishing.publish_once import OncePublisher
from ternmq.broker.slots.slots import Slots
from ternmq.broker.transactions.check_back import CheckBack
from ternmq.broker.transactions.half_batches import HalfBatches
from ternmq.broker.transactions.half_endings import HalfEndings
from ternmq.broker.transactions.unfenced_attempts import UnfencedAttempts
from ternmq.core.errors import BadRequest, ProtocolError, Unavailable
from ternmq.replication.member.figures import FigureInspection
from ternmq.replication.member.server_kind import MemberCommands
from ternmq.rpc.peer import Peer
from ternmq.rpc.pending_requests import PendingRequests
from ternmq.rpc.stuck_requests import StuckRequests
from ternmq.wire.frame import Frame
from ternmq.wire.inspection import rows, sessions
from ternmq.wire.inspection.figure_pages import FiguresPageFind
from ternmq.wire.inspection.figures import FiguresFind
from ternmq.wire.inspection.trace import TraceFind
from ternmq.wire.messages import dead_letters, groups, order_keys, pull, read, transactions
from ternmq.wire.messages.hello import Empty
from ternmq.wire.messages.limits import ConsumerPause
from ternmq.wire.messages.publish import Find
from ternmq.wire.messages.stats import Status, StatusQuery, TopicFiguresFind
from ternmq.wire.numbers import Command, Flag
from ternmq.wire.record import Record, pack, unpack

_ONE_WAY = int(Flag.ONE_WAY)
_WHILE_STOPPING = frozenset(
    map(int, (Command.ACK, Command.RENEW, Command.LEAVE, Command.SETTLE, Command.REPLICATED))
)
"""What is taken while the broker stops: consumers finish, nothing begins."""
_MAY_BE_ONE_WAY = _WHILE_STOPPING - {int(Command.SETTLE)}

Handle = Callable[[Peer, Frame], None]
R = TypeVar("R", bound=Record)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerHandlers:
    """The parts that commands go to."""

    publisher: Publisher
    once_publisher: OncePublisher
    confirmer: Confirmer
    half_batches: HalfBatches
    half_endings: HalfEndings
    unfenced: UnfencedAttempts
    check_back: CheckBack
    consumer_commands: ConsumerCommands
    detached_leases: DetachedLeases
    read_handler: ReadHandler
    slots: Slots
    admin: AdminCommands
    stats: BrokerStats
    status: LeaderStatus
    dead_letter_commands: DeadLetterCommands
    dead_letter_recall: DeadLetterRecall
    refused_commands: RefusedCommands
    group_replays: GroupReplays
    stopped_keys: StoppedKeys
    lookup: MessageLookup
    delivery_records: DeliveryRecords
    row_looks: RowInspection
    delivery_trace: DeliveryTrace
    session_looks: SessionInspection
    figure_looks: FigureInspection
    figure_pages: FigurePages
    members: MemberCommands


class BrokerRouter:
    """The commands of a broker that leads."""

    def __init__(self, handlers: BrokerHandlers, stuck_requests: StuckRequests) -> None:
        self._pending_requests = PendingRequests(stuck_requests)
        self._stopping = False
        self._table: dict[int, Handle] = self._commands(handlers)

    def _commands(self, to: BrokerHandlers) -> dict[int, Handle]:
        later, batch = self._later, self._batch
        now_for, later_for = self._now_for, self._later_for
        begin_now = self._pending_requests.begin_now
        admin, consumer = to.admin, to.consumer_commands
        return {
            # Producers.
            Command.PUBLISH: to.publisher.publish,
            Command.PUBLISH_ONCE: batch(to.once_publisher.publish),
            Command.CONFIRM: to.confirmer.confirm,
            Command.HALF: lambda peer, frame: begin_now(
                peer, frame, partial(to.half_batches.stage, peer, frame)
            ),
            Command.HALF_END: lambda peer, frame: begin_now(
                peer, frame, partial(to.half_endings.end, peer, frame)
            ),
            Command.DETACHED_END: later_for(
                transactions.DetachedEnd,
                lambda peer, end: to.unfenced.end_detached(end, peer.rights),
            ),
            Command.CHECKER: now_for(Empty, to.check_back.here),
            Command.HALF_LIST: later(transactions.HalfFind, to.check_back.find),
            # Consumers and readers.
            Command.JOIN: later_for(pull.Join, consumer.join),
            Command.PULL: consumer.pull,
            Command.ACK: consumer.ack,
            Command.RENEW: now_for(pull.Renew, consumer.renew),
            Command.LEAVE: now_for(pull.Leave, consumer.leave),
            Command.SETTLE: later_for(pull.Settle, to.detached_leases.settle),
            Command.EXTEND: later_for(pull.Extend, to.detached_leases.extend),
            Command.READ: to.read_handler.handle,
            Command.SEEK: later(read.Seek, to.read_handler.seek),
            # Groups.
            Command.GROUP_CREATE: later_for(groups.GroupCreate, admin.create),
            Command.GROUP_LIST: later(groups.GroupFind, admin.groups),
            Command.GROUP_DELETE: later(groups.GroupNamed, admin.delete),
            Command.GROUP_RESET: later(groups.GroupReset, admin.reset),
            Command.GROUP_SET: later(groups.GroupSet, admin.set),
            Command.GROUP_RETRY: later(read.GroupRetry, admin.retry_now),
            Command.GROUP_REPLAY: later(read.GroupReplay, to.group_replays.replay),
            Command.REPLAY_OPEN: later_for(read.ReplayOpen, to.group_replays.open),
            Command.GROUP_KEYS: later(groups.GroupNamed, to.stopped_keys.show),
            Command.KEY_RESUME: later(order_keys.KeyResume, to.stopped_keys.resume),
            Command.CONSUMER_PAUSE: later(ConsumerPause, admin.pause_consumer),
            # What was kept for people.
            Command.DEAD_OPEN: later(dead_letters.DeadFind, to.dead_letter_commands.open),
            Command.DEAD_RESEND: later(dead_letters.DeadHandle, to.dead_letter_commands.resend),
            Command.DEAD_DELETE: later(dead_letters.DeadHandle, to.dead_letter_commands.delete),
            Command.DEAD_GROUPS: later(dead_letters.DeadGroupsFind, to.dead_letter_commands.groups),
            Command.DEAD_RECALL: later(dead_letters.DeadRecall, to.dead_letter_recall.recall),
            Command.REFUSED_OPEN: later(dead_letters.RefusedFind, to.refused_commands.open),
            Command.REFUSED_RESEND: later(dead_letters.RefusedHandle, to.refused_commands.resend),
            Command.REFUSED_DELETE: later(dead_letters.RefusedHandle, to.refused_commands.delete),
            # Members of this broker group, and other brokers.
            Command.FOLLOW: to.members.follow,
            Command.REPLICATED: to.members.replicated,
            Command.HANDOVER: to.members.hand_over,
            Command.SLOTS_OPEN: later(order_keys.SlotsFind, to.slots.open),
            **self._looks(to),
        }

    def _looks(self, to: BrokerHandlers) -> dict[int, Handle]:
        """What changes nothing."""
        now, later = self._now, self._later
        return {
            Command.LEDGER: later(groups.GroupFind, to.status.ledger),
            Command.STATUS: now(StatusQuery, to.status.status),
            Command.TOPIC_FIGURES: later(TopicFiguresFind, to.stats.topics),
            Command.GROUP_FIGURES: later(groups.GroupFind, to.stats.groups),
            Command.GROUP_TIMES: now(groups.GroupNamed, to.stats.times),
            Command.FIND: later(Find, to.lookup.find),
            Command.READ_DELIVERIES: later(read.DeliveriesRead, to.delivery_records.read),
            Command.ROW_STATE: later(rows.MessageStateFind, to.row_looks.states),
            Command.LEASES: later(rows.LeaseFind, to.row_looks.leases),
            Command.WAITING: later(rows.WaitingFind, to.row_looks.waiting),
            Command.TRACE: later(TraceFind, to.delivery_trace.read),
            Command.FIGURES_PAGE: later(FiguresPageFind, to.figure_pages.page),
            Command.FIGURES: later(FiguresFind, to.figure_looks.figures),
            Command.SESSIONS: later(sessions.SessionFind, to.session_looks.sessions),
            Command.SENDERS: later(sessions.SenderFind, to.session_looks.senders),
            Command.DISCONNECT: later(sessions.Disconnect, to.session_looks.disconnect),
        }

    @property
    def commands(self) -> frozenset[int]:
        """What is answered here while the broker leads."""
        return frozenset(self._table)

    def route(self, peer: Peer, frame: Frame) -> None:
        command = frame.command
        if frame.flags & _ONE_WAY and command not in _MAY_BE_ONE_WAY:
            raise ProtocolError(f"{Command(command).name} needs an answer")
        if self._stopping and command not in _WHILE_STOPPING:
            raise Unavailable("the broker is stopping; connect again in a moment")
        handle = self._table.get(command)
        if handle is None:
            raise BadRequest(f"a broker does not answer {Command(command).name}; ask a meta server")
        handle(peer, frame)

    def stop(self) -> None:
        """From here on nothing begins."""
        self._stopping = True

    async def finish(self) -> None:
        """Wait for what has begun."""
        await self._pending_requests.finish()

    # -- kinds of lines

    def _now(self, kind: type[R], answer: Callable[[R], Record]) -> Handle:
        """Answered at once by what the part returns."""
        return self._now_for(kind, lambda _, request: answer(request))

    def _now_for(self, kind: type[R], answer: Callable[[Peer, R], Record]) -> Handle:
        """Answer at once, for a part that is told who asks."""

        def handle(peer: Peer, frame: Frame) -> None:
            record = answer(peer, unpack(frame.payload, kind))
            if not frame.flags & _ONE_WAY:
                peer.answer(frame.command, frame.correlation, pack(record))

        return handle

    def _later(self, kind: type[R], answer: Callable[[R], Awaitable[Record]]) -> Handle:
        """Answered in time by what the part returns."""
        return self._later_for(kind, lambda _, request: answer(request))

    def _later_for(self, kind: type[R], answer: Callable[[Peer, R], Awaitable[Record]]) -> Handle:
        """Answer when it is done, for a part that is told who asks."""

        def handle(peer: Peer, frame: Frame) -> None:
            working = answer(peer, unpack(frame.payload, kind))
            self._pending_requests.begin(peer, frame, working)

        return handle

    def _batch(self, answer: Callable[[Peer, Frame], Awaitable[Record]]) -> Handle:
        """For a command whose payload is a batch."""

        def handle(peer: Peer, frame: Frame) -> None:
            self._pending_requests.begin(peer, frame, answer(peer, frame))

        return handle


def follower_commands(
    read_handler: ReadHandler,
    pending_requests: PendingRequests,
    status: Callable[[StatusQuery], Status],
) -> dict[int, Handle]:
    """The commands of a broker that follows."""

    def seek(peer: Peer, frame: Frame) -> None:
        pending_requests.begin(peer, frame, read_handler.seek(unpack(frame.payload, read.Seek)))

    def say_status(peer: Peer, frame: Frame) -> None:
        record = status(unpack(frame.payload, StatusQuery))
        peer.answer(frame.command, frame.correlation, pack(record))

    return {
        Command.READ: read_handler.handle,
        Command.SEEK: seek,
        Command.STATUS: say_status,
    }
