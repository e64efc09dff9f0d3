"""`tern doctor`: what a client on this machine finds, line by line, with what to do about it.

Looking is apart from judging: `_examine` asks, the `judge_` functions are pure. A line is ok, warn
or fail; one fail makes the exit code 1.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from ternmq.cli.servers.doctor_report import CheckResult, Level, show_report
from ternmq.cli.terminal.options import URL, Json, Url, app_at
from ternmq.cli.terminal.output import size, utc
from ternmq.core.errors import TernError
from ternmq.core.units import DAY_MS, MIB, SECOND_MS
from ternmq.wire.messages.servers import Route
from ternmq.wire.messages.standings import Standing
from ternmq.wire.messages.stats import Status

if TYPE_CHECKING:
    from ternmq.client.client import Client

ASIDE = "kept aside"
ANSWER_SECONDS_MAX = 5.0
CERTIFICATE_WARN_DAYS = 21
CERTIFICATE_FAIL_DAYS = 3
CLOCK_WARN_MS = 1 * SECOND_MS
CLOCK_FAIL_MS = 60 * SECOND_MS
DISK_WARN_PART = 0.15
DISK_FAIL_PART = 0.05
DISK_FAIL_SIZE = 256 * MIB
LOOPBACK = ("127.", "localhost", "[::1]", "0.0.0.0")


def doctor(
    from_client: Annotated[
        bool,
        typer.Option(
            "--from-client",
            help="Go to the address that every server advertises, and say what to change.",
        ),
    ] = False,
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Check that this machine can use the node: ports, addresses, disk, clock, registry."""
    from ternmq.cli.terminal.logs import configure
    from ternmq.core.process import run_loop

    configure(level="error")
    findings = run_loop(_reach(url) if from_client else _examine(url))
    show_report(findings, as_json=as_json)


async def _reach(url: str) -> list[CheckResult]:

    from ternmq.cli.servers.doctor_reach import examine
    from ternmq.client.config import ClientConfig
    from ternmq.client.transport.login import find_login
    from ternmq.discovery.cluster_access import new_hello
    from ternmq.discovery.url import read_url
    from ternmq.rpc.node_proof import over
    from ternmq.security.tls.client_tls import ClientTls

    named = read_url(url)
    hello = new_hello(app_at(url))
    tls = None if named.tls is None else ClientTls(named.tls)
    login, _ = find_login(url, ClientConfig(), os.environ)
    greeting = hello if login is None else login.greeting(hello)
    return await examine(named.addresses, over(greeting, tls))


async def _examine(url: str) -> list[CheckResult]:
    from ternmq.discovery.url import parse_url

    addresses = parse_url(url)
    findings = [judge_port("meta", address, await _connects(address)) for address in addresses]
    if all(finding.level is Level.FAIL for finding in findings):
        return findings
    try:
        findings += await asyncio.wait_for(_ask(url, addresses), 4 * ANSWER_SECONDS_MAX)
    except TimeoutError:
        findings.append(_silent("node", "no answer in time"))
    except TernError as error:
        findings.append(_silent("node", error.message))
    return findings


async def _ask(url: str, addresses: list[str]) -> list[CheckResult]:
    """Everything that needs a meta server that answers."""
    from ternmq.cli.servers.doctor_reach import judge_clusters
    from ternmq.client.client import connect

    findings: list[CheckResult] = []
    async with connect(url, app=app_at(url)) as mq:
        clusters: dict[str, str] = {}
        for address in addresses:
            asking = partial(_ask_meta, mq, address, clusters, alone=len(addresses) == 1)
            findings += await _or_fail(f"meta {address}", asking)
        findings += judge_clusters(clusters)
        routes: list[Route] = []

        async def ask_routes() -> list[CheckResult]:
            routes.extend(await mq.admin.routes())
            return [judge_routes(routes)]

        findings += await _or_fail("routes", ask_routes)
        findings += await _or_fail("members", lambda: _ask_standings(mq))
        reached = True
        for route in routes:
            reason = await _connects(route.address)
            findings.append(judge_advertised(route, addresses, reason))
            reached = reached and reason is None
        if reached and any(route.kind == "realtime" for route in routes):
            findings += await _or_fail("broker", lambda: _ask_brokers(mq))
        findings.append(judge_delays(routes))
        if reached and any(route.kind == "delay" for route in routes):
            findings += await _or_fail("delay server", lambda: _ask_delays(mq))
    return findings


