"""`tern unsent`: one-way messages that no broker stored, in a file of their producer (D10)."""

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ternmq.cli.terminal.options import URL, Json, Url, Yes, confirm, use
from ternmq.cli.terminal.output import note, say, show_json, show_table, size, utc
from ternmq.core.errors import BadRequest, TernError

if TYPE_CHECKING:
    from ternmq.client.client import Client
    from ternmq.client.spool.unsent_file import UnsentMessage

    Settle = Callable[[list[UnsentMessage]], list[UnsentMessage]]

app = typer.Typer(
    help="Look at one-way messages that no broker stored (connect(unsent=FILE)), send them again, "
    "delete them.",
    no_args_is_help=True,
)
UnsentPath = Annotated[Path, typer.Argument(metavar="FILE", help="The file of the producer.")]
OnlyIds = Annotated[
    list[str] | None, typer.Option("--id", help="Only this message; may be repeated.")
]


@app.command("list")
def list_unsent(file: UnsentPath, as_json: Json = False) -> None:
    """List what is kept, oldest first."""
    from ternmq.client.spool.unsent_file import look

    found = look(_there(file))
    if as_json:
        show_json([_fields(one) for one in found])
    elif found:
        rows = [
            [one.id, one.topic, utc(one.at_ms), one.code, size(len(one.message.body))]
            for one in found
        ]
        show_table(["id", "topic", "given up", "error", "body"], rows)
    else:
        say("nothing is kept there")


@app.command()
def resend(file: UnsentPath, ids: OnlyIds = None, url: Url = URL, as_json: Json = False) -> None:
    """Send them again, each with its id; what is stored then leaves the file."""

    def settle(chosen: "list[UnsentMessage]") -> "list[UnsentMessage]":
        return use(url, lambda mq: _send(mq, chosen)) if chosen else []

    _handle(file, ids, settle, "sent again", as_json=as_json)


@app.command()
def delete(file: UnsentPath, ids: OnlyIds = None, yes: Yes = False, as_json: Json = False) -> None:
    """Delete them for good."""
    _there(file)
    confirm(f"Delete messages of {file}?", yes=yes)
    _handle(file, ids, lambda chosen: [], "deleted", as_json=as_json)


def _handle(
    file: Path, ids: list[str] | None, settle: "Settle", done: str, *, as_json: bool
) -> None:
    from ternmq.client.spool.unsent_file import put_back, take

    with take(_there(file)) as found:
        chosen = [one for one in found if not ids or one.id in ids]
        unknown = set(ids or ()) - {one.id for one in chosen}
        if unknown:
            raise BadRequest(f"not in {file}: {', '.join(sorted(unknown))}")
        kept = settle(chosen)
        stay = [one for one in found if one not in chosen or one in kept]
        if stay:
            put_back(file, stay)
    if as_json:
        show_json({"handled": len(found) - len(stay), "left": len(stay)})
    else:
        say(f"{len(found) - len(stay)} {done}, {len(stay)} left")
    if kept:
        raise TernError(f"{len(kept)} messages were not stored and stay in {file}")


async def _send(mq: "Client", messages: "list[UnsentMessage]") -> "list[UnsentMessage]":
    """Send, and return the messages that are still not stored."""
    topics: dict[str, list[UnsentMessage]] = defaultdict(list)
    for one in messages:
        topics[one.topic].append(one)
    kept: list[UnsentMessage] = []
    for topic, some in topics.items():
        try:
            receipt = await mq.send_many(topic, [one.message for one in some])
        except TernError as error:
            note(f"{topic}: {error.message}")
            kept += some
        else:
            for rows, why in receipt.failures:
                note(f"{topic}: {why.message}")
                kept += some[rows.start : rows.stop]
    return kept


def _fields(one: "UnsentMessage") -> dict[str, object]:
    message = one.message
    return {
        "id": one.id,
        "topic": one.topic,
        "given_up_at": utc(one.at_ms),
        "code": one.code,
        "reason": one.reason,
        "key": message.key,
        "tag": message.tag,
        "order_key": message.order_key,
        "size": len(message.body),
        "body": message.body.decode("utf-8", "backslashreplace"),
    }


def _there(file: Path) -> Path:
    if not file.parent.is_dir():
        raise BadRequest(f"{file.parent} is no directory: name the file given to connect(unsent=)")
    return file
