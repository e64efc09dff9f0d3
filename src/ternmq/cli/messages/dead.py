"""`tern dead`: what could not be handled, why, and what to do with it.

Letters are chosen by id, by words of their reason, by time, by topic; without a choice all open
ones are meant. Sending again reaches the group they died in and nobody else. Every letter gets an
honest result: what was handled is counted, what failed is named. Without a group, `--topic` means
the messages that were over a topic's limit and put aside; sending these reaches every group.

There may be millions of them: they pass one by one, and only what is shown is kept, or the ids of
what is to be handled.
"""

import asyncio
import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from ternmq.cli.messages.letter_source import LetterSource, find_source
from ternmq.cli.terminal.incomplete import end_incomplete
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
from ternmq.cli.terminal.progress import progress
from ternmq.cli.terminal.starts import parse_start
from ternmq.core.errors import BadRequest, TernError, TopicNotFound, Unavailable
from ternmq.core.range_set import RangeSet

if TYPE_CHECKING:
    from ternmq.client.client import Client

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
MOMENT = "a time (2025-01-31T12:00Z), or how long ago (2h)"
Since = Annotated[str | None, typer.Option("--since", help=f"Only those dead since: {MOMENT}.")]
Until = Annotated[str | None, typer.Option("--until", help=f"Only those dead before: {MOMENT}.")]


ERROR_NOTES = ("%reason", "%error_type", "%error_text")
SHOWN_MAX = 100
"""Letters that a dry run names on a terminal."""
WORDS = {"resend": "sent again", "delete": "deleted"}
MEANWHILE = "handled meanwhile"
NOT_OPEN = "not among the open ones"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadChoice:
    """Which letters are meant."""

    ids: frozenset[str]
    error: str
    topic: str
    since_ms: int
    until_ms: int

    def takes(self, letter: Any, notes: dict[str, Any]) -> bool:
        return (
            (not self.ids or letter.id.upper() in self.ids)
            and any(self.error.lower() in str(notes.get(n, "")).lower() for n in ERROR_NOTES)
            and (not self.topic or notes.get("%topic") == self.topic)
            and self.since_ms <= int(notes.get("%died_at", 0)) < self.until_ms
        )

    def missing(self, ids: Collection[str]) -> list[str]:
        """Ids that were asked for and are not among these."""
        return sorted(self.ids - {id.upper() for id in ids}) if self.ids else []


Ids = dict[tuple[str, int], str]
"""Ids of letters, by broker group and sequence in the hidden topic."""


@dataclass(slots=True)
class DeadChosen:
    """What is to be handled: ids and places, without the letters."""

    ids: Ids = field(default_factory=dict)
    again: int = 0
    """How many were sent again before."""

    def add(self, letter: Any, notes: dict[str, Any]) -> None:
        self.ids[letter.broker_group, letter.sequence] = letter.id
        self.again += bool(notes.get("%resent"))


@dataclass(slots=True)
class Shown:
    """The first so many letters, and how many there are."""

    count: int
    letters: list[tuple[Any, dict[str, Any]]] = field(default_factory=list)
    total: int = 0

    def add(self, letter: Any, notes: dict[str, Any]) -> None:
        self.total += 1
        if len(self.letters) < self.count:
            self.letters.append((letter, notes))


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
) -> DeadChoice:
    now = datetime.now(UTC)
    return DeadChoice(
        ids=frozenset(one.upper() for one in ids or ()),
        error=error or "",
        topic=topic or "",
        since_ms=_moment_ms("since", since, now) if since else 0,
        until_ms=_moment_ms("until", until, now) if until else 2**63,
    )


