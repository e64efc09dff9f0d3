"""Changing limits at run time: of topics, of applications, of one consumer.

None leaves a value as it is; a rate of 0 takes the limit away.
"""

from typing import Literal

from ternmq.wire.record import Number, Record


class TopicSet(Record, frozen=True):
    """Change some settings of a topic."""

    name: str
    closed: bool | None = None
    apps: list[str] | None = None
    body_size_max: Number | None = None
    rate: Number | None = None
    bytes_rate: Number | None = None
    over_limit: Literal["refuse", "dead_letter"] | None = None
    paused: bool | None = None
    consume_paused: bool | None = None
    keep_ms: Number | None = None
    broker_groups: Number | None = None
    on_groups: list[str] | None = None


class LimitSet(Record, frozen=True):
    """Change the limits of an application, on all topics together."""

    app: str
    rate: Number | None = None
    bytes_rate: Number | None = None
    consume_rate: Number | None = None
    consume_bytes_rate: Number | None = None


class AppLimit(Record, frozen=True):
    """What an application may send and consume a second; 0 means no limit."""

    app: str
    rate: Number = 0
    bytes_rate: Number = 0
    consume_rate: Number = 0
    consume_bytes_rate: Number = 0


class AppLimits(Record, frozen=True):
    limits: list[AppLimit]


class ConsumerPause(Record, frozen=True):
    """Hand nothing out to one consumer of a group, or let it go on."""

    topic: str
    group: str
    session: str
    """As `Member.session`; its first characters are enough where they name one consumer."""
    paused: bool = True
