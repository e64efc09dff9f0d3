"""`tern access-key`: names and secrets by which RocketMQ clients sign, to come as a user."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ternmq.cli.terminal.options import URL, Json, Url, use
from ternmq.cli.terminal.output import say, show_json, show_table, utc
from ternmq.core.errors import BadRequest

if TYPE_CHECKING:
    from ternmq.client.client import Client
    from ternmq.wire.messages.limits import AccessKey

app = typer.Typer(help="Access keys of RocketMQ clients.", no_args_is_help=True)
COLUMNS = ("id", "user", "made")

User = Annotated[str, typer.Argument(metavar="USER", help="Name of the user.")]


@app.command()
def create(
    user: User,
    file: Annotated[
        Path | None,
        typer.Option(help="Write id and secret here (mode 600), in place of what is there."),
    ] = None,
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Make an access key and show its secret, once. Who has both is the user, at a gateway."""

    async def job(mq: "Client") -> "AccessKey":
        return await mq.admin.create_access_key(user)

    made = use(url, job)
    if file is not None:
        _write(file, f"{made.id} {made.secret}")
    if as_json:
        about = _facts(made)
        show_json(about if file is not None else {**about, "secret": made.secret})
    else:
        say(
            f"{made.id} {made.secret}"
            if file is None
            else f"access key {made.id} of {user} is in {file}"
        )


@app.command("list")
def list_keys(
    user: Annotated[str, typer.Argument(metavar="[USER]", help="Only of this user.")] = "",
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """List access keys, never their secrets."""

    async def job(mq: "Client") -> "list[AccessKey]":
        return await mq.admin.access_keys(user)

    _show(use(url, job), as_json=as_json)


@app.command()
def remove(
    user: User,
    key_id: Annotated[str, typer.Argument(metavar="ID", help="As 'tern access-key list' shows.")],
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Make a key useless; its clients are refused within a second."""

    async def job(mq: "Client") -> "list[AccessKey]":
        return await mq.admin.remove_access_key(user, key_id)

    _show(use(url, job), as_json=as_json)


def _facts(key: "AccessKey") -> dict[str, object]:
    return {"id": key.id, "user": key.user, "made_at_ms": key.made_at_ms}


def _show(keys: "list[AccessKey]", *, as_json: bool) -> None:
    if as_json:
        show_json([_facts(key) for key in keys])
    else:
        show_table(COLUMNS, [(key.id, key.user, utc(key.made_at_ms)) for key in keys])


def _write(path: Path, text: str) -> None:
    from ternmq.security.private_files import replace_whole

    try:
        replace_whole(path, text.encode() + b"\n")
    except OSError as error:
        raise BadRequest(f"cannot write {path}: {error.strerror}") from error
