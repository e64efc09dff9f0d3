"""Which batches each producer has already sent, so that a repeat is answered and not stored twice.

Per producer the last batches (512 by default) are kept, ordered by the producer's own message
numbers, as packed bytes, with an array of their first numbers for searching. A repeat is found by
the very range it carried. Below the window nothing is known any more: `too_old` says so, and
the broker refuses rather than guess. Producers are forgotten only beyond `producers_max`, the
longest silent first, and only those silent for a day; at twice that many, silence or not.

A producer is of the application that stored its first batch: its id stands in the ids of its
messages, so others can read it and send under its next numbers. Of that application 32 bits are
kept (`owner_of`), noted once for each producer. Who asks by them is decided where batches come in.

The state survives restarts: `snapshot` is written when a segment is sealed and at a clean stop,
the batches after it are in the consume tail's records. Remembering a batch twice changes nothing,
so a snapshot may be newer than the offset it is said to cover.

    at  size  snapshot
     0     4  magic        b"PROD"
     4     4  crc          CRC-32C of bytes 8..
     8     8  covers       every batch of the message log below this offset is in here
    16     4  count        producers
    20     4  version      1
    24     .  per producer: start u64, random u64, floor u64, seen_at_ms i64, batches u32,
              owner u32 (0: not known), then per batch, by first_sequence:
              first_sequence u64, count u32, 4 spare, topic_id u64, base_sequence u64,
              stored_at_ms i64
"""

import hashlib
import struct
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import NamedTuple

from ternmq.batch.layout import FIXED_SIZE, read_producer_header
from ternmq.core.errors import BadRequest, Corrupt
from ternmq.core.ids import START_BITS
from ternmq.core.log import get_logger
from ternmq.storage.consume.entry import RECORD, Location
from ternmq.storage.files.disk import Buffer
from ternmq.storage.files.whole_file import check_version, pack_whole, read_whole

log = get_logger()

MAGIC = b"PROD"
VERSION = 1
HEADER = struct.Struct("<QII")
PRODUCER = struct.Struct("<QQQqII")
BATCH = struct.Struct("<QI4xQQq")  # first sequence, count, topic id, base sequence, stored at
_MESSAGE_LOG = int(Location.MESSAGE_LOG)
_SLACK = 64  # Old batches are dropped this many at a time.

DURABLE = 1 << (START_BITS - 1)  # No clock gets there before the year 6429.

ProducerKey = tuple[int, int]
_KEY = struct.Struct("<QQ")
_HEADER_READ = FIXED_SIZE + 2 * 255
"""A batch up to the end of its names."""


def durable_start(start_ms: int) -> int:
    """The start of a producer that may repeat itself at any later time."""
    return start_ms | DURABLE


class StoredBatch(NamedTuple):
    """The receipt of a batch that is already in the log."""

    topic_id: int
    base_sequence: int
    stored_at_ms: int


def owner_of(producer: ProducerKey, app: bytes) -> int:
    """An application as it is remembered of a producer; never 0. Another one with the same number
    has to be looked for anew for each producer."""
    digest = hashlib.blake2b(app, digest_size=4, key=_KEY.pack(*producer)).digest()
    return int.from_bytes(digest, "little") or 1


def _sender_of(producer: ProducerKey, batch: Buffer) -> int:
    """Whose a stored batch is; 0 where these bytes are no batch of that producer."""
    if len(batch) < FIXED_SIZE:
        return 0
    header = read_producer_header(batch)
    if (header.producer_start, header.producer_random) != producer:
        return 0
    app_at = FIXED_SIZE + header.topic_size
    return owner_of(producer, bytes(batch[app_at : app_at + header.app_size]))


class _ProducerWindow:
    __slots__ = ("app", "batches", "firsts", "floor", "owner", "seen_at_ms")

    def __init__(
        self,
        batches: bytes | memoryview = b"",
        floor: int = 0,
        seen_at_ms: int = 0,
        owner: int = 0,
    ) -> None:
        self.batches = bytearray(batches)
        self.firsts = array("Q", [batch[0] for batch in BATCH.iter_unpack(self.batches)])
        self.floor = floor  # Numbers below this were forgotten.
        self.seen_at_ms = seen_at_ms
        self.owner = owner
        self.app = ""  # That was found to be the owner.


