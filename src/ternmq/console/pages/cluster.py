"""The servers: broker groups with their members, who leads, who is in sync, disks, meta servers."""

from ternmq.client.admin.broker_members import BrokerState
from ternmq.console.copy_as import CopyAs, curl_get
from ternmq.console.page import AskedUrl, Console, ShownPage
from ternmq.core.errors import TernError


def by_group(servers: list[BrokerState]) -> dict[tuple[str, str], list[BrokerState]]:
    """Members of each broker group, the master first."""
    found: dict[tuple[str, str], list[BrokerState]] = {}
    for server in sorted(servers, key=lambda each: (each.role != "master", each.address)):
        found.setdefault((server.kind, server.group), []).append(server)
    return dict(sorted(found.items(), reverse=True))


async def cluster_page(console: Console, asked: AskedUrl) -> ShownPage:
    snapshot = console.watch.snapshot
    meta, trouble = None, ""
    try:
        meta = await console.mq.admin.meta_status()
    except TernError as error:
        trouble = error.message
    facts = {
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
