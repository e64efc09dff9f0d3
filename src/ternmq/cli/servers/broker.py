"""`tern broker`: run a broker, list brokers, change which one leads."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from ternmq.cli.processes.up import FlushFlag
from ternmq.cli.servers import drain, slots
from ternmq.cli.terminal.options import (
    URL,
    AdvertisedHost,
    ConfigFile,
    Host,
    Insecure,
    Json,
    KindFlag,
    LogJson,
    MetaUrl,
    MetricsPort,
    NodeSecretFile,
    ServerFlag,
    Url,
    Yes,
    confirm,
    use,
)
from ternmq.cli.terminal.output import note, say, show_json, show_table
from ternmq.core.errors import BadRequest

if TYPE_CHECKING:
    from ternmq.client.admin.broker_members import BrokerState
    from ternmq.client.client import Client
    from ternmq.wire.messages.standings import HandedOver, Standing

app = typer.Typer(
    help="Brokers: run one, see which there are, say who leads.", no_args_is_help=True
)

app.add_typer(slots.app, name="slots")

BrokerGroupName = Annotated[str, typer.Argument(metavar="GROUP", help="Name of the group.")]


@app.command()
def serve(
    url: MetaUrl = None,
    name: Annotated[str | None, typer.Option(help="Its broker group (main).")] = None,
    port: Annotated[int | None, typer.Option(min=2, help="Port to listen on (7701).")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Where it stores (./tern-data).")] = None,
    flush: Annotated[
        FlushFlag | None, typer.Option(help="When an ack is given: on disk, or handed to the OS.")
    ] = None,
    host: Host = None,
    insecure: Insecure = None,
    advertised_host: AdvertisedHost = None,
    metrics_port: MetricsPort = None,
    node_secret_file: NodeSecretFile = None,
    config: ConfigFile = None,
    log_json: LogJson = None,
) -> None:
    """Run a broker; --url names the meta servers, all of them.

    When it is ready, one line `ready NAME ADDRESS` appears on stdout. `tern up` runs a broker by
    itself; this is for more of them.
    """
    from ternmq.cli.processes.node import run_broker
    from ternmq.cli.processes.up import read_config

    flags: dict[str, Any] = {
        "url": url,
        "broker_group": name,
        "ports": None if port is None else port - 1,
        "data_dir": data_dir,
        "flush": None if flush is None else flush.value,
        "host": host,
        "insecure": insecure,
        "advertised_host": advertised_host,
        "metrics_port": metrics_port,
        "node_secret_file": node_secret_file,
        "log_json": log_json,
    }
    settings = read_config(config, flags)
    raise typer.Exit(run_broker(settings, settings.url or URL))


@app.command("list")
def list_brokers(
    kind: KindFlag = ServerFlag.realtime, url: Url = URL, as_json: Json = False
) -> None:
    """Every server of every broker group (of delay servers: --kind delay): role, epoch, state,
    address, lag."""

    lines = use(url, lambda mq: mq.admin.brokers(kind.value))
    if as_json:
        show_json([dataclasses.asdict(line) for line in lines])
        return
    heads = ["group", "kind", "name", "role", "in sync", "epoch", "state", "address", "pid", "lag"]
    show_table(heads, [_cells(line) for line in lines])


@app.command()
def promote(
    broker_group: BrokerGroupName,
    member: Annotated[
        str | None, typer.Argument(help="Name, address or id; else one that is in sync.")
    ] = None,
    force: Annotated[
        bool, typer.Option(help="Although the master may be alive; it stops acknowledging.")
    ] = False,
    accept_loss: Annotated[
        bool, typer.Option(help="Although the member is not in sync: what it lacks is lost.")
    ] = False,
    kind: KindFlag = ServerFlag.realtime,
    yes: Yes = False,
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Make a member of a broker group its master: when the old one is gone, or hangs.

    A member that is in sync has all that was acknowledged. With the old master alive and well use
    `tern broker handover`, which pauses for a moment instead.
    """
    if accept_loss:
        if member is None:
            raise BadRequest("--accept-loss is for one member: name it")
        confirm(use(url, lambda mq: _loss(mq, broker_group, member, kind)), yes=yes)

    async def job(mq: "Client") -> "Standing":
        return await mq.admin.promote(
            broker_group, member, force=force, accept_loss=accept_loss, kind=kind.value
        )

    _show_standing(use(url, job), as_json)


