"""From a frame to the part that handles it. A command is one line in one table.

PUBLISH, PULL, ACK and READ are answered by their parts whenever they are ready; the other commands
are asked rarely and answered by whatever their part returns. Never waits: what takes time becomes
a task that is owned here and waited for at the end.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import structlog

from ternmq.broker.admin import Admin
from ternmq.broker.deliver import Deliverer
from ternmq.broker.groups import Member
from ternmq.broker.members import Members, members_of
from ternmq.broker.publish import Publisher
from ternmq.broker.read import Reader
from ternmq.broker.settle import Settler
from ternmq.broker.topics import Topics
from ternmq.core.errors import BadRequest, Closed, ProtocolError, TernError
from ternmq.rpc.peer import Peer
from ternmq.wire import commands as wire
from ternmq.wire.commands import Command, Flag, pack, unpack
from ternmq.wire.frame import Frame

log = structlog.get_logger()

_ONE_WAY = int(Flag.ONE_WAY)
Hot = Callable[[Peer, Frame], None]
Slow = Callable[[Peer, Any], Awaitable[wire.Record]]
Plain = Callable[[Peer, Any], wire.Record]


class Router:
    """Frames in, parts called."""

    def __init__(
        self,
        *,
        publisher: Publisher,
        deliverer: Deliverer,
        settler: Settler,
        members: Members,
        reader: Reader,
        admin: Admin,
        topics: Topics,
        status: Callable[[wire.StatusQuery], wire.Status],
    ) -> None:
        self._deliverer = deliverer
        self._settler = settler
        self._members = members
        self._reader = reader
        self._topics = topics
        self._tasks: set[asyncio.Task[None]] = set()
        self.stopping = False
        self._hot: dict[int, Hot] = {
            Command.PUBLISH: publisher.publish,
            Command.PULL: self._pull,
            Command.ACK: self._ack,
            Command.READ: self._read,
        }
        self._plain: dict[int, tuple[type[wire.Record], Plain]] = {
            Command.RENEW: (wire.Renew, self._renew),
            Command.LEAVE: (wire.Leave, self._leave),
            Command.GROUP_LIST: (wire.GroupFind, lambda _, request: admin.groups(request)),
            Command.LEDGER: (wire.GroupFind, lambda _, request: admin.ledger(request)),
            Command.SEEK: (wire.Seek, lambda _, request: admin.seek(request)),
            Command.STATUS: (wire.StatusQuery, lambda _, request: status(request)),
        }
        self._slow: dict[int, tuple[type[wire.Record], Slow]] = {
            Command.JOIN: (wire.Join, members.join),
            Command.GROUP_CREATE: (wire.GroupCreate, lambda _, request: admin.create(request)),
            Command.GROUP_DELETE: (wire.GroupNamed, lambda _, request: admin.delete(request)),
            Command.GROUP_RESET: (wire.GroupReset, lambda _, request: admin.reset(request)),
        }

    def route(self, peer: Peer, frame: Frame) -> None:
        command = frame.command
        if self.stopping:
            raise Closed("the broker is stopping; connect again in a moment")
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
        self._start(self._answer_later(peer, frame, slow[1](peer, request)))

    async def finish(self) -> None:
        """Wait for what has begun."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _answer_later(
        self, peer: Peer, frame: Frame, working: Awaitable[wire.Record]
    ) -> None:
        try:
            answer = await working
        except TernError as error:
            peer.fail(frame.command, frame.correlation, error)
        except Exception:
            log.exception("request failed by a bug", command=frame.command)
            sorry = TernError("the server failed to handle this request; its log says why")
            peer.fail(frame.command, frame.correlation, sorry)
        else:
            peer.answer(frame.command, frame.correlation, pack(answer))

    def _start(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- consumers

    def _member(self, peer: Peer, subscription: int) -> Member:
        member = members_of(peer).get(subscription)
        if member is None:
            raise BadRequest(f"subscription {subscription} is not of this connection; join first")
        return member

    def _pull(self, peer: Peer, frame: Frame) -> None:
        request = unpack(frame.payload, wire.Pull)
        member = self._member(peer, request.subscription)
        if request.done:
            self._settler.settle(member, request.done)
        self._deliverer.pull(member, frame.correlation, request)

    def _ack(self, peer: Peer, frame: Frame) -> None:
        request = unpack(frame.payload, wire.Ack)
        member = self._member(peer, request.subscription)
        if frame.flags & _ONE_WAY:
            self._settler.settle(member, request.done)
        else:
            self._settler.answer(peer, frame.correlation, member, request.done)

    def _renew(self, peer: Peer, request: wire.Renew) -> wire.Record:
        return self._members.renew(self._member(peer, request.subscription), request.leases)

    def _leave(self, peer: Peer, request: wire.Leave) -> wire.Record:
        member = members_of(peer).get(request.subscription)
        if member is not None:
            self._members.leave(peer, member)
        return wire.Empty()

    def _read(self, peer: Peer, frame: Frame) -> None:
        if frame.flags & _ONE_WAY:
            raise ProtocolError("a read without an answer makes no sense")
        request = unpack(frame.payload, wire.Read)
        topic = self._topics.get(request.topic)
        self._topics.check_app(topic, peer)
        self._reader.read(peer, frame.correlation, topic.id, request)
