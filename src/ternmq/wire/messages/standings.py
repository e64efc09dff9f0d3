"""Standings of broker groups: the members, the master, and the members in sync.

A standing is changed only by compare-and-set on its `version`, in the registry. Servers ask for
changes (STANDING_*), people too; all hear of them with TOPIC_NEWS.
"""

from typing import Any, Literal

import msgspec

from ternmq.core.errors import Conflict
from ternmq.wire.record import Number, Record

BrokerGroupKind = Literal["realtime", "delay"]


class Member(Record, frozen=True):
    """One server of a broker group."""

    id: str
    """16 hex digits, made together with its data directory and never used for another."""
    name: str
    """For people."""
    address: str


class Standing(Record, frozen=True):
    """A broker group at one version."""

    broker_group: str
    kind: BrokerGroupKind = "realtime"
    version: Number = 0
    """Grows with each change; 0: not stored yet."""
    epoch: Number = 0
    """Of the leadership of `master`; 0 before the first."""
    master: str = ""
    """Member id; empty: nobody leads."""
    in_sync: list[str] = []
    """Member ids. Each has all that was ever acknowledged, so each may lead."""
    members: list[Member] = []
    draining: bool = False
    """It is about to be stopped for good: nothing new is sent to it."""
    line: str = ""
    """The registry in which the group began: two groups of one name are told apart by it."""
    claims: "list[Claim]" = []
    """The registry knows less than its members, and this is what they know. While there are any
    nobody is told to act: master and set are not decided."""
    waits: bool = True
    """A message is acknowledged when all of `in_sync` have it. False (`replica_ack = "none"`): when
    its master has it, so another one that leads may lack some."""

    def member(self, member_id: str) -> Member | None:
        return next((each for each in self.members if each.id == member_id), None)


class Claim(Record, frozen=True):
    """What a member's own disk says about its group."""

    member: str
    """Id; empty: the registry said so itself before it was found to be older."""
    held: Standing
    """The last standing that it acted on, without claims."""
    accepted_epoch: Number = 0
    data_epoch: Number = 0
    """The last one that wrote something there; 0: there is nothing."""
    ends: list[Number] = []
    """How far its logs go: messages, consumption; as far as a look at the files tells."""
    lacks: bool = False
    """A crash may have taken what it answered for from memory."""


class StandingFind(Record, frozen=True):
    """One standing, or all of them with an empty name."""

    broker_group: str = ""
    kind: BrokerGroupKind = "realtime"
    fresh: bool = False
    """Read it from the registry instead of memory."""


class Standings(Record, frozen=True):
    standings: list[Standing]


class MemberJoin(Record, frozen=True):
    broker_group: str
    kind: BrokerGroupKind
    member: Member
    data_epoch: Number = 0
    claim: Claim | None = None
    """None: this directory never was a member, or one of an earlier release."""


class MemberLead(Record, frozen=True):
    broker_group: str
    kind: BrokerGroupKind
    member_id: str
    force: bool = False
    """Although the master is alive: it agreed, or a person decided."""
    accept_loss: bool = False
    """Although the member is not in sync: what it lacks is lost."""


class InSyncChange(Record, frozen=True):
    broker_group: str
    kind: BrokerGroupKind
    epoch: Number
    in_sync: list[str]
    version: Number
    waits: bool = True


class InSyncLeave(Record, frozen=True):
    broker_group: str
    kind: BrokerGroupKind
    member_id: str
    epoch_seen: Number
    surely: bool = False
    """It is about to have nothing: no change that was asked for before may add it either."""


class MemberForget(Record, frozen=True):
    broker_group: str
    kind: BrokerGroupKind
    member_id: str
    accept_loss: bool = False


class Handover(Record, frozen=True):
    """Asked of a master: let another member lead, without losing anything."""

    broker_group: str
    kind: BrokerGroupKind = "realtime"
    member_id: str = ""
    """Empty: whom the master thinks best."""


class HandedOver(Record, frozen=True):
    member_id: str
    epoch: Number
    paused_ms: Number
    """For how long messages waited for the old master; they then wait until the new one serves."""


class BrokerGroupDrain(Record, frozen=True):
    """Let producers move away from a broker group, or (`draining` false) come back."""

    broker_group: str
    kind: BrokerGroupKind = "realtime"
    draining: bool = True


def conflict(message: str, standing: Standing) -> Conflict:
    """The error that carries how the group stands instead."""
    return Conflict(message, standing=msgspec.to_builtins(standing))


def standing_of(error: Conflict) -> Standing | None:
    """What a `Conflict` carries, from here or from the other side of a connection."""
    standing: Any = error.details.get("standing")
    return None if standing is None else msgspec.convert(standing, Standing)
