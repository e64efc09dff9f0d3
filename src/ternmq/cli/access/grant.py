"""`tern grant`: what users may do. Nothing until it is granted; deny wins."""

from typing import TYPE_CHECKING, Annotated

import typer

from ternmq.cli.terminal.options import URL, Json, Url, use
from ternmq.cli.terminal.output import show_json, show_table
from ternmq.wire.messages.limits import User

if TYPE_CHECKING:
    from ternmq.client.client import Client

app = typer.Typer(help="Grants: what users may do.", no_args_is_help=True)

Identity = Annotated[
    str, typer.Argument(metavar="USER", help="A user, 'order-*' for many, '*' for all.")
]
ActionName = Annotated[
    str,
    typer.Argument(
        metavar="ACTION",
        help="publish, subscribe, read, delay, operate, manage, describe, cluster, grant or '*'.",
    ),
]
ResourceName = Annotated[
    str,
    typer.Argument(
        metavar="RESOURCE",
        help="A topic ('order.new', 'order.*'), group:NAME, app:NAME, cluster:NAME or '*'.",
    ),
]
Deny = Annotated[bool, typer.Option("--deny", help="Forbid it, whatever else allows it.")]


@app.command()
def add(
    identity: Identity,
    action: ActionName,
    resource: ResourceName,
    deny: Deny = False,
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Allow an action; live connections have it within a second."""

    async def job(mq: "Client") -> User:
        return await mq.admin.grant(identity, action, resource, deny=deny)

    _show([use(url, job)], as_json=as_json)


@app.command()
def remove(
    identity: Identity,
    action: ActionName,
    resource: ResourceName,
    deny: Deny = False,
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Take a line away again; live connections lose it within a second."""

    async def job(mq: "Client") -> User:
        return await mq.admin.revoke(identity, action, resource, deny=deny)

    _show([use(url, job)], as_json=as_json)


@app.command("list")
def list_grants(
    identity: Annotated[
        str | None, typer.Argument(metavar="[USER]", help="Only of this user or pattern.")
    ] = None,
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """List the lines of all users, or of one."""

    async def job(mq: "Client") -> list[User]:
        return await mq.admin.users() if identity is None else [await mq.admin.user(identity)]

    _show(use(url, job), as_json=as_json)


def _show(users: list[User], *, as_json: bool) -> None:
    lines = [
        {
            "user": user.name,
            "rule": "deny" if grant.deny else "allow",
            "action": grant.action,
            "resource": grant.resource,
        }
        for user in users
        for grant in user.grants
    ]
    if as_json:
        show_json(lines)
    else:
        columns = ("user", "rule", "action", "resource")
        show_table(columns, [tuple(line[name] for name in columns) for line in lines])
