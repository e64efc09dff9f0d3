"""Names for the numbers that must never be mixed up, the message id, and the naming rule.

An *offset* counts bytes, a *sequence* counts messages. Both are ints at run time and different
types to mypy, so passing one for the other does not pass CI.

A message id has 128 bits and costs none in a batch: start of the producer's incarnation in
milliseconds (48), random (40), message sequence (40). The first two make the producer id. Ids sort
by time. The text form has 26 characters of Crockford's base 32. An explicit id (any bytes) takes
its place where a batch carries one; 16-byte ones print the same way, others as hex.
"""

import re
import secrets
from dataclasses import dataclass
from typing import NewType

from ternmq.core.errors import BadName, BadRequest

TopicId = NewType("TopicId", int)
GroupId = NewType("GroupId", int)
LaneId = NewType(
    "LaneId", int
)  # A topic's own sequence has the topic's id; hidden lanes have their own.
Offset = NewType("Offset", int)  # Byte position in a log.
Sequence = NewType("Sequence", int)  # Message number in one lane of one broker group.
LeaseId = NewType("LeaseId", int)
Epoch = NewType("Epoch", int)

NAME_SIZE_MAX = 127
_NAME = re.compile(r"[A-Za-z0-9._-]{1,127}", re.ASCII)

START_BITS, RANDOM_BITS, SEQUENCE_BITS = 48, 40, 40
MESSAGE_SEQUENCE_MAX = 2**SEQUENCE_BITS - 1
_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_VALUES = {letter: value for value, letter in enumerate(_ALPHABET)} | {"O": 0, "I": 1, "L": 1}
_PAIRS = [one + other for one in _ALPHABET for other in _ALPHABET]
# To the digits that int() knows; "U" is no letter of ours and "!" no digit of anybody's.
_DIGITS = str.maketrans(
    {
        **{letter: "0123456789ABCDEFGHIJKLMNOPQRSTUV"[value] for letter, value in _VALUES.items()},
        "U": "!",
    }
)
ID_TEXT_SIZE = 26


@dataclass(frozen=True, slots=True)
class ProducerId:
    """One incarnation of one producer: never shared by two processes, renewed every hour."""

    start_ms: int
    random: int

    def message_id(self, sequence: int) -> int:
        """The 128-bit id of this producer's message number `sequence`."""
        high = (self.start_ms << RANDOM_BITS) | self.random
        return (high << SEQUENCE_BITS) | sequence


def new_producer_id(now_ms: int) -> ProducerId:
    return ProducerId(start_ms=now_ms & (2**START_BITS - 1), random=secrets.randbits(RANDOM_BITS))


def id_to_text(message_id: int) -> str:
    """26 characters that sort as the number does."""
    return "".join([_PAIRS[(message_id >> shift) & 1023] for shift in range(120, -1, -10)])


def id_from_text(text: str) -> int:
    """Read the text form back; lower case and the look-alikes O, I, L are accepted."""
    if len(text) != ID_TEXT_SIZE:
        raise BadRequest(f"{text!r} is not a message id: it has {ID_TEXT_SIZE} characters")
    upper = text.upper()
    for letter in upper if not (upper.isascii() and upper.isalnum()) or "U" in upper else "":
        if letter not in _VALUES:
            raise BadRequest(f"{text!r} is not a message id: {letter!r} is not in its alphabet")
    number = int(upper.translate(_DIGITS), 32)
    if number >= 2**128:
        raise BadRequest(f"{text!r} is not a message id: it is larger than 128 bits")
    return number


def explicit_id_text(explicit: bytes) -> str:
    """How an id that came from outside is shown."""
    return id_to_text(int.from_bytes(explicit, "big")) if len(explicit) == 16 else explicit.hex()


def check_name(kind: str, name: str) -> str:
    """Return `name` if people may use it for a topic, group or application; else say why not."""
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise BadName(
            f"{name!r} cannot be the name of a {kind}: use 1 to {NAME_SIZE_MAX} letters, digits, "
            "'.', '_' or '-' ('%' is reserved)"
        )
    return name
