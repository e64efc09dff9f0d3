"""Doors without a node: what the first lines of servers make of hostile bytes, very many a second.

A *door* is a function of the project that bytes from outside reach first. Good inputs are made
once; each is changed a few hundred times, a byte, a number, a column or a length at a time, batches
with right checksums, and given to its door. A door may refuse (a `TernError`) or let pass; anything
else that it raises is a finding, and so is a batch that passes and that a reader cannot read, or
one input that holds the processor for longer than `SLOW_S`. Whole nodes are attacked by `run.py`.
"""

import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random

from ternmq.api.cursors import positions_cursor, read_positions
from ternmq.batch.check import check_incoming
from ternmq.batch.due import due_times
from ternmq.batch.layout import Stamp, stamp
from ternmq.batch.rows.cut import cut, project, thin
from ternmq.batch.rows.expiry import expired_rows, may_expire
from ternmq.batch.rows.pick import pick
from ternmq.batch.selector.filter import parse_filter
from ternmq.batch.selector.selector import Selector
from ternmq.batch.view import BatchView
from ternmq.client.consuming.lease_handle import LeaseHandle, read_handle
from ternmq.core.errors import TernError
from ternmq.security.access.token import ISSUER, TokenClaims, make_token, public_key, read_token
from ternmq.security.access.token import key_id as key_id_of
from ternmq.wire.decoder import SHARED_SIZE, FrameDecoder
from ternmq.wire.frame import pack_header
from ternmq.wire.messages.hello import Hello, ScramStart
from ternmq.wire.numbers import Command
from ternmq.wire.record import Record, pack, unpack
from ternmq.wire.resources import RESOURCES
from tests.fuzz.batches import batch, changed
from tests.fuzz.requests import payload, requests

NOW_MS = 1_700_000_000_000
SLOW_S = 0.05
"""Of the processor, for one input of a few kilobytes."""
ODD_BYTES = b"\x00\x01\x7f\x80\xff\x91\xc1\xdf\xdd\xc0%=.-"
KEY = bytes(range(32))
CLUSTER = "c" * 16
SELECTOR = Selector.parse("amount > 10 AND key = 'k' OR priority > 3")

BATCH_DOORS = ("batch", "delayed batch", "half batch")

Give = Callable[[bytearray], object]


@dataclass(frozen=True, slots=True)
class FuzzedDoor:
    """One door: its good inputs by a seed, how they are changed, and where they go."""

    name: str
    make: Callable[[Random], bytes | bytearray]
    give: Give
    change: Callable[[Random, bytearray], bytearray]
    variants: int = 200


@dataclass(slots=True)
class DoorFindings:
    """What came of it."""

    given: Counter[str] = field(default_factory=Counter)
    passed: Counter[str] = field(default_factory=Counter)
    problems: dict[str, str] = field(default_factory=dict)
    """One input for each, in hex."""
    slowest_s: float = 0.0


def attack_doors(seed: int, found: DoorFindings) -> None:
    """One seed: every door once, with all variants of one good input."""
    random = Random(seed)
    for door in DOORS:
        good = door.make(random)
        passed = 0
        for _ in range(door.variants):
            made = door.change(random, bytearray(good))
            began = time.thread_time()
            try:
                door.give(made)
                passed += 1
            except TernError:
                pass
            except Exception as bug:
                place = traceback.extract_tb(bug.__traceback__)[-1]
                text = f"{door.name}: {bug!r:.200} at {place.filename}:{place.lineno}"
                found.problems.setdefault(text, made.hex()[:20_000])
            taken = time.thread_time() - began
            if taken > found.slowest_s:
                found.slowest_s = taken
                if taken > SLOW_S:
                    found.problems.setdefault(f"{door.name}: {taken:.3f} s", made.hex()[:20_000])
        found.given[door.name] += door.variants
        found.passed[door.name] += passed


def change_bytes(random: Random, made: bytearray) -> bytearray:
    """Bytes replaced, put in, taken out, doubled."""
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        size = len(made)
        at = random.randrange(size + 1)
        match random.randrange(6):
            case 0 | 1 if at < size:
                made[at] = random.randrange(256)
            case 2 if at < size:
                made[at] = random.choice(ODD_BYTES)
            case 3:
                made[at:at] = random.randbytes(random.choice((1, 2, 8)))
            case 4:
                del made[at : at + random.choice((1, 2, 8, 1_000))]
            case _:
                made[at:at] = made[max(0, at - random.choice((1, 4, 50))) : at]
    return made


def _check(made: bytearray, *, half: bool = False) -> None:
    incoming = check_incoming(made, half=half)
    if not half:
        read_cheaply(made, delayed=incoming.delayed)


def read_cheaply(made: bytearray, *, delayed: bool) -> None:
    """Readers of servers and of clients, by columns where there is a way; none may refuse."""
    stamp(made, _STAMP)
    try:
        view = BatchView(made)
        last = view.count - 1
        view.order_keys(), view.priorities(), view.explicit_ids(), SELECTOR.rows(view)
        for row in (0, last):
            view.key(row), view.tag(row), view.properties(row), view.order_key(row)
            view.expire_at_ms(row), view.message_id(row), view.origin_app(row)
        cut(made, 0, last + 1)
        thin(made, [(last, last + 1)])
        pick(made, [(0, 1)])
        project(made, frozenset())
        if delayed:
            due_times(view, NOW_MS)
        if may_expire(bytes(made)):
            expired_rows(view, NOW_MS)
    except TernError as error:
        raise AssertionError(f"passed, and a reader refused it: {error.message}") from error


