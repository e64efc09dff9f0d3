"""What a kind of server brings to the roles that all kinds have in common.

A broker and a delay server join groups, lead and follow by the same code. What differs is behind
these protocols: which files they have (`ReplicatedStore`), what they do for clients while they lead
(`LeaderService`), what they still answer while they follow (`FollowerService`).
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ternmq.core.errors import TernError
from ternmq.metrics.samples import Samples
from ternmq.replication.following.replica_writer import ReplicaTarget, ReplicaWriter
from ternmq.replication.leading.leader import Leader
from ternmq.replication.leading.replica_stream import LogSource
from ternmq.replication.member.member_context import MemberContext
from ternmq.rpc.peer import Peer
from ternmq.rpc.server import Listener
from ternmq.storage.log.leader_epochs import Starts
from ternmq.storage.log.recovery_report import RecoveryReport
from ternmq.storage.messages.message_log import OnCorrupt
from ternmq.wire.frame import Frame
from ternmq.wire.messages.hello import ServerRole
from ternmq.wire.messages.standings import BrokerGroupKind
from ternmq.wire.messages.topics import Topic

Loops = Mapping[str, Callable[[], Awaitable[None]]]


class CopiedLog(LogSource, ReplicaTarget, Protocol):
    """A log that a master has and its replicas copy."""

    @property
    def synced_offset(self) -> int:
        """Everything below is on disk."""

    @property
    def acknowledged(self) -> int:
        """Everything below was acknowledged, by what is left on this disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberCommands:
    """What other members ask of a master; its role answers."""

    follow: Callable[[Peer, Frame], None]
    replicated: Callable[[Peer, Frame], None]
    hand_over: Callable[[Peer, Frame], None]


class FrameRouter(Protocol):
    """From a frame to the part that handles it."""

    def route(self, peer: Peer, frame: Frame) -> None: ...


class LeaderService(Protocol):
    """What a master does for clients, from `start` to `close`."""

    @property
    def router(self) -> FrameRouter: ...

    async def start(self) -> None:
        """Be ready for clients."""

    def loops(self) -> Loops:
        """What runs while clients are served."""

    def lost(self, peer: Peer) -> None:
        """A client is gone."""

    def topic_deleted(self, topic: Topic) -> None: ...

    def topic_changed(self, topic: Topic) -> None: ...

    async def scrape(self, out: Samples) -> None: ...

    async def stop(self, listener: Listener) -> None:
        """No new requests; clients are told. Not called where another leads already."""

    async def close(self) -> None:
        """Write what waits; the store stays open."""


class FollowProgress(Protocol):
    """How far a replica is behind and what keeps it, for its status."""

    trouble: str
    """Why it does not follow at present; empty while it does."""

    def lag(self) -> int:
        """Bytes of messages that the master has and this replica has not; -1: not known."""


class FollowerService(Protocol):
    """What a replica does besides copying; it is the role that answers clients, too."""

    epoch: int

    def route(self, peer: Peer, frame: Frame) -> None: ...

    def lost(self, peer: Peer) -> None: ...

    @property
    def failed(self) -> TernError | None:
        """Why this member can not lead any more before a restart, though its logs are whole."""

    def on_safe(self, number: int, advanced: Any) -> None:
        """More of a log counts, as the master says; `advanced` is what `advance` returned."""

    def loops(self, writer: ReplicaWriter) -> Loops:
        """What runs while it follows; files are changed by `ReplicaWriter.alone` only."""

    async def scrape(self, out: Samples) -> None: ...

    async def close(self) -> None: ...


class ReplicatedStore(Protocol):
    """An open store. What blocks is called on another thread than the loop's."""

    @property
    def report(self) -> RecoveryReport: ...

    @property
    def logs(self) -> Mapping[int, CopiedLog]:
        """By number; 0 is the message log."""

    def tables(self) -> dict[int, list[tuple[int, int]]]:
        """Epochs and where they began, by log."""

    def begin_epoch(self, epoch: int) -> None:
        """A new leadership begins at the ends of the logs; blocks, durable."""

    def look(self) -> TernError | None:
        """What says that files were removed under this store, if they were; blocks."""

    def adopt(
        self, cuts: Mapping[int, int], tables: dict[int, Starts], *, waits: bool = True
    ) -> None:
        """Have the master's history and nothing else; blocks. Raises `Diverged` where it lacks what
        was acknowledged; `waits`: masters wait for replicas, so that it must not."""

    def base(self) -> bytes:
        """What a member begins with whose logs end before these begin; does not wait."""

    async def reserve(self, context: MemberContext) -> int:
        """Numbers in the data are never given out again; returns the last epoch in it."""

    def leader_service(
        self, context: MemberContext, leader: Leader, commands: MemberCommands
    ) -> LeaderService:
        """The parts of a master, which hand `commands` to its role; all in the logs counts."""

    def follower_service(self, context: MemberContext, progress: FollowProgress) -> FollowerService:
        """The parts of a replica; how it follows is asked of `progress`."""

    def close(self, *, again: bool) -> None:
        """Blocks. `again`: this process opens it once more, in another role."""


class ServerKind(Protocol):
    """One kind of server, before its store is open."""

    kind: BrokerGroupKind
    role: ServerRole
    """As it says in WELCOME and STATUS."""
    title: str
    """For people."""
    home: Path
    """The folder of its data, where the member file is."""

    def data_epoch(self) -> int:
        """The last epoch that wrote something here, as far as a look tells; 0: nothing. Blocks."""

    def ends(self) -> list[int]:
        """How far its logs go, as far as a look tells; for people. Blocks."""

    def acks_from_memory(self) -> bool:
        """Whether the last stop may have taken what was acknowledged; blocks."""

    def note_acks_from_memory(self, acks_from_memory: bool) -> None:
        """Note if acks come from memory until the store is closed in order; blocks, durable."""

    def open(self, epoch: int, *, suffix: bool, on_corrupt: OnCorrupt) -> ReplicatedStore:
        """Open and recover; blocks. With `suffix` only what is known to be safe is visible.
        `on_corrupt` says what to raise for messages that turn out to be damaged later."""

    def end(self) -> None:
        """No store is opened any more; blocks. The last one may have been closed to be opened
        again."""

    async def reseed(self, context: MemberContext, base: bytes) -> None:
        """Begin with a base of the master, while the store is closed; raises `AlreadyExists` where
        there is something that must not be lost."""
