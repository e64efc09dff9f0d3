"""`mq.search`: goes through the messages of a topic and keeps those that match; bounded.

There is an index of ids and keys (`find`); everything else is found by looking. So a search says
how much it may look at, tells how far it is, and in the end whether that was all of it; if not,
`following` is where the next search goes on. Conditions are those of subscriptions (tag, SQL92 over
properties), and a text anywhere in body, key, tag or properties. Reads like any reader: nothing is
leased, the broker keeps nothing.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TypedDict

from ternmq.batch.properties import PropertyValue
from ternmq.batch.readability import read_or
from ternmq.batch.view import BatchView
from ternmq.client.admin.admin import Admin
from ternmq.client.config import ClientConfig
from ternmq.client.model.arguments import check_typed_options
from ternmq.client.model.message import Message, MessageBatch
from ternmq.client.model.start import StartLike
from ternmq.client.reading.reader import Positions, Reader, ReadOptions
from ternmq.client.transport.cluster import Cluster
from ternmq.client.transport.fan_out import Missing
from ternmq.core.errors import BadRequest

ROWS_MAX = 1_000_000
LIMIT = 100
LIMIT_MAX = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchProgress:
    """How far a search is."""

    looked_at: int
    found: int
    stored_at: datetime
    """Of the message that was looked at last."""


OnSearch = Callable[[SearchProgress], None]


class SearchOptions(TypedDict, total=False):
    """The keywords of `search`, for type checkers."""

    where: str
    text: str
    tag: str
    start: StartLike | Positions
    end: int | datetime | Positions | None
    limit: int
    rows_max: int
    broker_group: str
    missing: Missing | None
    on_progress: OnSearch


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """What was found, and how much was looked at for it."""

    messages: list[Message]
    looked_at: int
    complete: bool
    """Everything between start and end was looked at."""
    following: Positions
    """Where to go on: what the next search takes as `start`. Empty where it is complete."""


class SearchCall:
    """One search of one topic."""

    def __init__(
        self, cluster: Cluster, config: ClientConfig, topic: str, options: SearchOptions
    ) -> None:
        from ternmq.batch.selector.filter import parse_filter  # Not for who never searches.

        check_typed_options("search", options, SearchOptions, but=("end",))
        self._filter = parse_filter(options.get("tag", ""), options.get("where", ""))
        self._text = options.get("text", "").encode().lower()
        if self._filter is None and not self._text:
            raise BadRequest("search() needs where=, text= or tag=; read() gives everything")
        self._limit = _bounded("limit", options.get("limit", LIMIT), LIMIT_MAX)
        self._rows_max = _bounded("rows_max", options.get("rows_max", ROWS_MAX), 2**62)
        self._on_progress: OnSearch | None = options.get("on_progress")
        self._topic = topic
        self._start = options.get("start", "earliest")
        self._admin = Admin(cluster, options.get("missing"))
        read: ReadOptions = {"start": self._start, "end": options.get("end")}
        read["broker_group"] = options.get("broker_group", "")
        read["missing"] = options.get("missing")
        self._reader = Reader(cluster, topic, read, config)
        self._positions: dict[str, int] = {}
        self._found: list[Message] = []
        self._looked_at = 0

    async def run(self) -> SearchResult:
        async for batch in self._reader.batches():
            if not self._look(batch):
                return await self._result(complete=False)
            self._tell(batch[-1].stored_at)
        return await self._result(complete=True)

    def _tell(self, stored_at: datetime) -> None:
        if self._on_progress is not None:
            found = len(self._found)
            so_far = SearchProgress(looked_at=self._looked_at, found=found, stored_at=stored_at)
            self._on_progress(so_far)

    def _look(self, batch: MessageBatch) -> bool:
        """Look at these; False: there is no room for more."""
        for delivery, first, end in batch.parts:
            view = delivery.batch
            if self._looked_at >= self._rows_max:
                return False
            matching = self._filter.rows(view) if self._filter is not None else [(0, view.count)]
            for a, b in matching:
                for row in range(max(a, first), min(b, end)):
                    if not self._has_text(view, row):
                        continue
                    if len(self._found) >= self._limit:
                        self._passed(delivery.broker_group, view.base_sequence + row)
                        return False
                    self._found.append(Message(delivery, row))
            self._looked_at += end - first
            self._passed(delivery.broker_group, view.base_sequence + end)
        return True

    def _passed(self, broker_group: str, sequence: int) -> None:
        self._positions[broker_group] = sequence

    def _has_text(self, view: BatchView, row: int) -> bool:
        wanted = self._text
        if not wanted or wanted in read_or(view.body, row, b"").lower():
            return True
        nothing: dict[str, PropertyValue] = {}
        properties = read_or(view.properties, row, nothing)
        texts = [read_or(view.key, row, None), read_or(view.tag, row, None)]
        texts += [f"{name}={value!r}" for name, value in properties.items()]
        return any(wanted in text.encode().lower() for text in texts if text)

    async def _result(self, *, complete: bool) -> SearchResult:
        following: dict[str, int] = {}
        if not complete:
            following = await self._begun() | self._positions
        return SearchResult(
            messages=self._found,
            looked_at=self._looked_at,
            complete=complete,
            following=following,
        )

    async def _begun(self) -> dict[str, int]:
        """Where broker groups begin of which nothing was looked at."""
        if isinstance(self._start, Mapping):
            return dict(self._start)
        sought = await self._admin.seek_all(self._topic, self._start)
        return {name: each.sequence for name, each in sought.items()}


def _bounded(name: str, value: int, most: int) -> int:
    if not 0 < value <= most:
        raise BadRequest(f"{name} is {value}; it can be 1 to {most}")
    return value
