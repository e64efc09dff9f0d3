"""How results are shown: tables for people, JSON for programs, always on stdout.

On a terminal a table is drawn by Rich, one line for each row, cut to its width; where that would
leave nothing to read, each row is a block of lines. In a pipe it is plain aligned text that is
never cut.
Times are UTC in ISO 8601, whatever the machine's time zone. Everything that is not a result (notes,
progress, questions) goes to stderr. All text passes `printable`: others wrote some of it.
"""

import base64
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import typer

from ternmq.cli.terminal.printable import json_text, printable, printable_lines
from ternmq.client.model.times import time_from_ms
from ternmq.core.errors import Erased, KeyNotFound
from ternmq.core.units import GIB, KIB, MIB

BODY_PREVIEW_MAX = 60
UNREADABLE = "(unreadable)"
CLEAR = "\x1b[H\x1b[J"
EXIT_PIPE_CLOSED = 141
CELL_MIN = 6
CELL_LEGIBLE = 8
"""So much of a text says something; of numbers nothing may be cut."""
COLUMN_GAP = 3
"""Between two columns of a drawn table."""
EDGES = 2
"""Left and right of it."""


def note(text: str) -> None:
    """Say something that is not a result."""
    sys.stderr.write(printable_lines(text) + "\n")


def say(text: str) -> None:
    _put(printable_lines(text))


def clear_screen() -> None:
    """Only where stdout is a terminal."""
    _put(CLEAR)


def _put(text: str) -> None:
    try:
        sys.stdout.write(text + "\n")
    except BrokenPipeError:
        raise reader_left() from None


def flush() -> None:
    """The last thing before the process ends."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        sys.exit(reader_left().exit_code)


def reader_left() -> typer.Exit:
    """The reader of the output is gone (`| head`): end as a program that SIGPIPE ended.

    What is still buffered must go somewhere at exit.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return typer.Exit(EXIT_PIPE_CLOSED)


def show_json(value: Any, *, indent: int | None = 2) -> None:
    say(json_text(plain(value), indent=indent))


def plain(value: Any) -> Any:
    """Records become objects with named fields; JSON knows the rest."""
    names = getattr(value, "__struct_fields__", None)
    if names is not None:
        return {name: plain(getattr(value, name)) for name in names}
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, bytes):
        return text_or_base64(value)
    if isinstance(value, datetime):
        return utc(value)
    return value


def show_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """A column whose name starts with '#' holds numbers and is aligned to the right."""
    cells = [[_cell(value) for value in row] for row in rows]
    if sys.stdout.isatty():
        _draw(columns, cells)
        return
    names = [name.removeprefix("#") for name in columns]
    widths = [max(len(row[at]) for row in [names, *cells]) for at in range(len(names))]
    for row in [names, *cells]:
        parts = [
            text.rjust(width) if name.startswith("#") else text.ljust(width)
            for name, text, width in zip(columns, row, widths, strict=True)
        ]
        say("  ".join(parts).rstrip())


def show_facts(facts: dict[str, Any]) -> None:
    """One thing, one fact per line."""
    width = max(len(name) for name in facts)
    for name, value in facts.items():
        say(f"{name.ljust(width)}  {_cell(value)}".rstrip())


