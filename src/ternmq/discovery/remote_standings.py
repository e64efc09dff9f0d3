"""How broker groups stand, as a server far from meta knows it: a copy in memory, changes asked for.

The copy follows the news that `remote_directory` waits for, and every answer to a change of ours.
Answers and news may overtake each other: only a higher version replaces what is known.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence

from ternmq.core.errors import Conflict
from ternmq.discovery.notify import tell_all
from ternmq.wire.messages.standings import (
    BrokerGroupKind,
    Claim,
    InSyncChange,
    InSyncLeave,
    Member,
    MemberForget,
    MemberJoin,
    MemberLead,
    Standing,
    StandingFind,
    Standings,
    standing_of,
)
from ternmq.wire.numbers import Command
from ternmq.wire.record import Record, T


class RemoteStandings(ABC):
    """Implements `discovery.directory.Standings`."""

    def __init__(self) -> None:
        self._standings: dict[tuple[BrokerGroupKind, str], Standing] = {}
        self._told: list[Callable[[Standing], None]] = []

    @abstractmethod
    async def ask(self, command: Command, record: Record, answer: type[T]) -> T:
        """A question to some meta server."""

    def standing(self, broker_group: str, kind: BrokerGroupKind = "realtime") -> Standing | None:
        return self._standings.get((kind, broker_group))

    def standings(self) -> list[Standing]:
        return list(self._standings.values())

    def on_standing_changed(self, callback: Callable[[Standing], None]) -> None:
        self._told.append(callback)

    async def read_standing(
        self, broker_group: str, kind: BrokerGroupKind = "realtime"
    ) -> Standing | None:
        find = StandingFind(broker_group=broker_group, kind=kind, fresh=True)
        found = (await self.ask(Command.STANDINGS, find, Standings)).standings
        self.learn_standings(found)
        return found[0] if found else None

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
        return await self._change(Command.MEMBER_JOIN, wanted)

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
        return await self._change(Command.MEMBER_LEAD, wanted)

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
        return await self._change(Command.IN_SYNC_CHANGE, wanted)

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
        return await self._change(Command.IN_SYNC_LEAVE, wanted)

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
        return await self._change(Command.MEMBER_FORGET, wanted)

    def learn_standings(self, told: Iterable[Standing], *, another: bool = False) -> None:
        """`another`: of another registry, or an older copy, so that lower versions count too."""
        for standing in told:
            key = (standing.kind, standing.broker_group)
            held = self._standings.get(key)
            if held is None or held.version < standing.version or (another and held != standing):
                self._standings[key] = standing
                tell_all(self._told, standing, group=standing.broker_group)

    async def _change(self, command: Command, wanted: Record) -> Standing:
        try:
            standing = await self.ask(command, wanted, Standing)
        except Conflict as error:
            held = standing_of(error)
            if held is not None:
                self.learn_standings([held])
            raise
        self.learn_standings([standing])
        return standing
