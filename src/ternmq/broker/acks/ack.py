"""ACK: outcomes of rows, riding on a pull or on their own, and what follows from them (Q13, D11).

Acks and retries take effect at once and are noted as progress. A reject is a decision: the row is
copied to the dead letters and marked when both are safe, and only then answered. A request that
fails many rows is settled in `LargeAcks`. What outcomes do to rows is decided in `settle.py`.
"""

import asyncio
import random
from collections.abc import Mapping, Sequence

from ternmq.broker.acks.dead_letters import DeadLetterWriter
from ternmq.broker.acks.large_acks import Applied, LargeAcks
from ternmq.broker.acks.settle import (
    DeadRows,
    SettleMoment,
    SettleResult,
    check_outcomes,
    settle,
)
from ternmq.broker.delivery.poison_isolation import isolating
from ternmq.broker.delivery.pull import PullHandler
from ternmq.broker.groups.consumer_group import ClientState, ConsumerGroup, ConsumerSession
from ternmq.broker.groups.groups import ConsumerGroups
from ternmq.broker.groups.lane import OVERDUE, VANISHED, Lane, Why
from ternmq.broker.groups.lane_event import Piece, together
from ternmq.broker.groups.poison import deaths
from ternmq.core.errors import TernError, Unavailable
from ternmq.core.log import get_logger
from ternmq.rpc.peer import Peer
from ternmq.rpc.pending_requests import PendingRequests
from ternmq.rpc.stuck_requests import StuckRequests
from ternmq.wire.frame import Frame
from ternmq.wire.messages.pull import Acked, Done
from ternmq.wire.numbers import Command
from ternmq.wire.record import pack

log = get_logger()

_ACK = int(Command.ACK)
LOOK_S = 0.01


