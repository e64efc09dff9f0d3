"""Isolation: a row that may have killed its consumer is tried by one that holds nothing else.

`losses` says which rows are suspects; this says who may be given what. While a suspect is ready,
one connection that could take it gets nothing more (it *drains*); as soon as a connection holds
nothing at all, of any group, it gets one suspect, and nothing else until that row is settled or
lost. The other connections go on as if nothing had happened. So whatever a vanished consumer held,
there is never more than one row that is blamed for it.

Only looks and notes; the deliverer acts.
"""

from enum import Enum

from ternmq.broker.groups.groups import ConsumerGroup, ConsumerSession
from ternmq.broker.groups.lane import Lane
from ternmq.rpc.peer import Peer

_ALONE = "alone"
_DRAINING = "draining"


class PoisonIsolation(Enum):
    """What a connection may be given, unless it is one group's suspect."""

    ANYTHING = 1
    NOTHING = 2


def admit(member: ConsumerSession) -> PoisonIsolation | ConsumerGroup:
    """What this consumer may be given now; a group means: one suspect of it, alone."""
    peer = member.peer
    if _is_alone(peer):
        return PoisonIsolation.NOTHING
    session = member.session.hex()
    wanting = next(
        (g for g in member.groups if wants(g) and session not in g.settings.paused_sessions), None
    )
    if wanting is None:
        return PoisonIsolation.NOTHING if _drains(peer) else PoisonIsolation.ANYTHING
    if not holds_anything(peer):
        return wanting
    if wanting.quiet is None or not _takes_part(wanting, wanting.quiet):
        wanting.quiet = peer
    if wanting.quiet is peer:
        peer.attachments[_DRAINING] = wanting
    return PoisonIsolation.NOTHING if _drains(peer) else PoisonIsolation.ANYTHING


def wants(group: ConsumerGroup) -> bool:
    """Has this group a suspect that is ready?"""
    suspects = group.lane.losses.suspects
    if not len(suspects) or group.settings.paused or group.halted or group.deleted:
        return False
    if group.order is not None:
        return group.order.suspect(suspects) is not None
    return group.lane.suspect() is not None


def note_alone(member: ConsumerSession, group: ConsumerGroup, lease: int) -> None:
    """A suspect was handed out: its consumer gets nothing else while it holds it."""
    group.quiet = None
    member.peer.attachments[_ALONE] = (group.lane, lease)


def isolating(peer: Peer) -> bool:
    """Is something held back from this connection, so that a verdict of it changes that?"""
    return _ALONE in peer.attachments or _DRAINING in peer.attachments


def holds_anything(peer: Peer) -> bool:
    members: dict[int, ConsumerSession] = peer.attachments.get("members", {})
    lanes = {id(group.lane): group.lane for m in members.values() for group in m.groups}
    return any(lease.owner in members for lane in lanes.values() for lease in lane.leases.values())


def _is_alone(peer: Peer) -> bool:
    noted: tuple[Lane, int] | None = peer.attachments.get(_ALONE)
    if noted is None:
        return False
    lane, lease = noted
    if lease in lane.leases:
        return True
    del peer.attachments[_ALONE]
    return False


def _drains(peer: Peer) -> bool:
    group: ConsumerGroup | None = peer.attachments.get(_DRAINING)
    if group is None:
        return False
    if group.quiet is peer and wants(group) and _takes_part(group, peer):
        return True
    del peer.attachments[_DRAINING]
    if group.quiet is peer:
        group.quiet = None
    return False


def _takes_part(group: ConsumerGroup, peer: Peer) -> bool:
    return any(member.peer is peer for member in group.members.values())
