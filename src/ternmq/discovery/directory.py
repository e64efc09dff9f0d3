"""What servers may ask about names. Meta implements it in process; `remote_directory` implements
the part about topics over the network.

Looking up a topic never waits: the directory keeps a copy of all live topics in memory. Ids are
never reused, so what was stored under a deleted topic or group can not come back with a new one.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ternmq.wire.messages.order_keys import PlaceChange, Placed, Placement
from ternmq.wire.messages.standings import BrokerGroupKind, Claim, Member, Standing
from ternmq.wire.messages.topics import Topic, TopicSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class InUse:
    """Numbers that the data of a broker uses, whatever the registry says."""

    broker_group: str
    topic_ids: frozenset[int]
    group_id: int
    """The highest."""
    epoch: int
    kind: BrokerGroupKind = "realtime"
    names: Mapping[int, str] = field(default_factory=dict)
    """Of those topics whose name the data knows."""


class TopicDirectory(Protocol):
    """Topics: all that a delay server asks about names."""

    def topic(self, name: str, /) -> Topic | None:
        """The live topic of that name, from memory."""

    def topics(self) -> list[Topic]:
        """All live topics, our own (`%`) included."""

    async def create_topic(self, name: str, settings: TopicSettings) -> Topic:
        """Make a topic, or return the one that is there; raises `BadName`."""

    async def gone_topics(self, ids: Collection[int]) -> frozenset[int]:
        """Which of these were deleted, by the registry itself; of others nobody can say so."""

    def on_topic_deleted(self, callback: Callable[[Topic], None]) -> None:
        """Call `callback` on the loop whenever a topic was deleted, from wherever it was asked."""

    def on_topic_changed(self, callback: Callable[[Topic], None]) -> None:
        """Call this whenever a topic's settings were changed, with the topic as it is now."""


class Directory(TopicDirectory, Protocol):
    """Topics, group ids, epochs, and where messages go."""

    def placement(self) -> Placement | None:
        """Where messages go, from memory; None before the first order key."""

    async def place(self, wanted: PlaceChange) -> Placed:
        """Read it from the registry, or change it there; raises `BadRequest`."""

    async def delete_topic(self, name: str) -> Topic:
        """Delete a topic and its groups; raises `TopicNotFound`."""

    async def group_id(self, topic_id: int, group: str) -> int:
        """The group's id on this topic; a new one if needed. Raises `TopicNotFound`, `BadName`."""

    async def forget_group(self, topic_id: int, group: str) -> None:
        """Delete a group; the same name gets a new id next time. Forgetting an unknown group does
        nothing."""

    async def reserve(self, used: InUse) -> frozenset[int]:
        """Only give out larger numbers than these from now on, durably. Asked by a broker that
        starts, before it serves. Returns topic ids that have messages or groups and were never
        heard of: the registry is older than the data. Raises `Conflict` where a number is another
        topic's in the registry than in the data: they are not of one cluster."""


class StandingsDirectory(Protocol):
    """How broker groups stand: what their members ask. Every change is a compare-and-set in the
    registry. `Unavailable` from one of them means that the outcome is unknown until a version
    higher than the one before was seen."""

    def standing(self, broker_group: str, kind: BrokerGroupKind = "realtime") -> Standing | None:
        """The last known one, from memory; None: no member ever joined."""

    def standings(self) -> list[Standing]:
        """All of them, from memory."""

    def on_standing_changed(self, callback: Callable[[Standing], None]) -> None:
        """Call `callback` on the loop with every standing that is new or another one."""

    async def read_standing(
        self, broker_group: str, kind: BrokerGroupKind = "realtime"
    ) -> Standing | None:
        """The standing as the registry has it now."""

    async def join_group(
        self,
        broker_group: str,
        kind: BrokerGroupKind,
        member: Member,
        *,
        data_epoch: int = 0,
        claim: Claim | None = None,
    ) -> Standing:
        """Become a member, or say a new name or address. The first member ever is in sync, unless
        the group had a life before that this one has nothing of: `data_epoch`, the last epoch in
        its own logs, is 0. `claim`: what its disk says; where the registry knows less, all members
        together can prove how the group stood. Raises `AlreadyExists` while the same member runs
        elsewhere."""

    async def lead(
        self,
        broker_group: str,
        member_id: str,
        *,
        kind: BrokerGroupKind = "realtime",
        force: bool = False,
        accept_loss: bool = False,
    ) -> Standing:
        """Be the master at a new epoch. Raises `NotInSync`, `MasterAlive`."""

    async def change_in_sync(
        self,
        broker_group: str,
        *,
        epoch: int,
        in_sync: Sequence[str],
        version: int,
        waits: bool = True,
        kind: BrokerGroupKind = "realtime",
    ) -> Standing:
        """Asked by the master of that epoch that knows that version. Raises `Conflict`, which
        carries the standing (`standing_of`)."""

    async def leave_in_sync(
        self,
        broker_group: str,
        member_id: str,
        epoch_seen: int,
        *,
        kind: BrokerGroupKind = "realtime",
        surely: bool = False,
    ) -> Standing:
        """A member takes itself out, and stops being master; never the last one (`Conflict`).
        `surely`: no change that was asked for before can add it again."""

    async def forget_member(
        self,
        broker_group: str,
        member_id: str,
        *,
        kind: BrokerGroupKind = "realtime",
        accept_loss: bool = False,
    ) -> Standing:
        """A member is gone for good. Raises `AlreadyExists`, `NotInSync`, `BadRequest`."""


class ClusterDirectory(Directory, StandingsDirectory, Protocol):
    """All that a broker asks."""

    def silent_s(self) -> float:
        """For how many seconds nobody could say what is in the registry."""
