"""The servers: broker groups with their members, who leads, who is in sync, disks, meta servers."""

from dataclasses import dataclass

from ternmq.client.admin.broker_members import BrokerState
from ternmq.console.copy_as import CopyAs, curl_get
from ternmq.console.page import AskedUrl, Console, ShownPage
from ternmq.core.errors import TernError
from ternmq.wire.messages.order_keys import Placement


def by_group(servers: list[BrokerState]) -> dict[tuple[str, str], list[BrokerState]]:
    """Members of each broker group, the master first."""
    found: dict[tuple[str, str], list[BrokerState]] = {}
    for server in sorted(servers, key=lambda each: (each.role != "master", each.address)):
        found.setdefault((server.kind, server.group), []).append(server)
    return dict(sorted(found.items(), reverse=True))


@dataclass(frozen=True, slots=True)
class SlotLine:
    """How many order-key slots a broker group has."""

    name: str
    slots: int
    weight: int


def slot_lines(placement: Placement) -> tuple[list[SlotLine], int]:
    """By broker group, and how many slots are on the move; none before the first order key."""
    if not placement.owners:
        return [], 0
    counts = dict.fromkeys(placement.groups, 0)
    for owner in placement.owners:
        counts[placement.groups[owner]] += 1
    lines = [
        SlotLine(name, count, placement.weights.get(name, 100))
        for name, count in sorted(counts.items())
    ]
    return lines, len({*placement.closing, *placement.behind})


async def cluster_page(console: Console, asked: AskedUrl) -> ShownPage:
    snapshot = console.watch.snapshot
    meta, trouble, placement = None, "", Placement()
    try:
        meta = await console.mq.admin.meta_status()
        if console.rights.runs_cluster:
            placement = await console.mq.admin.placement()
    except TernError as error:
        trouble = error.message
    slots, moving = slot_lines(placement)
    facts = {
        "slots": slots,
        "slots_total": len(placement.owners),
        "slots_moving": moving,
        "groups": by_group(list(snapshot.servers)),
        "statuses": {status.address: status for status in snapshot.statuses},
        "meta": meta,
        "meta_trouble": trouble,
    }
    copy = CopyAs(
        cli=f"tern broker list --url {console.url}",
        curl=curl_get(console.origin, "/cluster"),
        python="await mq.admin.brokers()",
    )
    return ShownPage(
        template="cluster.html",
        title="Cluster",
        section="cluster",
        facts=facts,
        copy=copy,
        live=True,
    )
