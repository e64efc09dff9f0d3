"""Random requests: payloads for every command, from the right ones to nonsense.

The shape of each request is taken from its record, so a new command is attacked as soon as it is in
docs/wire-protocol.md, which a test holds to the code. Names come from a small pool, so that many
requests go deeper than "there is no such topic".
"""

from random import Random
from typing import Any

import msgspec
from msgspec import inspect

from ternmq.wire.record import Record
from tests.wire_page import command_rows, records

CONTROL = {"HELLO", "AUTH", "PING", "NOTICE"}
"""The connection's own."""
BATCHES = "one batch"
ODD_TOPICS = ["%dead.g", "%control", "", "no.such", "a" * 127, "ü\x1b]0;x"]
GROUPS = ["g", "h", "%g", "", "x" * 300]
NUMBERS = [
    0,
    1,
    2,
    7,
    100,
    -1,
    -(2**31),
    2**31,
    2**32,
    2**40,
    2**53,
    2**62,
    2**63 - 1,
    2**63,
    2**64 - 1,
]
TEXTS = [
    "",
    "a",
    "*",
    "latest",
    "earliest",
    "amount > 10",
    "((((",
    "\x00\x1b[2J",
    "é" * 50,
    "x" * 5_000,
]
LABELS = ["p1700000000000.0123abcd", "s" + "ab" * 32, "s" + "cd" * 32]
"""Of data keys; a digest is one of a subject without its letter."""
MASTER_KEYS = ["shop", "", "x" * 200]
USERS = ["u", "v", "%u", "", "fuzz", "x" * 300]
MEMBERS = ["127.0.0.1:9", "1" * 16, "2" * 16]
DEPTH_MAX = 3
BYTES = [b"", b"\0", b"s" * 16, bytes(range(256)), b"\xff" * 5_000]


def requests() -> dict[str, list[tuple[int, type[Record] | None]]]:
    """By server (meta, broker, delay): the commands it takes, with their records; None: a batch."""
    kinds = records()
    found: dict[str, list[tuple[int, type[Record] | None]]] = {
        "meta": [],
        "broker": [],
        "delay": [],
    }
    for row in command_rows():
        for server, taken in found.items():
            if row.asked_of(server) and row.command.name not in CONTROL:
                taken.append((int(row.command), kinds.get(row.request)))
    return found


def topics(seed: int) -> list[str]:
    """What a seed sends to. Its own: another one may have closed or deleted the topics it had."""
    return [f"fuzz.{seed}.{name}" for name in ("a", "b", "later")]


def payload(random: Random, kind: type[Record], names: list[str]) -> bytes:
    """A request of this kind: mostly well formed with odd values, sometimes not even that."""
    if random.random() < 0.05:
        return _rubbish(random)
    make = _Maker(random, names)
    shape = inspect.type_info(kind)
    assert isinstance(shape, inspect.StructType)
    values = [make.value(field.type, field.name) for field in shape.fields]
    if random.random() < 0.1 and values:
        values[random.randrange(len(values))] = make.anything(3)
    if random.random() < 0.1:
        values = values[: random.randrange(len(values) + 1)]
    if random.random() < 0.05:
        values.append(make.anything(4))
    try:
        return msgspec.msgpack.encode(values)
    except (OverflowError, UnicodeEncodeError):
        return _rubbish(random)


class _Maker:
    """Values of one request."""

    def __init__(self, random: Random, topics: list[str]) -> None:
        self._random = random
        self._topics = topics
        self._depth = 0

    def value(self, kind: Any, name: str) -> Any:
        """Of this type, or nearly."""
        random = self._random
        match kind:
            case inspect.IntType() if "wait" in name:
                return random.choice([0, 0, 1, 20, -1])
            case inspect.IntType():
                return random.choice(NUMBERS) if random.random() < 0.12 else random.randrange(50)
            case inspect.StrType():
                return self._text(name)
            case inspect.BytesType():
                return random.choice(BYTES)
            case inspect.BoolType():
                return random.random() < 0.5
            case inspect.FloatType():
                return random.choice([0.0, -1.5, 1e300, float("nan")])
            case inspect.LiteralType():
                return random.choice(kind.values if random.random() < 0.9 else ["", 7])
            case inspect.ListType() | inspect.VarTupleType():
                count = random.choice([0, 1, 2, 3, 50]) if self._depth < DEPTH_MAX else 0
                return [self.value(kind.item_type, name) for _ in range(count)]
            case inspect.TupleType():
                return [self.value(item, name) for item in kind.item_types]
            case inspect.DictType():
                return {self.value(kind.key_type, name): self.value(kind.value_type, name)}
            case inspect.UnionType():
                return self.value(random.choice(kind.types), name)
            case inspect.StructType():
                self._depth += 1  # A claim holds a standing, which holds claims.
                try:
                    return [self.value(field.type, field.name) for field in kind.fields]
                finally:
                    self._depth -= 1
        return None if isinstance(kind, inspect.NoneType) else self.anything(2)

    def _text(self, name: str) -> str:
        random = self._random
        if "topic" in name or name == "name":
            return random.choice(ODD_TOPICS if random.random() < 0.15 else self._topics)
        if "group" in name:
            return random.choice(GROUPS if random.random() < 0.3 else GROUPS[:2])
        if name in ("label", "digest"):
            label = random.choice(LABELS)
            return label[1:] if name == "digest" else label
        if name == "master_key":
            return random.choice(MASTER_KEYS if random.random() < 0.3 else MASTER_KEYS[:1])
        if name in ("user", "identity"):
            return random.choice(USERS)
        if name in ("action", "resource") and random.random() < 0.7:
            return random.choice(["publish", "read"] if name == "action" else ["*", "a.*"])
        if name in ("address", "member", "member_id", "id", "master", "in_sync"):
            return random.choice(TEXTS if random.random() < 0.2 else MEMBERS)
        return random.choice(TEXTS)

    def anything(self, depth: int) -> Any:
        """Of any type; lists and maps down to this depth."""
        random = self._random
        match random.randrange(8 if depth else 6):
            case 0:
                return None
            case 1:
                return random.choice(NUMBERS)
            case 2:
                return random.choice(TEXTS)
            case 3:
                return random.choice(BYTES)
            case 4:
                return random.random()
            case 5:
                return random.random() < 0.5
            case 6:
                return [self.anything(depth - 1) for _ in range(random.randrange(4))]
            case _:
                return {random.choice(TEXTS): self.anything(depth - 1)}


def _rubbish(random: Random) -> bytes:
    if random.random() < 0.3:
        return b"\x91" * random.choice([50, 3_500, 50_000])  # Nested lists without an end.
    return random.randbytes(random.choice([0, 1, 7, 100, 3_000]))
