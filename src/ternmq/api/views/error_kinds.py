"""Dead letters by what went wrong: errors that differ in numbers and names only are alike. Pure.

The type of the error, its text without numbers, ids and quoted parts, and the last line of the
application in its traceback together are the mark of a kind of error.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

EXAMPLES = 3
KEPT_MAX = 200
"""Kinds of errors that are told apart; others are counted together."""
OTHERS = "(others)"
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`")
_ID = re.compile(r"\b[0-9A-Z]{26}\b|\b[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b")
_NUMBER = re.compile(r"\b(0x[0-9a-fA-F]+|[\w-]*\d[\w.:-]*)\b")
_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')


@dataclass(slots=True, kw_only=True)
class ErrorKind:
    """One kind of error."""

    mark: str
    type: str
    text: str
    place: str = ""
    count: int = 0
    first_ms: int = 0
    last_ms: int = 0
    resent: int = 0
    """So many of them were sent again before."""
    topics: set[str] = field(default_factory=set)
    examples: list[str] = field(default_factory=list)
    """Ids."""

    def add(self, id: str, notes: Mapping[str, Any]) -> None:
        at_ms = int(notes.get("%died_at", 0) or 0)
        self.count += 1
        self.first_ms = min(self.first_ms or at_ms, at_ms)
        self.last_ms = max(self.last_ms, at_ms)
        self.resent += bool(notes.get("%resent"))
        self.topics.add(str(notes.get("%topic", "")))
        if len(self.examples) < EXAMPLES:
            self.examples.append(id)


def plain_text(text: str) -> str:
    """A text without what differs from message to message."""
    bare = _NUMBER.sub("…", _ID.sub("…", _QUOTED.sub("…", text[:1_024])))
    return re.sub(r"(…[\s,]*)+", "… ", bare).strip()[:200]


def last_place(traceback: str) -> str:
    """Where in the application it happened: the last frame that is not of a library."""
    frames = _FRAME.findall(traceback)
    own = [frame for frame in frames if "site-packages" not in frame[0]] or frames
    if not own:
        return ""
    path, line, function = own[-1]
    return f"{path.rpartition('/')[2]}:{line} in {function}"


def alike(letters: Iterable[tuple[str, Mapping[str, Any]]]) -> list[ErrorKind]:
    """Kinds of errors among (id, notes) of letters, the commonest first."""
    found: dict[str, ErrorKind] = {}
    for id, notes in letters:
        kind = str(notes.get("%error_type", "") or "")
        text = plain_text(str(notes.get("%error_text") or notes.get("%reason") or ""))
        place = last_place(str(notes.get("%error_traceback", "") or ""))
        mark = f"{kind}: {text}" if kind else text or "no reason given"
        key = f"{mark} {place}"
        if key not in found and len(found) >= KEPT_MAX:
            key, mark, kind, text, place = OTHERS, OTHERS, "", "", ""
        if key not in found:
            found[key] = ErrorKind(mark=mark, type=kind, text=text, place=place)
        found[key].add(id, notes)
    return sorted(found.values(), key=lambda each: -each.count)
