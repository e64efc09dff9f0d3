"""How much a consumer may be handed now: limits of its group, application and user, pauses (J13).

Consumers are never refused: their pulls wait. Asked once for each pull and group. A limit of the
group holds back everybody in it; a limit of an application, a pause of one consumer or its own
messages in flight hold back that one, and the others go on. What ends it: the told time, an ack
(`ConsumerGroup.full`), or a change of settings. Figures of what is handed out are counted here too.
"""

from collections.abc import Callable
from typing import NamedTuple

from ternmq.broker.delivery.handout import Slice
from ternmq.broker.groups.consumer_group import ConsumerGroup, ConsumerSession
from ternmq.broker.limits.send_limits import GATES_MAX, Gates
from ternmq.broker.limits.traffic import TrafficCounters
from ternmq.discovery.hidden_topics import consume_limit
from ternmq.security.access.token_bucket import Gate
from ternmq.wire.messages.groups import GroupSettings
from ternmq.wire.messages.topics import Topic

_APP_PREFIX = consume_limit("")
LEASES_MAX = 100_000
"""Leases of one lane at a time, whatever its settings say: each costs memory and a deadline."""


PULL_ROWS_MIN = 2
"""A limit hands out that many at once: rows that came back take half and must leave one for new."""


class PullAllowance(NamedTuple):
    """What may be handed out; without rows, why not and for how long."""

    rows: int
    size: int
    why: str = ""
    wait_s: float = 0.0
    """0: an ack or somebody's decision ends it."""
    alone: bool = False
    """It concerns this consumer only."""


class ConsumeLimits:
    """Asked by `PullHandler` for every pull and group."""

    def __init__(
        self,
        *,
        find: Callable[[str], Topic | None],
        traffic: TrafficCounters,
        now: Callable[[], float],
    ) -> None:
        self._find = find
        self._traffic = traffic
        self._now = now
        self._apps = Gates(now)
        self._groups: dict[tuple[str, str], Gate] = {}

    def allowance(
        self, group: ConsumerGroup, consumer: ConsumerSession, rows_max: int, size_max: int
    ) -> PullAllowance:
        """How much of what is wanted this consumer may get of this group."""
        settings = group.settings
        rows = rows_max
        if settings.paused_sessions and pauses(settings, consumer):
            return PullAllowance(0, 0, "this consumer is paused", alone=True)
        if settings.in_flight_max or len(group.lane.leases) >= LEASES_MAX:
            rows = min(rows, self._group_room(group, consumer))
            if rows <= 0:
                group.full = True
                return PullAllowance(0, 0, "too many messages of the group are in flight")
        if settings.consumer_in_flight_max:
            rows = min(rows, settings.consumer_in_flight_max - held_by(group, consumer))
            if rows <= 0:
                group.full = True
                return PullAllowance(
                    0, 0, "too many messages of this consumer are in flight", alone=True
                )
        own = self._gate(group) if settings.rate or settings.bytes_rate else None
        app = self._apps.of(self._find(_APP_PREFIX + _app(consumer)))
        use = consumer.peer.use
        user = None if use is None else use.consuming
        if own is None and app is None and user is None:
            return PullAllowance(rows, size_max)
        return self._below(own, (app, user), rows, size_max)

    def took(
        self, group: ConsumerGroup, consumer: ConsumerSession, rows: int, slices: list[Slice]
    ) -> None:
        """Rows were handed out; of a batch that was cut only the part counts."""
        stored = sum(piece.entry.count for piece in slices)
        size = sum(piece.entry.size for piece in slices) * rows // max(1, stored)
        self._traffic.handed_out(group.id, rows, size)
        if group.settings.rate or group.settings.bytes_rate:
            self._gate(group).take(rows, size)
        app = self._apps.of(self._find(_APP_PREFIX + _app(consumer)))
        if app is not None:
            app.take(rows, size)
        use = consumer.peer.use
        if use is not None and use.consuming is not None:
            use.consuming.take(rows, size)

    def forget(self, group: ConsumerGroup) -> None:
        self._traffic.forget_group(group.id)
        self._groups.pop(_line(group), None)

    def _below(
        self, own: Gate | None, of_client: tuple[Gate | None, Gate | None], rows: int, size: int
    ) -> PullAllowance:
        now = self._now()
        if own is not None:
            wait_s = own.wait_s(now, min(rows, PULL_ROWS_MIN))
            if wait_s > 0:
                return PullAllowance(0, 0, "the group's limit is used up", own.refuse(wait_s, now))
            rows, size = own.room(rows, size)
        for whose, gate in zip(("application", "user"), of_client, strict=True):
            wait_s = 0.0 if gate is None else gate.wait_s(now, min(rows, PULL_ROWS_MIN))
            if gate is not None and wait_s > 0:
                wait_s = gate.refuse(wait_s, now)
                return PullAllowance(0, 0, f"the {whose}'s limit is used up", wait_s, alone=True)
            if gate is not None:
                rows, size = gate.room(rows, size)
        return PullAllowance(rows, size)

    def _group_room(self, group: ConsumerGroup, consumer: ConsumerSession) -> int:
        """A group's lanes beside one topic count together."""
        if len(group.lane.leases) >= LEASES_MAX:
            return 0
        lanes = [other.lane for other in consumer.groups if _line(other) == _line(group)]
        return group.settings.in_flight_max - sum(lane.in_flight() for lane in lanes)

    def _gate(self, group: ConsumerGroup) -> Gate:
        line = _line(group)
        gate = self._groups.get(line)
        if gate is None:
            if len(self._groups) >= GATES_MAX:
                self._groups.clear()
            gate = self._groups[line] = Gate()
        gate.change(group.settings.rate, group.settings.bytes_rate, self._now())
        return gate


def pauses(settings: GroupSettings, consumer: ConsumerSession) -> bool:
    """Is this one consumer paused?"""
    return consumer.session.hex() in settings.paused_sessions


def held_by(group: ConsumerGroup, consumer: ConsumerSession) -> int:
    leases = group.lane.leases.values()
    return sum(lease.rows.count for lease in leases if lease.owner == consumer.id)


def _app(consumer: ConsumerSession) -> str:
    hello = consumer.peer.hello
    return hello.app if hello else ""


def _line(group: ConsumerGroup) -> tuple[str, str]:
    return group.beside or group.topic, group.name
