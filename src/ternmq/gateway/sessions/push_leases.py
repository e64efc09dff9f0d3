"""What push consumers hold: their messages stay theirs for as long as they are there.

A push consumer asks for no time: a message is under a detached lease of a minute, which is extended
again and again while its client is there. What it acknowledges is not extended any more; of what
was acknowledged by another gateway the broker says so. When a client is gone its messages go back
at once, as they were; when this process dies, their leases run out.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field

from ternmq.client.consuming.detached_consumer import DetachedMessage, HandleVerdict
from ternmq.core.clock import Clock
from ternmq.core.errors import OverLimit, TernError
from ternmq.core.log import get_logger
from ternmq.gateway.sessions.receipt_handles import ReceiptHandles

LEASE_S = 60.0
EXTEND_S = 15.0
EXTENDED_TOGETHER = 1_000
HELD_MAX = 200_000
"""By all push consumers of this process."""
ANSWERS_KEPT = 1_024
ANSWER_KEPT_S = 60.0

log = get_logger()


@dataclass(slots=True, eq=False)
class ClientLeases:
    """What one client holds: handles, and the topic and group of each."""

    held: dict[str, tuple[str, str]] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class KeptAnswer:
    """What one attempt to receive was answered; asked again, it gets the same."""

    client_id: str
    messages: list[DetachedMessage]
    until: float


class PushLeases:
    """The messages of all push consumers of one gateway process."""

    def __init__(self, settling: ReceiptHandles, clock: Clock) -> None:
        self._settling = settling
        self._clock = clock
        self._clients: dict[str, ClientLeases] = {}
        self._answers: dict[str, KeptAnswer] = {}
        self._count = 0

    def check_room(self) -> None:
        if self._count >= HELD_MAX:
            raise OverLimit(f"{self._count} messages are with push consumers of this gateway")

    def hold(
        self, client_id: str, place: tuple[str, str], attempt: str, messages: list[DetachedMessage]
    ) -> None:
        """Messages are on their way to a client, as the answer to this attempt."""
        if not messages:
            return
        held = self._clients.setdefault(client_id, ClientLeases()).held
        held.update((each.handle, place) for each in messages)
        self._count += len(messages)
        if attempt:
            until = self._clock.monotonic() + ANSWER_KEPT_S
            self._answers[attempt] = KeptAnswer(client_id, messages, until)
            while len(self._answers) > ANSWERS_KEPT:
                del self._answers[next(iter(self._answers))]

    def answered(self, client_id: str, attempt: str) -> list[DetachedMessage]:
        """What this attempt was answered and is still held: its answer was lost on the way."""
        kept = self._answers.get(attempt) if attempt else None
        if kept is None or kept.client_id != client_id:
            return []
        held = self._clients.get(client_id, ClientLeases()).held
        return [each for each in kept.messages if each.handle in held]

    def settled(self, client_id: str, handles: Iterable[str]) -> None:
        """Leases of these are not extended any more."""
        client = self._clients.get(client_id)
        if client is None:
            return
        for handle in handles:
            self._count -= client.held.pop(handle, None) is not None
        if not client.held:
            del self._clients[client_id]

    async def client_gone(self, client_id: str) -> None:
        """Messages of a client that is gone go to others."""
        client = self._clients.pop(client_id, None)
        if client is None:
            return
        self._count -= len(client.held)
        log.info(
            "messages of a client that is gone are given back",
            client=client_id,
            messages=len(client.held),
        )
        for place, handles in _by_place(client.held).items():
            await self._give_back(place, handles)

    async def _give_back(self, place: tuple[str, str], handles: list[str]) -> None:
        back = [HandleVerdict(handle=handle, outcome="back") for handle in handles]
        try:
            for at in range(0, len(back), EXTENDED_TOGETHER):
                await self._settling.settle(*place, back[at : at + EXTENDED_TOGETHER])
        except TernError as error:
            log.info("messages come when their lease is over", reason=error.message)

    async def run(self) -> None:
        """Extend the leases of everything that is held."""
        while True:
            await asyncio.sleep(EXTEND_S)
            now = self._clock.monotonic()
            self._answers = {
                attempt: kept for attempt, kept in self._answers.items() if kept.until > now
            }
            for client_id, client in list(self._clients.items()):
                for place, handles in _by_place(client.held).items():
                    await self._extend(client_id, place, handles)

    async def _extend(self, client_id: str, place: tuple[str, str], handles: list[str]) -> None:
        try:
            for at in range(0, len(handles), EXTENDED_TOGETHER):
                part = handles[at : at + EXTENDED_TOGETHER]
                self.settled(client_id, await self._settling.extend(*place, part, LEASE_S))
        except TernError as error:
            log.warning("leases of a push consumer were not extended", reason=error.message)


def _by_place(held: dict[str, tuple[str, str]]) -> dict[tuple[str, str], list[str]]:
    found: dict[tuple[str, str], list[str]] = {}
    for handle, place in held.items():
        found.setdefault(place, []).append(handle)
    return found
