"""Topic names on a broker: which applications may use one, and its creation on first use."""

from ternmq.core.ids import check_name
from ternmq.core.log import get_logger
from ternmq.discovery.directory import Directory
from ternmq.discovery.hidden_topics import (
    dead_topic,
    lane_topic,
    later_topic,
    origin_topic,
    refused_topic,
)
from ternmq.intake.topic_rules import check_app, check_new_topic, made_for, topic_not_found
from ternmq.rpc.peer import Peer
from ternmq.wire.messages.topics import Topic, TopicSettings

log = get_logger()


class TopicNames:
    """The broker's view of the directory."""

    def __init__(self, directory: Directory, *, auto_create: bool, body_size_max: int) -> None:
        self._directory = directory
        self._auto_create = auto_create
        self._settings = TopicSettings(body_size_max=body_size_max)
        self.find = directory.topic
        self.all = directory.topics

    def get(self, name: str) -> Topic:
        topic = self._directory.topic(name)
        if topic is None:
            raise topic_not_found(name, auto_create=self._auto_create)
        return topic

    def check_auto(self, name: str) -> None:
        """May this topic be made by using it?"""
        check_new_topic(name, auto_create=self._auto_create)

    async def auto_create(self, name: str, peer: Peer | None = None) -> Topic:
        """Made for this client, whose user it counts for."""
        self.check_auto(name)
        settings = made_for(None if peer is None else peer.use, self._settings, self.all)
        return await self._directory.create_topic(name, settings)

    async def get_or_create(self, name: str, peer: Peer | None = None) -> Topic:
        return self._directory.topic(name) or await self.auto_create(name, peer)

    async def dead_letters_of(self, group: str, topic_id: int, topic: str) -> Topic:
        """Made on first use; so is what says that the group has letters from this topic."""
        origin = origin_topic(topic_id, group)
        if self._directory.topic(origin) is None:
            await self._directory.create_topic(origin, TopicSettings(closed=True, apps=[topic]))
        name = dead_topic(group)
        found = self._directory.topic(name)
        return found or await self._directory.create_topic(name, TopicSettings())

    async def lane_of(self, topic: Topic, group: str) -> Topic:
        """Made on first use."""
        name = lane_topic(topic.id, group)
        found = self._directory.topic(name)
        return found or await self._directory.create_topic(name, TopicSettings())

    async def later_of(self, delay_server: str) -> Topic:
        """Made on first use."""
        check_name("delay server", delay_server)
        name = later_topic(delay_server)
        found = self._directory.topic(name)
        return found or await self._directory.create_topic(name, TopicSettings())

    async def refused_of(self, topic: Topic) -> Topic:
        """Made on first use; read by those who may use the topic itself."""
        name = refused_topic(topic.name)
        settings = TopicSettings(closed=topic.settings.closed, apps=topic.settings.apps)
        return self._directory.topic(name) or await self._directory.create_topic(name, settings)

    def check_app(self, topic: Topic, peer: Peer) -> None:
        """A closed topic serves only the applications it names."""
        if not from_delay_server(peer):
            check_app(topic, peer.hello.app if peer.hello else "")


def from_delay_server(peer: Peer) -> bool:
    """Messages of a delay server were held against their topic's settings when they came: a
    setting that was changed since must not keep them, or those that go out with them, for ever."""
    return peer.node is not None and peer.node.kind == "delay"
