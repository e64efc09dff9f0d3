"""`tern status`: the cluster on one page: servers, topics, groups, what waits and what failed.

A look, not a check-up: `tern doctor` says what is wrong and what to do. Exit code 1 if a server is
not ok or does not answer.
"""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import typer

from ternmq.cli.terminal.options import URL, Json, Url, use
from ternmq.cli.terminal.output import say, show_facts, show_json, show_table
from ternmq.cli.terminal.partial_answers import note_missing
from ternmq.core.errors import TernError

if TYPE_CHECKING:
    from ternmq.client.admin.broker_members import BrokerState
    from ternmq.client.client import Client

EXIT_NOT_OK = 1
FINE = ("ok", "draining")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLine:
    """One server of the cluster."""

    kind: str
    name: str
    role: str
    state: str
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterStatus:
    """Everything that the page shows."""

    cluster: str
    registry: str
    version: str
    servers: list[ServerLine]
    topics: int
    groups: int
    consumers: int
    ready: int
    in_flight: int
    waiting_retry: int
    dead: int
    """Since the groups were made."""
    delayed: int
    missing: dict[str, str]
    """Broker groups that did not answer, and why."""

    @property
    def ok(self) -> bool:
        return not self.missing and all(line.state in FINE for line in self.servers)


def status(url: Url = URL, as_json: Json = False) -> None:
    """Show the cluster on one page: its servers, and how many messages wait."""
    found = use(url, look)
    if as_json:
        show_json({"ok": found.ok, **asdict(found)})
    else:
        _show(found)
    if not found.ok:
        raise typer.Exit(EXIT_NOT_OK)


async def look(mq: "Client") -> ClusterStatus:
    """Ask everybody."""
    from ternmq import __version__

    meta = await mq.admin.meta_status()
    servers = [
        ServerLine(
            kind="meta", name=meta.node, role="meta", state=meta.state, address=meta.address
        ),
        *(_line("broker", state) for state in await mq.admin.brokers()),
        *(_line("delay", state) for state in await mq.admin.brokers("delay")),
    ]
    admin = mq.admin.tolerant()
    groups = await admin.groups()
    missing = dict(admin.missing)
    lines = [group.ledger for group in groups]
    return ClusterStatus(
        cluster=meta.cluster,
        registry=meta.registry,
        version=__version__,
        servers=servers,
        topics=len(await mq.admin.topics()),
        groups=len({(group.topic, group.name) for group in groups}),
        consumers=len({member.session for group in groups for member in group.members}),
        ready=sum(line.ready for line in lines),
        in_flight=sum(line.in_flight for line in lines),
        waiting_retry=sum(line.waiting_retry for line in lines),
        dead=sum(line.dead for line in lines),
        delayed=await _delayed(mq, missing),
        missing=missing,
    )


async def _delayed(mq: "Client", missing: dict[str, str]) -> int:
    try:
        return sum(line.pending for line in await mq.admin.delays.ledger())
    except TernError as error:
        missing["delay servers"] = error.message
        return 0


def _line(kind: str, state: "BrokerState") -> ServerLine:
    return ServerLine(
        kind=kind, name=state.group, role=state.role, state=state.state, address=state.address
    )


def _show(found: ClusterStatus) -> None:
    facts: dict[str, Any] = {
        "cluster": found.cluster,
        "registry": found.registry,
        "topics": found.topics,
        "groups": f"{found.groups}, {found.consumers} consumers",
        "messages": f"{found.ready} ready, {found.in_flight} in flight, {found.waiting_retry} wait "
        f"for a retry, {found.delayed} for later",
        "dead": found.dead,
        "client": f"ternmq {found.version}",
    }
    show_facts(facts)
    say("")
    show_table(
        ["server", "name", "role", "state", "address"],
        [(line.kind, line.name, line.role, line.state, line.address) for line in found.servers],
    )
    note_missing(found.missing)
