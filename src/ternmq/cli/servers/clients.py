"""`tern clients`: who is connected, who sends to a topic, and hanging up on one."""

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from ternmq.cli.terminal.options import URL, Json, Url, Yes, confirm, use
from ternmq.cli.terminal.output import say, show_json, show_table, size
from ternmq.cli.terminal.partial_answers import end_incomplete, use_tolerant

if TYPE_CHECKING:
    from ternmq.client.admin.admin import Admin
    from ternmq.wire.inspection.sessions import SenderCount

MEASURED_S = 1.0

app = typer.Typer(
    help="Who is connected to the brokers, who sends to a topic; hang up on a client.",
    no_args_is_help=True,
)


@app.command("list")
def list_clients(
    name: Annotated[str, typer.Option("--app", help="Only of this application.")] = "",
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="At most so many.")] = 1000,
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """List connections: application, host, process, version, and what they consume."""
    found, missing = use_tolerant(url, lambda admin: admin.sessions(name, count))
    if as_json:
        show_json(found)
    else:
        show_table(
            ["app", "host", "#pid", "version", "role", "session", "#seconds", "consumes"],
            [
                (
                    one.app,
                    one.host,
                    one.pid,
                    one.version,
                    one.role,
                    one.session[:8],
                    one.connected_s,
                    ", ".join(f"{each.topic} ({each.group})" for each in one.consuming) or None,
                )
                for one in found
            ],
        )
    end_incomplete(missing)


@app.command()
def senders(
    topic: Annotated[str, typer.Argument(help="Only to this topic.")] = "",
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """List which applications send to which topics, measured for a second."""

    async def measure(admin: "Admin") -> "tuple[list[SenderCount], list[SenderCount]]":
        before = await admin.senders(topic)
        await asyncio.sleep(MEASURED_S)
        return before, await admin.senders(topic)

    (before, found), missing = use_tolerant(url, measure)
    known = {(one.app, one.topic, one.broker_group): one.messages for one in before}
    rates = [
        (one, (one.messages - known.get((one.app, one.topic, one.broker_group), 0)) / MEASURED_S)
        for one in found
    ]
    rates.sort(key=lambda each: (-each[1], -each[0].messages))
    if as_json:
        show_json([{"sender": one, "messages_per_second": rate} for one, rate in rates])
    else:
        show_table(
            ["app", "topic", "#a second", "#messages", "#bytes", "broker group"],
            [
                (
                    one.app or "(others)",
                    one.topic,
                    rate,
                    one.messages,
                    size(one.bytes),
                    one.broker_group,
                )
                for one, rate in rates
            ],
        )
    end_incomplete(missing)


@app.command()
def disconnect(
    session: Annotated[str, typer.Argument(help="As 'tern clients list' shows it.")],
    reason: Annotated[str, typer.Option(help="What the client is told.")] = "",
    yes: Yes = False,
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Hang up on a client. It is told why, and may come back."""
    confirm(f"Disconnect the client with session {session}?", yes=yes)
    closed = use(url, lambda mq: mq.admin.disconnect(session, reason))
    if as_json:
        show_json({"connections": closed})
    else:
        say(f"{closed} connections closed")
