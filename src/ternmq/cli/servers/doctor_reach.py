"""`tern doctor --from-client`: can this machine reach what every server tells clients to use?

A meta server that answers proves little: the addresses it hands out were chosen on other machines.
So every one of them is gone to from here, as a client would: the name is looked up, a connection
made, hello said, and the answer compared with who should be there. Trying is apart from judging:
`try_address` goes, `judge` is pure and says what to change, and on which machine.
"""

import asyncio
import socket
import time
from dataclasses import dataclass, replace

from ternmq.cli.servers.doctor_report import CheckResult, Level
from ternmq.core.errors import TernError
from ternmq.rpc.address import split_address
from ternmq.rpc.connection import Connection, request
from ternmq.rpc.node_proof import Greeting
from ternmq.wire.messages.hello import Welcome
from ternmq.wire.messages.servers import Route, Routes, RoutesFind
from ternmq.wire.messages.stats import Status, StatusQuery
from ternmq.wire.numbers import Command

TRY_S = 5.0
OWN_NAME = "meta server (as it calls itself)"
LOOPBACK = ("127.", "localhost", "[::1]", "0.0.0.0", "[::]")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReachTarget:
    """A server, and the address that clients are told for it."""

    name: str
    """For people: 'broker group east'."""
    address: str
    role: str
    """As it says of itself: meta, broker, delay."""
    broker_group: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """What happened on the way to an address."""

    trouble: str = ""
    """'' when it answered; else 'name', 'refused', 'silent', 'other' and what was said."""
    reason: str = ""
    welcome: Welcome | None = None
    took_ms: float = 0.0


def target_of(route: Route) -> ReachTarget:
    kind = "delay server" if route.kind == "delay" else "broker group"
    replica = " (replica)" if route.role == "replica" else ""
    return ReachTarget(
        name=f"{kind} {route.broker_group}{replica}",
        address=route.address,
        role="delay" if route.kind == "delay" else "broker",
        broker_group=route.broker_group,
    )


async def examine(metas: list[str], greeting: Greeting) -> list[CheckResult]:
    """Everything that is advertised, gone to from here."""
    here = socket.gethostname()
    findings = [CheckResult(level=Level.OK, what="client", found=f"this machine is {here}")]
    routes: dict[str, Route] = {}
    clusters: dict[str, str] = {}
    for address in metas:
        tried = await try_address(address, greeting)
        findings.append(judge(ReachTarget(name="meta server", address=address, role="meta"), tried))
        if tried.trouble:
            continue
        try:
            status, listing = await _ask_meta(address, greeting)
        except TernError as error:
            findings.append(_failed(f"meta server {address}", error.message))
            continue
        clusters[address] = status.cluster
        routes |= {f"{route.kind} {route.address}": route for route in listing.servers}
        if status.address not in metas:
            own = ReachTarget(name=OWN_NAME, address=status.address, role="meta")
            found = judge(own, await try_address(own.address, greeting), asked=metas)
            # Clients go by their url; others may be shown this one.
            level = Level.OK if found.level is Level.OK else Level.WARN
            findings.append(replace(found, level=level))
    findings += judge_clusters(clusters)
    targets = [target_of(route) for _, route in sorted(routes.items())]
    tried_all = await asyncio.gather(*(try_address(each.address, greeting) for each in targets))
    findings += [judge(*pair, asked=metas) for pair in zip(targets, tried_all, strict=True)]
    if clusters and not targets:
        findings.append(_failed("routes", "no server is advertised"))
    return findings


async def _ask_meta(address: str, greeting: Greeting) -> tuple[Status, Routes]:
    connection = await Connection.open(address, greeting, timeout=TRY_S)
    try:
        status = await request(connection, Command.STATUS, StatusQuery(), Status, timeout=TRY_S)
        routes = await request(connection, Command.ROUTES, RoutesFind(), Routes, timeout=TRY_S)
    finally:
        await connection.close()
    return status, routes


