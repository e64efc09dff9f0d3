"""The registry of a simulated cluster: the SQL one in memory, shared by all meta servers.

It outlives every process, as a database server does. It can be away, or act and lose its answer; it
can be emptied, or replaced by an older copy of itself.
Half of the seeds tell meta servers of changes (as ZooKeeper does), the others let them ask (SQL).
"""

from collections.abc import Callable, Collection, Mapping
from copy import copy
from pathlib import Path
from typing import Any

from ternmq.core.errors import Unavailable
from ternmq.meta.registries.sql import SqlRegistry
from ternmq.wire.messages.standings import Standing
from tests.simulation.world.world import World

READING = frozenset(
    {"topics", "groups", "servers", "version", "news", "standing", "standings"}
    | {"last_epoch", "held"}
)


class SharedRegistry:
    """What every meta server gets as its registry."""

    def __init__(self, world: World) -> None:
        self.away = ""
        """"": answers; "away": does not; "unknown": it acts and the answer is lost."""
        self.cluster = "simulated"  # Drawn by chance elsewhere.
        self.replaced = False
        """It is not what it was: emptied, or an older copy."""
        self._world = world
        self._registry = SqlRegistry.open_sqlite(Path(":memory:"))
        self._tells = world.random.random() < 0.5
        self._heard: dict[str, float] = {}
        self._watchers: list[Callable[[], None]] = []
        self._read: dict[tuple[Any, ...], Any] = {}
        """What was answered since the last change: meta servers ask the same all the time."""

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._registry, name)
        if not callable(found):
            return found

        def call(*args: Any, **options: Any) -> Any:
            if self.away == "away":
                raise Unavailable("the registry is away")
            result = self._ask(name, *args, **options)
            if name not in READING:
                for wake in self._watchers:
                    self._world.after(self._world.pace.latency(), wake)
            if self.away == "unknown":
                raise Unavailable("the registry did not answer in time")
            return result

        return call

    def _ask(self, name: str, *args: Any, **options: Any) -> Any:
        if name not in READING:
            self._read.clear()
            return getattr(self._registry, name)(*args, **options)
        question = (name, args, *options.items())
        if question not in self._read:
            self._read[question] = getattr(self._registry, name)(*args, **options)
        return copy(self._read[question])

    def hold(self, silent_s: Mapping[str, float]) -> None:
        """In virtual time; the database has a clock of its own."""
        self._answers()
        for member, seconds in silent_s.items():
            heard = self._world.now - seconds
            self._heard[member] = max(heard, self._heard.get(member, heard))

    def held(self) -> dict[str, float | None]:
        self._answers()
        return {member: self._world.now - heard for member, heard in self._heard.items()}

    def _answers(self) -> None:
        if self.away:
            raise Unavailable("the registry is away")

    def watch(self, wake: Callable[[], None]) -> bool:
        if self._tells:
            self._watchers.append(wake)
        return self._tells

    def close(self) -> None:
        """A meta server is done with it; the others are not."""

    def now(self) -> list[Standing]:
        """The standings that are in it, for the judge: never away."""
        found: list[Standing] = self._ask("standings")
        return found

    def knows(self, group_topics: Mapping[str, Collection[str]]) -> bool:
        """All of these topics and groups."""
        topics = {topic.id: topic.name for topic in self._ask("topics")}
        held = {(each.name, topics[each.topic_id]) for each in self._ask("groups")}
        wanted = {(group, topic) for group, named in group_topics.items() for topic in named}
        return wanted <= held

    def has_all(self, members: Mapping[str, int]) -> bool:
        """All of these broker groups, with so many members."""
        held = {each.broker_group: len(each.members) for each in self.now() if each.epoch}
        return all(held.get(group, 0) >= count for group, count in members.items())

    def topic_ids(self) -> set[int]:
        """Of all topics that have a name."""
        return {topic.id for topic in self._ask("topics")}

    def copy(self) -> bytes:
        """All that is in it now."""
        content: bytes = self._connection().serialize()
        return content

    def put_back(self, copy: bytes) -> None:
        """An older copy is in its place."""
        self._connection().deserialize(copy)
        self._forget()

    def empty(self) -> None:
        """A new one is in its place, of a cluster of its own."""
        self.cluster += " anew"
        self._registry.close()
        self._registry = SqlRegistry.open_sqlite(Path(":memory:"))
        self._forget()

    def _connection(self) -> Any:
        return self._registry._engine.raw_connection().driver_connection

    def _forget(self) -> None:
        self.replaced = True
        self._heard.clear()
        self._read.clear()
        for wake in self._watchers:
            self._world.after(self._world.pace.latency(), wake)

    def end(self) -> None:
        self._watchers.clear()
        self._registry.close()
