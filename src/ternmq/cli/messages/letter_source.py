"""Where messages wait for people to decide: a group's dead letters, or what a topic refused.

Both are hidden topics whose rows are open until they are handled. A `LetterSource` reads them,
sends them again and deletes them, and describes a message that carries no notes of its own.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ternmq.core.errors import BadRequest
from ternmq.discovery.hidden_topics import dead_topic, refused_topic

if TYPE_CHECKING:
    from ternmq.client.client import Client
    from ternmq.wire.messages.dead_letters import DeadDone

Ranges = list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class LetterSource:
    """The dead letters of a group, or without one what was over a topic's limit."""

    group: str
    topic: str = ""

    def __str__(self) -> str:
        if self.group:
            return f"dead letters of group {self.group}"
        return f"refused messages of topic {self.topic}"

    @property
    def hidden_topic(self) -> str:
        return dead_topic(self.group) if self.group else refused_topic(self.topic)

    async def open(self, mq: "Client", broker_group: str) -> Ranges:
        """Which rows of a broker group are not handled yet."""
        if self.group:
            return await mq.admin.open_dead_letters(self.group, broker_group)
        return await mq.admin.open_refused(self.topic, broker_group)

    async def resend(self, mq: "Client", ranges: Ranges, broker_group: str) -> "DeadDone":
        if self.group:
            return await mq.admin.resend_dead_letters(self.group, ranges, broker_group)
        return await mq.admin.resend_refused(self.topic, ranges, broker_group)

    async def delete(self, mq: "Client", ranges: Ranges, broker_group: str) -> "DeadDone":
        if self.group:
            return await mq.admin.delete_dead_letters(self.group, ranges, broker_group)
        return await mq.admin.delete_refused(self.topic, ranges, broker_group)

    def notes(self, letter: Any) -> dict[str, Any]:
        """Why and when it came here, from where, how often it was tried."""
        if self.group:
            return dict(letter.properties)
        stored_at_ms = int(letter.stored_at.timestamp() * 1000)
        own = {"%topic": self.topic, "%reason": "over the limit", "%died_at": stored_at_ms}
        return own | {"%attempt": 0} | dict(letter.properties)


def find_source(group: str | None, topic: str | None) -> LetterSource:
    """With a group, the topic only narrows its letters down."""
    if not group and not topic:
        raise BadRequest("say which: a group, or --topic for what was over a topic's limit")
    return LetterSource(group or "", topic or "")
