"""`tern config show`: the settings that a node would start with here, and where each comes from.

File, environment and defaults are read as `tern up` and the `serve` commands read them, and checked
as there; flags of those commands go over all of it. `tern version` says what is installed.
"""

import os
import platform
from pathlib import Path
from typing import Annotated, Any

import typer

from ternmq.cli.terminal.options import ConfigFile, Json
from ternmq.cli.terminal.output import show_facts, show_json, show_table

app = typer.Typer(help="Settings of a node: what holds here, and why.", no_args_is_help=True)

SECRET = ("secret", "password", "token")


@app.command()
def show(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]", help="Only these settings.")
    ] = None,
    changed: Annotated[
        bool, typer.Option("--changed", help="Only what is not at its default.")
    ] = False,
    config: ConfigFile = None,
    as_json: Json = False,
) -> None:
    """Show the settings of a node: value, and whether file, environment or default says so."""
    rows = [
        row
        for row in effective(config)
        if (not names or row["name"] in names) and not (changed and row["from"] == "default")
    ]
    _check_names(names or [])
    if as_json:
        show_json(rows)
        return
    show_table(
        ["setting", "value", "from", "about"],
        [(row["name"], row["value"], row["from"], row["about"]) for row in rows],
    )


def effective(file: Path | None) -> list[dict[str, Any]]:
    """Every setting with its value and where that comes from."""
    from ternmq.cli.processes.up import read_config
    from ternmq.node.config import from_environment, parse_file, settings

    read_config(file, {})  # Checks all of it together, as a start does.
    written = {} if file is None else parse_file(file.read_text(encoding="utf-8"), source=str(file))
    environment = from_environment(os.environ)
    rows: list[dict[str, Any]] = []
    for setting in settings():
        value, source = setting.default, "default"
        if setting.name in written:
            value, source = setting.read(written[setting.name]), str(file)
        if setting.name in environment:
            value, source = setting.read(environment[setting.name]), setting.env
        plain = value if isinstance(value, bool | int) else _masked(setting.name, str(value))
        rows.append({"name": setting.name, "value": plain, "from": source, "about": setting.text})
    return rows


def version(as_json: Json = False) -> None:
    """Show what is installed: TernMQ, Python, the machine."""
    from ternmq import __version__
    from ternmq.wire.messages.hello import PROTOCOL_VERSION

    facts = {
        "ternmq": __version__,
        "protocol": PROTOCOL_VERSION,
        "python": platform.python_version(),
        "platform": platform.platform(),
    }
    if as_json:
        show_json(facts)
    else:
        show_facts(facts)


def _check_names(names: list[str]) -> None:
    from difflib import get_close_matches

    from ternmq.core.errors import BadConfig
    from ternmq.node.config import settings

    known = [setting.name for setting in settings()]
    for name in names:
        if name not in known:
            near = get_close_matches(name, known, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise BadConfig(f"there is no setting {name!r}{hint}")


def _masked(name: str, value: str) -> str:
    """Passwords are not for screens: those of urls, and settings that are secrets."""
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError

    if value and any(word in name for word in SECRET) and not name.endswith("_file"):
        return "***"
    if "://" not in value or "@" not in value:
        return value
    try:
        return make_url(value).render_as_string(hide_password=True)
    except ArgumentError:
        return value
