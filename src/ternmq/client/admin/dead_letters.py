"""Messages set aside for a person: dead letters of groups, and what was over a topic's limit.

Both lie in hidden topics, one on each broker group, and are named by ranges of sequences there.
"""

from ternmq.client.model.arguments import typed_calls
from ternmq.client.transport.admin_calls import AdminCalls
from ternmq.client.transport.fan_out import named
from ternmq.core.errors import BadRequest
from ternmq.wire.messages.dead_letters import (
    DeadDone,
    DeadFind,
    DeadGroup,
    DeadGroups,
    DeadGroupsFind,
    DeadHandle,
    DeadOpen,
    DeadRecall,
    DeadRecalled,
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

    async def newest_letters(
        self, group: str = "", topic: str = "", newest: int = 1_000, broker_group: str = ""
    ) -> DeadOpen:
        """The newest open dead letters of a group, or what a topic refused; how many there are."""
        if bool(group) == bool(topic) or newest < 1:
            raise BadRequest("name a group or a topic, and how many: 1 or more")
        if group:
            find = DeadFind(group=group, newest=newest)
            return await self._one(Command.DEAD_OPEN, find, DeadOpen, broker_group)
        wanted = RefusedFind(topic=topic, newest=newest)
        return await self._one(Command.REFUSED_OPEN, wanted, DeadOpen, broker_group)

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

    async def dead_groups(self) -> list[DeadGroup]:
        """Groups that have dead letters, and how many of those nobody has handled yet; one entry
        for each broker group."""
        found: list[DeadGroup] = []
        for name in await self._fan_out.groups():
            after, more = "", True
            while more:
                wanted = DeadGroupsFind(after=after)
                answers = await self._fan_out.ask(Command.DEAD_GROUPS, wanted, DeadGroups, [name])
                page = answers.get(name, DeadGroups(groups=[]))
                found += [named(name, each) for each in page.groups]
                after = page.following
                more = bool(after)
        return found

    async def recall_dead_letters(
        self, group: str, topic: str, ranges: Ranges | None = None, broker_group: str = ""
    ) -> int:
        """Take back letters of a topic that were sent again and that nobody was handed yet: they
        are open letters once more, with the reason they had. `ranges`: only these letters of
        `%dead.GROUP`. Returns how many; the others are with consumers, or were."""
        chosen = [broker_group] if broker_group or ranges else await self._fan_out.groups()
        taken = 0
        for name in chosen:
            owner = await self._fan_out.only("a position", name)
            after, more = 0, True
            while more:
                wanted = DeadRecall(group=group, topic=topic, ranges=ranges or [], after=after)
                answers = await self._fan_out.ask(
                    Command.DEAD_RECALL, wanted, DeadRecalled, [owner]
                )
                done = answers.get(owner, DeadRecalled(taken=0))
                taken += done.taken
                after = done.following
                more = bool(after)
        return taken

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
