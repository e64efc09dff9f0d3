"""HALF, HALF_END, DETACHED_END: half batches are stored, then made visible or forgotten together.

A transaction lives on one broker group. Its half batches are in the message log without sequences;
ending it appends one control batch, so it ends for all its topics at once or not at all. Whoever
ends a transaction claims it first and waits for what is still being staged; whoever comes later
gets the true outcome: the same answer for the same wish, `TransactionEnded` for another.

Never reads a body, never writes one twice, never decides on its own: `check_back` asks.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Literal

from ternmq.batch.check import check_incoming
from ternmq.batch.due import due_times
from ternmq.batch.half import DETACHED_NAME_AT, HalfInfo, PlacedHalf, detached_key, read_info
from ternmq.batch.layout import BATCH_SIZE_MAX, SPARE_BUFFERS
from ternmq.batch.view import BatchView
from ternmq.broker.log.commit import Committer
from ternmq.broker.publishing.publish import Publisher
from ternmq.broker.slots.slots import Slots
from ternmq.broker.topics import TopicNames
from ternmq.core.clock import Clock
from ternmq.core.errors import (
    BadRequest,
    Fenced,
    Forbidden,
    OverLimit,
    TernError,
    TransactionEnded,
    TransactionNotFound,
    Unauthorized,
)
from ternmq.core.log import get_logger
from ternmq.core.units import DAY_MS
from ternmq.discovery.hidden_topics import LATER_PREFIX
from ternmq.intake.pending_batches import used_elsewhere
from ternmq.rpc.peer import Peer
from ternmq.security.access.rights import Rights
from ternmq.storage.log.append import Append, Ending, HalfMark
from ternmq.storage.messages.transactions import (
    OpenTransaction,
    TransactionOutcome,
    TransactionTable,
)
from ternmq.wire.actions import Action
from ternmq.wire.frame import Frame
from ternmq.wire.messages.transactions import (
    DetachedEnd,
    HalfAction,
    HalfEnd,
    HalfEnded,
    HalfPlace,
    HalfStored,
)

log = get_logger()

TIMES_MAX_MS = 30 * DAY_MS
DELAY_DAYS_MAX = 36_525
"""What `delay_max_days` of a delay server can be at most: it takes all that is committed."""
BATCHES_MAX = 1_000
"""Half batches of one transaction."""

DECISION_SIZE_MAX = BATCH_SIZE_MAX // 2
HALF_DECIDED_SIZE = 80
"""What a half batch takes in a decision, at most: so 26,000 of them in one."""

HalfKey = tuple[tuple[int, int], int]
"""Producer and its number of the first row: which batch this is."""

_STATES: dict[HalfAction, Literal["committed", "rolled_back"]] = {
    "commit": "committed",
    "rollback": "rolled_back",
}


class HalfBatches:
    """Open and ended transactions of this broker."""

    def __init__(
        self,
        *,
        publisher: Publisher,
        topics: TopicNames,
        committer: Committer,
        halves: TransactionTable,
        clock: Clock,
        slots: Slots,
        open_max: int,
    ) -> None:
        self._open_max = open_max
        self._publisher = publisher
        self._slots = slots
        self._topics = topics
        self._committer = committer
        self._halves = halves
        self._now_ms = clock.now_ms
        self._new_future = asyncio.get_running_loop().create_future
        self._staging: dict[bytes, dict[HalfKey, asyncio.Future[None]]] = {}
        self._ending: dict[bytes, asyncio.Future[None]] = {}
        self._names: dict[int, str] = {}  # Of topics, by id; see `_name`.

    # Staging

    async def stage(self, peer: Peer, frame: Frame) -> HalfStored:
        """Store one half batch; nobody sees it."""
        batch = frame.payload
        incoming = check_incoming(batch, half=True, spare_buffers=SPARE_BUFFERS)
        info = read_info(BatchView(batch))
        if max(info.first_check_ms, info.check_interval_ms, info.expires_ms) > TIMES_MAX_MS:
            raise BadRequest("a transaction is asked about, or expires, within 30 days")
        if incoming.delayed != bool(info.later):
            raise BadRequest("a transaction cannot hold delayed messages: send them after it")
        if info.later:
            latest = int(due_times(BatchView(batch), self._now_ms()).max())
            if latest > self._now_ms() + DELAY_DAYS_MAX * DAY_MS:
                raise BadRequest(f"due more than {DELAY_DAYS_MAX} days ahead")
        topic = await self._topics.get_or_create(incoming.topic, peer)
        self._publisher.admit(peer, batch, incoming, topic)
        # Delayed rows lie in a topic of their delay server, and say themselves which they are for.
        place = await self._topics.later_of(info.later) if info.later else topic
        by_slot = incoming.ordered and not info.name
        if by_slot and not self._slots.assigned:
            await self._slots.assign()
        own = (incoming.producer, incoming.first_sequence)
        while info.key in self._ending or own in self._staging.get(info.key, {}):
            await self._settled(info.key)
        self._check_name(peer.rights, info, incoming.topic)
        if self._published(info):
            return HalfStored(stored_at_ms=self._now_ms(), committed=True)
        one = self._writable(info, incoming.app)
        if one is not None and (known := one.find(*own)) is not None:
            if (known.topic_id, known.count) != (place.id, incoming.row_count):
                raise used_elsewhere(incoming)
            return HalfStored(stored_at_ms=one.last_at_ms, duplicate=True)
        self._check_owner(info, one, incoming.producer)
        if one is None:
            self._check_quota(peer)
        over = self._publisher.turn_away(peer, batch, incoming, topic)
        if over is not None:
            raise over
        # What a named one stages is not sent by order keys: it lies where its name does.
        ticket = self._slots.enter(topic, batch) if by_slot else 0
        append = self._publisher.to_append(peer, batch, incoming, place.id)
        append.special = HalfMark(info=info, app=incoming.app)
        done = self._new_future()
        self._staging.setdefault(info.key, {})[own] = done
        await self._store(append, done, lambda: self._staged(info.key, own, ticket))
        return HalfStored(stored_at_ms=append.stored_at_ms)

    def _check_name(self, rights: Rights | None, info: HalfInfo, topic: str) -> None:
        """The name of a detached transaction is the application's that used it first: others could
        fence its attempts, or publish under it what it then takes for its own."""
        if rights is None or not info.name:
            return
        users = {one.app for one in self._halves.attempts(info.name).values()}
        if any(app and not rights.is_app(app) for app in users):
            if rights.may(Action.OPERATE, "topic", topic):
                return
            raise Forbidden(
                f"the detached transaction {info.name!r} is another application's: take another "
                f"name, or: tern grant add {rights.name} operate {topic}",
                identity=rights.name,
            )

    def _writable(self, info: HalfInfo, app: str) -> OpenTransaction | None:
        """The transaction, if it may still take batches; None if this is its first."""
        outcome = self._halves.outcomes.get(info.key)
        if outcome is not None:
            raise ended(outcome.state)
        if info.name and info.fenced:
            self._check_fence(info)
        one = self._halves.open.get(info.key)
        if one is None:
            if len(self._halves.open) >= self._open_max:
                raise OverLimit(
                    f"{len(self._halves.open)} transactions are open, and halves_max is "
                    f"{self._open_max}; end some ('tern half list'), or raise it on the broker"
                )
            return None
        if one.dropped_at_ms:
            raise ended("dropped")
        if one.app != app:
            raise Unauthorized(f"this transaction belongs to application {one.app!r}")
        if len(one.halves) >= BATCHES_MAX:
            raise OverLimit(f"a transaction has at most {BATCHES_MAX} batches; send larger ones")
        return one

    def _check_quota(self, peer: Peer) -> None:
        """One more that is open, of all applications that this user may be."""
        use, rights = peer.use, peer.rights
        if use is None or rights is None or not use.quota.halves_max:
            return
        there = sum(n for app, n in self._halves.open_of.items() if rights.is_app(app))
        use.check_made("halves", there, use.quota.halves_max)

    def _published(self, info: HalfInfo) -> bool:
        """Whoever writes again what is published has nothing to do; only for unfenced names."""
        known = {} if info.fenced else self._halves.attempts(info.name)
        return any(
            isinstance(one, TransactionOutcome) and one.state == "committed"
            for one in known.values()
        )

    def _check_owner(
        self, info: HalfInfo, one: OpenTransaction | None, producer: tuple[int, int]
    ) -> None:
        """An unfenced attempt is one producer's: two that drew its number must not be mixed."""
        owners = {staging[0] for staging in self._staging.get(info.key, ())}
        if one is not None:
            owners.add((one.halves[0].producer_start, one.halves[0].producer_random))
        if not info.fenced and not owners <= {producer}:
            raise Fenced(f"attempt {info.attempt} of {info.name!r} is another's: take another")

    def _check_fence(self, info: HalfInfo) -> None:
        known = self._halves.attempts(info.name)
        if any(
            isinstance(one, TransactionOutcome) and one.state == "committed"
            for one in known.values()
        ):
            raise ended("committed")
        highest = max(known, default=0)
        if highest > info.attempt:
            raise Fenced(
                f"attempt {info.attempt} of {info.name!r} is over: attempt {highest} has begun"
            )

    # Ending

    def check_ending(
        self, rights: Rights | None, ones: Iterable[OpenTransaction | TransactionOutcome]
    ) -> None:
        """Others' transactions are ended by who may operate on their topics."""
        if rights is None:
            return
        for one in ones:
            if isinstance(one, OpenTransaction) and not rights.is_app(one.app):
                for topic in {self._name(half.topic_id) or "" for half in one.halves}:
                    rights.check_operate(topic)

    async def end(self, request: HalfEnd, rights: Rights | None = None) -> HalfEnded:
        """Commit or roll back by id; asking again is harmless."""
        key = b"T" + request.transaction
        await self._settled(key)
        outcome = self._halves.outcomes.get(key)
        if outcome is not None:
            return self._repeated(outcome, request.action, [], rights)
        one = self._halves.open.get(key)
        if one is None:
            raise TransactionNotFound(
                f"transaction {request.transaction.hex()} is not known here: nothing was stored "
                "under it, or it ended so long ago that this is forgotten"
            )
        self.check_ending(rights, [one])
        if request.source != "client":
            log.info(
                "transaction ended",
                transaction=request.transaction.hex(),
                app=one.app,
                action=request.action,
                source=request.source,
            )
        return self._answer(await self.decide(request.action, [one]), request.action, [])

    async def end_detached(self, request: DetachedEnd, rights: Rights | None = None) -> HalfEnded:
        """End a transaction by name, for several attempts in one."""
        name, action = request.name, request.action
        if action == "look":
            raise BadRequest("only an unfenced transaction can be looked at")
        for attempt in list(self._halves.attempts(name)):
            await self._settled(detached_key(name, attempt))
        known = self._halves.attempts(name)
        self.check_ending(rights, known.values())
        committed = sorted(
            attempt
            for attempt, one in known.items()
            if isinstance(one, TransactionOutcome) and one.state == "committed"
        )
        if action == "commit":
            if committed:
                return self._committed_before(request, known, committed, rights)
            return await self._commit_detached(request, known)
        wanted = request.attempts or list(known)
        opened = [
            one for at, one in known.items() if at in wanted and isinstance(one, OpenTransaction)
        ]
        if opened:
            await self.decide("rollback", opened)
        return HalfEnded(
            state="committed" if committed else "rolled_back", placed=[], attempts=committed
        )

    def _committed_before(
        self,
        request: DetachedEnd,
        known: dict[int, OpenTransaction | TransactionOutcome],
        committed: list[int],
        rights: Rights | None,
    ) -> HalfEnded:
        if request.attempts and not set(request.attempts) <= set(committed):
            raise TransactionEnded(
                f"{request.name!r} is committed with attempts {committed}, not with "
                f"{request.attempts}",
                state="committed",
            )
        outcome = known[committed[0]]
        assert isinstance(outcome, TransactionOutcome)
        return self._repeated(outcome, "commit", committed, rights)

    async def _commit_detached(
        self, request: DetachedEnd, known: dict[int, OpenTransaction | TransactionOutcome]
    ) -> HalfEnded:
        name = request.name
        if any(isinstance(one, OpenTransaction) and not one.info.fenced for one in known.values()):
            raise BadRequest(f"only its writer knows which attempts of {name!r} count: let it run")
        wanted = request.attempts or [
            at for at, one in known.items() if isinstance(one, OpenTransaction)
        ]
        opened = [one for at in wanted if isinstance(one := known.get(at), OpenTransaction)]
        if not opened or len(opened) < len(set(wanted)):
            gone = [at for at in wanted if isinstance(known.get(at), TransactionOutcome)]
            if gone:
                raise TransactionEnded(f"attempts {gone} of {name!r} are gone", state="rolled_back")
            which = f"attempts {wanted} of {name!r} are" if wanted else f"{name!r} is"
            raise TransactionNotFound(
                f"{which} not known here as a detached transaction; 'tern half list' shows what is "
                "open"
            )
        highest = max(known)
        if max(wanted) < highest:
            raise Fenced(f"attempts {wanted} of {name!r} are over: attempt {highest} has begun")
        return self._answer(await self.decide("commit", opened), "commit", sorted(set(wanted)))

    async def decide(
        self,
        kind: Literal["commit", "rollback", "drop"],
        ones: list[OpenTransaction],
        *,
        keys: list[bytes] | None = None,
    ) -> Ending:
        """Write one decision about these; returns when it is safe.

        `keys` may name more than is open here: attempts that are decided about all the same.
        """
        keys = [one.key for one in ones] if keys is None else keys
        while busy := [key for key in keys if key in self._staging or key in self._ending]:
            await self._settled(busy[0])
        for one in ones:
            if self._halves.open.get(one.key) is not one:
                outcome = self._halves.outcomes.get(one.key)
                raise ended(outcome.state if outcome is not None else "rolled_back")
        halves = [
            half
            for one in ones
            for half in (one.halves if one.info.fenced else sorted(one.halves, key=_number))
            if kind == "commit" and self._name(half.topic_id) is not None
        ]
        passed_over = sum(len(one.halves) for one in ones) - len(halves)
        if kind == "commit" and passed_over:
            log.warning("committed without messages of deleted topics", half_batches=passed_over)
        if HALF_DECIDED_SIZE * len(halves) + sum(map(len, keys)) > DECISION_SIZE_MAX:
            raise OverLimit(
                f"a commit of {len(halves)} half batches and {len(keys)} attempts does not fit one "
                "decision: stage larger batches, or commit in several transactions"
            )
        ending = Ending(kind=kind, transactions=keys, halves=halves)
        append = Append(
            batch=bytearray(),
            topic_id=0,
            count=1,
            received_at_ms=self._now_ms(),
            producer=(0, 0),
            first_sequence=0,
            special=ending,
        )
        done = self._new_future()
        self._ending |= dict.fromkeys(keys, done)
        await self._store(append, done, lambda: self._decided(keys))
        return ending

    def _answer(self, ending: Ending, action: HalfAction, attempts: list[int]) -> HalfEnded:
        assert ending.decision is not None
        places = [
            HalfPlace(
                topic=self._name(one.topic_id) or "",
                sequence=one.sequence,
                count=one.count,
                first_sequence=one.first_sequence,
            )
            for one in ending.decision.placed
        ]
        return HalfEnded(state=_STATES[action], placed=places, attempts=attempts)

    def _repeated(
        self,
        outcome: TransactionOutcome,
        action: HalfAction,
        attempts: list[int],
        rights: Rights | None,
    ) -> HalfEnded:
        """Whose it was is not known any more: who may send to its topics, or read them, is told
        where its messages are. Others are refused: one without its messages would look lost."""
        if outcome.state != _STATES[action]:
            raise ended(outcome.state)
        places = [
            HalfPlace(
                topic=self._name(topic_id) or "",
                sequence=sequence,
                count=count,
                first_sequence=first,
            )
            for topic_id, sequence, count, first in outcome.placed
        ]
        if rights is not None:
            for topic in {place.topic for place in places}:
                if topic and not topic.startswith(LATER_PREFIX):
                    rights.check_sends_or_reads(topic)
        return HalfEnded(state=outcome.state, placed=places, repeated=True, attempts=attempts)

    def _name(self, topic_id: int) -> str | None:
        """Of a topic that is there; not by going through all of them for each commit."""
        if topic_id not in self._names:
            self._names = {topic.id: topic.name for topic in self._topics.all()}
        name = self._names.get(topic_id)
        topic = None if name is None else self._topics.find(name)
        return name if topic is not None and topic.id == topic_id else None

    # One at a time

    async def arrived(self, name: str) -> None:
        """Wait for what is on its way to the disk under this name now, not for what comes."""
        suffix = detached_key(name, 0)[DETACHED_NAME_AT:]
        waiting = [
            done
            for key, batches in self._staging.items()
            if key[:1] == b"D" and key[DETACHED_NAME_AT:] == suffix
            for done in batches.values()
        ]
        if waiting:
            await asyncio.wait(waiting)

    async def _settled(self, key: bytes) -> None:
        """Wait until nothing about this transaction is on its way to the disk."""
        while True:
            waiting = list(self._staging.get(key, {}).values())
            if key in self._ending:
                waiting.append(self._ending[key])
            if not waiting:
                return
            await asyncio.wait(waiting)

    def _staged(self, key: bytes, batch: HalfKey, ticket: int) -> None:
        if ticket:
            self._slots.leave(ticket)
        left = self._staging[key]
        del left[batch]
        if not left:
            del self._staging[key]

    def _decided(self, keys: list[bytes]) -> None:
        for key in keys:
            del self._ending[key]

    async def _store(
        self, append: Append, done: asyncio.Future[None], release: Callable[[], None]
    ) -> None:
        """Append and wait until it is safe; whoever waits for `done` looks again then."""
        failed: list[TernError] = []

        def on_done(_: Append, error: TernError | None) -> None:
            if error is not None:
                failed.append(error)
            release()
            done.set_result(None)

        self._committer.append(append, on_done)
        await asyncio.shield(done)
        if failed:
            raise type(failed[0])(failed[0].message, **failed[0].details)


def _number(half: PlacedHalf) -> int:
    """Batches of an unfenced attempt may have overtaken each other on their way here."""
    return half.first_sequence


def ended(state: str) -> TransactionEnded:
    """The true state, for a caller that wanted another."""
    shown = state.replace("_", " ")
    return TransactionEnded(f"the transaction is {shown} already", state=state)
