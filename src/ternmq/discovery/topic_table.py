"""All live topics in memory, and the callbacks that follow them.

The directory of a meta server and the directory of a server far from meta both are such a table.
How a table learns of topics is their own business; looking one up is a dictionary access and never
waits. Never asks a registry or another server.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from itertools import islice

from ternmq.core.log import get_logger
from ternmq.discovery.callbacks import tell_all
from ternmq.discovery.hidden_topics import ACCESS_PREFIX, PLACEMENT
from ternmq.wire.messages.order_keys import Placement
from ternmq.wire.messages.topics import Topic

log = get_logger()

NEW_NAMES_MAX = 100
"""More names than that are not put into their order one by one."""


class TopicTable:
    """Implements the looking-up half of `discovery.directory.Directory`."""

    def __init__(self) -> None:
        super().__init__()
        self._topics: dict[str, Topic] = {}
        self.topic: Callable[[str], Topic | None] = self._topics.get  # No frame for each batch.
        self._ordered: list[str] = []
        self._unordered: list[str] = []
        """Names that came since names were last asked for in their order."""
        self._deleted_callbacks: list[Callable[[Topic], None]] = []
        self._changed_callbacks: list[Callable[[Topic], None]] = []

    def topics(self) -> list[Topic]:
        return list(self._topics.values())

    def names_from(self, begin: str) -> Iterator[str]:
        """Names of topics in their order, from this one on, our own (`%`) included. A page of them
        costs what the page is long, however many topics there are."""
        if len(self._unordered) > NEW_NAMES_MAX:
            self._ordered = sorted([*self._ordered, *self._unordered])
        else:
            for name in self._unordered:
                insort(self._ordered, name)
        self._unordered.clear()
        return islice(self._ordered, bisect_left(self._ordered, begin), None)

    @property
    def topic_count(self) -> int:
        return len(self._topics)

    def placement(self) -> Placement | None:
        """Where messages go: the settings of a topic of our own."""
        topic = self._topics.get(PLACEMENT)
        return None if topic is None else topic.settings.placement

    def on_topic_deleted(self, callback: Callable[[Topic], None]) -> None:
        self._deleted_callbacks.append(callback)

    def on_topic_changed(self, callback: Callable[[Topic], None]) -> None:
        self._changed_callbacks.append(callback)

    def _tell_changed(self, topic: Topic) -> None:
        tell_all(self._changed_callbacks, topic, topic=topic.name)

    def _tell_deleted(self, topic: Topic) -> None:
        tell_all(self._deleted_callbacks, topic, topic=topic.name)

    def _unname(self, topic: Topic) -> None:
        """The registry does not know it any more, and did not delete it either: it is an older
        copy, say. Its messages stay; nobody is told that it was deleted. But a user whom the
        registry does not know must not come in."""
        if not self._remove(topic):
            return
        if topic.name.startswith(ACCESS_PREFIX):
            log.warning("the registry does not know a user any more", topic=topic.name)
            self._tell_deleted(topic)
        else:
            log.error(
                "the registry does not know a topic any more: its messages are kept, without a "
                "name, until the right registry is back",
                topic=topic.name,
                number=topic.id,
            )

    def _remove(self, topic: Topic) -> bool:
        """Take it out of memory; False if another topic has its name by now."""
        held = self._topics.get(topic.name)
        if held is None or held.id != topic.id:
            return False
        del self._topics[topic.name]
        at = bisect_left(self._ordered, topic.name)
        if at < len(self._ordered) and self._ordered[at] == topic.name:
            del self._ordered[at]
        else:
            self._unordered.remove(topic.name)
        return True

    def _put(self, topic: Topic) -> None:
        """Keep it in memory, in the place of the one that has its name."""
        if topic.name not in self._topics:
            self._unordered.append(topic.name)
        self._topics[topic.name] = topic
