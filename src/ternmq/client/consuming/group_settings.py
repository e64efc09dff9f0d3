"""A group's settings, brought to a broker group that does not know the group yet.

Each broker group keeps the settings of groups by itself. A consumer that joins a broker group which
was added later would make its group there with the defaults: a paused group would be handed out, a
limit would not hold. So it first looks how the group is set elsewhere, and makes it so there.
"""

from collections.abc import Sequence
from contextlib import suppress

from ternmq.client.transport.cluster import Cluster
from ternmq.core.errors import AlreadyExists, GroupNotFound, Unavailable
from ternmq.wire.messages.groups import (
    Group,
    GroupCreate,
    GroupFind,
    Groups,
    GroupSet,
    GroupSettings,
)
from ternmq.wire.numbers import Command

CARRIED = tuple(
    name
    for name in GroupSet.__struct_fields__
    if name in GroupSettings.__struct_fields__  # Not the sessions that are paused: they come later.
)


async def carry_settings(
    cluster: Cluster, named: tuple[str, str], target: str, known: Sequence[str]
) -> None:
    """`named` is topic and group; `known` are broker groups that may have it."""
    topic, group = named
    if await _settings(cluster, target, topic, group) is not None:
        return
    for other in known:
        with suppress(Unavailable):
            settings = await _settings(cluster, other, topic, group)
            if settings is not None:
                await _set(cluster, target, named, settings)
                return


async def _settings(cluster: Cluster, at: str, topic: str, group: str) -> GroupSettings | None:
    find = GroupFind(topic=topic, group=group)
    try:
        answer = await cluster.ask(cluster.broker(at), Command.GROUP_LIST, find, Groups)
    except GroupNotFound:
        return None
    found = [each.settings for each in answer.groups if each.ledger.lane == "topic"]
    return found[0] if found else None


async def _set(cluster: Cluster, at: str, named: tuple[str, str], settings: GroupSettings) -> None:
    changed = {
        name: getattr(settings, name)
        for name in CARRIED
        if getattr(settings, name) != getattr(GroupSettings(), name)
    }
    if not changed:
        return
    topic, group = named
    link = cluster.broker(at)
    create = GroupCreate(topic=topic, group=group)  # It misses nothing that is there.
    with suppress(AlreadyExists):
        await cluster.ask(link, Command.GROUP_CREATE, create, Group)
    wanted = GroupSet(topic=topic, group=group, **changed)
    await cluster.ask(link, Command.GROUP_SET, wanted, Group)
