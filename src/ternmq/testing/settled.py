"""Waits until a group has nothing in hand, so that a test can look or turn the clock.

A handler that has raised is not the end of it: the client still has to tell the broker. Turning the
clock before that turns it too early, and the retry waits for a time that nobody turns to any more.
"""

import asyncio
import time
from collections.abc import Awaitable
from typing import overload

from ternmq.client.admin.merge_answers import merged_lines
from ternmq.client.client import Client
from ternmq.client.model.arguments import check_value
from ternmq.client.model.durations import Duration, seconds_of
from ternmq.core.clock import elapsed
from ternmq.core.errors import GroupNotFound, TopicNotFound, Unavailable
from ternmq.core.ids import check_name
from ternmq.sync import Client as BlockingClient
from ternmq.wire.messages.groups import LedgerLine

LOOK_S = 0.005
TIMEOUT_MAX_S = 3_600.0


@overload
def settled(
    mq: Client, topic: str, group: str, *, timeout: Duration = ...
) -> Awaitable[LedgerLine]: ...
@overload
def settled(
    mq: BlockingClient, topic: str, group: str, *, timeout: Duration = ...
) -> LedgerLine: ...
def settled(
    mq: Client | BlockingClient, topic: str, group: str, *, timeout: Duration = 10.0
) -> Awaitable[LedgerLine] | LedgerLine:
    """Return when no message of the topic is ready for the group or in hand: each is acked, waits
    for a retry, is dead or expired. The line of the ledger says how many of each.

    By the real clock; raises `Unavailable` with what is left after `timeout` seconds. It is awaited
    with a client of `ternmq.connect`; with one of `ternmq.sync.connect` it blocks.
    """
    check_value("mq", mq, Client | BlockingClient)
    check_name("topic", topic)
    check_name("group", group)
    seconds = seconds_of("timeout", timeout, 0, TIMEOUT_MAX_S)
    if isinstance(mq, Client):
        return _settled(mq, topic, group, seconds)
    give_up = elapsed() + seconds
    while True:
        try:
            lines = merged_lines(mq.admin.ledger(topic, group))
        except (GroupNotFound, TopicNotFound):
            lines = []  # Its consumer is about to join.
        if (line := _line(lines, topic, group, late=elapsed() > give_up)) is not None:
            return line
        time.sleep(LOOK_S)


async def _settled(mq: Client, topic: str, group: str, seconds: float) -> LedgerLine:
    give_up = elapsed() + seconds
    while True:
        try:
            lines = merged_lines(await mq.admin.ledger(topic, group))
        except (GroupNotFound, TopicNotFound):
            lines = []
        if (line := _line(lines, topic, group, late=elapsed() > give_up)) is not None:
            return line
        await asyncio.sleep(LOOK_S)


def _line(lines: list[LedgerLine], topic: str, group: str, *, late: bool) -> LedgerLine | None:
    """The line of the topic itself once nothing is left; raises when that took too long."""
    left = sum(line.ready + line.in_flight for line in lines)
    if lines and not left:
        return next(line for line in lines if line.lane == "topic")
    if late:
        held = f"has still {left} messages ready or in hand: {lines}" if lines else "is not there"
        raise Unavailable(f"group {group!r} of {topic!r} {held}")
    return None
