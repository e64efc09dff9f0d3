"""`tern definitions`: topics, groups, limits and documents as one file, exported and imported."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ternmq.cli.terminal.options import URL, Json, Url, Yes, confirm, use
from ternmq.cli.terminal.output import note, say, show_json, show_table
from ternmq.core.errors import BadRequest

if TYPE_CHECKING:
    from ternmq.api.definitions import DefinitionChange, Definitions
    from ternmq.client.client import Client

app = typer.Typer(help="Topics, groups, limits and documents as one file.", no_args_is_help=True)


@app.command("export")
def export(
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="A new file; without one: stdout.")
    ] = None,
    url: Url = URL,
) -> None:
    """Write what is defined, without messages, positions, users or keys, as JSON."""
    import msgspec

    from ternmq.api.definitions import export_definitions

    async def job(mq: "Client") -> "Definitions":
        return await export_definitions(mq)

    found = use(url, job)
    text = msgspec.json.format(msgspec.json.encode(found), indent=2)
    if file is None:
        say(text.decode())
        return
    try:
        with file.open("xb") as out:
            out.write(text + b"\n")
    except OSError as error:
        raise BadRequest(f"cannot write {file}: {error.strerror}") from None
    counts = f"{len(found.topics)} topics, {len(found.groups)} groups, {len(found.limits)} limits"
    note(f"{counts}, {len(found.documents)} documents are in {file}")


@app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="As export wrote it; '-': stdin.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what it would do.")] = False,
    yes: Yes = False,
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Make what is not there, change what differs, leave the rest alone."""
    from ternmq.api.definitions import import_definitions, plan_import, read_definitions

    try:
        data = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        raise BadRequest(f"cannot read {file}: {error.strerror}") from None
    wanted = read_definitions(data)

    async def plan(mq: "Client") -> "list[DefinitionChange]":
        return await plan_import(mq, wanted)

    async def work(mq: "Client") -> "list[DefinitionChange]":
        return await import_definitions(mq, wanted)

    changes = use(url, plan)
    if not dry_run and changes:
        confirm(f"This makes or changes {len(changes)} things. Go on?", yes=yes)
        changes = use(url, work)
    if as_json:
        show_json({"dry_run": dry_run, "changes": [_facts(each) for each in changes]})
        return
    show_table(("verb", "kind", "name", "settings"), [_row(each) for each in changes])
    note(f"{len(changes)} {'would be made or changed' if dry_run else 'made or changed'}")


def _facts(change: "DefinitionChange") -> dict[str, Any]:
    return {
        "verb": change.verb,
        "kind": change.kind,
        "name": change.name,
        "settings": dict(change.settings),
    }


def _row(change: "DefinitionChange") -> tuple[str, ...]:
    words = ", ".join(f"{name}={value}" for name, value in change.settings.items())
    return change.verb, change.kind, change.name, words[:200]
