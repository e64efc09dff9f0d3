"""A file of one-way messages that no broker stored, for people (D10): `connect(unsent="FILE")`.

One JSON object per line: id, topic, why, when, and the message (`content`, as a spool keeps it).
Whoever handles them (`tern unsent`) takes the file away first (`take`), so that a producer goes on
with a new one, and puts back what stays (`put_back`). What was taken and not put back, because that
process died, is found beside the file and taken again the next time: sent twice rather than never,
each time with the same id.

Only messages that nobody waits for come here: who waits has the error and the message. What a
broker put aside over a limit is kept there. Never larger than `SIZE_MAX`.
"""

import json
import os
from base64 import b64decode, b64encode
from binascii import Error as BadBase64
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from ternmq.batch.encoder import Outgoing
from ternmq.client.model.stored_message import pack, read, unpack
from ternmq.client.producing.accumulator import Row
from ternmq.client.producing.producer import KeepUnsent
from ternmq.core.clock import Clock
from ternmq.core.errors import BadConfig, BadRequest, Corrupt, PutAside, SendUnknown, TernError
from ternmq.core.ids import ID_TEXT_SIZE, id_from_text
from ternmq.core.log import get_logger
from ternmq.core.units import GIB

SIZE_MAX = GIB
NO_ID = "0" * ID_TEXT_SIZE

log = get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsentMessage:
    """One line."""

    id: str
    topic: str
    code: str
    """Of the error; `send_unknown`: it may be stored after all."""
    reason: str
    at_ms: int
    content: bytes

    @property
    def message(self) -> Outgoing:
        """To be sent again, with its id and its due time."""
        plain = len(self.id) == ID_TEXT_SIZE
        id_ = id_from_text(self.id).to_bytes(16, "big") if plain else bytes.fromhex(self.id)
        due_at_ms = read(self.content, self.id).due_at_ms
        return replace(unpack(self.content, NO_ID), due_at_ms=due_at_ms, explicit_id=id_)

    @property
    def line(self) -> str:
        fields = {
            "id": self.id,
            "topic": self.topic,
            "code": self.code,
            "reason": self.reason,
            "at_ms": self.at_ms,
            "content": b64encode(self.content).decode(),
        }
        return json.dumps(fields) + "\n"


def parse_line(line: str) -> UnsentMessage:
    """`Corrupt` where it is none of ours."""
    try:
        fields = json.loads(line)
        fields["content"] = b64decode(fields["content"], validate=True)
        return UnsentMessage(**fields)
    except (ValueError, TypeError, KeyError, BadBase64) as error:
        raise Corrupt(f"not a line of an unsent file: {line[:80]!r}") from error


def keeper(path: Path, clock: Clock) -> KeepUnsent:
    """What a producer calls for each one-way message that is not stored."""

    def keep(id: str, topic: str, row: Row, error: TernError) -> None:
        if isinstance(error, PutAside):
            return
        now_ms = clock.now_ms()
        made = row if isinstance(row, Outgoing) else Outgoing(body=row, born_at_ms=now_ms)
        if made.delay_ms is not None:
            made = replace(made, delay_ms=None, due_at_ms=made.born_at_ms + made.delay_ms)
        code = error.code if not isinstance(error, SendUnknown) else "send_unknown"
        kept = UnsentMessage(
            id=id,
            topic=topic,
            code=code,
            reason=error.message,
            at_ms=now_ms,
            content=pack(made),
        )
        try:
            put_back(path, [kept])
        except (OSError, TernError) as failure:
            log.error("unsent message not kept", id=id, topic=topic, reason=str(failure))

    return keep


def put_back(path: Path, messages: Sequence[UnsentMessage]) -> None:
    """Append; the file is made at the first one, for its owner only."""
    with _locked(path):
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "ab") as file:
            if file.tell() >= SIZE_MAX:
                raise BadRequest(f"{path} has {SIZE_MAX} bytes: 'tern unsent' empties it")
            file.write("".join(one.line for one in messages).encode())


def look(path: Path) -> list[UnsentMessage]:
    """Everything that is kept, oldest first; nothing is taken."""
    with _locked(path):
        return [one for part in (*_taken(path), path) for one in _lines(part)]


@contextmanager
def take(path: Path) -> Iterator[list[UnsentMessage]]:
    """Everything that is kept; what is put back meanwhile stays, the rest is gone at the end. If
    the block fails, all of it stays."""
    with _locked(path):
        if path.exists():
            path.rename(path.with_name(f"{path.name}.taken-{os.getpid()}-{os.urandom(4).hex()}"))
        parts = _taken(path)
    yield [one for part in parts for one in _lines(part)]
    with _locked(path):
        for part in parts:
            part.unlink()


def _taken(path: Path) -> list[Path]:
    return sorted(path.parent.glob(f"{path.name}.taken-*"), key=lambda part: part.stat().st_mtime)


def _lines(path: Path) -> list[UnsentMessage]:
    if not path.exists():
        return []
    with path.open(encoding="utf-8") as file:
        return [parse_line(line) for line in file if line.strip()]


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Nobody else appends or takes meanwhile; held for moments only."""
    try:
        import fcntl  # Windows has none; only who keeps what was not sent needs it.
    except ImportError:
        raise BadConfig("a file of unsent messages needs a POSIX system") from None
    lock = path.with_name(f"{path.name}.lock")
    with lock.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
