"""The relay: takes committed rows, sends them, deletes them; fresh ones at once, others by sweep.

Each round is three steps, and a crash between any two of them loses and doubles nothing:

1. one transaction: claim rows (or read the fresh ones of this process, which were born claimed),
   leave out those that would overtake a row of their order key, decide missing broker groups;
2. send each (broker group, topic) as one batch, each message once by its id;
3. one transaction: delete what is stored, give the rest back with a time to try again.

A broker group that fails is left alone for a while, so that others are not kept waiting. A database
that fails is tried again: rows stay where they are. Several relays may run, here or elsewhere.
Runs on the event loop of its client. Keeps nothing that the table does not have.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sqlalchemy import Connection

from ternmq.batch.encoder import Outgoing
from ternmq.client.model.durations import seconds_of, typed
from ternmq.client.model.stored_message import read, unpack
from ternmq.client.producing.deliver_once import OnceOutcome, SendsOnce, away, choose_group, deliver
from ternmq.core.clock import Clock
from ternmq.core.database import lacks_table
from ternmq.core.errors import BadRequest, Moved, OverLimit, TernError, Unavailable
from ternmq.core.log import get_logger
from ternmq.core.units import DAY_MS
from ternmq.outbox.database import Database
from ternmq.outbox.failure import MOVED_MS, judge, rest_ms
from ternmq.outbox.rows import OutboxRow, OutboxRows, RowClaim, blockers
from ternmq.outbox.table import PARKED_MS

ERROR_PAUSE_S = 1.0
UNKNOWN_S = 2.0  # For a broker group that nobody knows: it may be starting.

log = get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class RelaySettings:
    """The bounds of a relay; every one may be set."""

    rows_max: int = 1_000
    """Rows of one round."""
    lease: float = 60.0
    """Seconds a claim lasts; longer than `timeout`."""
    timeout: float = 30.0
    """Seconds for sending one round."""
    poll: float = 1.0
    """Seconds between two looks at an empty table."""
    grace: float = 10.0
    """Seconds from its insert for which a row is left to the process that inserted it."""
    attempts_max: int = 16
    """Refusals of one message after which it is parked."""

    def __post_init__(self) -> None:
        for name in ("rows_max", "attempts_max"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise BadRequest(f"{name} is {typed(value)}; it is a whole number, at least 1")
        for name in ("lease", "timeout", "poll", "grace"):  # A timedelta becomes seconds.
            seconds = seconds_of(name, getattr(self, name), 0, DAY_MS / 1000)
            object.__setattr__(self, name, seconds)


@dataclass(slots=True)
class Counts:
    """What a relay has done since it was made."""

    sent: int = 0
    duplicates: int = 0
    """Of those sent: the broker had them already."""
    failed: int = 0
    parked: int = 0


@dataclass(slots=True)
class _Rest:
    failures: int = 0
    until_ms: int = 0


@dataclass(slots=True)
class _RelayRound:
    """Rows taken in step 1, sorted by what happens to them."""

    ready: list[OutboxRow] = field(default_factory=list)
    waiting: list[OutboxRow] = field(default_factory=list)
    """Behind another row of their order key."""
    resting: list[OutboxRow] = field(default_factory=list)
    """For a broker group that rests."""


def reason(error: Exception) -> str:
    """The first line says it; drivers and SQLAlchemy add links and statements."""
    return f"{type(error).__name__}: {error}".partition("\n")[0]


def _order_key(row: OutboxRow) -> str | None:
    """None too where the row cannot be read: then it is told so when it is sent."""
    if row.order_hash is None:
        return None
    try:
        return read(row.content, row.message_id).order_key
    except TernError:
        return None


class Relay:
    """Sends the rows of one or several databases."""

    def __init__(
        self,
        databases: Sequence[Database],
        rows: OutboxRows,
        *,
        owner: str,
        clock: Clock,
        settings: RelaySettings | None = None,
    ) -> None:
        self.databases = databases
        self.rows = rows
        self.owner = owner
        self.settings = settings or RelaySettings()
        self.counts = Counts()
        self.groups: tuple[str, ...] = ()
        """Broker groups for new rows: known and not resting, or all when all rest."""
        self._known: tuple[str, ...] = ()
        self._clock = clock
        self._resting: dict[str, _Rest] = {}
        self._turn = 0
        self._without_table: set[str] = set()
        self._slot_owner: Callable[[str, str], str | None] | None = None
        """Of the client, once there is one."""

    # The loops.

    async def run(self, mq: SendsOnce) -> None:
        """Sweep all databases until cancelled."""
        async with asyncio.TaskGroup() as group:
            for database in self.databases:
                group.create_task(self._sweep(mq, database), name="tern-outbox")

    async def _sweep(self, mq: SendsOnce, database: Database) -> None:
        """Round after round; a second line of rounds helps while there is a backlog.

        While one line sends, the other claims or deletes. To each the rows of the other are those
        of another relay, so nothing is sent twice and no order key is overtaken; each takes its own
        half of the order keys, or one would take mostly rows that wait for those of the other.
        """
        helper: asyncio.Task[None] | None = None
        try:
            while True:
                alone = helper is None or helper.done()
                taken, pause = await self._round(mq, database, None if alone else 0)
                if taken >= self.settings.rows_max and (helper is None or helper.done()):
                    helper = asyncio.create_task(self._help(mq, database), name="tern-outbox")
                await asyncio.sleep(pause)
        finally:
            if helper is not None:
                helper.cancel()
                await asyncio.wait([helper])

    async def _help(self, mq: SendsOnce, database: Database) -> None:
        while (await self._round(mq, database, 1))[0] >= self.settings.rows_max:
            pass

    async def _round(
        self, mq: SendsOnce, database: Database, half: int | None
    ) -> tuple[int, float]:
        """How many rows were taken, and how long to wait before the next look."""
        try:
            taken = await self.sweep_once(mq, database, half)
        except Exception as error:  # Drivers have words of their own for a lost server.
            if lacks_table(error):
                self._say_no_table(database)
                return 0, self.settings.poll
            log.warning("outbox sweep failed", database=database.name, reason=reason(error))
            return 0, ERROR_PAUSE_S
        return taken, 0.0 if taken else self.settings.poll

    def _say_no_table(self, database: Database) -> None:
        """Once: it may be about to be made."""
        if database.name not in self._without_table:
            self._without_table.add(database.name)
            log.warning(
                "there is no outbox table yet: outbox.create_tables() makes it, or a migration",
                database=database.name,
                table=self.rows.table.fullname,
            )

    async def sweep_once(self, mq: SendsOnce, database: Database, half: int | None = None) -> int:
        """Claim what is due, or one half of its order keys, and send it; return how many rows."""
        self.learn(mq)
        now_ms = self._clock.now_ms()
        resting = frozenset(self._resters(now_ms))
        claim = RowClaim(
            owner=self.owner,
            now_ms=now_ms,
            until_ms=now_ms + int(self.settings.lease * 1000),
            rows_max=self.settings.rows_max,
            resting=resting,
            undecided=not self._known or not resting.issuperset(self._known),
            group=self.choose("", None),
            ordered_too=len(self._known) == 1,
            half=half,
        )

        def take(connection: Connection) -> _RelayRound:
            rows = self.rows.claim(connection, claim)
            before = self.rows.before(connection, rows)
            if before and (more := self.rows.stragglers(connection, claim, before)):
                rows = sorted([*rows, *more], key=lambda row: row.id)
                before = self.rows.before(connection, rows)
            return self._sort(connection, rows, blockers(before), fresh=False)

        taken = await database.run(take)
        await self._settle(mq, database, taken)
        return len(taken.ready)

    async def send_fresh(self, mq: SendsOnce, database: Database, ids: Sequence[int]) -> None:
        """Send rows that this process has inserted, those of them that are committed."""
        self.learn(mq)
        now_ms = self._clock.now_ms()

        def read(connection: Connection) -> _RelayRound:
            found = self.rows.committed(connection, ids, owner=self.owner, now_ms=now_ms)
            before = self.rows.before(connection, found)
            return self._sort(connection, found, blockers(before), fresh=True)

        await self._settle(mq, database, await database.run(read))

    # Step 1.

    def learn(self, mq: SendsOnce) -> None:
        """Which broker groups new rows may be given to."""
        resting = self._resters(self._clock.now_ms())
        self._slot_owner = mq.slot_owner
        self._known = tuple(mq.broker_groups())
        taking = tuple(mq.taking_groups())
        self.groups = tuple(group for group in taking if group not in resting) or taking

    def _resters(self, now_ms: int) -> list[str]:
        return [group for group, rest in self._resting.items() if rest.until_ms > now_ms]

    def _sort(
        self,
        connection: Connection,
        rows: list[OutboxRow],
        blockers: dict[int, int],
        *,
        fresh: bool,
    ) -> _RelayRound:
        """Which rows may be sent now; a missing broker group is decided in this transaction.

        Fresh ones are tried even where their broker group rests: so its return is noticed at once.
        """
        done = _RelayRound()
        resters = self._resters(self._clock.now_ms())
        undecided: dict[str, list[int]] = {}
        for row in rows:
            first = blockers.get(row.order_hash) if row.order_hash is not None else None
            if first is not None and first < row.id:
                done.waiting.append(row)
                continue
            tried = fresh and row.broker_group is not None
            if row.broker_group is None:
                group = self.choose(row.topic, _order_key(row))
                if group is not None:
                    undecided.setdefault(group, []).append(row.id)
                    row = row._replace(broker_group=group)
            if row.broker_group in resters and not tried:
                done.resting.append(row)
                if row.order_hash is not None:
                    blockers[row.order_hash] = row.id
            else:
                done.ready.append(row)
        gone: set[int] = set()
        for group, ids in undecided.items():
            gone |= self.rows.assign(connection, ids, group)
        if gone:
            for some in (done.ready, done.waiting, done.resting):
                some[:] = [row for row in some if row.id not in gone]
        return done

    def choose(self, topic: str, order_key: str | None) -> str | None:
        """The broker group for a new row, None while none is known.

        An order key goes to the owner of its slot, resting or not, and waits while that moves.
        """
        if order_key is not None:
            return None if self._slot_owner is None else self._slot_owner(topic, order_key)
        self._turn += 1
        return choose_group(self.groups, self._turn)

    # Steps 2 and 3.

    async def _settle(self, mq: SendsOnce, database: Database, taken: _RelayRound) -> None:
        batches: dict[tuple[str | None, str], list[OutboxRow]] = {}
        for row in taken.ready:
            batches.setdefault((row.broker_group, row.topic), []).append(row)
        results = await asyncio.gather(
            *(self._send(mq, group, topic, some) for (group, topic), some in batches.items())
        )
        outcomes = [pair for result in results for pair in result]
        if outcomes or taken.waiting or taken.resting:
            now_ms = self._clock.now_ms()
            await database.run(lambda connection: self._write(connection, outcomes, taken, now_ms))

    async def _send(
        self, mq: SendsOnce, group: str | None, topic: str, rows: list[OutboxRow]
    ) -> list[tuple[OutboxRow, OnceOutcome]]:
        readable: list[tuple[OutboxRow, Outgoing]] = []
        done: list[tuple[OutboxRow, OnceOutcome]] = []
        for row in rows:
            try:
                readable.append((row, unpack(row.content, row.message_id)))
            except TernError as error:
                done.append((row, error))
        messages = [message for _, message in readable]
        if group is None:
            outcomes: list[OnceOutcome] = [Unavailable("no broker group is known yet")] * len(
                messages
            )
        else:
            known = group in mq.broker_groups()
            timeout = self.settings.timeout if known else min(UNKNOWN_S, self.settings.timeout)
            outcomes = await deliver(mq, topic, messages, broker_group=group, timeout=timeout)
            self._watch(group, outcomes)
        return done + [(row, out) for (row, _), out in zip(readable, outcomes, strict=True)]

    def _watch(self, group: str, outcomes: Sequence[OnceOutcome]) -> None:
        """Leave a failing broker group alone, longer each time.

        What was on its way already, or is tried meanwhile because it is fresh, says nothing new.
        """
        failed = [
            one
            for one in outcomes
            if isinstance(one, TernError) and away(one) and not isinstance(one, OverLimit | Moved)
        ]
        if not failed:
            self._resting.pop(group, None)
            return
        rest = self._resting.setdefault(group, _Rest())
        now_ms = self._clock.now_ms()
        if now_ms < rest.until_ms:
            return
        rest.failures += 1
        rest.until_ms = now_ms + rest_ms(rest.failures)
        log.warning("outbox waits for a broker group", group=group, reason=failed[0].message)

    def _rest_until(self, group: str | None, now_ms: int) -> int:
        if group is None:
            return now_ms + rest_ms(1)  # Nobody to send to is known yet.
        rest = self._resting.get(group)
        return rest.until_ms if rest is not None else 0

    def _write(
        self,
        connection: Connection,
        outcomes: Sequence[tuple[OutboxRow, OnceOutcome]],
        taken: _RelayRound,
        now_ms: int,
    ) -> None:
        """What the table must say now."""
        stored = [(row, out) for row, out in outcomes if out and not isinstance(out, TernError)]
        self.rows.delete(connection, [row for row, _ in stored])
        self.counts.sent += len(stored)
        self.counts.duplicates += sum(out.duplicate for _, out in stored)
        later = [row.id for row in taken.waiting]
        changed: dict[tuple[int, int, str | None], list[int]] = {}
        moved: list[int] = []
        for row, out in outcomes:
            if out is None:
                later.append(row.id)
            elif isinstance(out, Moved):
                moved.append(row.id)
            elif isinstance(out, TernError):
                verdict = judge(
                    out,
                    attempts=row.attempts,
                    attempts_max=self.settings.attempts_max,
                    now_ms=now_ms,
                )
                ready_ms = max(verdict.ready_ms, self._rest_until(row.broker_group, now_ms))
                changed.setdefault((ready_ms, verdict.attempts, verdict.error), []).append(row.id)
                self.counts.failed += 1
                if ready_ms == PARKED_MS:
                    self.counts.parked += 1
                    log.error("outbox row parked", row=row.id, topic=row.topic, reason=out.message)
        self.rows.put_back(connection, later, owner=self.owner, now_ms=now_ms)
        # Certainly not stored where they were meant to go: decided anew.
        anew = {"ready_ms": now_ms + MOVED_MS, "broker_group": None}
        self.rows.release(connection, moved, owner=self.owner, values=anew)
        for row in taken.resting:
            ready_ms = max(now_ms, self._rest_until(row.broker_group, now_ms))
            changed.setdefault((ready_ms, row.attempts, row.error), []).append(row.id)
        for (ready_ms, attempts, error), ids in changed.items():
            values = {"ready_ms": ready_ms, "attempts": attempts, "error": error}
            self.rows.release(connection, ids, owner=self.owner, values=values)
