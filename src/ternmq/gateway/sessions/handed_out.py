"""What clients hold of one group on one topic: receipts, and when each is over.

A receipt is a secret word for one delivered message. It is over when its message is settled, when
its time of invisibility has passed (then the message comes again as the next attempt), or when its
client is gone (then it comes again as it was). What comes after that is refused.
"""

import secrets
from collections.abc import Iterable
from dataclasses import dataclass

from ternmq.client.model.message import Message
from ternmq.core.clock import Clock
from ternmq.core.errors import LeaseLost, OverLimit

HELD_MAX = 100_000
"""By all clients, of one group on one topic."""
ANSWERS_KEPT = 256
ANSWER_KEPT_S = 60.0
EXPIRED = "it was not acknowledged within its time of invisibility"


@dataclass(slots=True, eq=False)
class HandedOut:
    """One message that a client has."""

    receipt: str
    message: Message
    client_id: str
    until: float
    """When it is over; of a push consumer it is put off while the client is there."""
    push: bool
    invisible_ms: int


@dataclass(slots=True, eq=False)
class KeptAnswer:
    """What one attempt to receive was answered; asked again, it gets the same."""

    held: list[HandedOut]
    until: float


class Holdings:
    """The receipts of one group on one topic, in this process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._held: dict[str, HandedOut] = {}
        self._answers: dict[str, KeptAnswer] = {}

    def __len__(self) -> int:
        return len(self._held)

    def check_room(self, rows: int) -> None:
        if len(self._held) + rows > HELD_MAX:
            raise OverLimit(f"{len(self._held)} messages are with clients: acknowledge some first")

    def hold(
        self, messages: Iterable[Message], client_id: str, invisible_ms: int, *, push: bool
    ) -> list[HandedOut]:
        """Give out receipts."""
        until = self._clock.monotonic() + invisible_ms / 1000
        made = [
            HandedOut(secrets.token_urlsafe(18), message, client_id, until, push, invisible_ms)
            for message in messages
        ]
        self._held.update((each.receipt, each) for each in made)
        return made

    def keep_answer(self, attempt: str, held: list[HandedOut]) -> None:
        if not attempt or not held:
            return
        self._answers[attempt] = KeptAnswer(held, self._clock.monotonic() + ANSWER_KEPT_S)
        while len(self._answers) > ANSWERS_KEPT:
            del self._answers[next(iter(self._answers))]

    def answered(self, attempt: str) -> list[HandedOut]:
        """What this attempt was answered and is still held: its answer was lost on the way."""
        kept = self._answers.get(attempt) if attempt else None
        if kept is None:
            return []
        return [each for each in kept.held if each.receipt in self._held]

    def find(self, receipt: str) -> HandedOut:
        """Raises `LeaseLost` where it is over, or never was."""
        held = self._held.get(receipt)
        if held is None or held.message.settled:
            self._held.pop(receipt, None)
            raise LeaseLost("this receipt is over, or of another group: its message comes again")
        return held

    def take(self, receipt: str) -> HandedOut:
        """The message of this receipt is about to be settled."""
        held = self.find(receipt)
        del self._held[receipt]
        return held

    def put_off(self, held: HandedOut, invisible_ms: int) -> None:
        """The time of invisibility begins again."""
        held.until = self._clock.monotonic() + invisible_ms / 1000
        held.invisible_ms = invisible_ms

    def let_go(self, held: Iterable[HandedOut]) -> None:
        """Messages that never reached their client are as before."""
        for each in held:
            if self._held.pop(each.receipt, None) is not None and not each.message.settled:
                each.message.release()

    def client_gone(self, client_id: str) -> int:
        """What it had is for others; says how many messages."""
        left = [each for each in self._held.values() if each.client_id == client_id]
        self.let_go(left)
        return len(left)

    def expire(self) -> None:
        """What a client did not settle in time comes again, as the next attempt."""
        now = self._clock.monotonic()
        for held in [each for each in self._held.values() if each.until <= now]:
            if held.push:  # Its client is there: one that is gone holds nothing.
                self.put_off(held, held.invisible_ms)
                continue
            del self._held[held.receipt]
            if not held.message.settled:
                held.message.retry(after=0, reason=EXPIRED)
        self._answers = {
            attempt: kept for attempt, kept in self._answers.items() if kept.until > now
        }
