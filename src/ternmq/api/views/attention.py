"""What a person should look at, as sentences: from one snapshot, worst first."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal
from urllib.parse import quote

from ternmq.api.views.snapshot import GroupView, Snapshot

AttentionLevel = Literal["critical", "warning"]
OLD_MS = 5 * 60_000
DISK_SHARE_MAX = 0.85
FINE = ("ok", "draining")
SENTENCES_MAX = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """One sentence."""

    level: AttentionLevel
    text: str
    where: str
    """The page that shows more."""


def needs_attention(snapshot: Snapshot) -> list[Attention]:
    """At most so many, critical ones first."""
    found = [*_servers(snapshot), *_groups(snapshot), *_topics(snapshot)]
    found.sort(key=lambda each: each.level != "critical")
    return found[:SENTENCES_MAX]


def group_path(view: GroupView) -> str:
    """The page of a hint."""
    return f"/topics/{quote(view.topic, safe='')}/groups/{quote(view.name, safe='')}"


def _servers(snapshot: Snapshot) -> Iterator[Attention]:
    for server in snapshot.servers:
        what = "delay server" if server.kind == "delay" else "broker"
        place = f"{what} {server.group} at {server.address}"
        if server.state not in FINE:
            yield Attention(level="critical", text=f"{place}: {server.state}", where="/cluster")
        elif not server.in_sync:
            text = f"{place} is not in sync: its group has one copy less"
            yield Attention(level="warning", text=text, where="/cluster")
    for status in snapshot.statuses:
        share = 1 - status.disk_free / status.disk_size if status.disk_size else 0.0
        if share > DISK_SHARE_MAX:
            text = f"the disk of {status.node} at {status.address} is {share:.0%} full"
            yield Attention(level="warning", text=text, where="/cluster")


def waiting(count: int) -> str:
    """So many messages wait, as a person says it."""
    return "1 message waits" if count == 1 else f"{count:,} messages wait"


def _groups(snapshot: Snapshot) -> Iterator[Attention]:
    for view in sorted(snapshot.groups.values(), key=lambda each: -each.ready):
        name, where = f"group {view.name} of {view.topic}", group_path(view)
        if not view.adds_up:
            text = f"the ledger of {name} does not add up: please report this"
            yield Attention(level="critical", text=text, where=where)
        if view.paused and view.ready:
            text = f"{name} is paused while {waiting(view.ready)}"
            yield Attention(level="warning", text=text, where=where)
        elif view.ready and not view.members:
            text = f"nobody consumes {name}: {waiting(view.ready)}"
            yield Attention(level="warning", text=text, where=where)
        elif view.age_ms > OLD_MS:
            text = f"the oldest message of {name} waits for {view.age_ms // 60_000} minutes"
            yield Attention(level="warning", text=text, where=where)
        elif view.alarm:
            text = f"{name} is over its backlog alarm: {waiting(view.ready)}"
            yield Attention(level="warning", text=text, where=where)


def _topics(snapshot: Snapshot) -> Iterator[Attention]:
    for view in snapshot.topics.values():
        where = f"/topics/{quote(view.name, safe='')}"
        if view.topic.settings.paused:
            text = f"sending to {view.name} is paused"
            yield Attention(level="warning", text=text, where=where)
        if view.topic.settings.consume_paused:
            text = f"consuming {view.name} is paused for every group"
            yield Attention(level="warning", text=text, where=where)
        if view.put_aside:
            text = f"{view.put_aside:,} messages over the limit of {view.name} are put aside"
            yield Attention(level="warning", text=text, where=f"/refused/{quote(view.name)}")
