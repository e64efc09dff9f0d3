"""Order keys that stand still: which ones, why, and what an operator does about them.

In a group with `on_failure="stop"` a key whose message failed (as often as it may) halts: its first
message waits for ever, and the ones behind it wait for that one. Other keys go on. An operator lets
it go on, or skips the failed message, which becomes a dead letter. Which key a row has is read from
the row itself, so this works without any consumer, also right after a restart.
"""

from ternmq.batch.readability import order_keys_of
from ternmq.broker.acks.ack import AckHandler
from ternmq.broker.acks.settle import DeadRows
from ternmq.broker.delivery.failure_texts import FailureTexts
from ternmq.broker.delivery.pull import PullHandler
from ternmq.broker.groups.consumer_group import ConsumerGroup
from ternmq.broker.groups.failure_notes import failure_line
from ternmq.broker.groups.groups import ConsumerGroups
from ternmq.broker.log.commit import Committer
from ternmq.broker.log.internal_producer import InternalProducer
from ternmq.broker.topics import TopicNames
from ternmq.core.errors import TernError
from ternmq.wire.messages.groups import GroupNamed
from ternmq.wire.messages.order_keys import GroupKeys, KeyResume, KeyResumed, StoppedKey

SHOWN_MAX = 100
SKIPPED = "skipped by an operator"


class StoppedKeys:
    """The GROUP_KEYS and KEY_RESUME commands."""

    def __init__(
        self,
        *,
        groups: ConsumerGroups,
        topics: TopicNames,
        committer: Committer,
        pull_handler: PullHandler,
        ack_handler: AckHandler,
        internal_producer: InternalProducer,
        failure_texts: FailureTexts,
    ) -> None:
        self._groups = groups
        self._topics = topics
        self._committer = committer
        self._pull_handler = pull_handler
        self._ack_handler = ack_handler
        self._internal_producer = internal_producer
        self._failure_texts = failure_texts

    async def show(self, request: GroupNamed) -> GroupKeys:
        group = self._find(request.topic, request.group)
        order, rows = group.order, stopped_rows(group)
        shown = [
            StoppedKey(
                key=await self._key(group, sequence),
                sequence=sequence,
                attempt=attempt,
                held_back=order.held_back(sequence) if order is not None else 0,
                error=await self._error(group, sequence),
            )
            for sequence, attempt in rows[:SHOWN_MAX]
        ]
        since = order.full_since_ms if order is not None and order.full else 0
        key, _, held = order.longest() if order is not None and since else ("", 0, 0)
        return GroupKeys(
            stopped=shown,
            stopped_count=len(rows),
            full_since_ms=since,
            full_key=key,
            full_rows=held,
        )

    async def resume(self, request: KeyResume) -> KeyResumed:
        """Safe before it is answered; a restart does not stop the key again."""
        group = self._find(request.topic, request.group)
        chosen = [
            sequence
            for sequence, _ in stopped_rows(group)
            if request.key is None or await self._key(group, sequence) == request.key
        ]
        if request.skip:
            pieces = [p for s in chosen for p in group.lane.stop_waiting(s, s + 1)]
            if pieces:
                await self._ack_handler.move([DeadRows(group, pieces, SKIPPED)])
            return KeyResumed(rows=len(pieces))
        changes = [c for s in chosen for c in group.lane.let_go(s, s + 1)]
        if group.order is not None:
            group.order.apply(changes, group.lane)
        safe = self._committer.decide([self._groups.to_record(group, c) for c in changes])
        self._pull_handler.feed(group)
        await safe
        return KeyResumed(rows=len(changes))

    def _find(self, topic: str, group: str) -> ConsumerGroup:
        found = self._topics.get(topic)
        return self._groups.get(found.id, found.name, group)

    async def _key(self, group: ConsumerGroup, sequence: int) -> str | None:
        try:
            entry, view = await self._internal_producer.look(group.topic_id, sequence)
            return order_keys_of(view)[sequence - entry.base_sequence]
        except TernError:
            return None  # Gone or damaged: resumed only together with all others.

    async def _error(self, group: ConsumerGroup, sequence: int) -> str:
        note = group.lane.failure_notes.get(sequence)
        known = await self._failure_texts.read([note]) if note is not None else {}
        return failure_line(known.get(note)) if note is not None else ""


def stopped_rows(group: ConsumerGroup) -> list[tuple[int, int]]:
    """(sequence, next attempt) of every row that stopped its key."""
    return [
        (sequence, wait.attempt)
        for first, end, wait in group.lane.waiting
        if wait.stopped
        for sequence in range(first, end)
    ]
