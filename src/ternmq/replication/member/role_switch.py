"""Lets clients in and hands their frames to whatever role this server has now.

A role is master or replica, and in between none. Whoever came under another role is sent away when
the role changes: producers and consumers find the master by the routes and go on there.
"""

from collections.abc import Callable, Iterable
from typing import Protocol

from ternmq.batch.layout import BATCH_SIZE_MAX
from ternmq.core.errors import NotMaster, Unavailable
from ternmq.core.ids import check_name
from ternmq.core.process import VERSION
from ternmq.rpc.peer import Peer
from ternmq.wire.frame import Frame
from ternmq.wire.messages.hello import PROTOCOL_VERSION, Hello, ServerRole, Welcome
from ternmq.wire.numbers import Command

RouteFrame = Callable[[Peer, Frame], None]
"""Handles one frame; see `rpc.peer.Handler`."""


class Role(Protocol):
    """What answers clients."""

    epoch: int

    def route(self, peer: Peer, frame: Frame) -> None:
        """Handle one frame, until the role hands clients to a part of its own."""

    def lost(self, peer: Peer) -> None:
        """A peer that came under this role is gone."""


class NoRole:
    """Nothing is known yet: clients come again."""

    epoch = 0

    def route(self, peer: Peer, frame: Frame) -> None:
        raise Unavailable("this server is about to begin; try again in a moment")

    def lost(self, peer: Peer) -> None:
        pass


OF_MEMBERS = (Command.FOLLOW, Command.HANDOVER, Command.BASE_OPEN, Command.BASE_READ)
"""What servers ask a master: they are told that this is none."""


class FollowerRouter:
    """The commands that a follower answers; a client that asks for more has to find the master."""

    def __init__(self, table: dict[int, RouteFrame], refusal: str) -> None:
        """`refusal` says whose replica this server is."""
        self._table = table
        self._refusal = refusal

    def route(self, peer: Peer, frame: Frame) -> None:
        handle = self._table.get(frame.command)
        if handle is not None:
            handle(peer, frame)
            return
        error = NotMaster(self._refusal)
        if frame.command in OF_MEMBERS:
            raise error
        peer.close(error)


class RoleSwitch:
    """The handler of a member's listener."""

    frame: RouteFrame

    def __init__(self, broker_group: str, role: ServerRole, *, heartbeat_ms: int) -> None:
        self._broker_group = broker_group
        self._server_role = role
        self._heartbeat_ms = heartbeat_ms
        self._roles: dict[Peer, Role] = {}
        """Under which role each client came."""
        self._enter(NoRole())

    def enter(self, role: Role, peers: Iterable[Peer]) -> None:
        """Whoever is here belongs to this role from now on: they had none before."""
        self._enter(role)
        for peer in peers:
            if peer.hello is not None:
                self._roles[peer] = role

    def serve(self, route: RouteFrame) -> None:
        """From here on this part of the role answers, without a stop on the way."""
        self.frame = route

    def leave(self, peers: Iterable[Peer]) -> None:
        """The role is over: those who came under it have to look who leads now."""
        self._enter(NoRole())
        for peer in list(peers):
            peer.close(NotMaster("this server no longer has its role; ask for routes again"))

    def _enter(self, role: Role) -> None:
        self.role = role
        self.frame = role.route
        self._welcome = Welcome(
            protocol=PROTOCOL_VERSION,
            version=VERSION,
            role=self._server_role,
            node=self._broker_group,
            broker_group=self._broker_group,
            epoch=role.epoch,
            heartbeat_ms=self._heartbeat_ms,
            batch_size_max=BATCH_SIZE_MAX,
        )

    def welcome(self, peer: Peer, hello: Hello) -> Welcome:
        if peer.node is None:
            check_name("application", hello.app)
        self._roles[peer] = self.role
        return self._welcome

    def lost(self, peer: Peer) -> None:
        self._roles.pop(peer, self.role).lost(peer)
