"""`tern key`, `tern erase`: keys of encrypted topics. A key itself is never shown."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ternmq.cli.terminal.options import URL, Json, Url, Yes, confirm, use
from ternmq.cli.terminal.output import note, say, show_json, show_table, utc
from ternmq.core.errors import BadRequest
from ternmq.security.private_files import write_new
from ternmq.security.sealing.master_keys import new_key_text
from ternmq.wire.messages.topics import TopicKey

if TYPE_CHECKING:
    from ternmq.client.client import Client

app = typer.Typer(help="Keys of topics whose bodies are encrypted.", no_args_is_help=True)

STAYS = (
    "keys, tags, properties, sizes and times of its messages",
    "what consumers have stored elsewhere, exports, and archives written with decrypted bodies",
    "backups of the registry from before, for who has the master key, until they are deleted",
    "bodies in clients that had the key, for at most 30 seconds",
)
"""What erasing does not reach."""


@app.command()
def make(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where it shall be; mode 600.")],
    as_json: Json = False,
) -> None:
    """Make a master key in a new file. Copy it to the clients; servers need none."""
    try:
        write_new(file, new_key_text().encode() + b"\n")
    except FileExistsError:
        raise BadRequest(
            f"there is a {file} already: what is encrypted under it needs it; choose another name"
        ) from None
    except OSError as error:
        raise BadRequest(f"cannot write {file}: {error.strerror}") from error
    if as_json:
        show_json({"file": str(file)})
    else:
        say(f"a new master key is in {file}; keep a copy: without it nothing can be read")


@app.command("list")
def list_keys(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")],
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """List the data keys of a topic; never what they are."""

    async def job(mq: "Client") -> list[TopicKey]:
        return await mq.admin.topic_keys(topic)

    keys = use(url, job)
    if as_json:
        show_json([_fields(key) for key in keys])
        return
    show_table(
        ["#id", "for", "master key", "made"],
        [(key.id, _purpose(key), key.master_key, utc(key.made_at_ms)) for key in keys],
    )


@app.command()
def rewrap(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")],
    master_key: Annotated[
        str, typer.Option(help="Name of the master key that shall wrap all of them.")
    ],
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Wrap all data keys of a topic by another master key; both are in TERN_KEYS. Messages stay as
    they are. When it is done for every topic, the old master key is needed for nothing."""

    async def job(mq: "Client") -> int:
        return await mq.admin.rewrap_keys(topic, master_key)

    done = use(url, job)
    if as_json:
        show_json({"topic": topic, "master_key": master_key, "rewrapped": done})
    else:
        say(f"{done} data key(s) of {topic} are wrapped by {master_key} now")


def erase(
    subject: Annotated[str, typer.Option(help="As it was given to send(subject=…).")],
    topic: Annotated[str, typer.Option(help="Only in this topic; else in all.")] = "",
    yes: Yes = False,
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Delete the keys of a subject: what was sent about it becomes unreadable, everywhere."""
    where = f"topic {topic}" if topic else "all topics"
    confirm(f"Make every message about {subject} in {where} unreadable, for good?", yes=yes)

    async def job(mq: "Client") -> list[str]:
        return await mq.admin.erase(subject, topic)

    topics = use(url, job)
    if as_json:
        show_json({"erased": topics, "stays": list(STAYS)})
        return
    if not topics:
        say(f"nothing to erase: no key of {subject} in {where}")
        return
    say(f"erased in {len(topics)} topic(s): {', '.join(topics)}")
    note("What stays readable:")
    for line in STAYS:
        note(f"  - {line}")


def _purpose(key: TopicKey) -> str:
    if key.label.startswith("s"):
        return f"subject {key.label[1:9]}…"
    return f"messages from {utc(int(key.label[1:].partition('.')[0] or 0))} on"


def _fields(key: TopicKey) -> dict[str, object]:
    return {
        "id": key.id,
        "topic": key.topic,
        "label": key.label,
        "master_key": key.master_key,
        "made_at": utc(key.made_at_ms),
    }
