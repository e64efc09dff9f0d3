"""`tern document`: documents of the registry, as programs keep them there."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ternmq.cli.terminal.options import URL, Json, Url, Yes, confirm, use
from ternmq.cli.terminal.output import say, show_json, show_table, size, text_or_base64, utc
from ternmq.core.errors import BadRequest
from ternmq.core.units import parse_duration_ms

if TYPE_CHECKING:
    from ternmq.client.client import Client
    from ternmq.wire.registry.documents import Document

app = typer.Typer(help="Documents that programs keep in the registry.", no_args_is_help=True)
Kind = Annotated[str, typer.Argument(metavar="KIND", help="What kind of document it is.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="Its name.")]
Version = Annotated[
    int | None,
    typer.Option("--version", min=0, help="Only if it has this version now; 0: is not there."),
]


@app.command("list")
def list_documents(
    kind: Annotated[str, typer.Argument(metavar="[KIND]", help="Of this kind only.")] = "",
    prefix: Annotated[str, typer.Option(help="Names that begin so.")] = "",
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most so many.")] = 1000,
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """List documents, by kind and name."""

    async def job(mq: "Client") -> "list[Document]":
        return await mq.admin.documents.list(kind, prefix, limit=limit)

    found = use(url, job)
    if as_json:
        show_json([facts(each) for each in found])
        return
    rows = [
        (each.kind, each.name, each.version, size(each.size), utc(each.changed_at_ms), _until(each))
        for each in found
    ]
    show_table(("kind", "name", "#version", "#size", "changed", "expires"), rows)


@app.command("get")
def get_document(kind: Kind, name: Name, url: Url = URL, as_json: Json = False) -> None:
    """Show the body of a document; with --json its version and times, too."""

    async def job(mq: "Client") -> "Document":
        return await mq.admin.documents.get(kind, name)

    found = use(url, job)
    if as_json:
        show_json(facts(found) | {"body": text_or_base64(found.body)})
    else:
        say(str(text_or_base64(found.body)))


@app.command("put")
def put_document(
    kind: Kind,
    name: Name,
    body: Annotated[str, typer.Argument(metavar="BODY", help="The body; '-' reads it from stdin.")],
    version: Version = None,
    expires: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Gone after so long: 30s, 1h.")
    ] = None,
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Make or replace a document."""
    data = sys.stdin.buffer.read() if body == "-" else _bytes_of(body)
    after = None if expires is None else parse_duration_ms(expires) / 1000

    async def job(mq: "Client") -> "Document":
        return await mq.admin.documents.put(kind, name, data, version=version, expires=after)

    put = use(url, job)
    if as_json:
        show_json(facts(put))
    else:
        say(f"document {kind}/{name} has version {put.version}")


@app.command("delete")
def delete_document(
    kind: Kind,
    name: Name,
    version: Version = None,
    yes: Yes = False,
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Delete a document."""
    confirm(f"Delete the document {kind}/{name}?", yes=yes)

    async def job(mq: "Client") -> "Document":
        return await mq.admin.documents.delete(kind, name, version=version)

    gone = use(url, job)
    if as_json:
        show_json(facts(gone))
    else:
        say(f"document {kind}/{name} is deleted")


def facts(document: "Document") -> dict[str, Any]:
    return {
        "kind": document.kind,
        "name": document.name,
        "version": document.version,
        "size": document.size,
        "changed_at": utc(document.changed_at_ms),
        "expires_at": utc(document.expires_at_ms) if document.expires_at_ms else None,
    }


def _until(document: "Document") -> str:
    return utc(document.expires_at_ms) if document.expires_at_ms else ""


def _bytes_of(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise BadRequest("the body is not text; give it by stdin: '-'") from None
