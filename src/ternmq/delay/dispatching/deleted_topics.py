"""Which topics of delayed messages were deleted: what is due for them is dropped, not sent by name.

A delayed message belongs to the number of its topic. A topic that is made again under the name of a
deleted one has another number, and nothing of the old one may come into it. Only the registry
itself says that a topic was deleted: a name that is missing here may not have been heard of yet,
and a registry that was lost has not deleted anything: what it has forgotten goes out by name.
"""

from enum import Enum

from ternmq.core.errors import TernError
from ternmq.core.log import get_logger
from ternmq.discovery.directory import TopicDirectory

log = get_logger()


class Fate(Enum):
    """What is known of a topic."""

    LIVES = "lives"
    GONE = "gone"
    FORGOTTEN = "forgotten"
    """The registry lives and has never heard of this number: it is an older one, or a new one."""
    UNKNOWN = "unknown"
    """The registry cannot be asked now."""


class DeletedTopics:
    """Which topics of delayed messages were deleted, as far as is known."""

    def __init__(self, directory: TopicDirectory, names: dict[int, str]) -> None:
        """`names`: of all topics that ever had delayed messages, by number."""
        self._directory = directory
        self._names = names
        self._gone: set[int] = set()

    async def fate(self, topic_id: int) -> Fate:
        """What became of a topic; costs a question to the registry only where it seems gone."""
        topic = self._directory.topic(self._names.get(topic_id, ""))
        if topic is not None and topic.id == topic_id:
            return Fate.LIVES
        if topic_id in self._gone:
            return Fate.GONE
        try:
            gone = topic_id in await self._directory.gone_topics([topic_id])
        except TernError as error:
            log.warning("is a topic deleted? not known", id=topic_id, reason=error.message)
            return Fate.UNKNOWN
        if not gone:
            return Fate.FORGOTTEN  # Not kept: a topic that was not heard of yet may be deleted.
        self._gone.add(topic_id)
        log.info("a topic was deleted: its delayed messages go with it", id=topic_id)
        return Fate.GONE
