"""`tern dead`: what could not be handled, why, and what to do with it.

Letters are chosen by id, by words of their reason, by time, by topic; without a choice all open
ones are meant. Sending again reaches the group they died in and nobody else. Every letter gets an
honest result: what was handled is counted, what failed is named. Without a group, `--topic` means
the messages that were over a topic's limit and put aside; sending these reaches every group.

There may be millions of them: they pass one by one, and only what is shown is kept, or the ids of
what is to be handled.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from ternmq.cli.terminal.options import URL, AlreadyJson, Json, Url, Yes, confirm, use
from ternmq.cli.terminal.output import (
    message_fields,
    note,
    plain,
    preview,
    say,
    show_json,
    show_table,
    shown_body,
    utc,
)
from ternmq.cli.terminal.partial_answers import end_incomplete, use_tolerant
from ternmq.cli.terminal.progress import progress
from ternmq.client.reading.written_start import MOMENT, parse_moment
from ternmq.core.errors import BadRequest, TernError, TopicNotFound

if TYPE_CHECKING:
    from ternmq.client.client import Client
    from ternmq.client.reading.letters import (
        ChosenLetters,
        DeadLetterChoice,
        Letter,
        Letters,
        LettersDone,
    )

app = typer.Typer(
    help="Dead letters of a group, or messages a topic refused: list, show, send again, delete, "
    "export.",
    no_args_is_help=True,
)
GroupName = Annotated[
    str | None, typer.Argument(metavar="[GROUP]", help="Name of the group; left out with --topic.")
]
OnlyIds = Annotated[
    list[str] | None, typer.Option("--id", help="Only this message; may be repeated.")
]
Error = Annotated[
    str | None, typer.Option("--error", help="Only where reason or error have this text.")
]
TOPIC_HELP = "Of a group, only those from this topic; without one, what this topic refused."
Topic = Annotated[str | None, typer.Option("--topic", help=TOPIC_HELP)]
Since = Annotated[str | None, typer.Option("--since", help=f"Only those dead since: {MOMENT}.")]
Until = Annotated[str | None, typer.Option("--until", help=f"Only those dead before: {MOMENT}.")]


SHOWN_MAX = 100
"""Letters that a dry run names on a terminal."""
NOT_OPEN = "not among the open ones"
MEANWHILE = "handled meanwhile"


@dataclass(frozen=True, slots=True)
class LetterSource:
    """The dead letters of a group, or without one what was over a topic's limit."""

    group: str
    topic: str = ""

    def __str__(self) -> str:
        if self.group:
            return f"dead letters of group {self.group}"
        return f"refused messages of topic {self.topic}"

    def letters(self, mq: "Client") -> "Letters":
        return mq.letters(self.group, "" if self.group else self.topic)


def find_source(group: str | None, topic: str | None) -> LetterSource:
    """With a group, the topic only narrows its letters down."""
    if not group and not topic:
        raise BadRequest("say which: a group, or --topic for what was over a topic's limit")
    return LetterSource(group or "", topic or "")


@dataclass(slots=True)
class Shown:
    """The first so many letters, and how many there are."""

    count: int
    letters: "list[Letter]" = field(default_factory=list)
    total: int = 0

    def add(self, letter: "Letter") -> None:
        self.total += 1
        if len(self.letters) < self.count:
            self.letters.append(letter)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadOptions:
    """How chosen letters are handled."""

    rate: int
    dry_run: bool
    yes: bool
    url: str
    as_json: bool


def _choice(
    ids: Sequence[str] | None,
    error: str | None,
    topic: str | None,
    since: str | None,
    until: str | None = None,
) -> "DeadLetterChoice":
    from ternmq.client.reading.letters import DeadLetterChoice

    now = datetime.now(UTC)
    return DeadLetterChoice(
        ids=ids or (),
        error=error or "",
        topic=topic or "",
        since=parse_moment("--since", since, now=now) if since else None,
        until=parse_moment("--until", until, now=now) if until else None,
    )


@app.command("list")
def list_letters(
    group: GroupName = None,
    ids: OnlyIds = None,
    error: Error = None,
    topic: Topic = None,
    since: Since = None,
    until: Until = None,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="At most so many.")] = 100,
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """List the open dead letters of a group, or what a topic refused."""
    source = find_source(group, topic)
    found = Shown(count)
    missing = _visit(url, source, _choice(ids, error, topic, since, until), found.add)
    if as_json:
        show_json([_fields(letter) for letter in found.letters])
        end_incomplete(missing)
        return
    show_table(
        ["id", "topic", "died", "#attempt", "#sent again", "reason", "body"],
        [
            (
                message.id,
                notes.get("%topic"),
                utc(int(notes.get("%died_at", 0))),
                notes.get("%attempt"),
                notes.get("%resent", 0),
                preview(str(notes.get("%reason", "")).encode()),
                shown_body(message),
            )
            for message, notes in found.letters
        ],
    )
    if not found.total and not missing:
        note(f"no open {source}" + (" like that" if ids or error or since or until else ""))
    if found.total > count:
        note(f"{found.total - count} more; --count shows them")
    expired = 0
    if group:
        expired = use(url, lambda mq: mq.admin.tolerant().expired_dead_letters(group))
    if expired:
        note(f"{expired} went because their time was over")
    end_incomplete(missing)