class ProducerTable:
    """Remembers what was stored; changed only when a batch is safe."""

    def __init__(
        self,
        *,
        batches_max: int = 512,
        producers_max: int = 100_000,
        silence_ms: int = 86_400_000,
        durable_max: int = 10_000,
    ) -> None:
        self._batches_max = batches_max
        self._producers_max = producers_max
        self._silence_ms = silence_ms
        self._durable_max = durable_max
        self._windows: dict[ProducerKey, _ProducerWindow] = {}

    def __len__(self) -> int:
        return len(self._windows)

    def find(self, producer: ProducerKey, first_sequence: int, count: int) -> StoredBatch | None:
        """The receipt of this very batch if it was stored before."""
        window = self._windows.get(producer)
        if window is None:
            return None
        firsts = window.firsts
        if firsts and firsts[-1] < first_sequence:
            at = len(firsts)
        else:
            at = bisect_left(firsts, first_sequence)
            if at < len(firsts) and firsts[at] == first_sequence:
                fields = BATCH.unpack_from(window.batches, at * BATCH.size)
                if fields[1] == count:
                    return StoredBatch(fields[2], fields[3], fields[4])
        end = first_sequence + count
        clash = at < len(firsts) and firsts[at] < end
        if not clash and at > 0:
            before, rows, *_ = BATCH.unpack_from(window.batches, (at - 1) * BATCH.size)
            clash = before + rows > first_sequence
        if clash:
            raise BadRequest(
                f"messages {first_sequence}..{end} of this producer were partly sent before in "
                "other batches; a repeat must carry the same batch"
            )
        return None

    def too_old(self, producer: ProducerKey, first_sequence: int) -> bool:
        """Whether this may be a repeat of something already forgotten."""
        window = self._windows.get(producer)
        return window is not None and first_sequence < window.floor

    def position(self, producer: ProducerKey) -> int:
        """The number after the highest that this producer has stored; 0 if none is known."""
        window = self._windows.get(producer)
        if window is None or not window.firsts:
            return 0
        first, count, *_ = BATCH.unpack_from(window.batches, len(window.batches) - BATCH.size)
        return int(first + count)

    def is_of(self, producer: ProducerKey, app: str) -> bool:
        """May this application go on with these numbers? Those of nobody are everybody's."""
        window = self._windows.get(producer)
        if window is None or window.app == app or not window.owner:
            return True
        if owner_of(producer, app.encode()) != window.owner:
            return False
        window.app = app
        return True

    def remember(
        self,
        producer: ProducerKey,
        first_sequence: int,
        count: int,
        stored: StoredBatch,
        batch: Buffer = b"",
    ) -> None:
        """Note a batch that is safe; by its bytes whose the producer is, if that is not known."""
        window = self._windows.get(producer)
        if window is None:
            window = self._windows[producer] = _ProducerWindow()
        if not window.owner:
            window.owner = _sender_of(producer, batch)
        firsts = window.firsts
        packed = BATCH.pack(first_sequence, count, stored[0], stored[1], stored[2])
        window.seen_at_ms = stored[2]
        if not firsts or firsts[-1] < first_sequence:
            window.batches += packed
            firsts.append(first_sequence)
        else:
            at = bisect_left(firsts, first_sequence)
            place = at * BATCH.size
            if at < len(firsts) and firsts[at] == first_sequence:
                window.batches[place : place + BATCH.size] = packed
            else:
                window.batches[place:place] = packed
                firsts.insert(at, first_sequence)
        if len(firsts) >= self._batches_max + _SLACK:
            self._shorten(window)

    def _shorten(self, window: _ProducerWindow) -> None:
        gone = len(window.firsts) - self._batches_max
        first, count, *_ = BATCH.unpack_from(window.batches, (gone - 1) * BATCH.size)
        window.floor = max(window.floor, first + count)
        del window.firsts[:gone]
        del window.batches[: gone * BATCH.size]

    def restore_records(
        self,
        records: Buffer,
        read: Callable[[int, int], bytes] | None = None,
        *,
        from_offset: int,
    ) -> None:
        """Note the batches of packed consume records that start at or after `from_offset`; `read`
        brings bytes of the log, for producers that are not known yet."""
        for fields in RECORD.iter_unpack(records):
            if fields[2] < from_offset or fields[8] != _MESSAGE_LOG:
                continue
            key = (fields[10], fields[11])
            batch = b""
            if read is not None and not self._has_owner(key):
                try:
                    batch = read(fields[2], min(fields[3], _HEADER_READ))
                except Corrupt:
                    log.warning("whose a producer is cannot be read", offset=fields[2])
            stored = StoredBatch(fields[0], fields[1], fields[5])
            self.remember(key, fields[12], fields[4], stored, batch)

    def _has_owner(self, producer: ProducerKey) -> bool:
        window = self._windows.get(producer)
        return window is not None and window.owner != 0

    def forget_silent(self, now_ms: int) -> int:
        """Drop the longest silent producers beyond the limit; return how many."""
        windows = list(self._windows.items())
        durable = sorted((w.seen_at_ms, key) for key, w in windows if key[0] & DURABLE)
        for _, key in durable[: max(0, len(durable) - self._durable_max)]:
            self._windows.pop(key, None)
            log.warning("a durable producer is forgotten: there are too many", producer=key)
        by_silence = sorted((w.seen_at_ms, key) for key, w in windows if not key[0] & DURABLE)
        excess = len(by_silence) - self._producers_max
        if excess <= 0:
            return 0
        forced = max(0, len(by_silence) - 2 * self._producers_max)
        gone = 0
        for seen_at_ms, key in by_silence[:excess]:
            if gone >= forced and now_ms - seen_at_ms <= self._silence_ms:
                break
            self._windows.pop(key, None)
            gone += 1
        if gone:
            log.info("silent producers forgotten", count=gone, forced=min(gone, forced))
        return gone

    def snapshot(self, covers: int) -> bytes:
        """Everything as bytes, while others may go on remembering."""
        parts: list[bytes] = []
        items = list(self._windows.items())
        for (start, random), window in items:
            batches = bytes(window.batches)  # One step of the interpreter: never half changed.
            count = len(batches) // BATCH.size
            known = (window.floor, window.seen_at_ms, count, window.owner)
            parts += (PRODUCER.pack(start, random, *known), batches)
        return pack_whole(MAGIC, HEADER.pack(covers, len(items), VERSION) + b"".join(parts))

    def restore(self, content: bytes) -> int:
        """Take a snapshot over; return the offset it covers. Raises `Corrupt`."""
        body = read_whole(content, MAGIC, "the producers file", body_min=HEADER.size)
        covers, count, version = HEADER.unpack_from(body)
        check_version(version, VERSION, "the producers file")
        self._windows = dict(_unpack_windows(body, count))
        return int(covers)


def _unpack_windows(body: memoryview, count: int) -> Iterator[tuple[ProducerKey, _ProducerWindow]]:
    at = HEADER.size
    for _ in range(count):
        start, random, floor, seen_at_ms, batches, owner = PRODUCER.unpack_from(body, at)
        at += PRODUCER.size
        end = at + batches * BATCH.size
        yield (start, random), _ProducerWindow(body[at:end], floor, seen_at_ms, owner)
        at = end
