"""Messages set aside for a person: dead letters of groups, and what was over a topic's limit.

Both lie in hidden topics, one on each broker group, and are named by ranges of sequences there.
"""

from ternmq.client.model.arguments import typed_calls
from ternmq.client.transport.admin_calls import AdminCalls
from ternmq.wire.messages.dead_letters import (
    DeadDone,
    DeadFind,
    DeadHandle,
    DeadOpen,
    RefusedFind,
    RefusedHandle,
)
from ternmq.wire.numbers import Command
from ternmq.wire.record import Record, T

Ranges = list[tuple[int, int]]


@typed_calls
class SetAsideAdmin(AdminCalls):
    """Calls about messages that wait for a decision."""

    async def expired_dead_letters(self, group: str) -> int:
        """How many expired before they were resent or deleted."""
        answers = await self._fan_out.ask(Command.DEAD_OPEN, DeadFind(group=group), DeadOpen)
        return sum(answer.expired for answer in answers.values())

    async def open_dead_letters(self, group: str, broker_group: str = "") -> Ranges:
        """Sequences in the topic `%dead.GROUP` that were neither resent nor deleted."""
        found = await self._one(Command.DEAD_OPEN, DeadFind(group=group), DeadOpen, broker_group)
        return found.ranges

    async def resend_dead_letters(
        self, group: str, ranges: Ranges, broker_group: str = ""
    ) -> DeadDone:
        """Send dead letters again, to this group alone, as new at attempt 1."""
        wanted = DeadHandle(group=group, ranges=ranges)
        return await self._one(Command.DEAD_RESEND, wanted, DeadDone, broker_group)

    async def delete_dead_letters(
        self, group: str, ranges: Ranges, broker_group: str = ""
    ) -> DeadDone:
        """Delete dead letters."""
        wanted = DeadHandle(group=group, ranges=ranges)
        return await self._one(Command.DEAD_DELETE, wanted, DeadDone, broker_group)

    async def open_refused(self, topic: str, broker_group: str = "") -> Ranges:
        """Sequences in the topic `%refused.TOPIC` (over the limit) not resent or deleted."""
        wanted = RefusedFind(topic=topic)
        return (await self._one(Command.REFUSED_OPEN, wanted, DeadOpen, broker_group)).ranges

    async def resend_refused(self, topic: str, ranges: Ranges, broker_group: str = "") -> DeadDone:
        """Put messages that were over the limit into their topic, for every group."""
        wanted = RefusedHandle(topic=topic, ranges=ranges)
        return await self._one(Command.REFUSED_RESEND, wanted, DeadDone, broker_group)

    async def delete_refused(self, topic: str, ranges: Ranges, broker_group: str = "") -> DeadDone:
        """Delete messages that were over the limit."""
        wanted = RefusedHandle(topic=topic, ranges=ranges)
        return await self._one(Command.REFUSED_DELETE, wanted, DeadDone, broker_group)

    async def _one(self, command: Command, record: Record, answer: type[T], broker_group: str) -> T:
        """From the broker group that was named, or the only one."""
        group = await self._fan_out.only("a position", broker_group)
        return (await self._fan_out.ask(command, record, answer, [group]))[group]
