"""Random batches with right checksums: well formed ones, and ones with a few bytes, columns or
sizes changed. Whoever means harm seals what he sends, so a checksum protects nobody."""

import struct
from random import Random

import numpy as np
from crc32c import crc32c

from ternmq.batch.encoder import Origin, Outgoing, Section, assemble, encode_messages
from ternmq.batch.half import HalfInfo, pack_info
from ternmq.batch.layout import (
    DIRECTORY,
    DIRECTORY_ENTRY_SIZE,
    FIXED_SIZE,
    PRODUCER,
    PRODUCER_CRC_AT,
    Attribute,
    Column,
    ColumnPart,
    Encoding,
    Type,
)
from ternmq.batch.properties import PropertyValue
from ternmq.core.ids import ProducerId
from ternmq.core.units import align8

TEXTS = [None, "", "k", "é", "a" * 200]
IDS = [b"s" * 16, b"\0", bytes(range(256))]
"""What requests ask for (`requests.BYTES`), so that some of it is found."""
VALUES: list[PropertyValue] = [1, -5, 2.5, "text", True, b"\xff\0", 10**30, float("inf")]


def batch(
    random: Random, topics: list[str], *, now_ms: int, delayed: bool, half: bool
) -> bytearray:
    """One batch for PUBLISH or HALF, harmless in about one case of four."""
    origin = _origin(random, topics)
    if random.random() < 0.2:
        return _sealed(_odd_column(random, origin))
    made = _honest(random, origin, now_ms=now_ms, delayed=delayed, half=half)
    for _ in range(random.choice([0, 0, 1, 1, 2])):
        random.choice((_flip, _retarget, _renumber))(random, made)
    return _sealed(made)


def changed(random: Random, made: bytearray) -> bytearray:
    """A batch with one or two things changed, and a right checksum."""
    for _ in range(random.choice([1, 1, 2])):
        random.choice((_flip, _flip, _retarget, _renumber))(random, made)
    return _sealed(made)


def _honest(random: Random, origin: Origin, *, now_ms: int, delayed: bool, half: bool) -> bytearray:
    count = random.choice([1, 1, 2, 3, 17, 70])
    due = now_ms + random.choice([0, 50, 500, 3_600_000]) if delayed else None
    rows = [
        Outgoing(
            body=random.randbytes(random.choice([0, 1, 30, 300])),
            key=random.choice(TEXTS),
            order_key=random.choice(TEXTS) if random.random() < 0.3 else None,
            tag=random.choice([None, "vip", "é"]),
            properties={"amount": random.choice(VALUES)} if random.random() < 0.5 else None,
            priority=random.choice([0, 0, 9, 255]),
            expire_at_ms=now_ms + 60_000 if random.random() < 0.2 else None,
            due_at_ms=due,
            born_at_ms=now_ms,
            explicit_id=random.choice(IDS) if random.random() < 0.3 else None,
        )
        for _ in range(count)
    ]
    info = pack_info(HalfInfo(transaction=random.randbytes(16))) if half else None
    return encode_messages(
        rows,
        origin=origin,
        first_sequence=random.randrange(1_000_000),
        encoding=random.choice(list(Encoding)),
        transaction=info,
    )


def _origin(random: Random, topics: list[str]) -> Origin:
    producer = ProducerId(random.randrange(2**48), random.randrange(2**40))
    return Origin(topic=random.choice(topics), app="fuzz", producer=producer)


def _sealed(made: bytearray) -> bytearray:
    struct.pack_into("<I", made, PRODUCER_CRC_AT, crc32c(memoryview(made)[PRODUCER_CRC_AT + 4 :]))
    return made


def _flip(random: Random, made: bytearray) -> None:
    """A few bytes anywhere the producer writes."""
    for _ in range(random.choice([1, 2, 8])):
        made[random.randrange(PRODUCER_CRC_AT + 4, len(made))] = random.randrange(256)


def _directory(made: bytearray) -> tuple[int, int]:
    """Where the buffer directory is, and how many entries it has."""
    header = PRODUCER.unpack_from(made, PRODUCER_CRC_AT)
    return align8(FIXED_SIZE + header[10] + header[11]), header[12]


def _retarget(random: Random, made: bytearray) -> None:
    """One buffer becomes another column, part, type, encoding, or lies elsewhere."""
    at, count = _directory(made)
    place = at + DIRECTORY_ENTRY_SIZE * random.randrange(max(1, count))
    if place + DIRECTORY_ENTRY_SIZE > len(made):
        return
    column, part, kind, encoding, offset, size = DIRECTORY.unpack_from(made, place)
    match random.randrange(5):
        case 0:
            column = random.choice([*Column, 0, 15, 99])
        case 1:
            part = random.choice([*ColumnPart, 12, 255])
        case 2:
            kind = random.choice([*Type, 0, 7])
        case 3:
            encoding = random.choice([*Encoding, 3])
        case _:
            size = max(0, size + random.choice([-8, -4, -1, 1, 4, 8]))
    DIRECTORY.pack_into(made, place, column, part, kind, encoding, offset, size)


def _renumber(random: Random, made: bytearray) -> None:
    """A number of the header."""
    header = list(PRODUCER.unpack_from(made, PRODUCER_CRC_AT))
    field = random.choice([1, 2, 3, 4, 5, 6, 7, 12])
    limit = {7: 2**62, 4: 2**60, 5: 2**60, 6: 2**60, 12: 2**15}.get(field, 2**31)
    header[field] = random.choice([0, 1, header[field] ^ (1 << random.randrange(14)), limit])
    PRODUCER.pack_into(made, PRODUCER_CRC_AT, *header)


def _odd_column(random: Random, origin: Origin) -> bytearray:
    """Two bodies, and one column laid out by chance."""
    column = random.choice([*Column, 99])
    kind = random.choice(list(Type))
    parts = random.sample(list(ColumnPart), random.choice([1, 2, 3]))
    rows = 2
    pieces = [
        Section(Column.BODY, ColumnPart.OFFSETS, Type.BINARY, np.array([0, 1, 2], "<i4").tobytes()),
        Section(Column.BODY, ColumnPart.DATA, Type.BINARY, b"ab"),
    ]
    due = random.random() < 0.5
    if due:
        times = np.full(rows, random.choice([0, 1_700_000_000_000]), "<i8").tobytes()
        pieces.append(Section(Column.DUE, ColumnPart.VALUES, Type.INT64, times))
    pieces += [
        Section(column, part, kind, random.randbytes(random.choice([0, 1, 2, 4, 8, 12, 16])))
        for part in parts
    ]
    attributes = random.choice([0, 0, int(Attribute.EXPIRES), int(Attribute.IN_ORDER)])
    return assemble(pieces, rows, 2, origin, random.randrange(1_000), 0, attributes)
