"""Which transactions are open, which half batches each has, and what became of those that ended.

A table in memory, changed only when a half batch or a decision is safe (`apply`, on the loop). It
can be made again from the log: half batches say what they belong to, control batches what was
decided. A snapshot is written when a segment is sealed, at a clean stop, and when much has changed;
the batches after it are named by the consume tail's records.

Outcomes are remembered for `outcomes_kept_ms` (72 hours) and at most OUTCOMES_MAX of them, the
oldest go first: so long a commit or rollback may be repeated and gets the true answer.

    at  size  snapshot
     0     4  magic        b"HALF"
     4     4  crc          CRC-32C of bytes 8..
     8     8  covers       everything of the message log below this offset is in here
    16     4  version      2; 1 has nothing of `CrossSegmentCommits`
    20     4  spare        zero
    24     .  msgpack of `_TransactionsState`
"""

import struct
from collections import Counter, deque
from collections.abc import Callable
from typing import Literal

import msgspec

from ternmq.batch.check import describe_stored
from ternmq.batch.half import (
    HalfDecision,
    HalfInfo,
    PlacedHalf,
    detached_key,
    read_decision,
    read_info,
)
from ternmq.batch.layout import check_whole, read_stamp
from ternmq.batch.view import BatchView
from ternmq.core.errors import Corrupt, ProtocolError, TooLarge
from ternmq.core.log import get_logger
from ternmq.core.units import DAY_MS
from ternmq.storage.consume.entry import RECORD, WITHOUT_SEQUENCE, Location
from ternmq.storage.files.disk import Buffer
from ternmq.storage.files.whole_file import check_version, pack_whole, read_whole
from ternmq.storage.log.append import Append, Ending, HalfMark
from ternmq.storage.log.recovery_report import Hole
from ternmq.storage.messages.cross_segment_commits import CrossSegmentCommits, CrossSegmentState

log = get_logger()

MAGIC = b"HALF"
VERSION = 2
HEADER = struct.Struct("<QI4x")
OUTCOMES_MAX = 200_000
OUTCOMES_KEPT_MS = 3 * DAY_MS
SNAPSHOT_AFTER = 10_000  # Changes; so a start looks at no more batches than that one by one.

FRESH_MAX = 10_000

EndState = Literal["committed", "rolled_back"]


class OpenTransaction(msgspec.Struct, array_like=True, kw_only=True):
    """A transaction that has not ended."""

    info: HalfInfo
    app: str
    opened_at_ms: int
    last_at_ms: int
    """When its last half batch was stored."""
    halves: list[PlacedHalf]
    check_after_ms: int = 0
    """The longest immunity that one of its batches asked for; 0: the broker's."""
    checks: int = 0
    checked_at_ms: int = 0
    dropped_at_ms: int = 0
    """Nobody knew what became of it; it waits for a person. 0: not dropped."""

    @property
    def key(self) -> bytes:
        return self.info.key

    @property
    def rows(self) -> int:
        return sum(half.count for half in self.halves)

    def find(self, producer: tuple[int, int], first_sequence: int) -> PlacedHalf | None:
        """What is in it under these numbers."""
        for half in self.halves:
            if (
                half.first_sequence == first_sequence
                and (half.producer_start, half.producer_random) == producer
            ):
                return half
        return None


class TransactionOutcome(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """How a transaction ended."""

    state: EndState
    at_ms: int
    placed: list[tuple[int, int, int, int]]
    """Of what was committed: topic id, sequence, count, the producer's first message number.
    Not kept for unfenced ones, whose writers do not ask and may be many."""
    attempts: list[int] = []
    """Of a detached commit, which has one outcome for all of them: those that count."""
    app: str = ""
    """Whose it was; not known of what lay on other broker groups only, or ended before 0.2."""


class _TransactionsState(msgspec.Struct, array_like=True, kw_only=True):
    transactions: list[OpenTransaction]
    outcomes: list[tuple[bytes, TransactionOutcome]]
    lent: CrossSegmentState = msgspec.field(default_factory=CrossSegmentState)


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_TransactionsState)


