"""The members of broker groups, and orders about which of them leads.

What is known comes from three sides: the standing of a group (who its members are), the routes (who
is there), and each server's own word. An order is checked here before it is given, so that whoever
gives it hears why it is no good; what is safe is decided by meta all the same.
"""

import asyncio
from dataclasses import dataclass

from ternmq.client.transport.cluster import Cluster
from ternmq.core.errors import BadRequest, NotInSync, TernError, Unavailable
from ternmq.rpc.connection import Connection, request
from ternmq.wire.messages.servers import Route
from ternmq.wire.messages.standings import (
    BrokerGroupKind,
    HandedOver,
    Handover,
    Member,
    MemberForget,
    MemberLead,
    Standing,
    StandingFind,
    Standings,
)
from ternmq.wire.messages.stats import Status, StatusQuery
from ternmq.wire.numbers import Command

STATUS_S = 3.0
SERVES_WITHIN_S = 20.0
LOOK_S = 0.1
AWAY = "away"
SILENT = "does not answer"
UNDECIDED = "registry lost, master not decided"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerState:
    """One server of a broker group."""

    group: str
    role: str
    """'master' or 'replica'."""
    epoch: int | None
    """At which it serves; None when it does not answer."""
    state: str
    """'ok', 'draining', or what is wrong; 'away': not running as far as meta knows; 'does not
    answer'."""
    address: str
    pid: int | None
    lag: int | None
    """Bytes that the master has and it has not; None: not known."""
    member: str = ""
    """Its id; empty for a server that joined no group."""
    name: str = ""
    in_sync: bool = True
    """Has all that was ever acknowledged; if its group waits for it."""
    waits: bool = True
    """False: its master acknowledges before replicas have it, so another that leads may lack it."""
    kind: str = "realtime"
    """Of the group: 'realtime' (brokers) or 'delay' (delay servers)."""