@app.command()
def handover(
    broker_group: BrokerGroupName,
    member: Annotated[
        str | None, typer.Argument(help="Name, address or id; else whom the master thinks best.")
    ] = None,
    kind: KindFlag = ServerFlag.realtime,
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Let another in-sync member lead. Nothing is lost, sending pauses for less than a second."""

    from ternmq.client.admin.broker_members import BrokerMembers

    async def job(mq: "Client") -> "tuple[HandedOver, Standing]":
        done = await mq.admin.handover(broker_group, member, kind=kind.value)
        return done, await BrokerMembers(mq.cluster).standing(broker_group, kind.value)

    done, standing = use(url, job)
    if as_json:
        show_json(
            {
                "group": broker_group,
                "member": done.member_id,
                "epoch": done.epoch,
                "paused_ms": done.paused_ms,
            }
        )
        return
    leader = standing.member(done.member_id)
    name = leader.name if leader else done.member_id
    say(
        f"{name} is the master of {broker_group} at epoch {done.epoch}; "
        f"sending paused for {done.paused_ms} ms"
    )


@app.command()
def forget(
    broker_group: BrokerGroupName,
    member: Annotated[str, typer.Argument(help="Name, address or id.")],
    accept_loss: Annotated[
        bool, typer.Option(help="Although it is the last in-sync member: its messages are lost.")
    ] = False,
    kind: KindFlag = ServerFlag.realtime,
    yes: Yes = False,
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """A member of a broker group is gone for good: do not wait for it any more."""
    loss = ", and with it every message of the group" if accept_loss else ""
    confirm(f"Forget member {member} of broker group {broker_group}{loss}?", yes=yes)

    async def job(mq: "Client") -> "Standing":
        return await mq.admin.forget_member(
            broker_group, member, accept_loss=accept_loss, kind=kind.value
        )

    _show_standing(use(url, job), as_json)


async def _loss(mq: "Client", broker_group: str, member: str, kind: ServerFlag) -> str:
    """The question before messages are given up."""
    from ternmq.client.admin.broker_members import BrokerMembers, find_member
    from ternmq.meta.standings.claims import undecided_text

    standing = await BrokerMembers(mq.cluster).standing(broker_group, kind.value)
    chosen = find_member(standing, member)
    if standing.claims:
        return f"{undecided_text(standing)}. Make {chosen.name} master of {broker_group}?"
    states = {each.member: each for each in await mq.admin.brokers(kind.value)}
    if chosen.id in standing.in_sync and standing.waits:
        return f"{chosen.name} is in sync, so nothing is lost. Make it master of {broker_group}?"
    lag = states[chosen.id].lag if chosen.id in states else None
    behind = "how far is not known" if lag is None else f"{lag} bytes when it last heard of it"
    names = [each.name for each in standing.members if each.id in standing.in_sync]
    have = f" {' and '.join(names)} may have them: start it instead if you can." if names else ""
    how = "is not in sync" if standing.waits else "may be behind: its group does not wait for it"
    return (
        f"{chosen.name} {how}; it is behind the last master ({behind}). Acknowledged "
        f"messages that it lacks are lost for good.{have} Make it master of {broker_group}?"
    )


def _cells(line: "BrokerState") -> list[str]:
    in_sync = ("yes" if line.waits or line.role == "master" else "near") if line.in_sync else "no"
    cells = (
        line.group,
        line.kind,
        line.name or None,
        line.role,
        in_sync,
        line.epoch,
        line.state,
        line.address,
        line.pid,
        line.lag,
    )
    return ["-" if cell is None else str(cell) for cell in cells]


def _show_standing(standing: "Standing", as_json: bool) -> None:
    if as_json:
        show_json(
            msgspec.structs.asdict(standing)
            | {"members": [msgspec.structs.asdict(each) for each in standing.members]}
        )
        return
    names = {each.id: each.name for each in standing.members}
    in_sync = ", ".join(names.get(each, each) for each in standing.in_sync) or "nobody"
    master = names.get(standing.master, "nobody")
    say(f"{standing.broker_group}: master {master} at epoch {standing.epoch}; in sync: {in_sync}")
    if not standing.waits:
        say('replica_ack = "none": a new master may lack what was acknowledged last')


@app.command()
def weight(
    broker_group: Annotated[str, typer.Argument(metavar="GROUP", help="The broker group.")],
    value: Annotated[
        int, typer.Argument(metavar="WEIGHT", help="0 to 10000; 100 is usual, 0 is nothing new.")
    ],
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """How much a broker group takes: of messages, where clients choose by weight, and of slots.

    0 keeps every new message without an order key away from it; 'tern broker slots balance' moves
    the order keys, too.
    """
    from ternmq.client.client import Client

    async def job(mq: Client) -> tuple[dict[str, int], bool]:
        weights = (await mq.admin.set_weight(broker_group, value)).weights
        standings = await mq.admin.standings()
        return weights, any(
            each.broker_group == broker_group and each.members for each in standings
        )

    weights, there = use(url, job)
    if not there:
        note(f"no server has joined a broker group {broker_group!r} yet: the weight waits for it")
    if as_json:
        show_json(weights)
    else:
        show_table(["group", "weight"], [[name, str(each)] for name, each in weights.items()])


app.command()(drain.drain)
