"""Documents in a SQL registry: rows that are replaced only at a known version.

The row `documents` of the table `registry` holds the last version. Raising it locks it until the
transaction ends, so changes of documents happen one after the other, whichever meta server asks.
They are no news: a lease that is renewed every few seconds wakes nobody.
"""

from typing import Any

import sqlalchemy as sa

from ternmq.meta.registries.registry import check_known, check_room
from ternmq.meta.registries.sql_tables import DOCUMENTS, REGISTRY
from ternmq.wire.registry.documents import (
    Document,
    DocumentDelete,
    DocumentNamed,
    DocumentPut,
    DocumentQuery,
)

KEPT = "documents"
"""The row of `registry`."""
SWEEP_EVERY = 100
"""Changes between two clean-ups of what expired."""

_FACTS = (
    DOCUMENTS.c.kind,
    DOCUMENTS.c.name,
    DOCUMENTS.c.version,
    DOCUMENTS.c.size,
    DOCUMENTS.c.changed_at_ms,
    DOCUMENTS.c.expires_at_ms,
    DOCUMENTS.c.request,
)


def find_document(connection: sa.Connection, wanted: DocumentNamed, now_ms: int) -> Document | None:
    row = _row(connection, wanted.kind, wanted.name, now_ms)
    return None if row is None else _document(row, row.body)


def list_documents(connection: sa.Connection, wanted: DocumentQuery, now_ms: int) -> list[Document]:
    """One more than wanted, if there is one; by kind and name."""
    columns = (*_FACTS, DOCUMENTS.c.body) if wanted.bodies else _FACTS
    chosen = sa.select(*columns).where(_live(now_ms))
    if wanted.kind:
        chosen = chosen.where(DOCUMENTS.c.kind == wanted.kind)
    if wanted.prefix:
        last = wanted.prefix + "\x7f"
        chosen = chosen.where(sa.and_(DOCUMENTS.c.name >= wanted.prefix, DOCUMENTS.c.name < last))
    if wanted.after:
        kind, _, name = wanted.after.partition("/")
        beyond = sa.and_(DOCUMENTS.c.kind == kind, DOCUMENTS.c.name > name)
        chosen = chosen.where(sa.or_(DOCUMENTS.c.kind > kind, beyond))
    ordered = chosen.order_by(DOCUMENTS.c.kind, DOCUMENTS.c.name).limit(wanted.limit + 1)
    rows = connection.execute(ordered)
    return [_document(row, row.body if wanted.bodies else b"") for row in rows]


def put_document(connection: sa.Connection, wanted: DocumentPut, now_ms: int) -> Document:
    """Raises `VersionMismatch`, `OverLimit`."""
    version = _next_version(connection)
    held = _row(connection, wanted.kind, wanted.name, now_ms)
    if held is not None and wanted.request and held.request == wanted.request:
        return _document(held, held.body)  # Once more, after a lost answer.
    check_known(wanted, 0 if held is None else held.version)
    expired = sa.not_(_live(now_ms))
    if version % SWEEP_EVERY == 0:
        connection.execute(DOCUMENTS.delete().where(expired))
    else:
        here = sa.and_(_this(wanted.kind, wanted.name), expired)
        connection.execute(DOCUMENTS.delete().where(here))
    if held is None or len(wanted.body) > held.size:
        sums = sa.select(sa.func.count(), sa.func.coalesce(sa.func.sum(DOCUMENTS.c.size), 0))
        count, size = connection.execute(sums.where(_live(now_ms))).one()
        check_room(wanted, count, int(size), None if held is None else held.size)
    values: dict[str, Any] = {
        "version": version,
        "body": wanted.body,
        "size": len(wanted.body),
        "changed_at_ms": now_ms,
        "expires_at_ms": now_ms + wanted.expires_in_ms if wanted.expires_in_ms else 0,
        "request": wanted.request,
    }
    if held is None:
        key = {"kind": wanted.kind, "name": wanted.name}
        connection.execute(DOCUMENTS.insert().values({**key, **values}))
    else:
        this = _this(wanted.kind, wanted.name)
        connection.execute(DOCUMENTS.update().where(this).values(values))
    made = _row(connection, wanted.kind, wanted.name, now_ms)
    assert made is not None
    return _document(made, made.body)


def delete_document(
    connection: sa.Connection, wanted: DocumentDelete, now_ms: int
) -> Document | None:
    """The document as it was; None if there is none. Raises `VersionMismatch`."""
    _next_version(connection)
    held = _row(connection, wanted.kind, wanted.name, now_ms)
    if held is None:
        return None
    check_known(wanted, held.version)
    connection.execute(DOCUMENTS.delete().where(_this(wanted.kind, wanted.name)))
    return _document(held, held.body)


def _next_version(connection: sa.Connection) -> int:
    """Locks the row, in every database, so it comes first."""
    this, value = REGISTRY.c.key == KEPT, REGISTRY.c.value
    after = sa.cast(sa.cast(value, sa.BigInteger) + 1, sa.String(200))
    connection.execute(REGISTRY.update().where(this).values(value=after))
    return int(connection.execute(sa.select(value).where(this)).scalar_one())


def _row(connection: sa.Connection, kind: str, name: str, now_ms: int) -> Any:
    chosen = sa.and_(_this(kind, name), _live(now_ms))
    return connection.execute(sa.select(*_FACTS, DOCUMENTS.c.body).where(chosen)).first()


def _this(kind: str, name: str) -> sa.ColumnElement[bool]:
    return sa.and_(DOCUMENTS.c.kind == kind, DOCUMENTS.c.name == name)


def _live(now_ms: int) -> sa.ColumnElement[bool]:
    return sa.or_(DOCUMENTS.c.expires_at_ms == 0, DOCUMENTS.c.expires_at_ms > now_ms)


def _document(row: Any, body: bytes) -> Document:
    return Document(
        kind=row.kind,
        name=row.name,
        version=row.version,
        body=bytes(body),
        changed_at_ms=row.changed_at_ms,
        expires_at_ms=row.expires_at_ms,
        size=row.size,
    )
