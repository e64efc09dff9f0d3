"""`tern quota`: how much a user may have: connections, and what its application sends and consumes.

The rates are those of `tern limit`, of the application that is called like the user.
"""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ternmq.cli.terminal.options import URL, Json, Url, use
from ternmq.cli.terminal.output import show_facts, show_json, show_table
from ternmq.cli.topics.limit import (
    BytesRate,
    ConsumeBytes,
    ConsumeRate,
    Rate,
    both_ways,
    rates,
    shown_rate,
    shown_size_rate,
)
from ternmq.core.errors import BadRequest

if TYPE_CHECKING:
    from ternmq.client.client import Client

app = typer.Typer(help="Quotas: how much a user may have.", no_args_is_help=True)
COLUMNS = ("user", "connections", "send", "send bytes", "consume", "consume bytes")


@app.command("set")
def change(
    name: Annotated[str, typer.Argument(metavar="USER", help="Name of the user.")],
    connections: Annotated[
        int | None, typer.Option(min=0, help="Connections to each server; 0: no limit.")
    ] = None,
    rate: Rate = None,
    bytes_rate: BytesRate = None,
    consume_rate: ConsumeRate = None,
    consume_bytes: ConsumeBytes = None,
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Change the quotas of a user."""
    changes = both_ways(rates(rate, bytes_rate), rates(consume_rate, consume_bytes))
    if not changes and connections is None:
        raise BadRequest("nothing to change; 'tern quota set --help' lists what can be set")

    async def job(mq: "Client") -> list[dict[str, Any]]:
        if connections is not None:
            await mq.admin.set_user(name, connections_max=connections)
        if changes:
            await mq.admin.set_limit(name, **changes)
        return [each for each in await _quotas(mq) if each["user"] == name]

    [quota] = use(url, job)
    if as_json:
        show_json(quota)
    else:
        show_facts(dict(zip(COLUMNS, _row(quota), strict=True)))


@app.command("list")
def list_quotas(url: Url = URL, as_json: Json = False) -> None:
    """List users with their quotas; 0 is no limit."""
    quotas = use(url, _quotas)
    if as_json:
        show_json(quotas)
    else:
        show_table(COLUMNS, [_row(quota) for quota in quotas])


async def _quotas(mq: "Client") -> list[dict[str, Any]]:
    limits = {limit.app: limit for limit in await mq.admin.limits()}
    found = []
    for user in await mq.admin.users():
        limit = limits.get(user.name)
        if user.user:
            found.append(
                {
                    "user": user.name,
                    "connections_max": user.connections_max,
                    "rate": limit.rate if limit else 0,
                    "bytes_rate": limit.bytes_rate if limit else 0,
                    "consume_rate": limit.consume_rate if limit else 0,
                    "consume_bytes_rate": limit.consume_bytes_rate if limit else 0,
                }
            )
    return found


def _row(quota: dict[str, Any]) -> tuple[str, ...]:
    return (
        quota["user"],
        str(quota["connections_max"] or "no limit"),
        shown_rate(quota["rate"]),
        shown_size_rate(quota["bytes_rate"]),
        shown_rate(quota["consume_rate"]),
        shown_size_rate(quota["consume_bytes_rate"]),
    )
