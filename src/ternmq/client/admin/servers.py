"""Servers: their status, which of them leads, draining and forgetting them."""

from collections.abc import Sequence

from ternmq.client.admin.broker_members import BrokerMembers, BrokerState
from ternmq.client.admin.drain import DrainProgress, look, look_delay
from ternmq.client.admin.placement import PlacementAdmin
from ternmq.client.model.arguments import typed_calls
from ternmq.rpc.connection import Connection, request
from ternmq.wire.messages.servers import Route
from ternmq.wire.messages.standings import BrokerGroupDrain, BrokerGroupKind, HandedOver, Standing
from ternmq.wire.messages.stats import (
    Status,
    StatusQuery,
)
from ternmq.wire.numbers import Command


@typed_calls
class ServerAdmin(PlacementAdmin):
    """Calls about brokers, delay servers and meta servers."""

    async def broker_groups(self) -> list[str]:
        """All broker groups that hold messages, also those that are away."""
        return await self._fan_out.groups()

    async def broker_status(self, topics: Sequence[str] = ()) -> list[Status]:
        """What every broker says about itself, and holds of these topics."""
        query = StatusQuery(topics=list(topics))
        return list((await self._fan_out.ask(Command.STATUS, query, Status)).values())

    async def meta_status(self, address: str = "") -> Status:
        """What a meta server says about itself: the one at `address`, or whichever answers."""
        cluster, query = self._cluster, StatusQuery()
        if not address:
            return await cluster.ask_meta(Command.STATUS, query, Status)
        greeting = cluster.greeting_apart()
        connection = await Connection.open(address, greeting, timeout=cluster.timeout)
        try:
            return await request(connection, Command.STATUS, query, Status, timeout=cluster.timeout)
        finally:
            connection.abort()

    async def brokers(self, kind: BrokerGroupKind = "realtime") -> list[BrokerState]:
        """Every server of every broker group, running or not, with what it says; with kind "delay"
        the same of delay servers."""
        return await BrokerMembers(self._cluster).states(kind)

    async def standings(self) -> list[Standing]:
        """How broker groups and groups of delay servers stand: members, master, in-sync set."""
        return await BrokerMembers(self._cluster).standings()

    async def promote(
        self,
        group: str,
        member: str | None = None,
        force: bool = False,
        accept_loss: bool = False,
        kind: BrokerGroupKind = "realtime",
    ) -> Standing:
        """Make a member of a broker group its master, and wait until it serves; None: one that is
        in sync. `force`: although the master may be alive; it stops acknowledging. `accept_loss`:
        although the member is not in sync; what it lacks of acknowledged messages is lost."""
        return await BrokerMembers(self._cluster).promote(
            group, member, force=force, accept_loss=accept_loss, kind=kind
        )

    async def handover(
        self, group: str, member: str | None = None, kind: BrokerGroupKind = "realtime"
    ) -> HandedOver:
        """Let another in-sync member lead; nothing is lost, sending pauses for a moment."""
        return await BrokerMembers(self._cluster).hand_over(group, member, kind=kind)

    async def forget_member(
        self, group: str, member: str, accept_loss: bool = False, kind: BrokerGroupKind = "realtime"
    ) -> Standing:
        """A member of a broker group is gone for good. `accept_loss`: although it is the last one
        in sync, so that the group's messages are gone with it."""
        return await BrokerMembers(self._cluster).forget(
            group, member, accept_loss=accept_loss, kind=kind
        )

    async def drain(
        self, broker_group: str, undo: bool = False, kind: BrokerGroupKind = "realtime"
    ) -> DrainProgress:
        """Let producers move away from a broker group, for good or until `undo`; what is there is
        still handed out. `drain_progress` says when it is safe to stop."""
        wanted = BrokerGroupDrain(broker_group=broker_group, kind=kind, draining=not undo)
        await self._cluster.ask_meta(Command.BROKER_GROUP_DRAIN, wanted, Standing)
        if kind == "realtime" and not undo and (await self.placement()).owners:
            await self.balance_slots(leaving=[broker_group])
        return await self.drain_progress(broker_group, kind)

    async def drain_progress(
        self, broker_group: str, kind: BrokerGroupKind = "realtime"
    ) -> DrainProgress:
        """What a broker group still holds that has to be delivered first."""
        return await (look_delay if kind == "delay" else look)(self._cluster, broker_group)

    async def routes(self) -> list[Route]:
        """The servers that clients use, asked of a meta server now."""
        await self._cluster.refresh()
        return self._cluster.routes()