async def _ask_meta(
    mq: "Client", address: str, clusters: dict[str, str], *, alone: bool
) -> list[CheckResult]:
    """Each meta server on its own: one of them may not reach the registry, or have another."""
    before_ms = _now_ms()
    status = await asyncio.wait_for(mq.admin.meta_status(address), ANSWER_SECONDS_MAX)
    after_ms = _now_ms()
    clusters[address] = status.cluster
    clock = judge_clock(status.now_ms, before_ms, after_ms)
    found = [judge_registry(status), clock, *judge_security(status), *judge_tls(status)]
    if alone:
        return found
    return [replace(each, what=f"{each.what} of meta {address}") for each in found]


async def _ask_standings(mq: "Client") -> list[CheckResult]:
    standings = await asyncio.wait_for(mq.admin.standings(), ANSWER_SECONDS_MAX)
    found = [judge_standing(each) for each in standings if len(each.members) > 1 or not each.master]
    if found:
        members = await asyncio.wait_for(mq.admin.brokers(), ANSWER_SECONDS_MAX)
        found += [judge_aside(each.name, each.state) for each in members if ASIDE in each.state]
    return found


async def _ask_brokers(mq: "Client") -> list[CheckResult]:
    admin = mq.admin.tolerant()
    statuses = await asyncio.wait_for(admin.broker_status(), ANSWER_SECONDS_MAX)
    findings = [_silent(f"broker {group}", why) for group, why in sorted(admin.missing.items())]
    for status in statuses:
        findings += [judge_state(status), judge_disk(status), *judge_tls(status)]
    return findings


async def _ask_delays(mq: "Client") -> list[CheckResult]:
    before_ms = _now_ms()
    statuses = await asyncio.wait_for(mq.admin.delays.status(), ANSWER_SECONDS_MAX)
    after_ms = _now_ms()
    findings: list[CheckResult] = []
    for status in statuses:
        findings += [judge_state(status), judge_disk(status), *judge_tls(status)]
        clock = judge_clock(status.now_ms, before_ms, after_ms)
        clock = judge_jumps(clock, status)
        findings.append(replace(clock, what=f"clock of delay server {status.node}"))
    return findings


async def _or_fail(what: str, ask: Callable[[], Awaitable[list[CheckResult]]]) -> list[CheckResult]:
    try:
        return await ask()
    except TimeoutError:
        return [_silent(what, f"no answer within {ANSWER_SECONDS_MAX:g} s")]
    except TernError as error:
        return [_silent(what, error.message)]


async def _connects(address: str) -> str | None:
    """None if a TCP connection can be made, else why not."""
    from ternmq.rpc.address import split_address

    host, port = split_address(address)
    try:
        _, writer = await asyncio.wait_for(asyncio.open_connection(host, port), ANSWER_SECONDS_MAX)
    except TimeoutError:
        return f"no answer within {ANSWER_SECONDS_MAX:g} s"
    except OSError as error:
        return error.strerror or str(error)
    writer.close()
    return None


def judge_port(role: str, address: str, reason: str | None) -> CheckResult:
    if reason is None:
        return CheckResult(level=Level.OK, what=f"{role} port", found=f"{address} is reachable")
    return CheckResult(
        level=Level.FAIL,
        what=f"{role} port",
        found=f"{address}: {reason}",
        advice="start a node there (`tern up`), or name another with --url or TERN_URL",
    )


