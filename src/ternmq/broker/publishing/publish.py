"""Taking a batch from a producer: check it, recognise repeats, store it, answer when it is safe.

A repeat of a batch is answered like the first one (`intake.pending_batches`). Consumers learn of
the batch elsewhere, once it is safe: nothing here waits for that.

What may not pass is refused and counted by reason. Over a limit, a topic may want its messages put
aside instead: the same bytes go to the hidden topic `%refused.TOPIC`, and the producer is told once
that is safe. A repeat of a batch that was put aside is told the same, whatever the limit says then.
"""

from collections.abc import Callable

from ternmq.batch.check import Incoming, check_incoming
from ternmq.batch.layout import TOPIC_ID, TOPIC_ID_AT, Column, ColumnPart
from ternmq.batch.view import BatchView
from ternmq.broker.limits.send_limits import SendLimits
from ternmq.broker.limits.traffic import TrafficCounters
from ternmq.broker.log.commit import Committer
from ternmq.broker.slots.slots import Slots
from ternmq.broker.topics import TopicNames, from_delay_server
from ternmq.core.clock import Clock
from ternmq.core.errors import (
    BadRequest,
    Paused,
    PutAside,
    ReadOnly,
    SequenceTooOld,
    TernError,
    TooLarge,
    TopicNotFound,
)
from ternmq.discovery.hidden_topics import refused_topic
from ternmq.intake.pending_batches import (
    AnswerFlags,
    PendingBatch,
    PendingBatches,
    append_of,
    used_elsewhere,
)
from ternmq.intake.topic_rules import check_body_sizes, check_sealed
from ternmq.rpc.peer import Peer
from ternmq.storage.messages.message_log import Append
from ternmq.wire.frame import Frame
from ternmq.wire.messages.topics import Topic

Payload = bytearray | memoryview


class PendingPublish(PendingBatch):
    """A batch on its way to the disk; `broker.log.commit.OnDone` of it."""

    __slots__ = ("_done", "_flags", "aside", "ticket", "topic")

    def __init__(
        self,
        peer: Peer,
        correlation: int,
        append: Append,
        topic: Topic,
        done: "Finished",
        flags: AnswerFlags,
        ticket: int,
    ) -> None:
        super().__init__(append, peer, correlation)
        self.topic = topic
        self.aside = append.topic_id != topic.id
        self.ticket = ticket
        """Its number among the batches with order keys on their way (`broker.slots`), or 0."""
        self._done = done
        self._flags = flags

    def __call__(self, append: Append, error: TernError | None) -> None:
        """The batch is safe, or it is certain that it is not stored."""
        self._done(self, error)
        if error is None and self.aside:
            error = put_aside(self.topic, append.count)
        if error is not None:
            self.fail(error)
        else:
            self.answer(append.stored_at_ms, self._flags.now)


Finished = Callable[[PendingPublish, TernError | None], None]


