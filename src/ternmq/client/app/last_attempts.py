"""After how many failures a message of a subscriber is dead, as its groups are set: for log lines.

Asked when the app starts, and again while handlers fail, every ten seconds at most: an operator may
change it. Who cannot be asked is not; then nothing is claimed. Decides nothing: brokers count.
"""

import asyncio

from ternmq.client.admin.admin import Admin
from ternmq.client.app.subscriber import Subscriber
from ternmq.core.errors import TernError
from ternmq.wire.messages.groups import GroupSettings

AGAIN_S = 10.0


class LastAttempts:
    """What is known of one subscriber's groups."""

    def __init__(self, admin: Admin, subscriber: Subscriber) -> None:
        self._admin = admin
        self._subscriber = subscriber
        self._ordered = bool(subscriber.options.get("ordered"))
        self._limits: dict[str, int] = {}
        self._loop = asyncio.get_running_loop()
        self._asked_at = 0.0
        self._asking: asyncio.Task[None] | None = None

    async def learn(self) -> None:
        """Ask the brokers."""
        self._asked_at = self._loop.time()
        for topic in self._subscriber.topics:
            try:
                groups = await self._admin.groups(topic, self._subscriber.group)
            except TernError:
                self._limits.pop(topic, None)
                continue
            limits = [self._limit(group.settings) for group in groups]
            self._limits[topic] = max(limits) if limits and 0 not in limits else 0

    def was_last(self, topic: str, attempt: int) -> bool:
        """Is a message dead that has failed so often?"""
        if self._loop.time() - self._asked_at > AGAIN_S and self._asking is None:
            self._asking = asyncio.create_task(self.learn(), name="tern-limits")
            self._asking.add_done_callback(self._asked)
        return 0 < self._limits.get(topic, 0) <= attempt

    def stop(self) -> None:
        if self._asking is not None:
            self._asking.cancel()

    def _asked(self, _: "asyncio.Task[None]") -> None:
        self._asking = None

    def _limit(self, settings: GroupSettings) -> int:
        """0: none. An order key that stands still has no dead letter either."""
        if not self._ordered:
            return settings.attempts_max
        return 0 if settings.on_failure == "stop" else settings.ordered_attempts_max