def judge_delays(routes: list[Route]) -> CheckResult:
    names = ", ".join(route.broker_group for route in routes if route.kind == "delay")
    if names:
        return CheckResult(level=Level.OK, what="delay servers", found=names)
    return CheckResult(
        level=Level.WARN,
        what="delay servers",
        found="none: messages for later (--delay, --at) cannot be sent",
        advice="`tern up` runs one, `tern delay serve` runs one alone",
    )


def judge_routes(routes: list[Route]) -> CheckResult:
    masters = [route for route in routes if route.role == "master"]
    brokers = {route.broker_group for route in masters if route.kind == "realtime"}
    if brokers:
        names = ", ".join(sorted(brokers))
        return CheckResult(level=Level.OK, what="routes", found=f"broker groups: {names}")
    return CheckResult(
        level=Level.FAIL,
        what="routes",
        found="the meta server knows no broker",
        advice="start a broker, or look at its log for why it did not register",
    )


def judge_standing(standing: Standing) -> CheckResult:
    """Which member leads a broker group, and which ones could."""
    group, count = standing.broker_group, len(standing.members)
    what = f"members of {group}"
    behind = [each.name for each in standing.members if each.id not in standing.in_sync]
    found = f"{count - len(behind)} of {count} in sync, epoch {standing.epoch}"
    if not standing.master:
        advice = f"start a member that is in sync, or: tern broker promote {group} MEMBER"
        return CheckResult(
            level=Level.FAIL, what=what, found=f"nobody leads; {found}", advice=advice
        )
    if behind:
        advice = f"tern broker list says why; one that is gone for good: tern broker forget {group}"
        found = f"{found}; behind: {', '.join(behind)}"
        return CheckResult(level=Level.WARN, what=what, found=found, advice=advice)
    return CheckResult(level=Level.OK, what=what, found=found)


def judge_aside(name: str, state: str) -> CheckResult:
    """A replica that was reseeded keeps what it had."""
    advice = "it is of no use to this server: delete it when nobody wants to look at it"
    return CheckResult(level=Level.WARN, what=f"member {name}", found=state, advice=advice)


def judge_advertised(route: Route, asked: list[str], reason: str | None) -> CheckResult:
    """Reaching the address by luck is not enough: loopback leads elsewhere on another machine."""
    kind = "delay server " if route.kind == "delay" else ""
    what = f"advertised address of {kind}{route.broker_group}"
    remote = not all(address.startswith(LOOPBACK) for address in asked)
    if remote and route.address.startswith(LOOPBACK):
        return CheckResult(
            level=Level.FAIL,
            what=what,
            found=f"{route.address} is this machine, but the node is on another one",
            advice="set advertised_host on the node to a name that clients can reach",
        )
    if reason is not None:
        return CheckResult(
            level=Level.FAIL,
            what=what,
            found=f"{route.address}: {reason}",
            advice="set advertised_host on the node to a name that clients can reach",
        )
    return CheckResult(level=Level.OK, what=what, found=f"{route.address} is reachable from here")


def judge_registry(status: Status) -> CheckResult:
    """The meta server asked it just now."""
    name = status.registry or "registry"
    if status.state == "ok":
        return CheckResult(level=Level.OK, what="registry", found=f"{name} answers")
    since = f", last heard {utc(status.registry_at_ms)}" if status.registry_at_ms else ""
    return CheckResult(
        level=Level.FAIL,
        what="registry",
        found=f"{name}{since}: {status.state}",
        advice="start it; sending and consuming go on, but nothing new can be made, and nobody can "
        "take over a broker group",
    )


def judge_security(status: Status) -> list[CheckResult]:
    """A server that others reach without login is worth a line every time."""
    found = []
    if status.guarded_otherwise:
        some = ", ".join(status.guarded_otherwise)
        reason = (
            f"{some} let everybody in, and others only who logs in"
            if status.guarded
            else f"{some} let in only who logs in, and this meta server everybody"
        )
        found.append(
            CheckResult(
                level=Level.FAIL,
                what="security",
                found=reason,
                advice="set security = true for every server of the cluster, and start them again",
            )
        )
    if status.insecure:
        found.append(
            CheckResult(
                level=Level.WARN,
                what="security",
                found="insecure = true: whoever reaches the servers may send, read and delete",
                advice="keep others out by the network; docs/security.md says what there is",
            )
        )
    return found