def _moment_ms(flag: str, text: str, now: datetime) -> int:
    point = parse_start(text, now=now)
    if not isinstance(point, datetime):
        raise BadRequest(f"--{flag} is {text!r}; write {MOMENT}")
    return int(point.timestamp() * 1000)


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
        show_json([_fields(letter, notes) for letter, notes in found.letters])
        end_incomplete(missing)
        return
    show_table(
        ["id", "topic", "died", "#attempt", "#sent again", "reason", "body"],
        [
            (
                letter.id,
                notes.get("%topic"),
                utc(int(notes.get("%died_at", 0))),
                notes.get("%attempt"),
                notes.get("%resent", 0),
                preview(str(notes.get("%reason", "")).encode()),
                shown_body(letter),
            )
            for letter, notes in found.letters
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
    show_json(_fields(*found.letters[0]))


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
    file: TextIO, url: str, source: LetterSource, choice: DeadChoice
) -> tuple[int, dict[str, str]]:
    """Each as it comes; returns how many, and the broker groups that did not answer."""
    import json

    found = Shown(0)

    def write(letter: Any, notes: dict[str, Any]) -> None:
        found.add(letter, notes)
        file.write(json.dumps(plain(_fields(letter, notes))) + "\n")

    missing = _visit(url, source, choice, write)
    return found.total, missing


def _group_and(names: list[str], what: str) -> tuple[str | None, str]:
    """One or two words: the last is what is asked for, the one before it the group."""
    if len(names) > 2:
        raise BadRequest(f"too many words; write [GROUP] {what}")
    return (names[0] if len(names) == 2 else None), names[-1]


def _handle(source: LetterSource, choice: DeadChoice, verb: str, how: DeadOptions) -> None:
    chosen = DeadChosen()
    missing = _visit(how.url, source, choice, chosen.add)
    ids = chosen.ids
    if verb == "resend" and chosen.again:
        note(f"{chosen.again} of them were sent again before, and died again")
    if how.dry_run or not ids:
        result: dict[str, Any] = {"chosen": len(ids), "handled": 0, "failed": []}
        result["results"] = [{"id": id, "result": "chosen"} for id in ids.values()]
    else:
        word = "Send again" if verb == "resend" else "Delete"
        confirm(f"{word} {len(ids)} {source}?", yes=how.yes)
        result = use(how.url, lambda mq: _do(mq, source, verb, ids, how.rate))
    for id in choice.missing(ids.values()):
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


async def _do(mq: "Client", source: LetterSource, verb: str, ids: Ids, rate: int) -> dict[str, Any]:
    """In steps of a tenth of a second's worth, so that the rate holds and a bar can move; every
    letter gets a result under its id."""
    handled = 0
    failed: list[str] = []
    results: list[dict[str, str]] = []
    act = source.resend if verb == "resend" else source.delete
    async with progress(verb, len(ids), lambda: handled + len(failed)):
        for broker_group, chosen in _steps(list(ids), max(1, min(rate // 10, 100))):
            if results:
                await asyncio.sleep(len(chosen) / rate)
            named = {sequence: ids[broker_group, sequence] for sequence in chosen}
            try:
                done = await act(
                    mq, [(sequence, sequence + 1) for sequence in chosen], broker_group
                )
                outcomes = by_sequence(done.failed)
                failed += [f"{named[sequence]}: {why}" for sequence, why in outcomes.items()]
                gone = RangeSet(done.gone)
                outcomes |= {sequence: MEANWHILE for sequence in chosen if sequence in gone}
                handled += done.handled
            except TernError as error:
                outcomes = dict.fromkeys(chosen, error.message)
                failed += [f"{named[sequence]}: {error.message}" for sequence in chosen]
            word = WORDS[verb]
            results += [{"id": id, "result": outcomes.get(at, word)} for at, id in named.items()]
    return {"chosen": len(ids), "handled": handled, "failed": failed, "results": results}


def _steps(rows: Sequence[tuple[str, int]], size: int) -> Iterator[tuple[str, list[int]]]:
    """So many at a time, each time of one broker group."""
    for broker_group, some in itertools.groupby(rows, key=lambda row: row[0]):
        sequences = [sequence for _, sequence in some]
        for at in range(0, len(sequences), size):
            yield broker_group, sequences[at : at + size]


def by_sequence(failed: Sequence[str]) -> dict[int, str]:
    """What the broker says of letters that failed, `SEQUENCE: WHY`, by their sequence."""
    return {int(sequence): why for sequence, _, why in (line.partition(": ") for line in failed)}


def of_topic(url: str, group: str, topic: str) -> Ids:
    """Open letters of a group that came from this topic; all broker groups must answer."""
    chosen = DeadChosen()
    end_incomplete(_visit(url, LetterSource(group), _choice(None, None, topic, None), chosen.add))
    return chosen.ids


def resend_these(how: DeadOptions, group: str, ids: Ids) -> dict[str, Any]:
    return use(how.url, lambda mq: _do(mq, LetterSource(group), "resend", ids, how.rate))


Visit = Callable[[Any, dict[str, Any]], None]
"""Gets a letter and its notes."""


def _visit(url: str, source: LetterSource, choice: DeadChoice, visit: Visit) -> dict[str, str]:
    """Show it all open letters that the choice takes, oldest first of each broker group; returns
    the broker groups that did not answer."""
    return use(url, lambda mq: _visit_all(mq, source, choice, visit))


async def _visit_all(
    mq: "Client", source: LetterSource, choice: DeadChoice, visit: Visit
) -> dict[str, str]:
    missing: dict[str, str] = {}
    unknown: TopicNotFound | None = None
    groups = await mq.admin.broker_groups()
    for group in groups:
        try:
            for first, end in await source.open(mq, group):
                letters = mq.read(source.hidden_topic, start=first, end=end, broker_group=group)
                async for letter in letters:
                    notes = source.notes(letter)
                    if choice.takes(letter, notes):
                        visit(letter, notes)
        except Unavailable as error:
            missing[group] = error.message
        except TopicNotFound as error:
            unknown = error
    if unknown is not None and len(groups) == 1:
        raise unknown
    return missing


def _fields(letter: Any, notes: dict[str, Any]) -> dict[str, Any]:
    fields = message_fields(letter)
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
