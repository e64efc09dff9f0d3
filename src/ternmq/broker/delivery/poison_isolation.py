"""Isolation: a row that may have killed its consumer is tried by one that holds nothing else.

`groups/poison.py` says which rows are suspects; this says who may be given what. While a suspect is
ready, one connection that could take it gets nothing more (it *drains*); as soon as a connection
holds nothing at all, of any group, it gets one suspect, and nothing else until that row is settled
or lost. The other connections go on as if nothing had happened. So whatever a vanished consumer
held, there is never more than one row that is blamed for it.

Only looks and notes; `PullHandler` acts.
"""

from enum import Enum

from ternmq.broker.groups.consumer_group import ClientState, ConsumerGroup, ConsumerSession


class PoisonIsolation(Enum):
    """What a connection may be given, unless it is one group's suspect."""

    ANYTHING = 1
    NOTHING = 2


def admit(consumer: ConsumerSession) -> PoisonIsolation | ConsumerGroup:
    """What this consumer may be given now; a group means: one suspect of it, alone."""
    client = consumer.client
    if _is_alone(client):
        return PoisonIsolation.NOTHING
    session = consumer.session.hex()
    wanting = next(
        (g for g in consumer.groups if wants(g) and session not in g.settings.paused_sessions), None
    )
    if wanting is None:
        return PoisonIsolation.NOTHING if _drains(client) else PoisonIsolation.ANYTHING
    if consumer.detached or not holds_anything(client):
        return wanting  # Who handles what is handed out detached does not die with a connection.
    if wanting.quiet is None or not _takes_part(wanting, wanting.quiet):
        wanting.quiet = client
    if wanting.quiet is client:
        client.draining = wanting
    return PoisonIsolation.NOTHING if _drains(client) else PoisonIsolation.ANYTHING


def wants(group: ConsumerGroup) -> bool:
    """Has this group a suspect that is ready?"""
    suspects = group.lane.poison.suspects
    if not len(suspects) or group.settings.paused or group.halted or group.deleted:
        return False
    if group.order is not None:
        return group.order.suspect(suspects) is not None
    return group.lane.suspect() is not None


def note_alone(consumer: ConsumerSession, group: ConsumerGroup, lease: int) -> None:
    """A suspect was handed out: its consumer gets nothing else while it holds it."""
    group.quiet = None
    if not consumer.detached:
        consumer.client.alone = (group.lane, lease)


def isolating(client: ClientState) -> bool:
    """Is something held back from this connection, so that an ack of it changes that?"""
    return client.alone is not None or client.draining is not None


def holds_anything(client: ClientState) -> bool:
    consumers = client.consumers
    lanes = {id(group.lane): group.lane for c in consumers.values() for group in c.groups}
    return any(
        lease.owner in consumers for lane in lanes.values() for lease in lane.leases.values()
    )


def _is_alone(client: ClientState) -> bool:
    if client.alone is None:
        return False
    lane, lease = client.alone
    if lease in lane.leases:
        return True
    client.alone = None
    return False


def _drains(client: ClientState) -> bool:
    group = client.draining
    if group is None:
        return False
    if group.quiet is client and wants(group) and _takes_part(group, client):
        return True
    client.draining = None
    if group.quiet is client:
        group.quiet = None
    return False


def _takes_part(group: ConsumerGroup, client: ClientState) -> bool:
    return any(consumer.client is client for consumer in group.consumers.values())
