"""Where people handle what was kept for them: dead letters, messages that were put aside.

What is handled is the progress of a group of our own on the hidden topic that keeps them. Nobody
joins that group; a row is open until it is closed here, and closing is a decision: safe when it is
answered.
"""

from ternmq.broker.commit import Committer
from ternmq.broker.groups import Group, Groups
from ternmq.broker.members import Members
from ternmq.wire.commands import Start, Topic

HANDLED = "%handled"


class Desk:
    """Opens and closes rows."""

    def __init__(self, *, groups: Groups, members: Members, committer: Committer) -> None:
        self._groups = groups
        self._members = members
        self._committer = committer

    async def of(self, topic: Topic) -> Group:
        """Our own group on a hidden topic, knowing every row of it."""
        desk, _ = await self._members.make_group(topic, HANDLED, Start(at="earliest"))
        if desk.lane.next < desk.lane.end:
            desk.lane.look_ahead(desk.lane.end)
        return desk

    def open_rows(self, topic: Topic, bounds: tuple[int, int]) -> int:
        """How many rows nobody has handled; looked up, nothing is made."""
        desk = self._groups.find(topic.id, HANDLED)
        if desk is None:
            return bounds[1] - bounds[0]
        return desk.lane.end - desk.lane.start - desk.lane.done.count

    async def close(self, desk: Group, first: int, end: int) -> int:
        """Rows are handled; returns how many of them were open."""
        result = desk.lane.ack(0, first, end)
        if result.changes:
            records = [self._groups.to_record(desk, change) for change in result.changes]
            await self._committer.decide(records)
        return result.settled
