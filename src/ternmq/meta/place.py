"""PLACE: the placement of a cluster, read from the registry and changed there.

It is the settings of one topic of our own, so a change is one transaction of the registry, whatever
kind that is, and everybody learns of it as of any topic. Two meta servers that change it at once
change it one after the other.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from ternmq.core.log import get_logger
from ternmq.discovery.hidden_topics import PLACEMENT
from ternmq.meta.placement import changed
from ternmq.meta.registries.registry import Change
from ternmq.meta.registry_changes import RegistryChanges
from ternmq.wire.messages.order_keys import PlaceChange, Placed, Placement
from ternmq.wire.messages.topics import Topic, TopicSettings

log = get_logger()


class ChangesTopics(Protocol):
    """What is needed of the directory."""

    @property
    def news(self) -> RegistryChanges: ...

    def topic(self, name: str, /) -> Topic | None: ...

    async def create_topic(self, name: str, settings: TopicSettings) -> Topic: ...

    async def change_topic(self, name: str, change: Change) -> Topic: ...


async def place(directory: ChangesTopics, wanted: PlaceChange, masters: Sequence[str]) -> Placed:
    """Do what is wanted, durably; raises `BadRequest` when that cannot be."""
    if directory.topic(PLACEMENT) is None:
        await directory.news.look()
    if directory.topic(PLACEMENT) is None:
        if wanted.action not in ("assign", "balance", "weight", "known"):
            return Placed(placement=changed(None, wanted, masters))
        await directory.create_topic(PLACEMENT, TopicSettings())
    found: list[Placement] = []

    def change(settings: TopicSettings) -> TopicSettings:
        before = settings.placement or Placement()
        after = changed(before, wanted, masters)
        found[:] = [before, after]
        return msgspec.structs.replace(settings, placement=after)

    await directory.change_topic(PLACEMENT, change)
    before, after = found
    moves = len(after.closing.keys() - before.closing.keys())
    if after != before:
        log.info(
            "placement changed",
            action=wanted.action,
            group=wanted.broker_group,
            slots=len(wanted.slots),
            version=after.version,
        )
    return Placed(placement=after, moves=moves)
