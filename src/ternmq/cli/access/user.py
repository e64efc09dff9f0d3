"""`tern user`: who may log in. Passwords are typed, piped or in a file, never an argument."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ternmq.cli.terminal.options import URL, ConfigFile, Json, Url, Yes, confirm, use
from ternmq.cli.terminal.output import note, say, show_facts, show_json, show_table
from ternmq.core.errors import BadRequest
from ternmq.wire.messages.limits import OwnRights, User

if TYPE_CHECKING:
    from ternmq.client.client import Client
    from ternmq.security.access.secret import Secret

app = typer.Typer(help="Users: who may log in where security is on.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the user.")]
NewPassword = Annotated[
    Path | None,
    typer.Option(
        "--password-file",
        metavar="FILE",
        help="The new password is its first line; else it is asked for, or read from a pipe.",
    ),
]
Apps = Annotated[
    list[str] | None,
    typer.Option("--app", help="An application that it may be (its own name); may end in '*'."),
]
COLUMNS = ("name", "apps", "login", "grants")


@app.command()
def add(
    name: Name,
    apps: Apps = None,
    password_file: NewPassword = None,
    no_password: Annotated[
        bool, typer.Option("--no-password", help="It comes in by a certificate of its name.")
    ] = False,
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Make a user; it may do nothing until it is granted something (tern grant add)."""
    if no_password and password_file is not None:
        raise BadRequest("--no-password and --password-file do not go together")
    password = None if no_password else _new_password(name, password_file)

    async def job(mq: "Client") -> User:
        return await mq.admin.add_user(name, password, apps=apps)

    _show(use(url, job), as_json=as_json)


@app.command("list")
def list_users(url: Url = URL, as_json: Json = False) -> None:
    """List users, and the patterns that grants were made for."""

    async def job(mq: "Client") -> list[User]:
        return await mq.admin.users()

    users = use(url, job)
    if as_json:
        show_json(users)
    else:
        show_table(COLUMNS, [_row(user) for user in users])


@app.command()
def whoami(url: Url = URL, as_json: Json = False) -> None:
    """Show by which user this command comes in, and every line that counts for it."""
    from ternmq.security.access.access_book import shown

    async def job(mq: "Client") -> OwnRights:
        return await mq.admin.whoami()

    own = use(url, job)
    if as_json:
        show_json(own)
    elif not own.user:
        say("nobody: security is off here, so everybody may do everything")
    else:
        lines = {"grants": "; ".join(map(shown, own.grants)) or "none"}
        if own.narrow is not None:
            lines["only"] = "; ".join(map(shown, own.narrow))
        show_facts({"name": own.user, "apps": ", ".join(own.apps)} | lines)


@app.command()
def remove(name: Name, yes: Yes = False, url: Url = URL, as_json: Json = False) -> None:
    """Remove a user with its grants; its connections end within a second."""
    confirm(f"Remove user {name!r} and all its grants?", yes=yes)

    async def job(mq: "Client") -> None:
        await mq.admin.remove_user(name)

    use(url, job)
    if as_json:
        show_json({"removed": name})
    else:
        say(f"removed {name}")


@app.command()
def password(
    name: Name, password_file: NewPassword = None, url: Url = URL, as_json: Json = False
) -> None:
    """Change a password; one's own without any right. Connections that stand go on."""
    secret = _new_password(name, password_file)

    async def job(mq: "Client") -> User:
        return await mq.admin.set_password(name, secret)

    _show(use(url, job), as_json=as_json)


@app.command()
def apps(
    name: Name,
    names: Annotated[list[str], typer.Argument(metavar="APP…", help="Which it may be.")],
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Say which applications a user may be."""

    async def job(mq: "Client") -> User:
        return await mq.admin.set_user(name, apps=names)

    _show(use(url, job), as_json=as_json)


@app.command()
def bootstrap(
    config: ConfigFile = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Of the node or meta server (./tern-data).")
    ] = None,
    as_json: Json = False,
) -> None:
    """Make the user `admin`, or a new password for it, in the registry itself.

    For who runs the servers and cannot log in: it opens the registry that the settings name, and
    needs no login. The password goes into a file in the data directory.
    """
    from ternmq.cli.processes.up import read_config
    from ternmq.core.clock import SystemClock
    from ternmq.meta.access.access_commands import ADMIN, ADMIN_FILE, make_admin
    from ternmq.node.meta_role import registry_opener

    settings = read_config(config, {"data_dir": data_dir})
    path = settings.data_dir / ADMIN_FILE
    registry = registry_opener(settings)()
    try:
        make_admin(registry, path, now_ms=SystemClock().now_ms(), again=True)
    finally:
        registry.close()
    if as_json:
        show_json({"user": ADMIN, "password_file": str(path)})
        return
    say(f"{ADMIN}'s password is in {path}")
    if not settings.meta.listener.security:
        note("security is off: write security = true into the settings of all servers")


def _show(user: User, *, as_json: bool) -> None:
    if as_json:
        show_json(user)
    else:
        show_facts(dict(zip(COLUMNS, _row(user), strict=True)))


def _row(user: User) -> tuple[str, ...]:
    how = ", ".join(user.methods) if user.user else "(pattern)"
    return (user.name, ", ".join(user.apps), how, str(len(user.grants)))


def _new_password(name: str, file: Path | None) -> "Secret":
    from ternmq.security.access.secret import Secret, read_secret

    if file is not None:
        return read_secret(file, "the password")
    if not sys.stdin.isatty():
        typed = sys.stdin.readline().rstrip("\n")
        if not typed:
            raise BadRequest("no password: pipe one in, or say --password-file FILE")
        return Secret(typed)
    asked: str = typer.prompt(
        f"New password of {name}", hide_input=True, confirmation_prompt=True, err=True
    )
    return Secret(asked)