class Publisher:
    """The PUBLISH command."""

    def __init__(
        self,
        *,
        topics: TopicNames,
        committer: Committer,
        pending: "PendingBatches[PendingPublish]",
        limits: SendLimits,
        traffic: TrafficCounters,
        slots: Slots,
        clock: Clock,
    ) -> None:
        self._topics = topics
        self._slots = slots
        self._limits = limits
        self._traffic = traffic
        self._committer = committer
        self._now_ms = clock.now_ms
        self.pending = pending
        self._newest: dict[tuple[int, int], int] = {}
        """Of producers that keep an order: the number of their newest batch on its way."""

    def publish(self, peer: Peer, frame: Frame) -> None:
        incoming = check_now(frame.payload)
        topic = self._topics.find(incoming.topic)
        if topic is None:
            if from_delay_server(peer):
                _check_number(frame.payload, incoming.topic, 0)
            self._make_first(peer, frame, incoming)
        else:
            self._accept(peer, frame, incoming, topic)

    def _make_first(self, peer: Peer, frame: Frame, incoming: Incoming) -> None:
        """The topic is not known yet: make it (or refuse), then go on."""
        self._topics.check_auto(incoming.topic)

        async def make() -> None:
            topic = await self._topics.auto_create(incoming.topic, peer)
            self._accept(peer, frame, incoming, topic)

        self.pending.later(peer, frame, make())

    def _accept(self, peer: Peer, frame: Frame, incoming: Incoming, topic: Topic) -> None:
        if self._repeats(peer, frame.correlation, incoming, topic):
            return
        if peer.node is not None and from_delay_server(peer):
            _check_number(frame.payload, topic.name, topic.id)
        self._refuse_drained(peer, frame.payload)
        if incoming.ordered and not self._slots.assigned:
            first = self._assign_first(peer, frame, incoming, topic)
            self.pending.later(peer, frame, first)
            return
        self.admit(peer, frame.payload, incoming, topic)
        over = self.turn_away(peer, frame.payload, incoming, topic)
        if over is None:
            self._store(peer, frame, incoming, topic, topic.id)
            return
        if topic.settings.over_limit != "dead_letter":
            raise over
        aside = self._topics.find(refused_topic(topic.name))
        if aside is not None:
            self._store(peer, frame, incoming, topic, aside.id)
        else:
            first = self._put_first_aside(peer, frame, incoming, topic)
            self.pending.later(peer, frame, first)

    def _refuse_drained(self, peer: Peer, batch: Payload) -> None:
        """A producer that has not heard of the drain goes to another group now. What is bound to
        this group comes in until the end: order keys that live here, dispatches decided on."""
        if not self._limits.member.standing.draining or from_delay_server(peer):
            return
        if BatchView(batch).buffer(Column.ORDER_KEY, ColumnPart.OFFSETS) is None:
            raise ReadOnly("this broker group is being drained: send to another one")

    async def _assign_first(
        self, peer: Peer, frame: Frame, incoming: Incoming, topic: Topic
    ) -> None:
        """Nobody has sent with an order key before: say where such messages lie."""
        await self._slots.assign()
        self._accept(peer, frame, incoming, topic)

    async def _put_first_aside(
        self, peer: Peer, frame: Frame, incoming: Incoming, topic: Topic
    ) -> None:
        aside = await self._topics.refused_of(topic)
        if not self._repeats(peer, frame.correlation, incoming, topic):
            self._store(peer, frame, incoming, topic, aside.id)

    def _repeats(self, peer: Peer, correlation: int, incoming: Incoming, topic: Topic) -> bool:
        """Is this batch known and answered? Raises if it must not come behind a later one."""
        if self.pending.repeats(peer, correlation, incoming, topic, self._elsewhere):
            return True
        if incoming.in_order and incoming.first_sequence < self._position(incoming.producer):
            raise SequenceTooOld(
                "a later batch of this producer is stored already, and this one must not come "
                "behind it: it was given up meanwhile, and is not stored"
            )
        return False

    def _elsewhere(self, peer: Peer, incoming: Incoming, topic: Topic, stored_in: int) -> None:
        if self._is_aside(stored_in, topic):
            raise put_aside(topic, incoming.row_count)
        # A dispatch of before its topic was deleted and made again was dispatched.
        if not from_delay_server(peer):
            raise used_elsewhere(incoming)

    def _position(self, producer: tuple[int, int]) -> int:
        """Of a producer that keeps an order: behind its newest batch, safe or on its way."""
        return max(self.pending.producers.position(producer), self._newest.get(producer, 0))

    def _is_aside(self, topic_id: int, topic: Topic) -> bool:
        aside = self._topics.find(refused_topic(topic.name))
        return aside is not None and aside.id == topic_id

    def admit(self, peer: Peer, batch: Payload, incoming: Incoming, topic: Topic) -> None:
        """Raise unless this client may put such a batch into this topic at all."""
        settings = topic.settings
        try:
            if settings.closed:
                self._topics.check_app(topic, peer)
            if incoming.body_size > settings.body_size_max and not from_delay_server(peer):
                check_body_sizes(topic, incoming, batch)
            if settings.master_key and not from_delay_server(peer):
                check_sealed(topic, batch)
        except TernError as error:
            rows = incoming.row_count
            self._traffic.refuse(
                topic.id, "size" if isinstance(error, TooLarge) else "closed", rows
            )
            raise

    def turn_away(
        self, peer: Peer, batch: Payload, incoming: Incoming, topic: Topic
    ) -> TernError | None:
        """Is it too much now? Raises while sending to the topic is paused."""
        rows = incoming.row_count
        if topic.settings.paused:
            self._traffic.refuse(topic.id, "paused", rows)
            raise Paused(
                f"sending to topic {topic.name!r} is paused; 'tern topic resume {topic.name}' "
                "ends that"
            )
        over = self._limits.turn_away(topic, peer, rows, len(batch))
        if over is not None:
            self._traffic.refuse(topic.id, "limit", rows)
        return over

    def check_unused(self, peer: Peer, incoming: Incoming, topic: Topic) -> None:
        """Raise if this batch would be stored under numbers that are another topic's, or another
        application's."""
        if peer.rights is not None:
            self.pending.check_sender(peer.rights, incoming)
        self.pending.check_unused(incoming, topic.id)

    def to_append(self, peer: Peer, batch: Payload, incoming: Incoming, topic_id: int) -> Append:
        """The batch with what is known of it."""
        return append_of(batch, incoming, topic_id, self._now_ms(), peer.endpoints)

    def _store(
        self, peer: Peer, frame: Frame, incoming: Incoming, topic: Topic, topic_id: int
    ) -> None:
        ticket = 0
        if incoming.ordered and topic_id == topic.id and not topic.name.startswith("%"):
            ticket = self._slots.enter(topic, frame.payload)
        append = self.to_append(peer, frame.payload, incoming, topic_id)
        pending = PendingPublish(
            peer, frame.correlation, append, topic, self._finished, self.pending.flags, ticket
        )
        self.pending.add(pending)
        if incoming.in_order:
            self._newest[incoming.producer] = incoming.first_sequence
        self._committer.append(append, pending)

    def _finished(self, pending: PendingPublish, error: TernError | None) -> None:
        self.pending.remove(pending)
        if pending.ticket:
            self._slots.leave(pending.ticket)
        if self._newest and self._newest.get(pending.key[0]) == pending.key[1]:
            del self._newest[pending.key[0]]
        append, hello = pending.append, pending.waiting[0][0].hello
        if error is not None:
            self._traffic.not_stored(pending.topic.id, append.count, error)
        elif hello is not None:
            self._traffic.sent_by(hello.app, append.topic_id, append.count, pending.size)


def put_aside(topic: Topic, rows: int) -> PutAside:
    return PutAside(
        f"over the limit of topic {topic.name!r}: {rows} message(s) were put aside and not sent; "
        f"'tern dead list --topic {topic.name}' shows them, a person decides; do not send them "
        "again",
        topic=topic.name,
    )


def check_now(batch: bytearray | memoryview) -> Incoming:
    """Check a batch of messages that are due at once."""
    incoming = check_incoming(batch)
    if incoming.delayed:
        raise BadRequest(
            "this broker stores messages for now; one with a due time goes to a delay server "
            "(a route of kind 'delay')"
        )
    return incoming


def _check_number(batch: Payload, name: str, number: int) -> None:
    """A delayed message is of the topic that it was accepted for, not of one of the same name."""
    [meant] = TOPIC_ID.unpack_from(batch, TOPIC_ID_AT)
    if meant not in (0, number):
        raise TopicNotFound(
            f"the topic {name!r} that these messages were for (number {meant}) is not here: it was "
            "deleted, or is not known yet"
        )
