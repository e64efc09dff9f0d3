"""How a topic and a group are doing right now: rates, backlog, what was refused."""

from ternmq.wire.messages.commands import Record


class Rates(Record, frozen=True):
    """Messages and bytes a second over the last 10 and 60 seconds, and since the broker started."""

    messages_10s: float = 0.0
    bytes_10s: float = 0.0
    messages_60s: float = 0.0
    bytes_60s: float = 0.0
    messages: int = 0
    bytes: int = 0


class TopicFiguresFind(Record, frozen=True):
    topics: list[str]


class TopicFigures(Record, frozen=True):
    topic: str
    sent: Rates
    refused: dict[str, int]
    """Messages refused since the broker started, by reason."""
    put_aside: int
    """Refused messages that are kept and nobody has handled yet."""
    broker_group: str = ""
    """Filled in by the client that asked, here and below."""


class AllTopicFigures(Record, frozen=True):
    topics: list[TopicFigures]


class GroupFigures(Record, frozen=True):
    topic: str
    group: str
    lane: str
    backlog: int
    """Messages that are ready to be handed out."""
    backlog_ms: int
    """Since when the oldest of them is stored; 0 without one, -1 where that is not known."""
    delivered: Rates
    alarm: bool
    """The backlog is over the group's `backlog_alarm`."""
    held_back: str
    """Why nothing is handed out at the moment, if so: paused, a limit."""
    broker_group: str = ""


class AllGroupFigures(Record, frozen=True):
    groups: list[GroupFigures]