def judge_tls(status: Status) -> list[CheckResult]:
    """The certificate that a server shows, and files that it does not take."""
    what = f"TLS of {status.role} {status.node}"
    if status.tls_trouble:
        return [
            CheckResult(
                level=Level.FAIL,
                what=what,
                found=f"its new files are not used, the old ones are: {status.tls_trouble}",
                advice="put good files there; it looks again by itself, or at once on SIGHUP",
            )
        ]
    if not status.tls_expires_at_ms:
        return []
    days = (status.tls_expires_at_ms - status.now_ms) // DAY_MS
    found = f"its certificate is good until {utc(status.tls_expires_at_ms)}"
    if days >= CERTIFICATE_WARN_DAYS:
        return [CheckResult(level=Level.OK, what=what, found=found)]
    return [
        CheckResult(
            level=Level.FAIL if days < CERTIFICATE_FAIL_DAYS else Level.WARN,
            what=what,
            found=f"{found}, that is {days} days" if days >= 0 else f"{found}: it has expired",
            advice="renew it: tern secure cert DIR NAME --replace; servers take it while they run",
        )
    ]


def judge_clock(node_ms: int, before_ms: int, after_ms: int) -> CheckResult:
    """The node answered somewhere between `before` and `after`; only what lies outside counts."""
    ahead = max(0, node_ms - after_ms) - max(0, before_ms - node_ms)
    found = f"the node's clock is {abs(ahead)} ms {'ahead' if ahead >= 0 else 'behind'}"
    if abs(ahead) < CLOCK_WARN_MS:
        return CheckResult(level=Level.OK, what="clock", found=found)
    return CheckResult(
        level=Level.FAIL if abs(ahead) >= CLOCK_FAIL_MS else Level.WARN,
        what="clock",
        found=found,
        advice="run a time service (chrony, systemd-timesyncd) on both machines",
    )


def judge_jumps(clock: CheckResult, status: Status) -> CheckResult:
    """Messages for later are due by this clock: one that was set is worth knowing."""
    if not status.clock_jumps:
        return clock
    times = "once" if status.clock_jumps == 1 else f"{status.clock_jumps} times"
    return replace(
        clock,
        level=Level.WARN if clock.level is Level.OK else clock.level,
        found=f"{clock.found}; it jumped {times} since the start",
        advice=clock.advice or "run a time service that slews the clock (chrony)",
    )


def judge_state(status: Status) -> CheckResult:
    what = f"{'delay server' if status.role == 'delay' else 'broker'} {status.node}"
    if status.state == "ok":
        found = f"ok, {status.connections} connections, {size(status.memory)} memory"
        return CheckResult(level=Level.OK, what=what, found=found)
    return CheckResult(
        level=Level.FAIL,
        what=what,
        found=status.state,
        advice="consuming goes on; look at the server's log, and at its disk",
    )


def judge_disk(status: Status) -> CheckResult:
    what = f"disk of {'delay server ' if status.role == 'delay' else ''}{status.node}"
    found = f"{size(status.disk_free)} free of {size(status.disk_size)} at {status.data_dir}"
    part = status.disk_free / max(1, status.disk_size)
    if part < DISK_FAIL_PART or status.disk_free < DISK_FAIL_SIZE:
        level = Level.FAIL
    elif part < DISK_WARN_PART:
        level = Level.WARN
    else:
        return CheckResult(level=Level.OK, what=what, found=found)
    return CheckResult(
        level=level,
        what=what,
        found=found,
        advice="free some space; on a full disk messages are refused until there is some",
    )


def _silent(what: str, found: str) -> CheckResult:
    return CheckResult(
        level=Level.FAIL, what=what, found=found, advice="look at the node's log on stderr"
    )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