_STAMP = Stamp(
    offset=4096,
    topic_id=3,
    base_sequence=1_000,
    epoch=2,
    stored_at_ms=NOW_MS,
    received_at_ms=NOW_MS,
    durable_to=4_000,
    client_ip=bytes(15) + b"\1",
)


def _batch(*, delayed: bool = False, half: bool = False) -> FuzzedDoor:
    def make(random: Random) -> bytearray:
        return batch(random, ["orders"], now_ms=NOW_MS, delayed=delayed, half=half)

    def give(made: bytearray) -> None:
        _check(made, half=half)

    name = BATCH_DOORS[1 if delayed else 2 if half else 0]
    return FuzzedDoor(name, make, give, changed, 1_500)


def _frames(made: bytearray) -> None:
    """Cut anywhere; the decoder keeps its own bound, and says what was wrong."""
    decoder = FrameDecoder(_SHARED, size_max=4_096)
    at, step = 0, 1 + len(made) % 97
    while at < len(made) and decoder.failed is None:
        buffer = decoder.get_buffer()
        piece = made[at : at + min(step, len(buffer))]
        buffer[: len(piece)] = piece
        decoder.received(len(piece))
        at += len(piece)
    assert decoder.held <= 4_096 + 32
    if decoder.failed is not None:
        raise decoder.failed


_SHARED = bytearray(SHARED_SIZE)


def _some_frames(random: Random) -> bytes:
    sizes = random.choices((0, 10, 300), k=3)
    return b"".join(
        pack_header(Command.PUBLISH, 0, number, size) + random.randbytes(size)
        for number, size in enumerate(sizes)
    )


def _record(number: int, kind: type[Record]) -> FuzzedDoor:
    """What a guard reads of a request before anybody is asked, and the request itself."""
    find = RESOURCES[Command(number)]

    def make(random: Random) -> bytes:
        return payload(random, kind, ["orders", "pay"])

    def give(made: bytearray) -> None:
        unpack(made, kind)
        find(made)

    return FuzzedDoor(Command(number).name, make, give, change_bytes, 100)


def _records() -> Iterator[FuzzedDoor]:
    seen = set()
    for taken in requests().values():
        for number, kind in taken:
            if kind is not None and number not in seen:
                seen.add(number)
                yield _record(number, kind)


def _of_kind(name: str, kind: type[Record], good: Record) -> FuzzedDoor:
    return FuzzedDoor(
        name, lambda random: pack(good), lambda made: unpack(made, kind), change_bytes
    )


def _token(random: Random) -> bytes:
    claims = TokenClaims(
        iss=ISSUER, sub="u", aud=CLUSTER, jti="1", iat=NOW_MS / 1000, exp=NOW_MS / 1000 + 60
    )
    return make_token(claims, KEY).encode()


_KEYS = {key_id_of(public_key(KEY)): public_key(KEY)}


def _read_token(made: bytearray) -> None:
    text = made.decode("latin-1")
    read = read_token(text, _KEYS, cluster=CLUSTER, now_ms=NOW_MS)
    assert read.sub == "u", "a changed token is of nobody else"


def _filter(random: Random) -> bytes:
    return random.choice(
        (
            b"amount > 10 AND (key = 'k' OR tag IN ('a', 'b')) AND NOT name LIKE 'x%'",
            b"a BETWEEN 1 AND 2.5e3 OR b IS NOT NULL AND `c d` <> -7",
        )
    )


def _read_filter(made: bytearray) -> None:
    parse_filter("", made.decode("utf-8", "replace"))


def _handle(random: Random) -> bytes:
    return LeaseHandle("main", random.randrange(2**40), random.randrange(2**40), 3).text().encode()


def _text(read: Callable[[str], object]) -> Give:
    return lambda made: read(made.decode("latin-1"))


_HELLO = Hello(protocol=1, app="fuzz", version="0", session=b"f" * 16)
DOORS: list[FuzzedDoor] = [
    _batch(),
    _batch(delayed=True),
    _batch(half=True),
    FuzzedDoor("frames", _some_frames, _frames, change_bytes),
    *_records(),
    _of_kind("HELLO", Hello, _HELLO),
    _of_kind("SCRAM", ScramStart, ScramStart(user="fuzz", nonce=b"n" * 32)),
    FuzzedDoor("token", _token, _read_token, change_bytes),
    FuzzedDoor("filter", _filter, _read_filter, change_bytes, 20),
    FuzzedDoor("handle", _handle, _text(read_handle), change_bytes),
    FuzzedDoor(
        "cursor",
        lambda random: positions_cursor({"main": 7, "east": 2**40}).encode(),
        _text(read_positions),
        change_bytes,
    ),
]
