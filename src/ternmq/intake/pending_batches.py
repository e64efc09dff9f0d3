"""Batches on their way to the disk, and what is known of those that are there: repeats are found.

A repeat (same producer, same first sequence) of a batch that is on its way waits for it; a repeat
of a stored one is answered with the first one's receipt. So a producer that lost its connection
sends the same bytes again and nothing is stored twice. A producer's id stands in every message's
id, so anybody can send under its numbers: what is known under another topic (of what is on its way:
or application) is no repeat, and is refused rather than answered as if it were stored; and where
users have rights, so are numbers that another application used first. What has to wait for
something else before it can be judged, a topic that is made, becomes a task (`later`).

What is stored stays stored, whatever is allowed by now: so a server asks `repeats` before it judges
a batch, and a refusal of a repeat means that it is certainly not there. Whether a batch may come in
is never decided here: that is its server's.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Generic, Protocol, TypeVar

from ternmq.batch.check import Incoming
from ternmq.batch.layout import Stamp
from ternmq.core.errors import BadRequest, Forbidden, SequenceTooOld, TernError
from ternmq.rpc.address import Endpoints
from ternmq.rpc.bug_log import BUGS
from ternmq.rpc.peer import Peer
from ternmq.security.access.rights import Rights
from ternmq.storage.log.append import Append
from ternmq.storage.messages.producers import ProducerTable, StoredBatch
from ternmq.wire.actions import Action
from ternmq.wire.frame import Frame
from ternmq.wire.messages.publish import (
    PUBLISHED,
    PUBLISHED_DUPLICATE,
    PUBLISHED_REPLICATED,
    PUBLISHED_SYNCED,
    PUBLISHED_TRACED,
    PUBLISHED_WRITTEN,
)
from ternmq.wire.messages.topics import Topic
from ternmq.wire.numbers import Command
from ternmq.wire.resources import batch_names

_PUBLISH = int(Command.PUBLISH)
BatchKey = tuple[tuple[int, int], int]
"""Which producer, and its number of the first row."""


Elsewhere = Callable[[Peer, Incoming, Topic, int], None]
"""Judges a repeat for a topic of a batch that is stored in another one; raises, or it is answered
like the first one."""


class Copies(Protocol):
    """Who has to have a batch before it counts; `replication.commit_gate.CommitGate`."""

    @property
    def copied(self) -> bool:
        """What counts is with others too."""


class AnswerFlags:
    """The flags of PUBLISHED on one server: how safe a batch is, and whether it is traced.

    Asked when a batch counts, so what it says of replicas is true of that batch: whoever is
    required then has it. One number per batch, nothing per message."""

    def __init__(self, gate: Copies, *, synced: bool, traced: bool) -> None:
        """`synced`: what counts is on this server's disk; else its operating system has it.
        `traced`: delivery records of it are kept."""
        self._gate = gate
        trace = PUBLISHED_TRACED if traced else 0
        self._alone = trace | (PUBLISHED_SYNCED if synced else PUBLISHED_WRITTEN)
        self._copied = trace | PUBLISHED_REPLICATED

    @property
    def now(self) -> int:
        """Of what counts from this moment on."""
        return self._copied if self._gate.copied else self._alone


class PendingBatch:
    """A batch on its way to the disk, and who waits for it."""

    __slots__ = ("append", "key", "size", "waiting")

    def __init__(self, append: Append, peer: Peer | None, correlation: int = 0) -> None:
        """Without a `peer` this server brought it itself."""
        self.append = append
        self.key: BatchKey = (append.producer, append.first_sequence)
        self.size = len(append.batch)
        self.waiting = [] if peer is None else [(peer, correlation)]

    def answer(self, at_ms: int, flags: int = 0) -> None:
        """The batch is stored, and this is the time that its receipt counts from."""
        append = self.append
        place = (append.topic_id, append.base_sequence, at_ms, append.count)
        for peer, correlation in self.waiting:
            peer.answer(_PUBLISH, correlation, PUBLISHED.pack(*place, flags))
            flags |= PUBLISHED_DUPLICATE

    def fail(self, error: TernError) -> None:
        for peer, correlation in self.waiting:
            peer.fail(_PUBLISH, correlation, error)


Pending = TypeVar("Pending", bound=PendingBatch)


class PendingBatches(Generic[Pending]):
    """What is on its way on one server."""

    def __init__(self, owner: str, producers: ProducerTable, flags: AnswerFlags) -> None:
        """`owner` is what errors call this server."""
        self._owner = owner
        self.producers = producers
        self.flags = flags
        self._pending: dict[BatchKey, PendingBatch] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def repeats(
        self, peer: Peer, correlation: int, incoming: Incoming, topic: Topic, elsewhere: Elsewhere
    ) -> bool:
        """Is this batch known? Then it is answered like the first one, now or when that is safe.
        One that is stored, but in another topic, is `elsewhere`'s to judge."""
        if peer.rights is not None:
            self.check_sender(peer.rights, incoming)
        if self.joins(peer, correlation, incoming):
            return True
        stored = self.stored(incoming)
        if stored is None:
            return False
        if stored.topic_id != topic.id:
            elsewhere(peer, incoming, topic, stored.topic_id)
        answer_repeat(peer, correlation, stored, incoming.row_count, self.flags.now)
        return True

    def joins(self, peer: Peer, correlation: int, incoming: Incoming) -> bool:
        """Is this very batch on its way? Then whoever repeats it waits too."""
        pending = self._pending.get((incoming.producer, incoming.first_sequence))
        if pending is None:
            return False
        _check_same(pending.append, incoming)
        pending.waiting.append((peer, correlation))
        return True

    def check_sender(self, rights: Rights, incoming: Incoming) -> None:
        """A producer's numbers are the application's that used them first: another one could take
        those that come next. Who may operate on the topic may: a relay has another user now."""
        if self.producers.is_of(incoming.producer, incoming.app):
            return
        if not rights.may(Action.OPERATE, "topic", incoming.topic):
            raise Forbidden(
                f"another application than {incoming.app!r} has used this producer's id before; "
                "connect again for a new one. If it is yours (a relay, a spool or a job that has "
                f"another user now): tern grant add {rights.name} operate {incoming.topic}",
                action=str(Action.OPERATE),
                resource=incoming.topic,
                identity=rights.name,
            )

    def check_unused(self, incoming: Incoming, topic_id: int) -> None:
        """Raise if the numbers of this batch are another topic's, or under way; for what is known
        by its ids, and is no repeat of anything by its numbers."""
        if (incoming.producer, incoming.first_sequence) in self._pending:
            raise used_elsewhere(incoming)
        stored = self.producers.find(incoming.producer, incoming.first_sequence, incoming.row_count)
        if stored is not None and stored.topic_id != topic_id:
            raise used_elsewhere(incoming)

    def stored(self, incoming: Incoming) -> StoredBatch | None:
        """The receipt of this very batch; raises if nobody can tell whether it is stored."""
        producer, first = incoming.producer, incoming.first_sequence
        stored = self.producers.find(producer, first, incoming.row_count)
        if stored is None and self.producers.too_old(producer, first):
            raise SequenceTooOld(
                f"this repeat is older than what {self._owner} remembers of its producer; "
                "it was not stored again: look for the message before you send it anew"
            )
        return stored

    def add(self, pending: Pending) -> None:
        """A batch counts against the bound of whoever sent it until it is removed."""
        self._pending[pending.key] = pending
        if pending.waiting:
            pending.waiting[0][0].hold(pending.size)

    def remove(self, pending: Pending) -> None:
        self._pending.pop(pending.key, None)
        if pending.waiting:
            pending.waiting[0][0].release(pending.size)

    def begin_once(self, append: Append) -> PendingBatch:
        """A batch that is known by its ids is on its way: its numbers are taken from here on, and a
        repeat by them waits for it like for any other."""
        key = (append.producer, append.first_sequence)
        pending = self._pending[key] = PendingBatch(append, None)
        return pending

    def end_once(self, pending: PendingBatch, error: TernError | None) -> None:
        """A batch is safe, or certainly not stored."""
        self._pending.pop(pending.key, None)
        if error is not None:
            pending.fail(error)
        else:
            pending.answer(pending.append.stored_at_ms, self.flags.now | PUBLISHED_DUPLICATE)

    def later(self, peer: Peer, frame: Frame, work: Coroutine[None, None, None]) -> None:
        """Do this for a batch that cannot be judged yet. Costs a task, once for each topic."""
        task = asyncio.get_running_loop().create_task(_run(peer, frame, work), name="make-topic")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def finish(self) -> None:
        """Wait for what could not be judged yet."""
        if self._tasks:
            await asyncio.wait(self._tasks)


