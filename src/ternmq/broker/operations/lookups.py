"""FIND: messages by id or key, for people and their tools. Looks on a thread, answers places."""

from ternmq.broker.log.fetch import Fetcher
from ternmq.core.errors import BadRequest
from ternmq.discovery.directory import Directory
from ternmq.discovery.hidden_topics import LATER_PREFIX
from ternmq.storage.messages.search import FOUND_MAX, Search, SearchFor
from ternmq.wire.messages.publish import Find, FoundPlace, FoundPlaces

_NO_END = 2**63 - 1


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
