"""Emptying a broker group before it is stopped for good: producers go elsewhere, the rest is
waited for.

The order is kept in the registry (`Standing.draining`), so it survives every restart and routes
tell it. `look` says what is still there that somebody waits for; it changes nothing and may be
asked by anybody, again and again. What nobody waits for stays where it is: settled messages, those
of topics without groups, and dead letters, which are counted.
"""

from dataclasses import dataclass, field

from ternmq.client.transport.cluster import Cluster
from ternmq.client.transport.fan_out import AWAY, Missing
from ternmq.core.errors import BadRequest, TernError, TopicNotFound, Unavailable
from ternmq.discovery.hidden_topics import DEAD_PREFIX
from ternmq.wire.messages.dead_letters import DeadFind, DeadOpen
from ternmq.wire.messages.delays import DelayLedger, DelayLedgerQuery
from ternmq.wire.messages.groups import GroupFind, Ledger
from ternmq.wire.messages.stats import Status, StatusQuery
from ternmq.wire.messages.topics import TopicFind, Topics
from ternmq.wire.messages.transactions import HalfFind, HalfOpens
from ternmq.wire.numbers import Command

NAMED_MAX = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainProgress:
    """What a broker group still holds that has to be delivered."""

    broker_group: str
    draining: bool
    ready: int = 0
    in_flight: int = 0
    waiting_retry: int = 0
    half: int = 0
    """Transactions that have not ended."""
    delayed: int = 0
    """Messages that delay servers decided to bring here, and have not brought."""
    untaken: int = 0
    """Delayed messages of transactions that delay servers have to take from here, and have not."""
    pending: int = 0
    """Of a delay server: messages that are not due yet."""
    slots: int = 0
    """Order-key slots that lie here, or that wait for what is here."""
    dead_letters: int = 0
    """Open ones; they are not waited for."""
    log_end: int = 0
    """Moves when something is stored."""
    groups: dict[str, int] = field(default_factory=dict)
    """'TOPIC GROUP' and how many messages it has to handle, the largest first."""
    missing: Missing = field(default_factory=dict)
    """Servers that could not be asked, so that nothing is certain."""

    @property
    def left(self) -> int:
        """All that is waited for."""
        messages = self.ready + self.in_flight + self.waiting_retry
        return messages + self.half + self.delayed + self.untaken + self.pending + self.slots

    @property
    def empty(self) -> bool:
        return self.draining and not self.left and not self.missing

    def done_after(self, before: "DrainProgress | None") -> bool:
        """Nothing was there twice in a row, and nothing came in between."""
        return before is not None and before.empty and self.empty and before.log_end == self.log_end


async def look(cluster: Cluster, broker_group: str) -> DrainProgress:
    """Ask the broker group, and every delay server."""
    await cluster.refresh()
    routes = [route for route in cluster.routes() if route.kind == "realtime"]
    here = [route for route in routes if route.broker_group == broker_group]
    if not here and broker_group not in cluster.away("realtime"):
        names = ", ".join(sorted({route.broker_group for route in routes}))
        raise BadRequest(f"there is no broker group {broker_group!r}; there are: {names}")
    draining = any(route.draining for route in here)
    missing: Missing = dict.fromkeys(cluster.away("delay"), AWAY)
    try:
        link = cluster.broker(broker_group)
        status = await cluster.ask(link, Command.STATUS, StatusQuery(), Status)
        ledger = await cluster.ask(link, Command.LEDGER, GroupFind(), Ledger)
        halves = await cluster.ask(link, Command.HALF_LIST, HalfFind(limit=1), HalfOpens)
        dead = await _dead_letters(cluster, broker_group)
    except TernError as error:
        if not error.retryable:
            raise
        missing[broker_group] = error.message
        return DrainProgress(broker_group=broker_group, draining=draining, missing=missing)
    delayed = await _delayed(cluster, broker_group, missing)
    open_lines = [
        (line.ready + line.in_flight + line.waiting_retry, f"{line.topic} {line.group}")
        for line in ledger.lines
    ]
    open_lines = sorted((pair for pair in open_lines if pair[0]), reverse=True)
    return DrainProgress(
        broker_group=broker_group,
        draining=draining,
        ready=sum(line.ready for line in ledger.lines),
        in_flight=sum(line.in_flight for line in ledger.lines),
        waiting_retry=sum(line.waiting_retry for line in ledger.lines),
        half=halves.total,
        delayed=delayed,
        untaken=status.untaken,
        slots=_slots(cluster, broker_group),
        dead_letters=dead,
        log_end=status.log_end,
        groups={name: count for count, name in open_lines[:NAMED_MAX]},
        missing=missing,
    )


async def look_delay(cluster: Cluster, name: str) -> DrainProgress:
    """What a delay server that is drained still has to send."""
    await cluster.refresh()
    routes = [route for route in cluster.routes() if route.kind == "delay"]
    here = [route for route in routes if route.broker_group == name]
    if not here and name not in cluster.away("delay"):
        names = ", ".join(sorted({route.broker_group for route in routes})) or "none"
        raise BadRequest(f"there is no delay server {name!r}; there are: {names}")
    draining = any(route.draining for route in here)
    try:
        link = cluster.server(name, "delay")
        status = await cluster.ask(link, Command.STATUS, StatusQuery(), Status)
        ledger = await cluster.ask(link, Command.DELAY_LEDGER, DelayLedgerQuery(), DelayLedger)
    except Unavailable as error:
        missing = {name: error.message}
        return DrainProgress(broker_group=name, draining=draining, missing=missing)
    pending = sum(line.pending for line in ledger.lines)
    return DrainProgress(
        broker_group=name, draining=draining, pending=pending, log_end=status.log_end
    )


def _slots(cluster: Cluster, broker_group: str) -> int:
    placement = cluster.placement()
    if placement is None or broker_group not in placement.groups:
        return 0
    here = placement.groups.index(broker_group)
    return placement.owners.count(here) + list(placement.behind.values()).count(here)


async def _delayed(cluster: Cluster, broker_group: str, missing: Missing) -> int:
    total = 0
    for name in cluster.masters("delay"):
        try:
            link = cluster.server(name, "delay")
            status = await cluster.ask(link, Command.STATUS, StatusQuery(), Status)
            total += status.dispatching.get(broker_group, 0)
        except TernError as error:
            missing[name] = error.message
    return total


async def _dead_letters(cluster: Cluster, broker_group: str) -> int:
    find = TopicFind(prefix=DEAD_PREFIX)
    topics = await cluster.ask_meta(Command.TOPIC_LIST, find, Topics)
    total = 0
    for topic in topics.topics:
        group = topic.name.removeprefix(DEAD_PREFIX)
        try:
            link = cluster.broker(broker_group)
            answer = await cluster.ask(link, Command.DEAD_OPEN, DeadFind(group=group), DeadOpen)
        except TopicNotFound:
            continue
        total += sum(end - first for first, end in answer.ranges)
    return total