class TransactionTable:
    """All transactions of one broker."""

    def __init__(
        self,
        *,
        outcomes_kept_ms: int = OUTCOMES_KEPT_MS,
        segment_of: Callable[[int], int] = lambda _: 0,
    ) -> None:
        """`segment_of` says in which segment of the log an offset is."""
        self._kept_ms = outcomes_kept_ms
        self.cross_segment = CrossSegmentCommits(segment_of)
        self.open: dict[bytes, OpenTransaction] = {}
        self.open_of: Counter[str] = Counter()
        """How many of them each application has."""
        self.outcomes: dict[bytes, TransactionOutcome] = {}
        self.dropped = 0  # Since this start.
        self.changes = 0  # Since the last snapshot.
        self.fresh: deque[bytes] = deque()
        """Keys of transactions that began, for whoever watches over them."""
        self._names: dict[str, set[int]] = {}

    def hold_offset(self) -> int | None:
        """Everything from here on must be kept: the first half batch that is still open."""
        return min(
            (half.offset for one in list(self.open.values()) for half in list(one.halves)),
            default=None,
        )

    def topic_ids(self) -> set[int]:
        return {half.topic_id for one in self.open.values() for half in one.halves}

    def attempts(self, name: str) -> dict[int, OpenTransaction | TransactionOutcome]:
        """What is known of a detached transaction, by attempt."""
        known: dict[int, OpenTransaction | TransactionOutcome] = {}
        for attempt in sorted(self._names.get(name, ())):
            key = detached_key(name, attempt)
            one = self.open.get(key) or self.outcomes.get(key)
            if isinstance(one, TransactionOutcome) and one.attempts:
                known |= dict.fromkeys(one.attempts, one)
            elif one is not None:
                known[attempt] = one
        return known

    # Changing

    def apply(self, append: Append) -> None:
        """A half or control batch is safe."""
        if isinstance(append.special, HalfMark):
            half = PlacedHalf(
                offset=append.offset,
                size=len(append.batch),
                topic_id=append.topic_id,
                sequence=0,
                count=append.count,
                tag_bloom=append.tag_bloom,
                priority=append.priority,
                searchable=append.searchable,
                producer_start=append.producer[0],
                producer_random=append.producer[1],
                first_sequence=append.first_sequence,
            )
            self.add(append.special.info, append.special.app, half, append.stored_at_ms)
        elif isinstance(append.special, Ending) and append.special.decision is not None:
            self.decide(append.special.decision, append.stored_at_ms, offset=append.offset)

    def add(self, info: HalfInfo, app: str, half: PlacedHalf, at_ms: int) -> None:
        self.changes += 1
        one = self.open.get(info.key)
        if one is None:
            one = self.open[info.key] = OpenTransaction(
                info=info, app=app, opened_at_ms=at_ms, last_at_ms=at_ms, halves=[]
            )
            self.open_of[app] += 1
            self.fresh.append(info.key)
            self._note_name(info.key)
        one.last_at_ms = at_ms
        one.check_after_ms = max(one.check_after_ms, info.first_check_ms)
        if all(known.offset != half.offset for known in one.halves):
            one.halves.append(half)

    def decide(self, decision: HalfDecision, at_ms: int, *, offset: int) -> None:
        """The control batch at this offset says so."""
        self.changes += 1
        self.cross_segment.note(decision.placed, offset, at_ms)
        if decision.kind == "drop":
            for key in decision.transactions:
                if key in self.open:
                    self.open[key].dropped_at_ms = at_ms
            return
        state: EndState = "committed" if decision.kind == "commit" else "rolled_back"
        placed = [
            (one.topic_id, one.sequence, one.count, one.first_sequence) for one in decision.placed
        ]
        ended = [self.open.pop(key, None) for key in decision.transactions]
        for one in filter(None, ended):
            self.open_of[one.app] -= 1
            if not self.open_of[one.app]:
                del self.open_of[one.app]
        if any(one is not None and not one.info.fenced for one in ended):
            placed = []
        outcomes = decision.transactions
        attempts = [attempt for name, attempt in map(_split, outcomes) if name]
        if state == "committed" and attempts:
            outcomes = outcomes[:1]  # One name, so one outcome, however many attempts it has.
        for key in outcomes:
            self.outcomes.pop(key, None)
            self.outcomes[key] = TransactionOutcome(
                state=state,
                at_ms=at_ms,
                placed=placed,
                attempts=attempts if state == "committed" else [],
                app=next((one.app for one in ended if one is not None), ""),
            )
            self._note_name(key)
        for key in decision.transactions[len(outcomes) :]:
            self._forget_name(key)
        self._forget(at_ms)

    def _forget(self, now_ms: int) -> None:
        """Outcomes are in the order of their times."""
        while self.outcomes:
            key = next(iter(self.outcomes))
            old = self.outcomes[key].at_ms < now_ms - self._kept_ms
            if not old and len(self.outcomes) <= OUTCOMES_MAX:
                return
            del self.outcomes[key]
            self._forget_name(key)

    def _note_name(self, key: bytes) -> None:
        name, attempt = _split(key)
        if name:
            self._names.setdefault(name, set()).add(attempt)

    def _forget_name(self, key: bytes) -> None:
        name, attempt = _split(key)
        if name in self._names:
            self._names[name].discard(attempt)
            if not self._names[name]:
                del self._names[name]

    def tidy(self) -> None:
        """On a replica, where no check runs, keys of ended transactions must not pile up."""
        if len(self.fresh) > 2 * len(self.open) + FRESH_MAX:
            self.fresh = deque(key for key in self.fresh if key in self.open)

    # Keeping

    def snapshot(self, covers: int) -> bytes:
        """Everything as bytes. What is added meanwhile may be in it or not: `covers` was the safe
        end before, and what comes after it is applied again, which changes nothing."""
        state = _TransactionsState(
            transactions=list(self.open.values()),
            outcomes=list(self.outcomes.items()),
            lent=self.cross_segment.state(),
        )
        self.changes = 0
        return pack_whole(MAGIC, HEADER.pack(covers, VERSION) + _encoder.encode(state))

    def restore(self, content: bytes) -> int:
        """Take a snapshot over; return the offset it covers. Raises `Corrupt`."""
        body = read_whole(content, MAGIC, "the halves file", body_min=HEADER.size)
        covers, version = HEADER.unpack_from(body)
        if version != 1:  # That one is read as it is.
            check_version(version, VERSION, "the halves file")
        try:
            state = _decoder.decode(body[HEADER.size :])
        except msgspec.MsgspecError as error:
            raise Corrupt(f"the halves file cannot be read: {error}") from error
        self.open = {one.key: one for one in state.transactions}
        self.open_of = Counter(one.app for one in state.transactions)
        self.outcomes = dict(state.outcomes)
        self.cross_segment.restore(state.lent)
        for key in [*self.open, *self.outcomes]:
            self._note_name(key)
        return int(covers)

    def restore_records(
        self,
        records: Buffer,
        read: Callable[[int, int], bytes],
        *,
        from_offset: int,
        damaged: list[Hole],
    ) -> int:
        """Apply the half and control batches that packed records name; return bytes read. Those
        that rotted on the disk are added to `damaged`."""
        size = 0
        for fields in RECORD.iter_unpack(records):
            if fields[8] not in WITHOUT_SEQUENCE or fields[2] < from_offset:
                continue
            try:
                batch = bytearray(read(fields[2], fields[3]))
                check_whole(batch, at_offset=fields[2])
            except Corrupt as error:
                hole = Hole(log="message", offset=fields[2], size=fields[3], reason=error.message)
                damaged.append(hole)
                log.error("a half or control batch is bad", offset=fields[2], error=error.message)
                continue
            try:
                self._again(fields[2], fields[0], batch, control=fields[8] == Location.CONTROL)
            except (Corrupt, ProtocolError, TooLarge) as error:
                log.error("a half or control batch is bad", offset=fields[2], error=error.message)
            size += fields[3]
        return size

    def _again(self, offset: int, topic_id: int, batch: bytearray, *, control: bool) -> None:
        view = BatchView(batch)
        at_ms = read_stamp(batch).stored_at_ms
        if control:
            self.decide(read_decision(view), at_ms, offset=offset)
            return
        incoming = describe_stored(batch, half=True)
        half = PlacedHalf(
            offset=offset,
            size=len(batch),
            topic_id=topic_id,
            sequence=0,
            count=incoming.row_count,
            tag_bloom=incoming.tag_bloom,
            priority=incoming.priority,
            searchable=incoming.searchable,
            producer_start=incoming.producer[0],
            producer_random=incoming.producer[1],
            first_sequence=incoming.first_sequence,
        )
        self.add(read_info(view), incoming.app, half, at_ms)


def _split(key: bytes) -> tuple[str, int]:
    """Name and attempt of a detached transaction's key; no name for others."""
    if key[:1] != b"D":
        return "", 0
    return key[5:].decode(), int.from_bytes(key[1:5], "big")
