"""Who is connected: applications, their processes, what they consume; hanging up on one."""

from dataclasses import dataclass, field

from ternmq.console.copy_as import CopyAs, curl_get
from ternmq.console.page import AskedUrl, Console, ShownPage
from ternmq.wire.inspection.sessions import SessionInfo

ROWS = 500


@dataclass(slots=True)
class ConnectedClient:
    """One session, on however many brokers."""

    info: SessionInfo
    broker_groups: list[str] = field(default_factory=list)
    consuming: set[tuple[str, str]] = field(default_factory=set)


def by_session(sessions: list[SessionInfo], like: str) -> list[ConnectedClient]:
    """Each client once, by application and host."""
    found: dict[str, ConnectedClient] = {}
    for info in sessions:
        if like.lower() not in f"{info.app} {info.host} {info.address} {info.session}".lower():
            continue
        client = found.setdefault(info.session or f"#{info.number}", ConnectedClient(info))
        client.broker_groups.append(info.broker_group)
        client.consuming |= {(each.topic, each.group) for each in info.consuming}
    return sorted(found.values(), key=lambda each: (each.info.app, each.info.host, each.info.pid))


async def clients_page(console: Console, asked: AskedUrl) -> ShownPage:
    admin, like = console.mq.admin.tolerant(), asked.text("q")
    sessions = await admin.sessions(limit=ROWS)
    facts = {
        "clients": by_session(sessions, like),
        "like": like,
        "full": len(sessions) >= ROWS,
        "missing": admin.missing,
    }
    copy = CopyAs(
        cli=f"tern clients list --url {console.url}",
        curl=curl_get(console.origin, "/clients"),
        python="await mq.admin.sessions()",
    )
    return ShownPage(
        template="clients.html", title="Clients", section="clients", facts=facts, copy=copy
    )
