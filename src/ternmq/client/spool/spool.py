"""The spool: a producer's messages on its own disk before they go over the network (D6).

`connect(..., spool="dir")`: `send` and `send_nowait` write a message to a file, then it is sent. A
producer that is killed goes on at its next start with the same directory; ids and broker
groups are in the file, so a message that had arrived is recognised and not stored twice.

Messages go out in the order they came in, one batch at a time, as many as have gathered. A broker
that is away is waited for, without end; a message that is refused for good is told to its sender
and left behind, or, where nobody waits for it, kept for people (`connect(unsent=)`, D10). Belongs
to one event loop and one process. Never delivers a message to a second broker group: the one it was
given to first is the only one that knows whether it has it. Only one that says that an order key
has `Moved` certainly has not.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Protocol

from ternmq.batch.encoder import Outgoing
from ternmq.client.model.receipt import BatchReceipt, Published, Receipt
from ternmq.client.model.stored_message import pack, read, unpack
from ternmq.client.producing.deliver_once import OnceOutcome, SendsOnce, away, choose_group, deliver
from ternmq.client.producing.producer import KeepUnsent
from ternmq.client.producing.producer_id import ProducerIdentity
from ternmq.client.producing.send_once import OnceReceipt
from ternmq.client.spool.spool_file import SpoolEntry, SpoolFile
from ternmq.client.transport.attempts import Attempts
from ternmq.core.clock import Clock
from ternmq.core.errors import BadRequest, BufferFull, Closed, Moved, TernError
from ternmq.core.ids import ProducerId, check_name, id_to_text
from ternmq.core.lifecycle import Background
from ternmq.core.log import get_logger
from ternmq.core.units import MIB
from ternmq.wire.messages.publish import PUBLISHED_DUPLICATE

BATCH_ROWS_MAX = 4_096
BATCH_SIZE_MAX = 1 * MIB
SEND_TIMEOUT_S = 30.0

log = get_logger()

OnFailure = Callable[[str, TernError], None]


@dataclass(slots=True)
class SpooledMessage:
    """A spooled message and the future its sender waits for, if it is of this process."""

    entry: SpoolEntry
    published: Published | None = None
    future: "asyncio.Future[Receipt] | None" = None


class FindsBrokerGroups(SendsOnce, Protocol):
    """What the spool sends by."""

    async def find_groups(self) -> list[str]:
        """At least one broker group, else an error."""


class Spool:
    """Accepts messages and sends them, through a file."""

    def __init__(
        self,
        directory: Path,
        mq: FindsBrokerGroups,
        *,
        size_max: int,
        clock: Clock,
        on_error: OnFailure,
        keep_unsent: KeepUnsent | None = None,
    ) -> None:
        self._mq = mq
        self._on_error = on_error
        self._keep_unsent = keep_unsent
        self._file = SpoolFile(directory, size_max=size_max)
        self._identity = ProducerIdentity(clock)
        self._line: deque[SpooledMessage] = deque()
        self._turn = 0
        self._news = asyncio.Event()
        self._progress = asyncio.Event()
        self.sent = 0
        try:
            self._line.extend(SpooledMessage(entry) for entry in self._file.recover())
        except BaseException:
            self._file.close()
            raise
        if self._line:
            log.info("spool goes on", messages=len(self._line), directory=str(directory))
            self._news.set()
        self._error: TernError | None = None
        self._draining = Background("the spool", self._broken).task(
            self._drain(), name="tern-spool"
        )

    def _broken(self, error: TernError) -> None:
        """The file has what was accepted; the next client on it goes on."""
        self._error = error
        for waiting in self._line:
            if waiting.future is not None and not waiting.future.done():
                waiting.future.set_exception(error.copy())
        self._progress.set()

    def __len__(self) -> int:
        return len(self._line)

    # Accepting.

    def put(self, topic: str, message: Outgoing, *, waits: bool) -> SpooledMessage:
        """Write one message into the file; from here on it will be sent, whatever happens."""
        check_name("topic", topic)
        if self._error is not None:
            raise self._error.copy()
        if self._draining.done():
            raise Closed("this client's spool is closed")
        if message.due_at_ms is not None or message.delay_ms is not None:
            raise BadRequest(
                "a spool keeps messages for now, not for later: send delayed ones by "
                "a client without spool="
            )
        producer, number = self._identity.take(1)
        id = producer.message_id(number).to_bytes(16, "big")
        entry = self._file.put(topic, id, pack(message))
        future = asyncio.get_running_loop().create_future() if waits else None
        waiting = SpooledMessage(entry, Published(topic, producer, number, 1), future)
        self._line.append(waiting)
        self._news.set()
        return waiting

    async def put_patiently(
        self, topic: str, message: Outgoing, timeout: float, *, waits: bool
    ) -> SpooledMessage:
        """Put a message; a full spool is waited for, at most so many seconds."""
        give_up = asyncio.get_running_loop().time() + timeout
        while True:
            self._progress.clear()
            try:
                return self.put(topic, message, waits=waits)
            except BufferFull:
                try:
                    async with asyncio.timeout_at(give_up):
                        await self._progress.wait()
                except TimeoutError:
                    pass
                if asyncio.get_running_loop().time() >= give_up:
                    raise

    async def flush(self) -> None:
        """Wait until everything accepted so far is stored."""
        last = self._line[-1].entry.end if self._line else 0
        while self._line and self._line[0].entry.offset < last:
            if self._error is not None:
                raise self._error.copy()
            self._progress.clear()
            await self._progress.wait()

    # Sending.

    async def _drain(self) -> None:
        attempts = Attempts()
        while True:
            await self._news.wait()
            try:
                settled = await self._send_some()
            except TernError as error:
                log.warning("spool waits", reason=error.message, messages=len(self._line))
                settled = False
            if not settled:
                with contextlib.suppress(TernError):
                    await asyncio.to_thread(self._file.sync)  # It may take long now.
                await attempts.wait()
                continue
            attempts.worked()
            if not self._line:
                self._news.clear()

    async def _send_some(self) -> bool:
        """Send the head of the line to its broker group; False when something has to wait."""
        batch = self._head()
        if not batch:
            return True
        group = batch[0].entry.broker_group
        if group is None:
            self._turn += 1
            turn = choose_group(await self._mq.find_groups(), self._turn)
            assert turn is not None
            group, batch = self._for_one_group(batch, turn)
            if not batch:
                return False  # The slot of the first one's order key is being moved.
            self._file.give(batch[0].entry.offset, batch[-1].entry.end, group)
            for waiting in batch:
                waiting.entry.broker_group = group
        topics: dict[str, list[SpooledMessage]] = {}
        for waiting in batch:
            topics.setdefault(waiting.entry.topic, []).append(waiting)
        results = await asyncio.gather(
            *(self._deliver(group, topic, some) for topic, some in topics.items())
        )
        return self._settle(batch, set().union(*results))

    def _head(self) -> list[SpooledMessage]:
        """As many as fit one request and go to the same place."""
        batch: list[SpooledMessage] = []
        size = 0
        for waiting in islice(self._line, BATCH_ROWS_MAX):
            size += len(waiting.entry.content)
            if batch and (
                size > BATCH_SIZE_MAX or waiting.entry.broker_group != batch[0].entry.broker_group
            ):
                break
            batch.append(waiting)
        return batch

    def _for_one_group(
        self, batch: list[SpooledMessage], turn: str
    ) -> tuple[str, list[SpooledMessage]]:
        """As many as can go to the same group: order keys lie where their slots do."""
        group: str | None = None
        for at, waiting in enumerate(batch):
            entry = waiting.entry
            key = read(entry.content, entry.id.hex()).order_key
            if key is None:
                continue
            owner = self._mq.slot_owner(entry.topic, key)
            if owner is None or group not in (None, owner):
                return group or turn, batch[:at]
            group = owner
        return group or turn, batch

    async def _deliver(self, group: str, topic: str, some: list[SpooledMessage]) -> set[int]:
        """Send rows of one topic and answer their senders; returns the settled offsets."""
        rows: list[Outgoing] = []
        for waiting in some:
            entry = waiting.entry
            rows.append(unpack(entry.content, id_to_text(int.from_bytes(entry.id, "big"))))
        outcomes = await deliver(self._mq, topic, rows, broker_group=group, timeout=SEND_TIMEOUT_S)
        settled: set[int] = set()
        for waiting, outcome in zip(some, outcomes, strict=True):
            if self._settled(waiting, outcome):
                settled.add(waiting.entry.offset)
        return settled

    def _settled(self, waiting: SpooledMessage, outcome: OnceOutcome) -> bool:
        """Answer the sender of a message that leaves the spool; False while it stays."""
        future = waiting.future
        if isinstance(outcome, Moved):
            waiting.entry.broker_group = None  # Certainly not stored there: decided anew.
        if outcome is None or (isinstance(outcome, TernError) and away(outcome)):
            return False
        if isinstance(outcome, TernError):
            if future is None:
                self._refused(waiting.entry, outcome)
            elif not future.done():
                future.set_exception(outcome)
            return True
        self.sent += 1
        if waiting.published is not None:
            _fill(waiting.published, outcome)
            if future is not None and not future.done():
                future.set_result(Receipt(waiting.published, 0))
        return True

    def _refused(self, entry: SpoolEntry, error: TernError) -> None:
        """For good, and nobody waits for it: it may be of an earlier life of this producer."""
        if self._keep_unsent is not None:
            id = id_to_text(int.from_bytes(entry.id, "big"))
            self._keep_unsent(id, entry.topic, unpack(entry.content, id), error)
        self._on_error(entry.topic, error)

    def _settle(self, batch: Sequence[SpooledMessage], settled: set[int]) -> bool:
        """Forget the settled ones; those that stay keep their places."""
        line = self._line
        for _ in batch:
            line.popleft()
        stay = [waiting for waiting in batch if waiting.entry.offset not in settled]
        line.extendleft(reversed(stay))
        end = line[0].entry.offset if line else batch[-1].entry.end
        if end > self._file.done:
            try:
                self._file.settle(end)
            except TernError as error:  # They are stored; the next start would send them again.
                log.warning("spool cannot note what is stored", reason=error.message)
        self._progress.set()
        return not stay

    # Ending.

    async def close(self, timeout: float) -> None:
        """Send what can be sent in time; the rest stays in the file for the next start."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self.flush()
        self._draining.cancel()
        await asyncio.wait([self._draining])
        why = "the client was closed; the message is in the spool and goes out at the next start"
        for waiting in self._line:
            if waiting.future is not None and not waiting.future.done():
                waiting.future.set_exception(Closed(why))
        self._file.close()

    def abandon(self) -> None:
        """In a forked child: the spool is the parent's."""
        self._file.abandon()


def _fill(published: Published, receipt: OnceReceipt) -> None:
    flags = PUBLISHED_DUPLICATE if receipt.duplicate else 0
    published.answered(receipt.broker_group, receipt.sequence, receipt.stored_at_ms, flags)


def joined(parts: Sequence[Published]) -> BatchReceipt:
    """One receipt for messages that were spooled one by one; runs of them share a part."""
    receipt = BatchReceipt(len(parts))
    first = 0
    for at in range(1, len(parts) + 1):
        if at < len(parts) and _follows(parts[at - 1], parts[at]):
            continue
        start = parts[first]
        producer = ProducerId(start.producer.start_ms, start.producer.random)
        run = Published(start.topic, producer, start.first_sequence, at - first)
        run.answered(start.broker_group, start.base_sequence, start.stored_at_ms, start.flags)
        receipt.stored(first, run)
        first = at
    receipt.finish()
    return receipt


def _follows(one: Published, other: Published) -> bool:
    return (
        one.producer == other.producer
        and one.first_sequence + 1 == other.first_sequence
        and one.base_sequence + 1 == other.base_sequence
        and (one.broker_group, one.stored_at_ms, one.flags)
        == (other.broker_group, other.stored_at_ms, other.flags)
    )
