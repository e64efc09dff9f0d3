"""The delivery records of this broker, for the archive and the trace (J4, R23).

Pages of the pull log's safe part, read by a thread, with the names of the groups in them. A group
that is deleted has no name any more; its records say its number. Keeps no trace of a reader.
"""

from collections.abc import Iterable

from ternmq.broker.groups.groups import ConsumerGroup, ConsumerGroups
from ternmq.broker.log.fetch import Fetcher
from ternmq.core.units import MIB
from ternmq.storage.pull.pull_log import PullLog
from ternmq.wire.messages.read import DeliveriesNames, DeliveriesPage, DeliveriesRead

SIZE_MAX = 4 * MIB


class DeliveryRecords:
    """The READ_DELIVERIES command."""

    def __init__(self, *, pulls: PullLog, groups: ConsumerGroups, fetcher: Fetcher) -> None:
        self._pulls = pulls
        self._groups = groups
        self._fetcher = fetcher

    async def read(self, request: DeliveriesRead) -> DeliveriesPage:
        pulls = self._pulls
        if request.position < 0:
            first, end = pulls.bounds()
            return DeliveriesPage(first=first, end=end, following=first, records=b"", names=[])
        size = min(max(request.size_max, 1), SIZE_MAX)
        page = await self._fetcher.run(lambda: pulls.page(request.position, request.end, size))
        return DeliveriesPage(
            first=page.first,
            end=page.end,
            following=page.following,
            records=page.records,
            names=_names(self._groups, page.group_ids),
        )


def _names(groups: Iterable[ConsumerGroup], wanted: set[int]) -> list[DeliveriesNames]:
    return [
        DeliveriesNames(
            group_id=group.id,
            group=group.name,
            topic=group.beside or group.topic,
            lane="private" if group.beside else "topic",
        )
        for group in groups
        if group.id in wanted
    ]
