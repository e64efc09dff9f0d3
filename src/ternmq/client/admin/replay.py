"""Replays: messages of a topic once more, for one group alone (J14).

The brokers copy; this asks them step by step, so that a rate can hold, a bar can move and a stop
loses nothing. A replay has a name. Doing one again under the same name goes on where it stopped,
and copies nothing twice, as long as the brokers remember the name (a day at least).
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import get_type_hints

from ternmq.client.model.arguments import check_value
from ternmq.client.model.start import StartLike, make_start
from ternmq.client.model.times import shown
from ternmq.client.transport.cluster import Cluster
from ternmq.client.transport.fan_out import FanOut
from ternmq.client.transport.link import Link
from ternmq.core.clock import SystemClock
from ternmq.core.errors import BadRequest, OverLimit
from ternmq.core.ids import id_from_text, id_to_text, new_producer_id
from ternmq.wire.messages.read import GroupReplay, GroupReplayed, Seek, Sought
from ternmq.wire.numbers import Command

STEP_ROWS = 2_000
BUSY_WAIT_S = 0.05


def new_replay_name() -> str:
    return id_to_text(new_producer_id(SystemClock().now_ms()).message_id(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """What goes to which group."""

    topic: str
    into: str
    """A group of this topic; it must be there."""
    start: StartLike = "earliest"
    end: StartLike = "latest"
    tag: str = ""
    filter: str = ""
    rate: int = 0
    """Messages a second; 0: as fast as it goes."""
    name: str = field(default_factory=new_replay_name)
    """Of an earlier one: go on with that."""
    dry_run: bool = False
    broker_group: str = ""
    """Only from this one; needed where start or end is a sequence and there are several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayProgress:
    """How far a replay is, over all broker groups; the counts are of this call."""

    name: str
    total: int = 0
    """Messages between start and end."""
    looked: int = 0
    copied: int = 0
    filtered: int = 0
    unreadable: int = 0


def check_replay(wanted: Replay) -> None:
    """Raise for what no broker would take, in words about replays."""
    hints = get_type_hints(Replay)
    for field_ in fields(Replay):
        if field_.name not in ("start", "end"):
            check_value(field_.name, getattr(wanted, field_.name), hints[field_.name])
    if wanted.rate < 0:
        raise BadRequest("the rate of a replay must be 0 (no limit) or more messages a second")
    try:
        id_from_text(wanted.name)
    except BadRequest:
        raise BadRequest(
            f"name is {shown(wanted.name)}; it is the name of an earlier replay to go on with "
            "(ReplayProgress.name has it): leave it out for a new one"
        ) from None


async def run_replay(
    cluster: Cluster, wanted: Replay, on_progress: Callable[[ReplayProgress], None]
) -> ReplayProgress:
    check_replay(wanted)
    groups = await _groups(cluster, wanted)
    found = [cluster.broker(group) for group in groups]
    places = [(link, *await _bounds(cluster, link, wanted)) for link in found]
    progress = ReplayProgress(
        name=wanted.name, total=sum(max(0, end - first) for _, first, end in places)
    )
    for link, first, end in places:
        at = first
        while at < end:
            step = await _step(cluster, link, wanted, at, end)
            progress = replace(
                progress,
                looked=progress.looked + step.next - at,
                copied=progress.copied + step.copied,
                filtered=progress.filtered + step.filtered,
                unreadable=progress.unreadable + step.unreadable,
            )
            on_progress(progress)
            if step.next <= at:
                break  # The rest was removed meanwhile.
            at = step.next
            if wanted.rate and at < end and not wanted.dry_run:
                await asyncio.sleep(step.copied / wanted.rate)
    return progress


async def replay_total(cluster: Cluster, wanted: Replay) -> int:
    """How many messages lie between its start and its end, on all broker groups it is about."""
    found = [cluster.broker(group) for group in await _groups(cluster, wanted)]
    places = [await _bounds(cluster, link, wanted) for link in found]
    return sum(max(0, end - first) for first, end in places)


async def _groups(cluster: Cluster, wanted: Replay) -> list[str]:
    """Broker groups to copy from; one that is away is an error before anything is copied."""
    fan_out = FanOut(cluster)
    ends = [make_start(wanted.start), make_start(wanted.end)]
    lone = [place for place in ends if place.at == "sequence"]
    groups = await fan_out.chosen(lone[0] if lone else ends[0], wanted.broker_group)
    await fan_out.ask(Command.SEEK, Seek(topic=wanted.topic, start=ends[0]), Sought, groups)
    return groups


async def _bounds(cluster: Cluster, link: Link, wanted: Replay) -> tuple[int, int]:
    places = []
    for start in (wanted.start, wanted.end):
        seek = Seek(topic=wanted.topic, start=make_start(start))
        places.append((await cluster.ask(link, Command.SEEK, seek, Sought)).sequence)
    return places[0], places[1]


async def _step(cluster: Cluster, link: Link, wanted: Replay, at: int, end: int) -> GroupReplayed:
    rows = min(STEP_ROWS, max(1, wanted.rate // 10)) if wanted.rate else STEP_ROWS
    asked = GroupReplay(
        topic=wanted.topic,
        into=wanted.into,
        first=at,
        end=end,
        replay=wanted.name,
        rows_max=rows,
        tag=wanted.tag,
        filter=wanted.filter,
        dry_run=wanted.dry_run,
    )
    while True:
        try:
            return await cluster.ask(link, Command.GROUP_REPLAY, asked, GroupReplayed)
        except OverLimit:  # The same step is under way: an answer was lost.
            await asyncio.sleep(BUSY_WAIT_S)
