"""Blocking `mq.admin.delays`: the calls of `ternmq.client.admin.delays`, each waited for."""

from datetime import datetime

from ternmq.client.admin.delays import CancelResult
from ternmq.client.admin.delays import Delays as AsyncDelays
from ternmq.client.model.receipt import Receipt
from ternmq.sync.loop_thread import run
from ternmq.wire.messages.delays import DelayAction, DelayCounts, DelayLedgerLine, DelayRow
from ternmq.wire.messages.stats import Status


class Delays:
    """Messages that are not due yet; see `ternmq.client.admin.delays.Delays`."""

    def __init__(self, delays: AsyncDelays) -> None:
        self._delays = delays

    def rows(
        self,
        *,
        topic: str = "",
        id: str | bytes = b"",
        key: str = "",
        start: datetime | None = None,
        end: datetime | None = None,
        limit: int = 100,
    ) -> list[DelayRow]:
        return run(
            self._delays.rows(topic=topic, id=id, key=key, start=start, end=end, limit=limit)
        )

    def change(
        self,
        action: DelayAction,
        message: Receipt | DelayRow | str | bytes,
        *,
        at: object = None,
        delay: object = None,
    ) -> CancelResult:
        return run(self._delays.change(action, message, at=at, delay=delay))

    def counts(
        self, topic: str = "", start: datetime | None = None, end: datetime | None = None
    ) -> DelayCounts:
        return run(self._delays.counts(topic, start, end))

    def ledger(self, topic: str = "") -> list[DelayLedgerLine]:
        return run(self._delays.ledger(topic))

    def forget(self, name: str) -> None:
        run(self._delays.forget(name))

    def status(self) -> list[Status]:
        return run(self._delays.status())