def _check_same(known: Append, incoming: Incoming) -> None:
    """Only the very batch that is on its way is a repeat of it. Looks at the names that the sender
    wrote: what is put aside is on its way to another topic than it was sent to."""
    topic, app, _ = batch_names(known.batch)
    if (topic, app, known.count) != (incoming.topic, incoming.app, incoming.row_count):
        raise used_elsewhere(incoming)


def used_elsewhere(incoming: Incoming) -> BadRequest:
    """Of a batch under numbers that are known, but not for what it is."""
    first = incoming.first_sequence
    return BadRequest(
        f"messages {first}..{first + incoming.row_count} of this producer were sent before, to "
        f"another topic than {incoming.topic!r} or as another batch: this is no repeat, and it is "
        "not stored. If your program did not do that, somebody else sends under its producer's "
        "id: connect again for a new one, send again, and look who may publish here"
    )


def refuse_elsewhere(peer: Peer, incoming: Incoming, topic: Topic, stored_in: int) -> None:
    raise used_elsewhere(incoming)


def answer_repeat(
    peer: Peer, correlation: int, stored: StoredBatch, rows: int, flags: int = 0
) -> None:
    """Answer a repeat of a stored batch as the first one was."""
    flags |= PUBLISHED_DUPLICATE
    peer.answer(_PUBLISH, correlation, PUBLISHED.pack(*stored, rows, flags))


def append_of(
    batch: bytearray | memoryview,
    incoming: Incoming,
    topic_id: int,
    received_at_ms: int,
    ends: Endpoints | Stamp,
) -> Append:
    """A checked batch with what is known of it and of where it came from."""
    return Append(
        batch=batch,
        topic_id=topic_id,
        count=incoming.row_count,
        received_at_ms=received_at_ms,
        client_ip=ends.client_ip,
        client_port=ends.client_port,
        server_ip=ends.server_ip,
        server_port=ends.server_port,
        tag_bloom=incoming.tag_bloom,
        priority=incoming.priority,
        producer=incoming.producer,
        first_sequence=incoming.first_sequence,
        searchable=incoming.searchable,
    )


async def _run(peer: Peer, frame: Frame, work: Coroutine[None, None, None]) -> None:
    size = len(frame.payload)
    peer.hold(size)
    try:
        await work
    except TernError as error:
        peer.fail(_PUBLISH, frame.correlation, error)
    except Exception as bug:
        BUGS.report(bug, command=_PUBLISH)
        failure = TernError("the server failed to handle this request; its log says why")
        peer.fail(_PUBLISH, frame.correlation, failure)
    finally:
        peer.release(size)