async def try_address(address: str, greeting: Greeting) -> Tried:
    """Look the name up, connect, say hello."""
    host, port = split_address(address)
    loop = asyncio.get_running_loop()
    begun = time.monotonic()
    try:
        async with asyncio.timeout(TRY_S):
            await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            _, writer = await asyncio.open_connection(host, port)
            writer.close()
        connection = await Connection.open(address, greeting, timeout=TRY_S)
    except socket.gaierror as error:
        return Tried(trouble="name", reason=error.strerror or str(error))
    except TimeoutError:
        return Tried(trouble="silent", reason=f"no answer within {TRY_S:g} s")
    except OSError as error:
        refused = isinstance(error, ConnectionRefusedError)
        return Tried(trouble="refused" if refused else "other", reason=error.strerror or str(error))
    except TernError as error:
        return Tried(trouble="stranger", reason=error.message)
    welcome = connection.welcome
    await connection.close()
    return Tried(welcome=welcome, took_ms=1000 * (time.monotonic() - begun))


def judge(target: ReachTarget, tried: Tried, asked: list[str] | None = None) -> CheckResult:
    """What was found at an address, and what to change where it is wrong."""
    what = f"{target.name} at {target.address}"
    remote = bool(asked) and not all(each.startswith(LOOPBACK) for each in asked or [])
    if remote and target.address.startswith(LOOPBACK):
        return CheckResult(
            level=Level.FAIL,
            what=what,
            found="that is the client's own machine, whoever the client is",
            advice=f"set advertised_host of {target.name} to a name that clients can look up",
        )
    if tried.trouble:
        return CheckResult(
            level=Level.FAIL, what=what, found=tried.reason, advice=_advice(target, tried.trouble)
        )
    assert tried.welcome is not None
    other = _stranger(target, tried.welcome)
    if other:
        return CheckResult(
            level=Level.FAIL,
            what=what,
            found=f"{other} answers there",
            advice=f"two servers advertise one address, or it leads elsewhere from here: give "
            f"{target.name} an advertised_host or advertised_ports of its own",
        )
    return CheckResult(
        level=Level.OK, what=what, found=f"reached from here, answered in {tried.took_ms:.0f} ms"
    )


def judge_clusters(clusters: dict[str, str]) -> list[CheckResult]:
    """Meta servers of one url share one registry."""
    if len(set(clusters.values())) < 2:
        return []
    named = ", ".join(f"{address} is of {cluster}" for address, cluster in clusters.items())
    return [
        CheckResult(
            level=Level.FAIL,
            what="meta servers",
            found=f"they have registries of their own, so they are different clusters: {named}",
            advice="name only meta servers with the same registry in --url: `registry = ...` is "
            "the same for all of them (docs/cluster.md)",
        )
    ]


def _stranger(target: ReachTarget, welcome: Welcome) -> str:
    """The server that answered, if it is another one."""
    if welcome.role != target.role:
        return f"a {welcome.role} server"
    if target.broker_group and welcome.broker_group not in ("", target.broker_group):
        return f"{welcome.broker_group!r}"
    return ""


def _advice(target: ReachTarget, trouble: str) -> str:
    host, port = split_address(target.address)
    if target.role == "meta" and target.name == "meta server":
        return "start a meta server there, or name another one with --url or TERN_URL"
    match trouble:
        case "name":
            return (
                f"{host!r} has no address here: set advertised_host of {target.name} to a name or "
                "number that clients can look up, or add it to DNS or /etc/hosts"
            )
        case "refused":
            return (
                f"nothing listens on port {port} there: is the server bound to 127.0.0.1 only "
                "(host), is it running, is the port mapped to another one (advertised_ports)?"
            )
        case "silent":
            return (
                f"nothing comes back: let port {port}/tcp of {host} through the firewall, or set "
                f"advertised_host of {target.name} to an address that is routed from here"
            )
        case "stranger":
            return f"something else than TernMQ is at {target.address}: change advertised_host"
        case _:
            return f"set advertised_host of {target.name} to an address that is routed from here"


def _failed(what: str, found: str) -> CheckResult:
    return CheckResult(
        level=Level.FAIL, what=what, found=found, advice="look at the log of that server"
    )
