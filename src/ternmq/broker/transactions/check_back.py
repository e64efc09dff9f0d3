"""Check-back: asks producers about transactions left open, and ends those without an answer.

Any live client of the same application that said it can answer (CHECKER) is asked, in turn: first
some seconds after the last half batch, then at intervals, at most so many times. Without one the
question waits and does not count. A transaction that stays unknown is dropped: written down,
logged, counted, and kept for a person to decide for `parked_ms`; then it is rolled back. Detached
transactions are not asked about; they end by themselves when they expire.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass

from ternmq.batch.readability import properties_to_send, read_or
from ternmq.batch.view import BatchView
from ternmq.broker.config import BrokerConfig
from ternmq.broker.limits.slices import Slices
from ternmq.broker.log.fetch import Fetcher
from ternmq.broker.transactions.half_endings import HalfEndings
from ternmq.core.errors import BadRequest, TernError
from ternmq.core.lifecycle import Pulse
from ternmq.core.log import get_logger
from ternmq.core.units import DAY_MS
from ternmq.discovery.directory import Directory
from ternmq.rpc.peer import Peer
from ternmq.storage.consume.entry import ConsumeEntry
from ternmq.storage.messages.transactions import OpenTransaction, TransactionTable
from ternmq.wire.messages.groups import HalfLine
from ternmq.wire.messages.hello import Empty
from ternmq.wire.messages.transactions import HalfCheck, HalfFind, HalfOpen, HalfOpens
from ternmq.wire.numbers import Command
from ternmq.wire.record import pack

log = get_logger()

TICK_S = 0.1
AT_ONCE = 100  # Transactions looked at in one tick, so that many that are due share the loop.
NOBODY_MS = 500  # How soon it is looked again for somebody to ask.
LISTED_MAX = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class HalfSettings:
    """What a transaction does not say itself."""

    first_check_ms: int = 6_000
    check_interval_ms: int = 30_000
    checks_max: int = 15
    parked_ms: int = 3 * DAY_MS
    expires_ms: int = DAY_MS


def half_settings(config: BrokerConfig) -> HalfSettings:
    """As an operator set them."""
    return HalfSettings(
        first_check_ms=config.half_first_check_ms,
        check_interval_ms=config.half_check_interval_ms,
        checks_max=config.half_checks_max,
        parked_ms=config.half_parked_ms,
        expires_ms=config.half_expires_ms,
    )


def next_at_ms(one: OpenTransaction, settings: HalfSettings) -> int:
    """When something has to be done about a transaction."""
    info = one.info
    if info.name:
        return one.last_at_ms + (info.expires_ms or settings.expires_ms)
    if one.dropped_at_ms:
        return one.dropped_at_ms + settings.parked_ms
    if not one.checks:
        return one.last_at_ms + (one.check_after_ms or settings.first_check_ms)
    return one.checked_at_ms + (info.check_interval_ms or settings.check_interval_ms)


class CheckBack:
    """The timer of transactions, and who can be asked."""

    def __init__(
        self,
        *,
        half_endings: HalfEndings,
        halves: TransactionTable,
        fetcher: Fetcher,
        directory: Directory,
        settings: HalfSettings,
        now_ms: Callable[[], int],
    ) -> None:
        self._half_endings = half_endings
        self._halves = halves
        self._fetcher = fetcher
        self._directory = directory
        self._settings = settings
        self._now_ms = now_ms
        self._slices = Slices()
        self._peers: dict[str, list[Peer]] = {}
        self._due: list[tuple[int, bytes]] = []
        self._halves.fresh.extend(self._halves.open)

    # Who can be asked

    def here(self, peer: Peer, request: Empty) -> Empty:
        """The CHECKER command: this client answers for its application."""
        app = peer.hello.app if peer.hello else ""
        peers = self._peers.setdefault(app, [])
        if peer not in peers:
            peers.append(peer)
        return Empty()

    def lost(self, peer: Peer) -> None:
        app = peer.hello.app if peer.hello else ""
        peers = self._peers.get(app, [])
        if peer in peers:
            peers.remove(peer)
            if not peers:
                del self._peers[app]

    def _somebody(self, app: str) -> Peer | None:
        peers = self._peers.get(app)
        if not peers:
            return None
        peers.append(peers.pop(0))  # In turn: one that is stuck does not get every question.
        return peers[-1]

    # The timer

    async def run(self, pulse: Pulse) -> None:
        """Do what is due, forever."""
        while True:
            await pulse.until(self._is_due, after_s=TICK_S)
            try:
                await self.tick()
            except TernError as error:
                log.warning("a transaction waits", reason=error.message)
            except Exception as bug:  # One transaction's bug must not stop the others.
                log.error("checking transactions failed by a bug", error=repr(bug))

    def _is_due(self) -> bool:
        return bool(self._halves.fresh) or (bool(self._due) and self._due[0][0] <= self._now_ms())

    async def tick(self) -> None:
        now = self._now_ms()
        fresh = self._halves.fresh
        while fresh:
            self._again(fresh.popleft())
        for _ in range(AT_ONCE):
            if not self._due or self._due[0][0] > now:
                return
            _, key = heapq.heappop(self._due)
            one = self._halves.open.get(key)
            if one is None:
                continue
            at = next_at_ms(one, self._settings)
            if at > now:
                heapq.heappush(self._due, (at, key))
                continue
            try:
                await self._act(one, now)
            finally:  # Whatever happened: it is looked at again.
                if key in self._halves.open:
                    at = next_at_ms(one, self._settings)
                    heapq.heappush(self._due, (at if at > now else now + NOBODY_MS, key))

    def _again(self, key: bytes) -> None:
        one = self._halves.open.get(key)
        if one is not None:
            heapq.heappush(self._due, (next_at_ms(one, self._settings), key))

    async def _act(self, one: OpenTransaction, now: int) -> None:
        shown = one.info.name or one.info.transaction.hex()
        if one.info.name or one.dropped_at_ms:
            log.warning("transaction expired: rolled back", transaction=shown, app=one.app)
            await self._half_endings.decide("rollback", [one])
        elif (
            one.checks >= (one.info.checks_max or self._settings.checks_max)
            or now - one.last_at_ms >= self._settings.parked_ms  # Nobody came to be asked.
        ):
            await self._half_endings.decide("drop", [one])
            self._halves.dropped += 1
            log.error(
                "transaction dropped: nobody knows what became of it; 'tern half list' shows it",
                transaction=shown,
                app=one.app,
                checks=one.checks,
                rows=one.rows,
            )
        else:
            await self._check(one, now)

    async def _check(self, one: OpenTransaction, now: int) -> None:
        peer = self._somebody(one.app)
        if peer is None:
            return
        half = one.halves[0]
        place = ConsumeEntry(0, half.offset, half.size, half.count, 0, 0, 0)
        view = BatchView((self._fetcher.now([place]) or await self._fetcher.later([place]))[0])
        if self._halves.open.get(one.key) is not one:
            return
        one.checks += 1
        one.checked_at_ms = now
        question = HalfCheck(
            transaction=one.info.transaction,
            topics=_topics(one, self._names()),
            rows=one.rows,
            attempt=one.checks,
            opened_at_ms=one.opened_at_ms,
            message_id=read_or(view.message_id, 0, ""),
            key=read_or(view.key, 0, None),
            properties=properties_to_send(view, 0),
        )
        peer.push(Command.CHECK, pack(question))

    # For people

    async def find(self, request: HalfFind) -> HalfOpens:
        """Open transactions, the oldest first."""
        if not 0 < request.limit <= LISTED_MAX:
            raise BadRequest(f"limit is {request.limit}; it can be 1 to {LISTED_MAX}")
        found = [
            one
            for one in self._halves.open.values()
            if request.transaction in (b"", one.info.transaction)
            and request.name in ("", one.info.name)
            and request.app in ("", one.app)
            and (one.dropped_at_ms or not request.dropped_only)
        ]
        names = self._names()
        shown = await self._slices.make(found[: request.limit], lambda one: self._open(one, names))
        return HalfOpens(transactions=shown, total=len(found), dropped=self._halves.dropped)

    def lines(self) -> list[HalfLine]:
        """The ledger's own lines for what is not visible yet, one per topic."""
        counts: dict[int, list[int]] = {}
        for one in self._halves.open.values():
            for half in one.halves:
                line = counts.setdefault(half.topic_id, [0, 0])
                line[1 if one.dropped_at_ms else 0] += half.count
        names = self._names()
        return [
            HalfLine(topic=names[topic_id], open=open_rows, dropped=dropped)
            for topic_id, (open_rows, dropped) in counts.items()
            if topic_id in names
        ]

    def _open(self, one: OpenTransaction, names: dict[int, str]) -> HalfOpen:
        return HalfOpen(
            transaction=one.info.transaction,
            name=one.info.name,
            attempt=one.info.attempt,
            app=one.app,
            state="dropped" if one.dropped_at_ms else "open",
            topics=_topics(one, names),
            rows=one.rows,
            size=sum(half.size for half in one.halves),
            opened_at_ms=one.opened_at_ms,
            checks=one.checks,
            next_at_ms=next_at_ms(one, self._settings),
        )

    def _names(self) -> dict[int, str]:
        return {topic.id: topic.name for topic in self._directory.topics()}


def _topics(one: OpenTransaction, names: dict[int, str]) -> list[str]:
    return sorted({names.get(half.topic_id, "%deleted") for half in one.halves})