def utc(at: datetime | int) -> str:
    """UTC, to the millisecond; `at` is milliseconds since 1970 or an aware datetime."""
    if isinstance(at, int):
        at = time_from_ms(at)
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def size(count: int) -> str:
    for unit, factor in (("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count} B"


def preview(body: bytes) -> str:
    """The start of a body on one line; what is not text is escaped, so a terminal stays intact."""
    text = body[: BODY_PREVIEW_MAX * 4].decode("utf-8", "backslashreplace")
    safe = printable(text)
    return safe if len(safe) <= BODY_PREVIEW_MAX else safe[: BODY_PREVIEW_MAX - 1] + "…"


FIELDS = (
    "id",
    "topic",
    "sequence",
    "broker_group",
    "attempt",
    "stored_at",
    "born_at",
    "app",
    "key",
    "tag",
    "order_key",
    "properties",
)


def message_fields(message: Any) -> dict[str, Any]:
    """A message as JSON; a body that is not UTF-8 is `body_base64` instead of `body`. What cannot
    be read of a damaged one is null, and `unreadable` names it."""
    fields: dict[str, Any] = {}
    unreadable: list[str] = []
    for name in FIELDS:
        try:
            fields[name] = plain(getattr(message, name))
        except Exception:
            fields[name] = None
            unreadable.append(name)
    body = readable(message, "body", None)
    if body is None:
        unreadable.append("body")
        fields["erased"] = bool(readable(message, "erased", False))
    else:
        try:
            fields["body"] = bytes(body).decode()
        except UnicodeDecodeError:
            fields["body_base64"] = base64.b64encode(body).decode()
    return fields | ({"unreadable": unreadable} if unreadable else {})


def readable(message: Any, name: str, otherwise: Any = UNREADABLE) -> Any:
    """A field of a message; releases before 0.2 stored some of which not all can be read, and one
    such message must not hide the others."""
    try:
        return getattr(message, name)
    except Exception:
        return otherwise


def shown_body(message: Any) -> str:
    """The start of its body."""
    try:
        return preview(message.body)
    except (Erased, KeyNotFound) as error:
        return "(erased)" if isinstance(error, Erased) else "(encrypted, and no key for it here)"
    except Exception:
        return UNREADABLE


def text_or_base64(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return base64.b64encode(data).decode()


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, datetime):
        return utc(value)
    return printable(str(value))


def cut_widths(widths: Sequence[int], room: int) -> list[int]:
    """Widths of columns that fit into `room`: the widest give way first, none below `CELL_MIN`."""
    found = list(widths)
    while sum(found) > room and max(found, default=0) > CELL_MIN:
        widest = max(found)
        others = [width for width in found if width < widest]
        count = len(found) - len(others)
        over = -(-(sum(found) - room) // count)
        goal = max(CELL_MIN, max(others, default=0), widest - over)
        found = [min(width, goal) for width in found]
    return found


def is_legible(columns: Sequence[str], cells: Sequence[Sequence[str]], room: int) -> bool:
    """Does something of every column fit side by side?"""
    needed = 0
    for at, name in enumerate(columns):
        longest = max(len(row[at]) for row in cells)
        shown = longest if name.startswith("#") else min(longest, CELL_LEGIBLE)
        needed += max(shown, min(len(name), CELL_MIN))
    return needed <= room


def _stack(names: Sequence[str], cells: Sequence[Sequence[str]], room: int) -> None:
    """A block of lines for each row."""
    width = max(map(len, names))
    for number, row in enumerate(cells):
        if number:
            say("")
        for name, text in zip(names, row, strict=True):
            if name == text:  # Signs between columns.
                continue
            line = f"{name.ljust(width)}  {text}".rstrip()
            say(line if len(line) <= room else line[: room - 1] + "…")


def _draw(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
    """One line for each row, as wide as the terminal: what does not fit ends in '…'."""
    from rich import box
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(file=sys.stdout)
    names = [name.removeprefix("#") for name in columns]
    widths = [max(cell_len(row[at]) for row in [names, *cells]) for at in range(len(names))]
    room = console.width - COLUMN_GAP * (len(names) - 1) - EDGES
    if cells and not is_legible(columns, cells, room):
        _stack(names, cells, console.width)
        return
    fitting = cut_widths(widths, room)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name, title, width in zip(columns, names, fitting, strict=True):
        table.add_column(
            title,
            justify="right" if name.startswith("#") else "left",
            overflow="ellipsis",
            no_wrap=True,
            max_width=width,
        )
    for row in cells:
        table.add_row(*[Text(text.replace("\n", " ")) for text in row])
    console.print(table)