@app.command()
def show(
    names: Annotated[list[str], typer.Argument(metavar="[GROUP] ID", help="Whose, and which.")],
    topic: Topic = None,
    url: Url = URL,
    _: AlreadyJson = False,
) -> None:
    """Show one of them with everything known about it, as JSON."""
    group, id = _group_and(names, "ID")
    source = find_source(group, topic)
    found = Shown(1)
    missing = _visit(url, source, _choice([id], None, topic, None), found.add)
    if not found.letters:
        end_incomplete(missing)
        raise TopicNotFound(f"{id!r} is not among the open {source}")
    show_json(_fields(found.letters[0]))


@app.command()
def resend(
    group: GroupName = None,
    ids: OnlyIds = None,
    error: Error = None,
    topic: Topic = None,
    since: Since = None,
    until: Until = None,
    rate: Annotated[int, typer.Option(min=1, help="At most so many a second.")] = 1_000,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say which.")] = False,
    yes: Yes = False,
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Send dead letters again: to this group alone, as new, at attempt 1.

    Without a group: put what a topic refused into it.
    """
    how = DeadOptions(rate=rate, dry_run=dry_run, yes=yes, url=url, as_json=as_json)
    _handle(find_source(group, topic), _choice(ids, error, topic, since, until), "resend", how)


@app.command()
def delete(
    group: GroupName = None,
    ids: OnlyIds = None,
    error: Error = None,
    topic: Topic = None,
    since: Since = None,
    until: Until = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say which.")] = False,
    yes: Yes = False,
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Let them go for good."""
    choice = _choice(ids, error, topic, since, until)
    how = DeadOptions(rate=1_000_000, dry_run=dry_run, yes=yes, url=url, as_json=as_json)
    _handle(find_source(group, topic), choice, "delete", how)


@app.command()
def groups(url: Url = URL, as_json: Json = False) -> None:
    """List the groups that have dead letters, those with most open ones first."""
    found, missing = use_tolerant(url, lambda admin: admin.dead_groups())
    found.sort(key=lambda each: (-each.open, each.group))
    if as_json:
        show_json(found)
    else:
        columns = ["group", "#open", "#kept", "broker group"]
        show_table(columns, [(one.group, one.open, one.stored, one.broker_group) for one in found])
    end_incomplete(missing)


@app.command("recall")
def take_back(
    group: Annotated[str, typer.Argument(metavar="GROUP", help="Name of the group.")],
    topic: Annotated[str, typer.Option("--topic", help="The topic that they came from.")],
    yes: Yes = False,
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Take back letters that were sent again and that no consumer was handed yet."""
    confirm(f"Take back what was sent again to group {group} from {topic}?", yes=yes)
    taken = use(url, lambda mq: mq.admin.recall_dead_letters(group, topic))
    if as_json:
        show_json({"taken": taken})
    else:
        say(f"{taken} are open dead letters of group {group} again")


@app.command()
def export(
    names: Annotated[
        list[str], typer.Argument(metavar="[GROUP] FILE", help="Whose, and the file to write.")
    ],
    ids: OnlyIds = None,
    error: Error = None,
    topic: Topic = None,
    since: Since = None,
    until: Until = None,
    url: Url = URL,
    as_json: Json = False,
) -> None:
    """Write them to a file, one JSON object per line; they stay open."""
    group, file_name = _group_and(names, "FILE")
    target, source = Path(file_name), find_source(group, topic)
    choice = _choice(ids, error, topic, since, until)
    try:
        with target.open("x", encoding="utf-8") as file:
            written, missing = _write(file, url, source, choice)
    except OSError as failed:
        raise BadRequest(f"cannot write {target}: {failed.strerror}") from failed
    except TernError:
        target.unlink()  # Half of them must not look like all.
        raise
    if as_json:
        show_json({"written": written, "file": str(target)})
    else:
        say(f"{written} {source} written to {target}")
    end_incomplete(missing)


def _write(
    file: TextIO, url: str, source: LetterSource, choice: "DeadLetterChoice"
) -> tuple[int, dict[str, str]]:
    """Each as it comes; returns how many, and the broker groups that did not answer."""
    import json

    found = Shown(0)

    def write(letter: "Letter") -> None:
        found.add(letter)
        file.write(json.dumps(plain(_fields(letter))) + "\n")

    missing = _visit(url, source, choice, write)
    return found.total, missing


def _group_and(names: list[str], what: str) -> tuple[str | None, str]:
    """One or two words: the last is what is asked for, the one before it the group."""
    if len(names) > 2:
        raise BadRequest(f"too many words; write [GROUP] {what}")
    return (names[0] if len(names) == 2 else None), names[-1]


def _handle(source: LetterSource, choice: "DeadLetterChoice", verb: str, how: DeadOptions) -> None:
    chosen, missing = _choose(how.url, source, choice)
    ids = chosen.ids
    if verb == "resend" and chosen.again:
        note(f"{chosen.again} of them were sent again before, and died again")
    if how.dry_run or not ids:
        result: dict[str, Any] = {"chosen": len(ids), "handled": 0, "failed": []}
        result["results"] = [{"id": id, "result": "chosen"} for id in ids.values()]
    else:
        word = "Send again" if verb == "resend" else "Delete"
        confirm(f"{word} {len(ids)} {source}?", yes=how.yes)
        result = use(how.url, lambda mq: _do(source.letters(mq), verb, chosen, how.rate))
    for id in choice.not_among(ids.values()):
        result["failed"].append(f"{id}: {NOT_OPEN}")
        result["results"].append({"id": id, "result": NOT_OPEN})
    if how.as_json:
        show_json({**result, "dry_run": how.dry_run})
    else:
        _say_result(result, verb, how)
    end_incomplete(missing)
    if result["failed"]:
        raise typer.Exit(1)


def _say_result(result: dict[str, Any], verb: str, how: DeadOptions) -> None:
    if how.dry_run:
        for one in result["results"][: min(SHOWN_MAX, result["chosen"])]:
            say(one["id"])
        if result["chosen"] > SHOWN_MAX:
            note(f"and {result['chosen'] - SHOWN_MAX} more; --json names all of them")
    for line in result["failed"]:
        note(f"failed: {line}")
    done = "sent again" if verb == "resend" else "deleted"
    say(f"{result['chosen']} chosen, {result['handled']} {done}, {len(result['failed'])} failed")
    lost = sum(1 for one in result["results"] if one["result"] == MEANWHILE)
    if lost:
        note(f"{lost} had been handled by somebody else meanwhile")


async def _do(letters: "Letters", verb: str, chosen: "ChosenLetters", rate: int) -> dict[str, Any]:
    """With a bar that moves."""
    steps: list[int] = [0]

    def on_progress(done: "LettersDone") -> None:
        steps[0] = len(done.results)

    async with progress(verb, len(chosen.ids), lambda: steps[0]):
        if verb == "resend":
            done = await letters.resend(chosen, rate, on_progress)
        else:
            done = await letters.delete(chosen, rate, on_progress)
    return {
        "chosen": done.chosen,
        "handled": done.handled,
        "failed": done.failed,
        "results": done.results,
    }


def of_topic(url: str, group: str, topic: str) -> "ChosenLetters":
    """Open letters of a group that came from this topic; all broker groups must answer."""
    chosen, missing = _choose(url, LetterSource(group), _choice(None, None, topic, None))
    end_incomplete(missing)
    return chosen


def resend_these(how: DeadOptions, group: str, chosen: "ChosenLetters") -> dict[str, Any]:
    source = LetterSource(group)
    return use(how.url, lambda mq: _do(source.letters(mq), "resend", chosen, how.rate))


def _choose(
    url: str, source: LetterSource, choice: "DeadLetterChoice"
) -> "tuple[ChosenLetters, dict[str, str]]":
    """What is meant, and the broker groups that did not answer."""
    from ternmq.client.reading.letters import ChosenLetters

    chosen = ChosenLetters()
    return chosen, _visit(url, source, choice, chosen.add)


def _visit(
    url: str, source: LetterSource, choice: "DeadLetterChoice", visit: "Callable[[Letter], None]"
) -> dict[str, str]:
    """Show it all open letters that the choice takes, oldest first of each broker group; returns
    the broker groups that did not answer."""
    missing: dict[str, str] = {}

    async def job(mq: "Client") -> None:
        async for letter in source.letters(mq).open(choice, missing):
            visit(letter)

    use(url, job)
    return missing


def _fields(letter: "Letter") -> dict[str, Any]:
    notes, fields = letter.notes, message_fields(letter.message)
    fields["properties"] = {
        name: value
        for name, value in (fields["properties"] or {}).items()
        if not name.startswith("%")
    }
    return {
        **fields,
        "topic": notes.get("%topic"),
        "attempt": notes.get("%attempt"),
        "reason": notes.get("%reason"),
        "died_at": utc(int(notes.get("%died_at", 0))),
        "sent_again": notes.get("%resent", 0),
        "error": None
        if "%error_at" not in notes
        else {
            "type": notes.get("%error_type"),
            "text": notes.get("%error_text"),
            "traceback": notes.get("%error_traceback"),
            "at": utc(int(notes["%error_at"])),
        },
    }
