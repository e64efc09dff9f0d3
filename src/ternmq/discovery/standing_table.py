"""How all broker groups stand, in memory, and the requests that change it.

A request is a record of the wire. The directory of a meta server carries it out in the registry; a
server far from meta sends it there (`change_standing`). Answers and news may overtake each other,
so only a higher version replaces what is known.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence

from ternmq.discovery.callbacks import tell_all
from ternmq.wire.messages.standings import (
    BrokerGroupDrain,
    BrokerGroupKind,
    Claim,
    InSyncChange,
    InSyncLeave,
    Member,
    MemberForget,
    MemberJoin,
    MemberLead,
    Standing,
)

StandingRequest = (
    MemberJoin | MemberLead | MemberForget | InSyncChange | InSyncLeave | BrokerGroupDrain
)


class StandingTable(ABC):
    """Implements `discovery.directory.StandingsDirectory`, all but `read_standing`."""

    def __init__(self) -> None:
        super().__init__()
        self._standings: dict[tuple[BrokerGroupKind, str], Standing] = {}
        self._standing_callbacks: list[Callable[[Standing], None]] = []

    @abstractmethod
    async def change_standing(self, wanted: StandingRequest) -> Standing:
        """Have the registry do it, and learn how the broker group stands then."""

    def standing(self, broker_group: str, kind: BrokerGroupKind = "realtime") -> Standing | None:
        return self._standings.get((kind, broker_group))

    def standings(self) -> list[Standing]:
        return list(self._standings.values())

    def on_standing_changed(self, callback: Callable[[Standing], None]) -> None:
        self._standing_callbacks.append(callback)

    def learn_standings(self, standings: Iterable[Standing], *, another: bool = False) -> None:
        """`another`: of another registry, or an older copy, so that lower versions count too."""
        for standing in standings:
            key = (standing.kind, standing.broker_group)
            held = self._standings.get(key)
            if held is None or held.version < standing.version or (another and held != standing):
                self._standings[key] = standing
                tell_all(self._standing_callbacks, standing, group=standing.broker_group)

    async def join_group(
        self,
        broker_group: str,
        kind: BrokerGroupKind,
        member: Member,
        *,
        data_epoch: int = 0,
        claim: Claim | None = None,
    ) -> Standing:
        wanted = MemberJoin(
            broker_group=broker_group, kind=kind, member=member, data_epoch=data_epoch, claim=claim
        )
        return await self.change_standing(wanted)

    async def lead(
        self,
        broker_group: str,
        member_id: str,
        *,
        kind: BrokerGroupKind = "realtime",
        force: bool = False,
        accept_loss: bool = False,
    ) -> Standing:
        wanted = MemberLead(
            broker_group=broker_group,
            kind=kind,
            member_id=member_id,
            force=force,
            accept_loss=accept_loss,
        )
        return await self.change_standing(wanted)

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
        wanted = InSyncChange(
            broker_group=broker_group,
            kind=kind,
            epoch=epoch,
            in_sync=list(in_sync),
            version=version,
            waits=waits,
        )
        return await self.change_standing(wanted)

    async def leave_in_sync(
        self,
        broker_group: str,
        member_id: str,
        epoch_seen: int,
        *,
        kind: BrokerGroupKind = "realtime",
        surely: bool = False,
    ) -> Standing:
        wanted = InSyncLeave(
            broker_group=broker_group,
            kind=kind,
            member_id=member_id,
            epoch_seen=epoch_seen,
            surely=surely,
        )
        return await self.change_standing(wanted)

    async def forget_member(
        self,
        broker_group: str,
        member_id: str,
        *,
        kind: BrokerGroupKind = "realtime",
        accept_loss: bool = False,
    ) -> Standing:
        wanted = MemberForget(
            broker_group=broker_group, kind=kind, member_id=member_id, accept_loss=accept_loss
        )
        return await self.change_standing(wanted)
