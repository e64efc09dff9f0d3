"""`tern topic set --keep`: how long a topic keeps its messages, and what a shorter time costs.

A shorter time acts at once and cannot be taken back, so it is looked at first: how many messages
are older, and which groups still have something to read. A time that is longer than the brokers
keep anything is refused, since nothing would come of it. Looks only; `topic.py` changes.
"""

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ternmq.core.errors import BadRequest
from ternmq.core.units import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, parse_duration_ms
from ternmq.wire.messages.groups import Start

if TYPE_CHECKING:
    from ternmq.client.client import Client

_UNITS = (("d", DAY_MS), ("h", HOUR_MS), ("m", MINUTE_MS), ("s", SECOND_MS), ("ms", 1))


@dataclass(frozen=True, slots=True)
class KeepCost:
    """What goes at once when a topic keeps messages for less long."""

    messages: int
    unread: dict[str, int]
    """Groups that have not settled everything, and how much each has left in all."""

    def question(self, topic: str, keep_ms: int) -> str:
        left = ", ".join(f"{group} {count}" for group, count in sorted(self.unread.items()))
        unread = f" Groups have unread ones ({left})." if left else ""
        older = f"{self.messages} messages of {topic} are older than {shown_duration(keep_ms)}"
        return f"{older} and go for good.{unread} Change it?"


def parse_keep(text: str | None) -> int | None:
    """`1h`, or 0 for no time of its own."""
    if text is None:
        return None
    return 0 if text.strip() == "0" else parse_duration_ms(text)


async def keep_cost(mq: "Client", topic: str, keep_ms: int) -> KeepCost:
    """What the change would cost; raises `BadRequest` for a time that no broker keeps."""
    longest = {one.node: one.keep_ms for one in await mq.admin.broker_status() if one.keep_ms}
    short = {node: most for node, most in longest.items() if most < keep_ms}
    if short:
        node, most = min(short.items(), key=lambda each: each[1])
        raise BadRequest(
            f"broker group {node!r} keeps messages for {shown_duration(most)} and no longer; set "
            f"retention_ms there first, or say --keep {shown_duration(most)} or less"
        )
    if keep_ms == 0:
        return KeepCost(0, {})
    at = Start(at="time", value=time.time_ns() // 1_000_000 - keep_ms)
    sought = await mq.admin.seek_all(topic, at)
    older = sum(max(0, one.sequence - one.first) for one in sought.values())
    unread: dict[str, int] = {}
    for line in await mq.admin.ledger(topic) if older else []:
        left = line.ready + line.in_flight + line.waiting_retry
        if left:
            unread[line.group] = unread.get(line.group, 0) + left
    return KeepCost(older, unread)


def shown_keep(keep_ms: int) -> str:
    """For people: a time, or what holds without one."""
    return shown_duration(keep_ms) if keep_ms else "as the broker"


def shown_duration(ms: int) -> str:
    """`1h30m`: what `parse_duration_ms` reads."""
    parts: list[str] = []
    for unit, factor in _UNITS:
        count, ms = divmod(ms, factor)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"
