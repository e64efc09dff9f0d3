"""`tern token`: proofs that end. A token is shown once, or written to a file for its owner only."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ternmq.cli.terminal.options import URL, Json, Url, Yes, confirm, use
from ternmq.cli.terminal.output import say, show_json, show_table, utc
from ternmq.core.errors import BadRequest
from ternmq.core.units import SECOND_MS, parse_duration_ms
from ternmq.wire.messages.limits import AccessToken, TokenCreated

if TYPE_CHECKING:
    from ternmq.client.client import Client

app = typer.Typer(help="Tokens: to be a user for a while.", no_args_is_help=True)
COLUMNS = ("id", "user", "made", "ends", "only", "state")

User = Annotated[str, typer.Argument(metavar="USER", help="Name of the user.")]


@app.command()
def create(
    user: User,
    expires: Annotated[str, typer.Option(help="How long it is good: 15m, 1h, 30d.")] = "1h",
    narrow: Annotated[
        list[str] | None,
        typer.Option(
            help="'ACTION RESOURCE': good for this only, and never for more than its user may."
        ),
    ] = None,
    file: Annotated[
        Path | None, typer.Option(help="Write it here (mode 600), in place of what is there.")
    ] = None,
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Make a token and show it, once. Who has it is the user until it ends."""
    lines = None if narrow is None else [_line(text) for text in narrow]
    expires_s = parse_duration_ms(expires) / SECOND_MS

    async def job(mq: "Client") -> TokenCreated:
        return await mq.admin.create_token(user, expires=expires_s, narrow=lines)

    made = use(url, job)
    if file is not None:
        _write(file, made.token)
    if as_json:
        about = _facts(made.about)
        show_json(about if file is not None else {**about, "token": made.token})
    else:
        say(made.token if file is None else f"token {made.about.id} of {user} is in {file}")


@app.command("list")
def list_tokens(
    user: Annotated[str, typer.Argument(metavar="[USER]", help="Only of this user.")] = "",
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """List tokens that have not ended; never what they are used by."""

    async def job(mq: "Client") -> list[AccessToken]:
        return await mq.admin.tokens(user)

    _show(use(url, job), as_json=as_json)


@app.command()
def revoke(
    user: User,
    token_id: Annotated[
        str, typer.Argument(metavar="[ID]", help="As 'tern token list' shows it; else all.")
    ] = "",
    yes: Yes = False,
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Make tokens useless; their connections end within a second. USER '*': everybody's."""
    if not token_id:
        confirm(f"Revoke all tokens of {'everybody' if user == '*' else repr(user)}?", yes=yes)

    async def job(mq: "Client") -> list[AccessToken]:
        return await mq.admin.revoke_tokens(user, token_id)

    _show(use(url, job), as_json=as_json)


def _line(text: str) -> tuple[str, str]:
    words = text.split()
    if len(words) != 2:
        raise BadRequest(f"--narrow {text!r} is not 'ACTION RESOURCE': --narrow 'publish order.*'")
    return words[0], words[1]


def _facts(token: AccessToken) -> dict[str, object]:
    return {
        "id": token.id,
        "user": token.user,
        "issued_at_ms": token.issued_at_ms,
        "expires_at_ms": token.expires_at_ms,
        "narrow": None
        if token.narrow is None
        else [f"{line.action} {line.resource}" for line in token.narrow],
        "revoked": token.revoked,
    }


def _show(tokens: list[AccessToken], *, as_json: bool) -> None:
    if as_json:
        show_json([_facts(token) for token in tokens])
        return
    rows = [
        (
            token.id,
            token.user,
            utc(token.issued_at_ms),
            utc(token.expires_at_ms),
            ", ".join(f"{line.action} {line.resource}" for line in token.narrow or ()),
            "revoked" if token.revoked else "good",
        )
        for token in tokens
    ]
    show_table(COLUMNS, rows)


def _write(path: Path, token: str) -> None:
    from ternmq.security.private_files import replace_whole

    try:
        replace_whole(path, token.encode() + b"\n")
    except OSError as error:
        raise BadRequest(f"cannot write {path}: {error.strerror}") from error
