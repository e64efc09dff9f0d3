"""SQL on outbox rows: every statement runs on one connection inside the caller's transaction.

Claiming is the only statement that differs by database: PostgreSQL and SQLite claim and read in one
`UPDATE … RETURNING`, MariaDB locks with `SKIP LOCKED` first. In SQLite the claim is the first
statement of its transaction, so it waits for the write lock instead of failing in the middle. A
row is left out while an earlier one of its order key is with somebody else, backs off or is parked;
`before` then finds what another relay claimed in the same moment. Lists of a thousand values go
out as one array (PostgreSQL) or written into the statement: a parameter each would cost more than
the statement.
Rows are taken by the time from which they are due, so a row that failed may come after later ones
of its order key: `stragglers` takes such along, so that
a round always has a first row to send.
Deleting names message ids beside row numbers, so a number that a database gives out twice after a
restart never takes somebody else's row along. Synchronous; knows no network.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import (
    ARRAY,
    Column,
    ColumnElement,
    Connection,
    Row,
    Select,
    String,
    Table,
    and_,
    any_,
    bindparam,
    case,
    exists,
    func,
    literal,
    or_,
    select,
    update,
)
from sqlalchemy import delete as sql_delete

from ternmq.client.admin.delays import CancelResult
from ternmq.outbox.table import PARKED_MS

CLAUSE_MAX = 2_000  # Values in one statement; SQLite takes a million characters.
COLUMNS = (
    "id",
    "message_id",
    "topic",
    "order_hash",
    "broker_group",
    "content",
    "created_ms",
    "ready_ms",
    "claimed_by",
    "attempts",
    "error",
)


class OutboxRow(NamedTuple):
    """One row as it was read."""

    id: int
    message_id: str
    topic: str
    order_hash: int | None
    broker_group: str | None
    content: bytes
    created_ms: int
    ready_ms: int
    claimed_by: str | None
    attempts: int
    error: str | None

    @property
    def parked(self) -> bool:
        return self.ready_ms == PARKED_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class RowClaim:
    """Which relay takes rows, how many, until when."""

    owner: str
    now_ms: int
    until_ms: int
    rows_max: int
    resting: frozenset[str] = frozenset()
    """Broker groups that are left alone for now."""
    undecided: bool = True
    """Also rows that have no broker group yet; not while all rest."""
    group: str | None = None
    """For rows that have none yet."""
    ordered_too: bool = False
    """Also for those with an order key; else they are decided one by one."""
    half: int | None = None
    """Only order keys whose hash is even (0) or odd (1): two lines of rounds do not meet."""


def _rows(found: "Iterable[Row[Any]]") -> list[OutboxRow]:
    return [OutboxRow._make(row) for row in found]


def _among(connection: Connection, column: Column[Any], values: Sequence[Any]) -> Any:
    """`column IN values`, cheap for long lists.

    PostgreSQL hashes a list of texts only if it stands in the statement; an array would be searched
    from its start for every row.
    """
    if connection.dialect.name == "postgresql" and not isinstance(column.type, String):
        return column == any_(bindparam(None, list(values), type_=ARRAY(column.type)))
    listed = bindparam(None, list(values), type_=column.type, expanding=True, literal_execute=True)
    return column.in_(listed)


RowsBefore = list[tuple[int, int]]
"""Order hash and number of rows that stand before others, in order."""


def blockers(before: RowsBefore) -> dict[int, int]:
    """By order hash: number of the first of these rows."""
    found: dict[int, int] = {}
    for hashed, id in before:
        found.setdefault(hashed, id)
    return found


def _chunks(values: Sequence[Any]) -> Iterable[Sequence[Any]]:
    return (values[at : at + CLAUSE_MAX] for at in range(0, len(values), CLAUSE_MAX))


def _given(row: OutboxRow, claim: RowClaim) -> OutboxRow:
    """The row as the statement left it, where that cannot return what it made."""
    if row.broker_group is not None or not (claim.ordered_too or row.order_hash is None):
        return row
    return row._replace(broker_group=claim.group)


class OutboxRows:
    """The statements for one table."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self._columns = [table.c[name] for name in COLUMNS]

    # Taking.

    def claim(self, connection: Connection, claim: RowClaim) -> list[OutboxRow]:
        """Take rows that are due, oldest first; nobody else takes them before `until_ms`."""
        table = self.table
        before = table.alias()
        overtaken = (
            before.c.order_hash == table.c.order_hash,
            before.c.ready_ms > claim.now_ms,
            before.c.id < table.c.id,
        )
        due = [
            table.c.ready_ms <= claim.now_ms,
            or_(table.c.order_hash.is_(None), ~exists().where(*overtaken)),
        ]
        if claim.resting:
            others = table.c.broker_group.not_in(sorted(claim.resting))
            due.append(or_(table.c.broker_group.is_(None), others) if claim.undecided else others)
        if claim.half is not None:
            mine = table.c.order_hash.bitwise_and(1) == claim.half
            due.append(or_(table.c.order_hash.is_(None), mine))
        return self._take(connection, claim, due)

    def _take(
        self, connection: Connection, claim: RowClaim, due: Sequence[ColumnElement[bool]]
    ) -> list[OutboxRow]:
        """Mark the first of the rows that are `due`; passes over those that another relay locks."""
        table = self.table
        marks: dict[str, Any] = {"ready_ms": claim.until_ms, "claimed_by": claim.owner}
        if claim.group is not None:
            decided = table.c.broker_group
            given = and_(decided.is_(None), *self._unordered(claim))
            marks["broker_group"] = case((given, literal(claim.group)), else_=decided)
        order = (table.c.ready_ms, table.c.id)
        if connection.dialect.name in ("mysql", "mariadb"):
            locked = select(*self._columns).where(*due).order_by(*order).limit(claim.rows_max)
            rows = _rows(connection.execute(locked.with_for_update(skip_locked=True)))
            for ids in _chunks([row.id for row in rows]):
                chosen = _among(connection, table.c.id, ids)
                connection.execute(update(table).where(chosen).values(marks))
            rows = [_given(row, claim) for row in rows]
        else:
            oldest = select(table.c.id).where(*due).order_by(*order).limit(claim.rows_max)
            if connection.dialect.name == "postgresql":
                oldest = oldest.with_for_update(skip_locked=True)
            taken = update(table).where(table.c.id.in_(oldest.scalar_subquery())).values(marks)
            rows = _rows(connection.execute(taken.returning(*self._columns)))
        return sorted(rows, key=lambda row: row.id)

    def _unordered(self, claim: RowClaim) -> list[ColumnElement[bool]]:
        return [] if claim.ordered_too else [self.table.c.order_hash.is_(None)]

    def committed(
        self, connection: Connection, ids: Sequence[int], *, owner: str, now_ms: int
    ) -> list[OutboxRow]:
        """The rows that are there and still claimed by `owner`, in order."""
        table = self.table
        mine = (table.c.claimed_by == owner, table.c.ready_ms > now_ms)
        found: list[OutboxRow] = []
        for some in _chunks(sorted(ids)):
            query = select(*self._columns).where(_among(connection, table.c.id, some), *mine)
            found += _rows(connection.execute(query.order_by(table.c.id)))
        return found

    def stragglers(
        self, connection: Connection, claim: RowClaim, before: RowsBefore
    ) -> list[OutboxRow]:
        """Take those, too, that must go before some of the claimed rows and are due."""
        table, taken = self.table, list[OutboxRow]()
        for some in _chunks([id for _, id in before][: claim.rows_max]):
            due = (_among(connection, table.c.id, some), table.c.ready_ms <= claim.now_ms)
            taken += self._take(connection, claim, due)
        return taken

    def before(self, connection: Connection, rows: Sequence[OutboxRow]) -> RowsBefore:
        """Rows of the same order keys before the last of `rows` that are not among them."""
        keyed = [row for row in rows if row.order_hash is not None]
        if not keyed:
            return []
        table, mine = self.table, {row.id for row in keyed}
        last = max(mine)
        hashes = sorted({row.order_hash for row in keyed})  # type: ignore[type-var]
        found: list[tuple[int, int]] = []
        for some in _chunks(hashes):
            query = (
                select(table.c.order_hash, table.c.id)
                .where(_among(connection, table.c.order_hash, some), table.c.id < last)
                .order_by(table.c.id)
            )
            found += [(h, id) for h, id in connection.execute(query) if id not in mine]
        return found

    # Settling.

    def delete(self, connection: Connection, rows: Sequence[OutboxRow]) -> int:
        """Rows are stored: delete them, whichever relay holds them now."""
        table, gone = self.table, 0
        for some in _chunks(rows):
            gone += connection.execute(
                sql_delete(table).where(
                    _among(connection, table.c.id, [row.id for row in some]),
                    _among(connection, table.c.message_id, [row.message_id for row in some]),
                )
            ).rowcount
        return gone

    def assign(self, connection: Connection, ids: Sequence[int], broker_group: str) -> set[int]:
        """Decide where rows go; once decided it stays. Returns those that are gone: cancelled in
        this moment, so they must not be sent."""
        table, gone = self.table, set[int]()
        for some in _chunks(ids):
            mine = _among(connection, table.c.id, some)
            decide = update(table).where(mine, table.c.broker_group.is_(None))
            done = connection.execute(decide.values(broker_group=broker_group)).rowcount
            if done != len(some):
                there = connection.execute(select(table.c.id).where(mine).with_for_update())
                gone |= set(some) - set(there.scalars())
        return gone

    def release(
        self, connection: Connection, ids: Sequence[int], *, owner: str, values: Mapping[str, Any]
    ) -> None:
        """Give claimed rows back with new `ready_ms` and so on, unless another relay has them."""
        table = self.table
        for some in _chunks(ids):
            mine = (_among(connection, table.c.id, some), table.c.claimed_by == owner)
            connection.execute(update(table).where(*mine).values(claimed_by=None, **values))

    def put_back(
        self, connection: Connection, ids: Sequence[int], *, owner: str, now_ms: int
    ) -> None:
        """Give rows back that wait behind another: as due as when they were made, before all later
        ones. A claim leaves them out for as long as that other one is not due."""
        made = self.table.c.created_ms
        ready = case((made < now_ms, made), else_=now_ms)  # Not later where a clock was set back.
        self.release(connection, ids, owner=owner, values={"ready_ms": ready})

    # Taking back.

    def cancel(self, connection: Connection, message_id: str, own: Sequence[int]) -> CancelResult:
        """Delete a row that certainly was not sent: no broker group was ever chosen for it, or it
        is parked, or it is among `own`, which this very transaction has inserted.

        UNKNOWN: there is no such row (any more). By row number, so that nothing else is locked.
        """
        table = self.table
        named = table.c.message_id == message_id
        waiting = table.c.broker_group.is_(None)
        row = connection.execute(select(table.c.id).where(named, waiting)).scalar()
        if row is None:
            row = connection.execute(select(table.c.id).where(named)).scalar()
        if row is None:
            return CancelResult.UNKNOWN
        this = (table.c.id == row, named)
        unsent = or_(waiting, table.c.ready_ms == PARKED_MS, table.c.id.in_(own))
        if connection.execute(sql_delete(table).where(*this, unsent)).rowcount:
            return CancelResult.CANCELLED
        there = select(table.c.id).where(*this).with_for_update()  # As it is now, not as it was.
        gone = connection.execute(there).scalar() is None
        return CancelResult.UNKNOWN if gone else CancelResult.ALREADY_DISPATCHED

    # Looking and repairing, for people.

    def listed(
        self, connection: Connection, *, chosen: Sequence[ColumnElement[bool]], count: int
    ) -> list[OutboxRow]:
        query: Select[Any] = select(*self._columns).where(*chosen).order_by(self.table.c.id)
        return _rows(connection.execute(query.limit(count)))

    def count(self, connection: Connection, *chosen: ColumnElement[bool]) -> int:
        query = select(func.count()).select_from(self.table).where(*chosen)
        return int(connection.execute(query).scalar_one())

    def retry(self, connection: Connection, chosen: ColumnElement[bool], *, now_ms: int) -> int:
        """Due now, counted from the start again; not those that are being sent."""
        values = {"ready_ms": now_ms, "claimed_by": None, "attempts": 0}
        idle = (chosen, self.table.c.claimed_by.is_(None))
        return connection.execute(update(self.table).where(*idle).values(values)).rowcount

    def move(
        self, connection: Connection, chosen: ColumnElement[bool], to: str, *, now_ms: int
    ) -> int:
        """Another broker group; for rows that nobody is sending."""
        idle = or_(self.table.c.claimed_by.is_(None), self.table.c.ready_ms <= now_ms)
        values = {"broker_group": to, "ready_ms": now_ms, "claimed_by": None, "attempts": 0}
        return connection.execute(update(self.table).where(chosen, idle).values(values)).rowcount

    def remove(self, connection: Connection, chosen: ColumnElement[bool], *, now_ms: int) -> int:
        """Without sending; for rows that nobody is sending."""
        idle = or_(self.table.c.claimed_by.is_(None), self.table.c.ready_ms <= now_ms)
        return connection.execute(sql_delete(self.table).where(chosen, idle)).rowcount
