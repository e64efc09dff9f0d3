"""A client that keeps what it is sent, knows ids, and fails as a test wants."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from ternmq.batch.encoder import Outgoing
from ternmq.client.producing.send_once import OnceReceipt
from ternmq.core.errors import TernError
from ternmq.core.ids import explicit_id_text
from ternmq.core.slots import slot_of

Refusal = Callable[[str, Outgoing], TernError | None]


class FakeMq:
    """`send_once` of one broker, in memory, on a loop in a thread of its own."""

    def __init__(self, *groups: str) -> None:
        self.groups = list(groups or ("main",))
        self.stored: list[tuple[str, str, Outgoing]] = []
        """(group, topic, row) in the order they were stored, each id once per group."""
        self.calls: list[tuple[str, str, int]] = []
        self.refuse: Refusal = lambda group, row: None
        self._ids: set[tuple[str, bytes]] = set()
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def submit(self, job: Any) -> "Future[Any]":
        return asyncio.run_coroutine_threadsafe(job(self), self.loop)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()

    def broker_groups(self) -> list[str]:
        return self.groups

    def taking_groups(self) -> list[str]:
        return self.groups

    def slot_owner(self, topic: str, order_key: str) -> str | None:
        known = sorted(self.groups)
        return known[slot_of(topic, order_key) % len(known)] if known else None

    async def send_once(
        self, topic: str, rows: Sequence[Outgoing], broker_group: str | None = None
    ) -> list[OnceReceipt]:
        assert broker_group is not None
        self.calls.append((broker_group, topic, len(rows)))
        for row in rows:
            error = self.refuse(broker_group, row)
            if error is not None:
                raise error
        receipts: list[OnceReceipt] = []
        for row in rows:
            assert row.explicit_id is not None
            known = (broker_group, row.explicit_id) in self._ids
            if not known:
                self._ids.add((broker_group, row.explicit_id))
                self.stored.append((broker_group, topic, row))
            receipts.append(
                OnceReceipt(
                    id=explicit_id_text(row.explicit_id),
                    topic=topic,
                    broker_group=broker_group,
                    sequence=0,
                    stored_at_ms=0,
                    duplicate=known,
                )
            )
        return receipts

    @property
    def bodies(self) -> list[bytes]:
        return [row.body for _, _, row in self.stored]
