"""A group's settings: brought to a broker group that does not know them yet, or said by the code.

What a consumer declares (`retry=`, `rate=` …) is set when it starts: before it joins where the
group is there, else right after. Who comes back after a lost connection sets nothing: an operator
may have changed it meanwhile. What the code changes is logged once: as a warning where somebody had
set something else.

Each broker group keeps the settings of groups by itself. A consumer that joins a broker group which
was added later would make its group there with the defaults: a paused group would be handed out, a
limit would not hold. So it first looks how the group is set elsewhere, and makes it so there.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress

from ternmq.client.consuming.subscription_plan import SubscriptionPlan
from ternmq.client.transport.cluster import Cluster
from ternmq.core.errors import AlreadyExists, GroupNotFound, TopicNotFound, Unavailable
from ternmq.core.log import get_logger
from ternmq.wire.messages.groups import (
    Group,
    GroupCreate,
    GroupFind,
    Groups,
    GroupSet,
    GroupSettings,
)
from ternmq.wire.numbers import Command

log = get_logger()

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


async def declare_settings(
    cluster: Cluster, at: str, plan: SubscriptionPlan, reported: set[str]
) -> bool:
    """Set on one broker group what the code says; False: a topic's group is not there yet. `told`
    remembers what was logged, for one start of a consumer."""
    there = True
    for topic in plan.topics if plan.declared else ():
        try:
            settings = await _settings(cluster, at, topic, plan.group)
        except TopicNotFound:
            settings = None
        if settings is None:
            there = False
            continue
        changed = {
            name: value for name, value in plan.declared.items() if getattr(settings, name) != value
        }
        if changed:
            wanted = GroupSet(topic=topic, group=plan.group, **changed)
            await cluster.ask(cluster.broker(at), Command.GROUP_SET, wanted, Group)
            _tell(wanted, changed, settings, reported)
    return there


def _tell(
    group: GroupSet, changed: Mapping[str, object], before: GroupSettings, reported: set[str]
) -> None:
    if group.topic in reported:
        return
    reported.add(group.topic)
    drifted = [name for name in changed if getattr(before, name) != getattr(GroupSettings(), name)]
    say = log.warning if drifted else log.info
    say(
        "the group was set otherwise; what the code declares holds now"
        if drifted
        else "the group is set as the code declares",
        topic=group.topic,
        group=group.group,
        changed={name: f"{getattr(before, name)} -> {value}" for name, value in changed.items()},
    )


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