class AckHandler:
    """What consumers say about rows they were handed."""

    def __init__(
        self,
        *,
        groups: ConsumerGroups,
        pull_handler: PullHandler,
        dead_letters: DeadLetterWriter,
        stuck_requests: StuckRequests,
    ) -> None:
        self._groups = groups
        self._pull_handler = pull_handler
        self._dead_letters = dead_letters
        self._moving: set[asyncio.Task[None]] = set()
        self._pending_requests = PendingRequests()
        self._large_acks = LargeAcks(self._apply)
        self._stuck_requests = stuck_requests

    def settle(self, consumer: ConsumerSession, done: Sequence[Done]) -> None:
        """Without an answer: rides on a pull."""
        check_outcomes(done)
        moving = self._apply(consumer, done).moving
        if moving:
            self._move(moving)

    def settle_much(
        self, peer: Peer, frame: Frame, consumer: ConsumerSession, done: Sequence[Done]
    ) -> None:
        """With an answer if one is wanted, when all of it is settled and every decision safe."""
        check_outcomes(done)
        self._pending_requests.begin(
            peer, frame, self._settled(self._large_acks.add(consumer, done))
        )

    async def _settled(self, settling: "asyncio.Future[Applied]") -> Acked:
        applied = await settling
        if applied.moving:
            await self._move(applied.moving)
        return _acked(applied)

    def leaves(self, consumer: ConsumerSession) -> None:
        """What it has said is settled before the rest of its rows goes back."""
        self._large_acks.hurry(consumer)

    def answer(
        self, peer: Peer, correlation: int, consumer: ConsumerSession, done: Sequence[Done]
    ) -> None:
        """With an answer, once every decision in it is safe."""
        check_outcomes(done)
        applied = self._apply(consumer, done)
        if not applied.moving:
            peer.answer(_ACK, correlation, pack(_acked(applied)))
            return
        task = self._move(applied.moving)
        gave_up = False

        def give_up(error: TernError) -> None:
            nonlocal gave_up
            gave_up = True
            peer.fail(_ACK, correlation, error)

        def tell(finished: asyncio.Task[None]) -> None:
            error = None if finished.cancelled() else finished.exception()
            if gave_up:
                return
            if isinstance(error, TernError):
                peer.fail(_ACK, correlation, error)
            elif error is not None:  # By a bug, which `_moved_or_failed` has logged.
                peer.fail(_ACK, correlation, Unavailable("dead letters were not stored: a bug"))
            else:
                peer.answer(_ACK, correlation, pack(_acked(applied)))

        task.add_done_callback(tell)
        self._stuck_requests.watch(task, give_up)

    def expire(self, group: ConsumerGroup, lease: int, ranges: list[tuple[int, int]]) -> None:
        """Leased rows whose time is over: kept as dead letters, counted as expired."""
        pieces = [p for first, end in ranges for p in group.lane.begin_move(lease, first, end)]
        if pieces:
            self._move([DeadRows(group, pieces, "expired", expired=True)])

    def killed(self, group: ConsumerGroup, pieces: Sequence[Piece]) -> None:
        """Rows that were alone with one consumer too many."""
        for piece in pieces:
            times = deaths(group.lane.poison.rows.get(piece[0]) or 0)
            often = "once" if times == 1 else f"{times} times"
            reason = f"its consumer died {often} while handling it"
            self._move([DeadRows(group, [piece], reason, Why(VANISHED, self._groups.now_ms()))])

    def overdue(self, group: ConsumerGroup, pieces: Sequence[Piece]) -> None:
        """Rows whose last attempt was a detached lease that ran out."""
        for piece in pieces:
            reason = f"not settled in time, {piece[2]} times"
            self._move([DeadRows(group, [piece], reason, Why(OVERDUE, self._groups.now_ms()))])

    async def move(self, deaths: list[DeadRows]) -> None:
        """Copy rows to the dead letters; raises what kept them from it."""
        await self._move(deaths)

    async def wait_for_last_acks(self, within_s: float) -> None:
        """Consumers that were told of a stop settle what they have done and give back what they
        have not begun: nobody gets that twice. Those in the middle of something are not waited for.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + within_s
        busy = [group.lane for group in self._groups if group.consumers]
        while loop.time() < until and any(map(_held_by_consumers, busy)):  # noqa: ASYNC110
            await asyncio.sleep(LOOK_S)

    async def finish(self) -> None:
        """Wait for what has begun, moves to the dead letters too."""
        await self._large_acks.finish()
        await self._pending_requests.finish()
        if self._moving:
            await asyncio.wait(self._moving)

    def _apply(self, consumer: ConsumerSession, done: Sequence[Done]) -> Applied:
        found = self._settle(consumer.groups, done, None)
        if isolating(consumer.client):
            found.touched.update((group.id, group) for group in groups_of(consumer.client))
        return self._follow_up(found)

    def apply_by_key(
        self, groups: Sequence[ConsumerGroup], done: Sequence[Done], keys: Mapping[int, int]
    ) -> Applied:
        """Rows of detached leases; the caller moves what is to be moved."""
        return self._follow_up(self._settle(groups, done, keys))

    def _settle(
        self,
        told_of: Sequence[ConsumerGroup],
        done: Sequence[Done],
        keys: Mapping[int, int] | None,
    ) -> SettleResult:
        groups = self._groups
        moment = SettleMoment(groups.now(), groups.now_ms, random.random(), groups.given_out)
        found = settle(told_of, done, moment, keys)
        for group, events in found.events.items():
            groups.write(group, together(events))
        return found

    def _follow_up(self, found: SettleResult) -> Applied:
        groups = self._groups
        for group in found.touched.values():
            groups.schedule(group)
            if group.waiting_pulls:
                self._pull_handler.feed(group)
        for group in found.freed:
            self._freed(group)
        return Applied(found.settled, found.late, found.moving, found.late_rows)

    def _freed(self, group: ConsumerGroup) -> None:
        """Something is not in flight any more, and that was waited for."""
        if group.full:
            group.full = False
            self._pull_handler.feed(group)

    def _move(self, moving: list[DeadRows]) -> asyncio.Task[None]:
        async def move() -> None:
            failed: TernError | None = None
            for dead in moving:
                try:
                    await self._dead_letters.move(dead)
                except TernError as error:
                    failed = failed or error
                self._groups.schedule(dead.group)
                self._freed(dead.group)
                if dead.group.order is not None:  # The next of its key may go now.
                    self._pull_handler.feed(dead.group)
            if failed is not None:
                raise failed

        task = asyncio.get_running_loop().create_task(move(), name="dead-letters")
        self._moving.add(task)
        task.add_done_callback(self._moved_or_failed)
        return task

    def _moved_or_failed(self, task: asyncio.Task[None]) -> None:
        self._moving.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, TernError):
            log.warning("dead letter not stored", reason=error.message)
        elif error is not None:
            log.error("dead letter failed by a bug", exc_info=error)


def _held_by_consumers(lane: Lane) -> bool:
    """Detached leases outlive this broker: nobody waits for them."""
    return any(not lease.lock for lease in lane.leases.values())


def _acked(applied: Applied) -> Acked:
    return Acked(settled=applied.settled, late=applied.late, late_rows=applied.late_rows)


def groups_of(client: ClientState) -> list[ConsumerGroup]:
    """Every group that a connection takes part in."""
    return [group for consumer in client.consumers.values() for group in consumer.groups]
