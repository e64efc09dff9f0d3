"""Which broker group has which order-key slots, and how much of new messages each gets.

Meta decides; the brokers move what has to move, and these calls do not wait for that.
"""

from collections.abc import Sequence

from ternmq.client.model.arguments import typed_calls
from ternmq.client.transport.admin_calls import AdminCalls
from ternmq.wire.messages.order_keys import (
    PlaceChange,
    Placed,
    Placement,
)
from ternmq.wire.numbers import Command


@typed_calls
class PlacementAdmin(AdminCalls):
    """Calls about order-key slots and weights."""

    async def placement(self) -> Placement:
        """Which broker group has which order-key slots, and the weights of broker groups."""
        return await self._place(PlaceChange())

    async def move_slots(
        self, group: str, slots: Sequence[int], *, force: bool = False
    ) -> Placement:
        """Give order-key slots to a broker group; the servers finish what this begins."""
        return await self._place(
            PlaceChange(action="move", broker_group=group, slots=list(slots), force=force)
        )

    async def balance_slots(self, *, leaving: Sequence[str] = ()) -> Placement:
        """Share all slots out by weight; the broker groups `leaving` shall have none."""
        return await self._place(PlaceChange(action="balance", leaving=list(leaving)))

    async def release_slots(self, group: str) -> Placement:
        """Do not wait any more for rows of moved slots that are not settled on this group."""
        return await self._place(PlaceChange(action="release", broker_group=group))

    async def set_weight(self, group: str, weight: int) -> Placement:
        """How much a broker group takes of what is shared out by weight; 0: nothing new."""
        return await self._place(PlaceChange(action="weight", broker_group=group, weight=weight))

    async def _place(self, wanted: PlaceChange) -> Placement:
        return (await self._cluster.ask_meta(Command.PLACE, wanted, Placed)).placement
