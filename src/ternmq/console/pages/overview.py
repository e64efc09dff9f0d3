"""The first page: what needs attention, what flows, which groups are behind, what comes later."""

from ternmq.api.views.attention import needs_attention
from ternmq.api.views.snapshot import GroupView, Snapshot
from ternmq.console.copy_as import CopyAs, curl_get
from ternmq.console.page import AskedUrl, Console, ShownPage

GROUPS_SHOWN = 12
HORIZON_HOURS = 24


def worst_first(snapshot: Snapshot) -> list[GroupView]:
    """By the age of what waits, then by how much waits."""
    return sorted(
        snapshot.groups.values(),
        key=lambda view: (-max(view.age_ms, 0), -view.open, view.topic, view.name),
    )


async def overview(console: Console, asked: AskedUrl) -> ShownPage:
    snapshot = console.watch.snapshot
    groups = worst_first(snapshot)
    console.watch.shows(groups[:GROUPS_SHOWN])
    oldest = max((view.age_ms for view in groups), default=0)
    facts = {
        "attention": needs_attention(snapshot),
        "groups": groups[:GROUPS_SHOWN],
        "groups_total": len(groups),
        "oldest_ms": max(oldest, 0),
        "ready": snapshot.sums.ready,
        "dead": snapshot.sums.dead,
        "horizon_hours": HORIZON_HOURS,
        "masters": [server for server in snapshot.servers if server.role == "master"],
        "statuses": snapshot.statuses,
    }
    copy = CopyAs(
        cli=f"tern status --url {console.url}",
        curl=curl_get(console.origin, "/cluster"),
        python="await mq.admin.groups()",
    )
    return ShownPage(
        template="overview.html",
        title="Overview",
        section="overview",
        facts=facts,
        copy=copy,
        live=True,
    )
