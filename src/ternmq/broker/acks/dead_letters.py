"""Dead letters: a row that is refused for good is copied, made safe, and only then marked dead.

The copy goes to the group's hidden dead-letter topic with its id, key, tag and properties, and with
where it came from, how often it was tried and why it was refused as properties that begin with
'%'. If the copy cannot be stored the row is ready again: better twice than lost.
"""

from dataclasses import replace

from ternmq.batch.encoder import Outgoing
from ternmq.batch.view import BatchView
from ternmq.broker.acks.settle import DeadRows
from ternmq.broker.delivery.failure_texts import FailureTexts
from ternmq.broker.groups.consumer_group import ConsumerGroup
from ternmq.broker.groups.failure_notes import Failed, pack_failure, read_failure
from ternmq.broker.groups.groups import ConsumerGroups
from ternmq.broker.log.commit import Committer
from ternmq.broker.log.internal_producer import InternalProducer, copy_of, properties_of
from ternmq.broker.topics import TopicNames
from ternmq.core.clock import Clock
from ternmq.core.errors import TernError
from ternmq.discovery.hidden_topics import lane_owner

REASON_SIZE_MAX = 4096
ROWS_AT_ONCE = 256
AGAIN_MS = 5_000
ERROR_PROPERTIES = ("%error_type", "%error_text", "%error_traceback", "%error_at")


class DeadLetterWriter:
    """Copies refused rows into dead-letter topics."""

    def __init__(
        self,
        *,
        topics: TopicNames,
        groups: ConsumerGroups,
        committer: Committer,
        clock: Clock,
        internal_producer: InternalProducer,
        failure_texts: FailureTexts,
    ) -> None:
        self._failure_texts = failure_texts
        self._internal_producer = internal_producer
        self._topics = topics
        self._groups = groups
        self._committer = committer
        self._clock = clock

    async def move(self, dead: DeadRows) -> None:
        """Copy, wait until the copies are safe, then mark the originals dead, safely.

        What cannot be copied waits a moment and comes again; the first failure is raised.
        """
        failed: TernError | None = None
        group = dead.group
        for first, end, attempt in dead.pieces:
            for at in range(first, end, ROWS_AT_ONCE):
                stop = min(end, at + ROWS_AT_ONCE)
                try:
                    await self._copy(dead, at, stop, attempt)
                except TernError as error:
                    failed = failed or error
                    after = self._groups.now() + AGAIN_MS
                    self._groups.write(group, group.lane.move_failed(at, stop, due=after))
                    continue
                text = _last_error(dead)
                changes = [
                    change._replace(text=text)
                    for change in group.lane.moved(at, stop, expired=dead.expired)
                ]
                if group.order is not None:
                    group.order.apply(changes, group.lane)
                records = [self._groups.to_record(group, change) for change in changes]
                try:
                    await self._committer.decide(records)
                except TernError as error:  # Dead in memory; after a restart perhaps once more.
                    failed = failed or error
        if failed is not None:
            raise failed

    async def _copy(self, dead: DeadRows, first: int, end: int, attempt: int) -> None:
        group = dead.group
        letters: list[Outgoing] = []
        errors = await self._errors(dead, first, end)
        at = first
        while at < end:
            entry, view = await self._internal_producer.look(group.topic_id, at)
            stop = min(end, entry.base_sequence + entry.count)
            for sequence in range(at, stop):
                row = sequence - entry.base_sequence
                letter = self._letter(group, view, row, attempt, dead.reason)
                letters.append(with_error(letter, errors.get(sequence)))
            at = stop
        beside = lane_owner(group.topic)
        topic = await self._topics.dead_letters_of(
            group.name, group.topic_id if beside < 0 else beside, group.beside or group.topic
        )
        await self._internal_producer.store(topic, letters)

    async def _errors(self, dead: DeadRows, first: int, end: int) -> dict[int, Failed]:
        """The last error of each row, as far as it is known."""
        if dead.why.text:
            failed = read_failure(dead.why.text, dead.why.at_ms)
            return dict.fromkeys(range(first, end), failed) if failed is not None else {}
        failure_notes = dead.group.lane.failure_notes.overlap(first, end)
        known = (
            await self._failure_texts.read({note for _, _, note in failure_notes})
            if failure_notes
            else {}
        )
        return {
            sequence: known[note]
            for a, b, note in failure_notes
            if note in known
            for sequence in range(a, b)
        }

    def _letter(
        self, group: ConsumerGroup, view: BatchView, row: int, attempt: int, reason: str
    ) -> Outgoing:
        return copy_of(
            view,
            row,
            {
                "%topic": properties_of(view, row).get("%topic", group.topic),
                "%sequence": view.base_sequence + row,
                "%attempt": attempt,
                "%reason": reason[:REASON_SIZE_MAX],
                "%died_at": self._clock.now_ms(),
            },
        )


def _last_error(dead: DeadRows) -> bytes:
    """Why, for the pull log; the traceback is in the letter."""
    failed = read_failure(dead.why.text, dead.why.at_ms) if dead.why.text else None
    kind, text = (failed.type, failed.text) if failed is not None else ("", "")
    return pack_failure(kind, dead.reason or text, "") if dead.reason or text else b""


def with_error(letter: Outgoing, failed: Failed | None) -> Outgoing:
    """A letter keeps the last error besides the reason; an older one of an earlier death goes."""
    failure_notes = {
        n: v for n, v in (letter.properties or {}).items() if n not in ERROR_PROPERTIES
    }
    if failed is not None:
        failure_notes |= dict(zip(ERROR_PROPERTIES, failed, strict=True))
    return replace(letter, properties=failure_notes)