class BrokerMembers:
    """The members of all broker groups of one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def standings(self) -> list[Standing]:
        answer = await self._cluster.ask_meta(Command.STANDINGS, StandingFind(), Standings)
        return answer.standings

    async def standing(self, group: str, kind: BrokerGroupKind) -> Standing:
        for each in await self.standings():
            if (each.broker_group, each.kind) == (group, kind) and each.members:
                return each
        what = "delay server" if kind == "delay" else "broker group"
        raise BadRequest(f"no server joined a {what} {group!r}; tern broker list shows them")

    async def states(self, kind: BrokerGroupKind = "realtime") -> list[BrokerState]:
        """Every server, with what it says about itself."""
        standings = [each for each in await self.standings() if each.kind == kind]
        await self._cluster.refresh()
        routes = [route for route in self._cluster.routes() if route.kind == kind]
        there = {route.address for route in routes}
        members = [(standing, member) for standing in standings for member in standing.members]
        joined = {member.address for _, member in members}
        asked = sorted(there | joined)
        words = dict(zip(asked, await asyncio.gather(*map(self._status, asked)), strict=True))
        found = [_of_member(*each, words, there) for each in members]
        found += [_of_route(each, words) for each in routes if each.address not in joined]
        return sorted(found, key=lambda each: (each.group, each.role, each.name, each.address))

    async def promote(
        self,
        group: str,
        member: str | None,
        *,
        force: bool,
        accept_loss: bool,
        kind: BrokerGroupKind,
    ) -> Standing:
        """Make a member the master and wait until it serves."""
        standing = await self.standing(group, kind)
        await self._cluster.refresh()
        if standing.claims and not accept_loss:
            member = standing.members[0].id  # Meta says what is known of each.
        chosen = find_member(standing, member) if member else await self._candidate(standing)
        if chosen.address not in self._addresses() and (accept_loss or not standing.claims):
            raise Unavailable(
                f"{chosen.name} is not running as far as meta knows; start it, then promote it"
            )
        asks = bool(standing.claims) and not accept_loss  # Nobody is promoted.
        if not asks and not await self._answers(chosen):
            # It may have died a moment ago; as master it would take the others out of the set.
            raise Unavailable(
                f"{chosen.name} does not answer at {chosen.address}: nothing was changed. Start "
                "it, or promote another member"
            )
        wanted = MemberLead(
            broker_group=group, kind=kind, member_id=chosen.id, force=force, accept_loss=accept_loss
        )
        await self._cluster.ask_meta(Command.MEMBER_LEAD, wanted, Standing)
        return await self._served(group, kind, chosen)

    async def hand_over(
        self, group: str, member: str | None, *, kind: BrokerGroupKind
    ) -> HandedOver:
        """Ask the master to let another one lead, without losing anything; returns when that one
        serves, with the whole time that messages had to wait."""
        standing = await self.standing(group, kind)
        chosen = find_member(standing, member) if member else None
        if chosen is not None and chosen.id not in standing.in_sync:
            raise NotInSync(f"{chosen.name} is not in sync; wait until it is, then hand over to it")
        if chosen is not None and chosen.id == standing.master:
            raise BadRequest(f"{chosen.name} is the master of {group!r} already")
        if not set(standing.in_sync) - {standing.master}:
            raise NotInSync(f"no other member of {group!r} is in sync, so there is none to lead")
        wanted = Handover(broker_group=group, kind=kind, member_id=chosen.id if chosen else "")
        link = self._cluster.server(group, kind)
        done = await self._cluster.ask(link, Command.HANDOVER, wanted, HandedOver)
        loop = asyncio.get_running_loop()
        began = loop.time()
        now = await self._served(group, kind, find_member(standing, done.member_id))
        paused_ms = done.paused_ms + int((loop.time() - began) * 1000)
        return HandedOver(member_id=done.member_id, epoch=now.epoch, paused_ms=paused_ms)

    async def forget(
        self, group: str, member: str, *, accept_loss: bool, kind: BrokerGroupKind
    ) -> Standing:
        standing = await self.standing(group, kind)
        wanted = MemberForget(
            broker_group=group,
            kind=kind,
            member_id=find_member(standing, member).id,
            accept_loss=accept_loss,
        )
        return await self._cluster.ask_meta(Command.MEMBER_FORGET, wanted, Standing)

    async def _candidate(self, standing: Standing) -> Member:
        """In sync, running, and not the master; one that answers if there is one."""
        others = [each for each in standing.members if each.id != standing.master]
        in_sync = [each for each in others if each.id in standing.in_sync]
        running = [each for each in in_sync if each.address in self._addresses()]
        for each in running:
            if await self._answers(each):
                return each
        if running:
            return running[0]
        reasons = (
            "; ".join(self._unfit(standing, each) for each in others) or "it has no other member"
        )
        raise NotInSync(f"no member of {standing.broker_group!r} can lead: {reasons}")

    def _unfit(self, standing: Standing, member: Member) -> str:
        if member.id not in standing.in_sync:
            return f"{member.name} is not in sync"
        return f"{member.name} is not running"

    def _addresses(self) -> set[str]:
        return {route.address for route in self._cluster.routes()}

    async def _served(self, group: str, kind: BrokerGroupKind, member: Member) -> Standing:
        """Until the routes name it."""
        deadline = asyncio.get_running_loop().time() + SERVES_WITHIN_S
        while True:
            await self._cluster.refresh()
            for route in self._cluster.routes():
                if (route.kind, route.role, route.address) == (kind, "master", member.address):
                    return await self.standing(group, kind)
            if asyncio.get_running_loop().time() > deadline:
                raise Unavailable(
                    f"{member.name} is the master of {group!r} from now on and does not serve "
                    "yet; its log says why"
                )
            await asyncio.sleep(LOOK_S)

    async def _answers(self, member: Member) -> bool:
        """The member itself: with a new disk a server is another one, at the same address."""
        status = await self._status(member.address)
        return status is not None and status.member in ("", member.id)

    async def _status(self, address: str) -> Status | None:
        """On a connection and session of its own: a replica has no link, and a consumer's session
        must not seem to come and go."""
        greeting = self._cluster.greeting_apart()
        try:
            connection = await Connection.open(address, greeting, timeout=STATUS_S)
        except TernError:
            return None
        try:
            return await request(
                connection, Command.STATUS, StatusQuery(), Status, timeout=STATUS_S
            )
        except TernError:
            return None
        finally:
            connection.abort()


def find_member(standing: Standing, wanted: str) -> Member:
    """By name, address, id or the beginning of an id."""
    exact = [each for each in standing.members if wanted in (each.id, each.name, each.address)]
    found = exact or [each for each in standing.members if each.id.startswith(wanted)]
    if len(found) == 1:
        return found[0]
    names = ", ".join(f"{each.name} ({each.id})" for each in standing.members)
    problem = "has several members" if found else "has no member"
    raise BadRequest(f"broker group {standing.broker_group!r} {problem} {wanted!r}; it has {names}")


def _of_member(
    standing: Standing, member: Member, words: dict[str, Status | None], there: set[str]
) -> BrokerState:
    word = words.get(member.address)
    if word is not None and word.member not in ("", member.id):
        word = None  # Another server has the address by now.
    silent = SILENT if member.address in there else AWAY
    leads = standing.master == member.id
    state = word.state if word else silent
    if state == "ok" and standing.claims:
        state = UNDECIDED
    return BrokerState(
        group=standing.broker_group,
        role="master" if leads else "replica",
        epoch=word.epoch if word else None,
        state="draining" if state == "ok" and standing.draining else state,
        address=member.address,
        pid=word.pid if word else None,
        lag=None if word is None or word.lag < 0 else word.lag,
        member=member.id,
        name=member.name,
        in_sync=member.id in standing.in_sync,
        waits=standing.waits,
        kind=standing.kind,
    )


def _of_route(route: Route, words: dict[str, Status | None]) -> BrokerState:
    word = words.get(route.address)
    return BrokerState(
        group=route.broker_group,
        role=route.role,
        epoch=word.epoch if word else None,
        state=word.state if word else SILENT,
        address=route.address,
        pid=word.pid if word else None,
        lag=None if word is None or word.lag < 0 else word.lag,
        kind=route.kind,
    )
