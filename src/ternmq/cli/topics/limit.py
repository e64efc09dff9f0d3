"""`tern limit`: how much an application may send and consume; and how rates are typed and shown."""

from typing import TYPE_CHECKING, Annotated

import typer

from ternmq.cli.terminal.options import URL, Json, Url, use
from ternmq.cli.terminal.output import show_facts, show_json, show_table, size
from ternmq.core.errors import BadRequest
from ternmq.core.ids import check_name
from ternmq.core.units import parse_rate, parse_size_rate
from ternmq.wire.messages.limits import AppLimit

if TYPE_CHECKING:
    from ternmq.client.client import Client

app = typer.Typer(
    help="Limit what an application sends and consumes, on all topics together.",
    no_args_is_help=True,
)

Rate = Annotated[
    str | None,
    typer.Option("--rate", help="Messages a second, for example 1000/s; none: no limit."),
]
BytesRate = Annotated[
    str | None, typer.Option("--bytes", help="Bytes a second, for example 10MB/s; none: no limit.")
]

ConsumeRate = Annotated[str | None, typer.Option(help="Messages a second that it is handed.")]
ConsumeBytes = Annotated[str | None, typer.Option(help="Bytes a second that it is handed.")]


@app.command("set")
def change(
    name: Annotated[str, typer.Option("--app", help="Name of the application.")],
    rate: Rate = None,
    bytes_rate: BytesRate = None,
    consume_rate: ConsumeRate = None,
    consume_bytes: ConsumeBytes = None,
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Limit an application from its next message on: senders are told to wait, consumers wait."""
    check_name("application", name)
    changes = both_ways(rates(rate, bytes_rate), rates(consume_rate, consume_bytes))
    if not changes:
        raise BadRequest("nothing to change; 'tern limit set --help' lists what can be set")

    async def job(mq: "Client") -> AppLimit:
        return await mq.admin.set_limit(name, **changes)

    limit = use(url, job)
    if as_json:
        show_json(limit)
    else:
        show_facts(dict(zip(COLUMNS, _row(limit), strict=True)))


@app.command("list")
def list_limits(url: Url = URL, as_json: Json = False) -> None:
    """List the applications that have a limit."""

    async def job(mq: "Client") -> list[AppLimit]:
        return await mq.admin.limits()

    limits = use(url, job)
    if as_json:
        show_json(limits)
    else:
        show_table(COLUMNS, [_row(limit) for limit in limits])


COLUMNS = ("app", "send", "send bytes", "consume", "consume bytes")


def _row(limit: AppLimit) -> tuple[str, ...]:
    return (
        limit.app,
        shown_rate(limit.rate),
        shown_size_rate(limit.bytes_rate),
        shown_rate(limit.consume_rate),
        shown_size_rate(limit.consume_bytes_rate),
    )


def rates(rate: str | None, bytes_rate: str | None) -> dict[str, int]:
    """What was typed, without what was not."""
    found = {} if rate is None else {"rate": parse_rate(rate)}
    return found if bytes_rate is None else found | {"bytes_rate": parse_size_rate(bytes_rate)}


def both_ways(send: dict[str, int], consume: dict[str, int]) -> dict[str, int]:
    """As a limit of an application has them."""
    return send | {f"consume_{key}": value for key, value in consume.items()}


def shown_rate(rate: int) -> str:
    return f"{rate}/s" if rate else "no limit"


def shown_size_rate(rate: int) -> str:
    return f"{size(rate)}/s" if rate else "no limit"
