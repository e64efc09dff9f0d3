"""`tern quota`: how much a user may have of each server, and what everybody has (`*`)."""

from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec.structs import asdict

from ternmq.cli.terminal.options import URL, Json, Url, use
from ternmq.cli.terminal.output import show_facts, show_json, show_table, size
from ternmq.cli.topics.limit import ConsumeBytes, ConsumeRate, shown_rate, shown_size_rate
from ternmq.core.errors import BadRequest
from ternmq.core.units import parse_rate, parse_size, parse_size_rate
from ternmq.security.access.quota import AS_DEFAULT
from ternmq.wire.messages.limits import Quota

if TYPE_CHECKING:
    from collections.abc import Callable

    from ternmq.client.client import Client
    from ternmq.wire.messages.limits import User

app = typer.Typer(help="Quotas: how much a user may have.", no_args_is_help=True)


def _count(text: str) -> int:
    if not text.isdecimal():
        raise BadRequest(f"{text!r} is no number; also good: none, default")
    return int(text)


def _percent(text: str) -> int:
    return _count(text.removesuffix("%"))


_TYPED: dict[str, "Callable[[str], int]"] = {
    "rate": parse_rate,
    "consume_rate": parse_rate,
    "connects_rate": parse_rate,
    "bytes_rate": parse_size_rate,
    "consume_bytes_rate": parse_size_rate,
    "in_flight_size_max": parse_size,
    "loop_percent": _percent,
}
"""How values are typed; others are numbers."""
_SHOWN: dict[str, "Callable[[int], str]"] = {
    "rate": shown_rate,
    "consume_rate": shown_rate,
    "connects_rate": shown_rate,
    "bytes_rate": shown_size_rate,
    "consume_bytes_rate": shown_size_rate,
    "in_flight_size_max": size,
    "loop_percent": lambda percent: f"{percent}%",
}
NAMES = {
    "connections": "connections_max",
    "connects": "connects_rate",
    "rate": "rate",
    "bytes": "bytes_rate",
    "consume-rate": "consume_rate",
    "consume-bytes": "consume_bytes_rate",
    "in-flight": "in_flight_size_max",
    "waiting": "waiting_max",
    "loop": "loop_percent",
    "topics": "topics_max",
    "halves": "halves_max",
    "groups": "groups_max",
    "delayed": "delayed_max",
    "keys": "keys_max",
}
"""As they are typed, and as they are stored."""


@app.command("set")
def change(
    name: Annotated[str, typer.Argument(metavar="USER", help="Name of the user; '*': everybody.")],
    connections: Annotated[str | None, typer.Option(help="Connections to each server.")] = None,
    connects: Annotated[str | None, typer.Option(help="New connections a second: 10/s.")] = None,
    rate: Annotated[str | None, typer.Option(help="Messages a second that it sends.")] = None,
    bytes_rate: Annotated[
        str | None, typer.Option("--bytes", help="Bytes a second that it sends: 10MB/s.")
    ] = None,
    consume_rate: ConsumeRate = None,
    consume_bytes: ConsumeBytes = None,
    in_flight: Annotated[
        str | None, typer.Option(help="Bytes that were accepted and not answered: 64MiB.")
    ] = None,
    waiting: Annotated[str | None, typer.Option(help="Requests that are not answered.")] = None,
    loop: Annotated[str | None, typer.Option(help="Share of a server's time: 10%.")] = None,
    topics: Annotated[str | None, typer.Option(help="Topics that it made.")] = None,
    halves: Annotated[str | None, typer.Option(help="Open transactions.")] = None,
    groups: Annotated[str | None, typer.Option(help="Consumer groups that it made.")] = None,
    delayed: Annotated[str | None, typer.Option(help="Messages that are not due yet.")] = None,
    keys: Annotated[
        str | None, typer.Option(help="Data keys of encrypted topics: one for each subject.")
    ] = None,
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Change the quotas of a user; none: no limit, default: what everybody ('*') has."""
    typed = (connections, connects, rate, bytes_rate, consume_rate, consume_bytes, in_flight)
    more = (waiting, loop, topics, halves, groups, delayed, keys)
    wanted = {
        stored: read_value(stored, text)
        for stored, text in zip(NAMES.values(), (*typed, *more), strict=True)
        if text is not None
    }
    if not wanted:
        raise BadRequest("nothing to change; 'tern quota set --help' lists what can be set")

    async def job(mq: "Client") -> "User":
        return await mq.admin.set_quota(name, wanted)

    user = use(url, job)
    if as_json:
        show_json(facts(user))
    else:
        show_facts(dict(zip(("user", *NAMES), (user.name, *row(user.quota)), strict=True)))


@app.command("list")
def list_quotas(url: Url = URL, as_json: Json = False) -> None:
    """List users with their quotas; '*' is what everybody has who has no other."""

    async def job(mq: "Client") -> "list[User]":
        return [each for each in await mq.admin.users() if each.user or each.quota != Quota()]

    users = use(url, job)
    if as_json:
        show_json([facts(each) for each in users])
    else:
        show_table(("user", *NAMES), [(each.name, *row(each.quota)) for each in users])


def read_value(name: str, text: str) -> int:
    """What was typed for it; raises `BadRequest`."""
    if text in ("none", "default"):
        return 0 if text == "none" else AS_DEFAULT
    return _TYPED.get(name, _count)(text)


def facts(user: "User") -> dict[str, Any]:
    return {"user": user.name, **asdict(user.quota)}


def row(quota: Quota) -> list[str]:
    """Values in the order of `NAMES`, for people."""
    held = asdict(quota)
    return [_text(name, held[name]) for name in NAMES.values()]


def _text(name: str, value: int | None) -> str:
    if value is None:
        return "default"
    return _SHOWN.get(name, str)(value) if value else "no limit"
