"""A consumer that keeps nothing: what it pulls outlives it, and is settled by handle from anywhere.

    consumer = mq.detached_consumer("order.paid", group="billing")
    for handle, message in await consumer.pull(100, wait=20, lease=60):
        ...
    await consumer.settle([HandleVerdict(handle=handle)])

For gateways: the HTTP API, other protocols. Pulling joins the group at each broker group as a
consumer whose leases are detached: they last for `lease`, whatever becomes of this process.
Settling and extending need no pull before, and no join: a handle is enough, in any process that may
consume the group. What is not held any more is late, never counts, and is named.

Belongs to one event loop.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from ternmq.batch.envelope import read_envelopes
from ternmq.client.consuming.lease_handle import LeaseHandle, read_handle
from ternmq.client.consuming.subscription_plan import SubscriptionPlan
from ternmq.client.model.delivery import Delivery, Outcome, SettleReceipt, reject_outcome
from ternmq.client.model.durations import Duration, seconds_of
from ternmq.client.model.message import Message
from ternmq.client.sealing.decryption import closed_outcome, unreadable_runs
from ternmq.client.transport.cluster import Cluster
from ternmq.client.transport.link import Link
from ternmq.core.errors import BadRequest, Corrupt, ProtocolError, TernError, Unavailable
from ternmq.core.log import get_logger
from ternmq.core.range_set import RangeSet
from ternmq.core.retry import AFTER_MAX_MS
from ternmq.core.units import MIB
from ternmq.rpc.connection import Connection, request
from ternmq.wire.messages.hello import Empty
from ternmq.wire.messages.pull import (
    DELIVERED,
    Acked,
    Done,
    Extend,
    Join,
    Joined,
    LeaseKey,
    Leave,
    Pull,
    Settle,
)
from ternmq.wire.numbers import Command
from ternmq.wire.record import pack

ROWS_MAX = 1_000
WAIT_MAX_S = 30.0
LEASE_MAX_S = 12 * 3600.0
HANDLES_MAX = 10_000
PULL_SIZE_MAX = 2 * MIB

log = get_logger()


class DetachedMessage(NamedTuple):
    """A message, and the handle that settles it."""

    handle: str
    message: Message


@dataclass(frozen=True, slots=True, kw_only=True)
class HandleVerdict:
    """What became of one message."""

    handle: str
    outcome: Literal["ack", "retry", "reject", "back"] = "ack"
    """`back`: nobody looked at it; ready for others at once, as the same attempt."""
    after: Duration | None = None
    """Of a retry; None leaves it to the group's policy."""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettleReport:
    """What counted."""

    settled: int
    late: tuple[str, ...]
    """Handles whose lease does not hold the message any more: it was settled (perhaps by the same
    call before, whose answer was lost), or comes again."""


_KEPT = HandleVerdict(handle="")


class DetachedSource:
    """Where detached messages came from: they are not settled by themselves."""

    thread = 0
    flushing: SettleReceipt

    def acked(self, delivery: Delivery, row: int) -> SettleReceipt:
        raise _by_handle()

    def started(self, delivery: Delivery) -> None:
        """Ignored: nobody is blamed for what a gateway's callers do."""

    def settle(self, delivery: Delivery, rows: tuple[int, int], outcome: Outcome) -> SettleReceipt:
        raise _by_handle()

    def settle_later(
        self, delivery: Delivery, rows: tuple[int, int], outcome: Outcome
    ) -> SettleReceipt:
        raise _by_handle()


def _by_handle() -> BadRequest:
    return BadRequest("this message was pulled detached: settle its handle")


