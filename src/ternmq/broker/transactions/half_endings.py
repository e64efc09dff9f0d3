"""HALF_END, DETACHED_END: the half batches of a transaction are made visible or forgotten together.

Ending a transaction appends one control batch, so it ends for all its topics at once or not at all.
Whoever ends a transaction claims it first and waits for what is still being staged; whoever comes
later gets the true outcome: the same answer for the same wish, `TransactionEnded` for another.

Never decides on its own: `check_back` asks.
"""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, Literal

from ternmq.batch.half import PlacedHalf, detached_key
from ternmq.batch.layout import BATCH_SIZE_MAX
from ternmq.broker.log.commit import Committer
from ternmq.broker.topics import TopicNames
from ternmq.broker.transactions.under_way import SafeHalf, StoredHalf, TransactionsUnderWay
from ternmq.core.clock import Clock
from ternmq.core.errors import (
    BadRequest,
    Fenced,
    OverLimit,
    TernError,
    TransactionEnded,
    TransactionNotFound,
)
from ternmq.core.log import get_logger
from ternmq.discovery.hidden_topics import LATER_PREFIX
from ternmq.rpc.peer import Peer
from ternmq.security.access.rights import Rights
from ternmq.storage.log.append import Append, Ending
from ternmq.storage.messages.transactions import (
    OpenTransaction,
    TransactionOutcome,
    TransactionTable,
)
from ternmq.wire.frame import Frame
from ternmq.wire.messages.transactions import (
    DetachedEnd,
    HalfAction,
    HalfEnd,
    HalfEnded,
    HalfPlace,
)
from ternmq.wire.record import unpack

log = get_logger()

DECISION_SIZE_MAX = BATCH_SIZE_MAX // 2
HALF_DECIDED_SIZE = 80
"""What a half batch takes in a decision, at most: so 26,000 of them in one."""

_STATES: dict[HalfAction, Literal["committed", "rolled_back"]] = {
    "commit": "committed",
    "rollback": "rolled_back",
}


class HalfEndings:
    """How transactions of this broker end."""

    def __init__(
        self,
        topics: TopicNames,
        halves: TransactionTable,
        committer: Committer,
        clock: Clock,
    ) -> None:
        self._topics = topics
        self._halves = halves
        self.under_way = TransactionsUnderWay(committer)
        """Half batches go through it as well: each transaction ends behind all of its own."""
        self._now_ms = clock.now_ms
        self.arrived = self.under_way.arrived
        self._names: dict[int, str] = {}  # Of topics, by id; see `_name`.

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

    def end(
        self, peer: Peer, frame: Frame, request: StoredHalf
    ) -> Coroutine[Any, Any, HalfEnded] | None:
        """Commit or roll back by id; asking again is harmless."""
        wish = unpack(frame.payload, HalfEnd)
        if self.under_way.busy(b"T" + wish.transaction):
            return self._end_later(wish, peer.rights)
        self._end(wish, peer.rights, request)
        return None

    async def _end_later(self, wish: HalfEnd, rights: Rights | None) -> HalfEnded:
        await self.under_way.settled(b"T" + wish.transaction)
        safe = SafeHalf(asyncio.get_running_loop().create_future())
        self._end(wish, rights, safe)
        return await asyncio.shield(safe.future)

    def _end(self, request: HalfEnd, rights: Rights | None, waiting: StoredHalf) -> None:
        """Nothing about this transaction is on its way: decide, and tell `waiting`."""
        key = b"T" + request.transaction
        outcome = self._halves.outcomes.get(key)
        if outcome is not None:
            repeated = self._repeated(outcome, request.action, [], rights)
            waiting.answer(lambda: repeated)
            return
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
        ending = self._decision(request.action, [one], [key])

        def on_done(_: Append, error: TernError | None) -> None:
            if error is not None:
                waiting.fail(error)
            else:
                waiting.answer(lambda: self._answer(ending, request.action, []))

        waiting.hold(0)
        self.under_way.decide([key], self._decision_append(ending), on_done)

    async def end_detached(self, request: DetachedEnd, rights: Rights | None = None) -> HalfEnded:
        """End a transaction by name, for several attempts in one."""
        name, action = request.name, request.action
        if action == "look":
            raise BadRequest("only an unfenced transaction can be looked at")
        for attempt in list(self._halves.attempts(name)):
            await self.under_way.settled(detached_key(name, attempt))
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
        while busy := [key for key in keys if self.under_way.busy(key)]:
            await self.under_way.settled(busy[0])
        ending = self._decision(kind, ones, keys)
        await self.under_way.decided(keys, self._decision_append(ending))
        return ending

    def _decision(
        self,
        kind: Literal["commit", "rollback", "drop"],
        ones: list[OpenTransaction],
        keys: list[bytes],
    ) -> Ending:
        """What is to be written about these; raises if it cannot be."""
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
        return Ending(kind=kind, transactions=keys, halves=halves)

    def _decision_append(self, ending: Ending) -> Append:
        return Append(
            batch=bytearray(),
            topic_id=0,
            count=1,
            received_at_ms=self._now_ms(),
            producer=(0, 0),
            first_sequence=0,
            special=ending,
        )

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


def _number(half: PlacedHalf) -> int:
    """Batches of an unfenced attempt may have overtaken each other on their way here."""
    return half.first_sequence


def ended(state: str) -> TransactionEnded:
    """The true state, for a caller that wanted another."""
    shown = state.replace("_", " ")
    return TransactionEnded(f"the transaction is {shown} already", state=state)
