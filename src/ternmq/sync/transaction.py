"""Blocking transactions: the blocks and calls of `ternmq.client`, each waited for."""

from collections.abc import Sequence
from datetime import timedelta
from types import TracebackType
from typing import Any, Unpack

from ternmq.batch.encoder import Columns
from ternmq.client.model.half_receipt import HalfReceipt, HalfReceipts
from ternmq.client.model.outgoing import SendOptions
from ternmq.client.transactions.detached import Detached as AsyncDetached
from ternmq.client.transactions.detached import StagedRows
from ternmq.client.transactions.transaction import Transaction as AsyncTransaction
from ternmq.sync.loop_thread import run


class Transaction:
    """Messages that become visible together; use it in `with`. See `ternmq.Transaction`."""

    def __init__(self, transaction: AsyncTransaction) -> None:
        self._transaction = transaction

    @property
    def id(self) -> str:
        return self._transaction.id

    @property
    def state(self) -> str:
        return self._transaction.state

    @property
    def receipts(self) -> HalfReceipts:
        return self._transaction.receipts

    def __enter__(self) -> "Transaction":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        return run(self._transaction.__aexit__(kind, error, trace))

    def send(
        self,
        topic: str,
        body: Any,
        *,
        immunity: float | timedelta | None = None,
        **options: Unpack[SendOptions],
    ) -> HalfReceipt:
        return run(self._transaction.send(topic, body, immunity=immunity, **options))

    def send_many(
        self,
        topic: str,
        bodies: Sequence[Any],
        *,
        immunity: float | timedelta | None = None,
        **options: Unpack[SendOptions],
    ) -> HalfReceipts:
        return run(self._transaction.send_many(topic, bodies, immunity=immunity, **options))

    def commit(self) -> None:
        run(self._transaction.commit())

    def rollback(self) -> None:
        run(self._transaction.rollback())


class Detached:
    """Rows that are committed by name; see `ternmq.Detached`."""

    def __init__(self, detached: AsyncDetached) -> None:
        self._detached = detached

    @property
    def name(self) -> str:
        return self._detached.name

    @property
    def attempt(self) -> int:
        return self._detached.attempt

    @property
    def rows(self) -> int:
        return self._detached.rows

    @property
    def broker_group(self) -> str:
        return self._detached.broker_group

    def send(self, topic: str, body: Any, **options: Unpack[SendOptions]) -> HalfReceipt:
        return run(self._detached.send(topic, body, **options))

    def send_many(
        self, topic: str, bodies: Sequence[Any], **options: Unpack[SendOptions]
    ) -> HalfReceipts:
        return run(self._detached.send_many(topic, bodies, **options))

    def send_columns(self, topic: str, columns: Columns, *, later: str = "") -> StagedRows:
        return run(self._detached.send_columns(topic, columns, later=later))
