"""Looking things up for people and their tools: messages by id or key, and delivery records.

FIND answers places of messages. READ_DELIVERIES answers pages of the pull log's safe part, with the
names of the groups in them, for the archive and the trace (J4, R23); a group that is deleted has no
name any more, its records say its number. Both read on a thread and keep no trace of a reader.
"""

from collections.abc import Iterable

from ternmq.broker.groups.consumer_group import ConsumerGroup
from ternmq.broker.groups.groups import ConsumerGroups
from ternmq.broker.log.fetch import Fetcher
from ternmq.core.errors import BadRequest
from ternmq.core.units import MIB
from ternmq.discovery.directory import Directory
from ternmq.discovery.hidden_topics import LATER_PREFIX
from ternmq.storage.messages.search import FOUND_MAX, Search, SearchFor
from ternmq.storage.pull.pull_log import PullLog
from ternmq.wire.messages.publish import Find, FoundPlace, FoundPlaces
from ternmq.wire.messages.read import DeliveriesNames, DeliveriesPage, DeliveriesRead

_NO_END = 2**63 - 1
DELIVERIES_SIZE_MAX = 4 * MIB


class MessageLookup:
    """The FIND command."""

    def __init__(self, *, search: Search, fetcher: Fetcher, directory: Directory) -> None:
        self._search = search
        self._fetcher = fetcher
        self._directory = directory

    async def find(self, request: Find) -> FoundPlaces:
        if (request.id is None) == (request.key is None):
            raise BadRequest("find by an id or by a key, one of the two")
        if not 0 < request.limit <= FOUND_MAX:
            raise BadRequest(f"limit is {request.limit}; it can be 1 to {FOUND_MAX}")
        names = {topic.id: topic.name for topic in self._directory.topics()}
        if request.topic:
            names = {key: name for key, name in names.items() if name == request.topic}
        else:  # What a delay server takes is with it, and then in its topic under the same id.
            names = {key: name for key, name in names.items() if not name.startswith(LATER_PREFIX)}
        wanted = SearchFor(
            message_id=request.id,
            key=request.key,
            topic_ids=frozenset(names),
            start_ms=request.start_ms,
            end_ms=request.end_ms or _NO_END,
            limit=request.limit,
        )
        found = await self._fetcher.run(lambda: self._search.find(wanted))
        return FoundPlaces(
            places=[
                FoundPlace(
                    topic=names[one.topic_id],
                    sequence=one.sequence,
                    offset=one.offset,
                    stored_at_ms=one.stored_at_ms,
                )
                for one in found
            ]
        )


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
        size = min(max(request.size_max, 1), DELIVERIES_SIZE_MAX)
        page = await self._fetcher.run(lambda: pulls.page(request.position, request.end, size))
        return DeliveriesPage(
            first=page.first,
            end=page.end,
            following=page.following,
            records=page.records,
            names=_names(self._groups, page.group_ids),
            damaged=sum(end - start for start, end in page.damaged),
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
