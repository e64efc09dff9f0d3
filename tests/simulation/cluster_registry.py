"""The registry of a simulated cluster: the SQL one in memory, shared by all meta servers.

It outlives every process, as a database server does. It can be away, or act and lose its answer.
Half of the seeds tell meta servers of changes (as ZooKeeper does), the others let them ask (SQL).
"""

from collections.abc import Callable, Mapping
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

    cluster = "simulated"  # Drawn by chance elsewhere.

    def __init__(self, world: World) -> None:
        self.away = ""
        """"": answers; "away": does not; "unknown": it acts and the answer is lost."""
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

    def end(self) -> None:
        self._watchers.clear()
        self._registry.close()