class _JoinedConsumer:
    """The part of a detached consumer that one broker group knows."""

    def __init__(self, link: Link, plan: SubscriptionPlan) -> None:
        self._link = link
        self._plan = plan
        self._connection: Connection | None = None
        self._number = 0
        self._joining = asyncio.Lock()

    async def joined(self) -> tuple[Connection, int]:
        connection = await self._link.get()
        if connection is self._connection:
            return connection, self._number
        async with self._joining:
            connection = await self._link.get()
            if connection is self._connection:
                return connection, self._number
            plan = self._plan
            join = Join(
                group=plan.group,
                topics=plan.topics,
                start=plan.start,
                tag=plan.tag,
                filter=plan.filter,
                ordered=plan.ordered,
                attempts_max=plan.attempts_max,
                picks=True,
                detached=True,
            )
            joined = await request(connection, Command.JOIN, join, Joined, timeout=plan.timeout)
            if not joined.detached:
                leave = Leave(subscription=joined.subscription)
                await request(connection, Command.LEAVE, leave, Empty, timeout=plan.timeout)
                raise BadRequest(
                    f"the broker at {connection.address} is older than detached leases: update it"
                )
            self._connection, self._number = connection, joined.subscription
            return connection, self._number

    async def leave(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None and not connection.closed:
            leave = Leave(subscription=self._number)
            await request(connection, Command.LEAVE, leave, Empty, timeout=self._plan.timeout)


class DetachedConsumer:
    """One group on one topic, consumed by handle. Made by `mq.detached_consumer`."""

    def __init__(self, cluster: Cluster, plan: SubscriptionPlan) -> None:
        self._cluster = cluster
        self._plan = plan
        self._topic = plan.topics[0]
        self._source = DetachedSource()
        self._joined: dict[str, _JoinedConsumer] = {}
        self._turn = 0
        self._unwanted: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "DetachedConsumer":
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Leave the group; what was pulled stays as it is."""
        if self._unwanted:
            await asyncio.wait(self._unwanted)
        for consumer in self._joined.values():
            try:
                await consumer.leave()
            except TernError as error:
                log.info("left without a word", group=self._plan.group, reason=error.message)
        self._joined.clear()

    # Pulling.

    async def pull(
        self, rows: int = 100, *, wait: Duration = 0, lease: Duration = 60
    ) -> list[DetachedMessage]:
        """Up to so many messages, each with its handle; none if none came within `wait`.

        They are this caller's for `lease`; what is not settled by then has failed, and comes again
        as the next attempt.
        """
        if isinstance(rows, bool) or not isinstance(rows, int) or not 0 < rows <= ROWS_MAX:
            raise BadRequest(f"rows is {rows!r}; it is 1 to {ROWS_MAX}")
        wait_s = seconds_of("wait", wait, 0, WAIT_MAX_S)
        lease_ms = _milliseconds("lease", lease)
        groups = await self._cluster.some_masters()
        self._turn += 1
        groups = groups[self._turn % len(groups) :] + groups[: self._turn % len(groups)]
        if len(groups) == 1:
            return await self._take(groups[0], rows, wait_s, lease_ms)
        found, failed = await self._take_some(groups, rows, lease_ms)
        if found or len(failed) == len(groups):
            if not found:
                raise failed[0]
            return found
        return await self._wait_for_some(groups, rows, wait_s, lease_ms) if wait_s else []

    async def _take_some(
        self, groups: list[str], rows: int, lease_ms: int
    ) -> tuple[list[DetachedMessage], list[TernError]]:
        """What is ready, from one broker group after the other."""
        found: list[DetachedMessage] = []
        failed: list[TernError] = []
        for group in groups:
            try:
                found += await self._take(group, rows - len(found), 0, lease_ms)
            except TernError as error:
                failed.append(error)
            if len(found) >= rows:
                break
        return found, failed

    async def _wait_for_some(
        self, groups: list[str], rows: int, wait_s: float, lease_ms: int
    ) -> list[DetachedMessage]:
        """From whoever has some first; what the others bring later goes back to them."""
        pulls = {asyncio.create_task(self._take(group, rows, wait_s, lease_ms)) for group in groups}
        waiting = set(pulls)
        error: TernError | None = None
        try:
            while waiting:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for each in done:
                    pulls.discard(each)
                    try:
                        if found := each.result():
                            return found
                    except TernError as refused:
                        error = refused
        finally:
            for each in pulls:
                self._give_back_later(each)
        if error is not None:
            raise error
        return []

    def _give_back_later(self, pull: "asyncio.Task[list[DetachedMessage]]") -> None:
        async def give_back() -> None:
            try:
                found = await pull
                if found:
                    back = [HandleVerdict(handle=each.handle, outcome="back") for each in found]
                    await self.settle(back)
            except TernError as error:
                log.info("messages come when their lease is over", reason=error.message)

        task = asyncio.create_task(give_back())
        self._unwanted.add(task)
        task.add_done_callback(self._unwanted.discard)

    async def _take(
        self, broker_group: str, rows: int, wait_s: float, lease_ms: int
    ) -> list[DetachedMessage]:
        """One pull of one broker group. A caller that goes away meanwhile takes nothing along."""
        pull = asyncio.ensure_future(self._pull(broker_group, rows, wait_s, lease_ms))
        try:
            return await asyncio.shield(pull)
        except asyncio.CancelledError:
            self._give_back_later(pull)
            raise

    async def _pull(
        self, broker_group: str, rows: int, wait_s: float, lease_ms: int
    ) -> list[DetachedMessage]:
        consumer = self._joined.get(broker_group)
        if consumer is None:
            consumer = _JoinedConsumer(self._cluster.broker(broker_group), self._plan)
            self._joined[broker_group] = consumer
        connection, number = await consumer.joined()
        wanted = Pull(
            subscription=number,
            rows_max=rows,
            size_max=PULL_SIZE_MAX,
            wait_ms=int(wait_s * 1000),
            lease_ms=lease_ms,
        )
        try:
            async with asyncio.timeout(wait_s + self._plan.timeout):
                payload = await connection.call(Command.PULL, pack(wanted))
        except TimeoutError:
            raise Unavailable(f"no answer from {connection.address} to a pull") from None
        if len(payload) < DELIVERED.size:
            raise ProtocolError("the answer to a pull is cut off")
        count, _, key = DELIVERED.unpack_from(payload)
        found: list[DetachedMessage] = []
        for envelope in read_envelopes(payload, count, DELIVERED.size):
            delivery = Delivery(
                envelope, self._source, self._plan.codec, connection.welcome.epoch, broker_group
            )
            for first, end in await self._readable(delivery, key):
                found += [
                    DetachedMessage(
                        LeaseHandle(broker_group, delivery.lease, key, delivery.base + row).text(),
                        Message(delivery, row),
                    )
                    for row in range(first, end)
                ]
        return found

    async def _readable(self, delivery: Delivery, key: int) -> list[tuple[int, int]]:
        """Rows that can be shown; the others are settled as every consumer does it."""
        try:
            delivery.batch.open_bodies()
        except Corrupt as error:
            outcome = reject_outcome(f"its body cannot be read: {error.message}")
            await self._settle_rows(delivery, key, [(each, outcome) for each in delivery.ranges])
            return []
        if not delivery.batch.sealed:
            return delivery.ranges
        await self._cluster.keyring.open_all([(delivery.batch, delivery.ranges)])
        runs = unreadable_runs(delivery.batch, delivery.ranges)
        closed = [(rows, closed_outcome(why)) for rows, why in runs if why is not None]
        if closed:
            await self._settle_rows(delivery, key, closed)
        return [rows for rows, why in runs if why is None]

    async def _settle_rows(
        self, delivery: Delivery, key: int, rows: list[tuple[tuple[int, int], Outcome]]
    ) -> None:
        done = [
            Done(
                lease=delivery.lease,
                first=delivery.base + first,
                end=delivery.base + end,
                kind=outcome.kind,
                after_ms=outcome.after_ms if outcome.kind == "retry" else -1,
                reason=outcome.reason,
            )
            for (first, end), outcome in rows
        ]
        await self._send_settle(delivery.broker_group, {delivery.lease: key}, done)

    # Settling.

    async def settle(self, verdicts: Sequence[HandleVerdict]) -> SettleReport:
        """What became of messages, by their handles; answered when every decision is safe."""
        given = [(read_handle(each.handle), each) for each in verdicts]
        done: dict[str, list[Done]] = {}
        for handle, verdict in given:
            done.setdefault(handle.broker_group, []).append(_done(handle, verdict))
        keys = await self._keys([handle for handle, _ in given])
        answers = await asyncio.gather(
            *(self._send_settle(name, keys[name], _merged(done[name])) for name in keys)
        )
        return _report([handle for handle, _ in given], dict(zip(keys, answers, strict=True)))

    async def extend(self, handles: Sequence[str], lease: Duration) -> SettleReport:
        """Keep messages for so long from now on; those that are late stay so."""
        lease_ms = _milliseconds("lease", lease)
        read = [read_handle(each) for each in handles]
        rows: dict[str, list[Done]] = {}
        for handle in read:
            rows.setdefault(handle.broker_group, []).append(_done(handle, _KEPT))
        keys = await self._keys(read)
        answers = await asyncio.gather(
            *(self._send_extend(name, keys[name], _merged(rows[name]), lease_ms) for name in keys)
        )
        return _report(read, dict(zip(keys, answers, strict=True)))

    async def _keys(self, handles: Sequence[LeaseHandle]) -> dict[str, dict[int, int]]:
        """The keys of leases by broker group. Names in handles are from outside: nobody is asked
        for a broker group that never was."""
        if len(handles) > HANDLES_MAX:
            raise BadRequest(f"{len(handles)} handles at once; at most {HANDLES_MAX}: in parts")
        await self._cluster.some_masters()
        known = {*self._cluster.masters(), *self._cluster.away("realtime")}
        keys: dict[str, dict[int, int]] = {}
        for handle in handles:
            if handle.broker_group not in known:
                name = handle.broker_group[:60]
                raise BadRequest(f"a handle is of a broker group that is not known: {name!r}")
            of_group = keys.setdefault(handle.broker_group, {})
            if of_group.setdefault(handle.lease, handle.key) != handle.key:
                raise BadRequest("two handles of one pull differ in their key: one is made up")
        return keys

    async def _send_settle(
        self, broker_group: str, keys: dict[int, int], done: list[Done]
    ) -> Acked:
        record = Settle(topic=self._topic, group=self._plan.group, keys=_packed(keys), done=done)
        link = self._cluster.broker(broker_group)
        return await self._cluster.ask(link, Command.SETTLE, record, Acked)

    async def _send_extend(
        self, broker_group: str, keys: dict[int, int], rows: list[Done], lease_ms: int
    ) -> Acked:
        record = Extend(
            topic=self._topic,
            group=self._plan.group,
            keys=_packed(keys),
            rows=[(each.lease, each.first, each.end) for each in rows],
            lease_ms=lease_ms,
        )
        link = self._cluster.broker(broker_group)
        return await self._cluster.ask(link, Command.EXTEND, record, Acked)


def _packed(keys: dict[int, int]) -> list[LeaseKey]:
    return [LeaseKey(lease=lease, key=key) for lease, key in keys.items()]


def _done(handle: LeaseHandle, verdict: HandleVerdict) -> Done:
    after_ms = -1
    if verdict.outcome == "retry" and verdict.after is not None:
        after_ms = int(seconds_of("after", verdict.after, 0, AFTER_MAX_MS / 1000) * 1000)
    given = Outcome(verdict.outcome, after_ms, verdict.reason)
    return Done(
        lease=handle.lease,
        first=handle.sequence,
        end=handle.sequence + 1,
        kind=given.kind,
        after_ms=after_ms,
        reason=given.reason,
        error=given.error,
    )


def _merged(done: list[Done]) -> list[Done]:
    """Rows beside each other of which the same is given go as one range."""
    merged: list[Done] = []
    for each in sorted(done, key=lambda one: (one.lease, one.first)):
        last = merged[-1] if merged else None
        if (
            last is not None
            and (last.lease, last.end) == (each.lease, each.first)
            and (last.kind, last.after_ms, last.reason) == (each.kind, each.after_ms, each.reason)
        ):
            merged[-1] = Done(
                lease=last.lease,
                first=last.first,
                end=each.end,
                kind=last.kind,
                after_ms=last.after_ms,
                reason=last.reason,
                error=last.error,
            )
        else:
            merged.append(each)
    return merged


def _report(asked: Sequence[LeaseHandle], answers: dict[str, Acked]) -> SettleReport:
    missed: dict[tuple[str, int], RangeSet] = {}
    for name, answer in answers.items():
        for lease, first, end in answer.late_rows:
            missed.setdefault((name, lease), RangeSet()).add(first, end)
    late = [
        each.text()
        for each in asked
        if each.sequence in missed.get((each.broker_group, each.lease), ())
    ]
    settled = sum(answer.settled for answer in answers.values())
    return SettleReport(settled=settled, late=tuple(late))


def _milliseconds(name: str, duration: Duration) -> int:
    return max(1, int(seconds_of(name, duration, 0.001, LEASE_MAX_S) * 1000))
