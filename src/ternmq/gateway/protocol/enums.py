"""Numbers of the protocol that are no codes: kinds of messages and clients, permissions, ways."""

from enum import IntEnum


class MessageKind(IntEnum):
    """What a message is, by the field that its sender set."""

    NORMAL = 1
    FIFO = 2
    DELAY = 3
    TRANSACTION = 4
    LITE = 5
    PRIORITY = 6


TAKEN_KINDS = (
    MessageKind.NORMAL,
    MessageKind.FIFO,
    MessageKind.DELAY,
    MessageKind.TRANSACTION,
    MessageKind.PRIORITY,
)
"""Said of every topic: all topics take all of them."""


class ClientKind(IntEnum):
    """What a client is."""

    UNKNOWN = 0
    PRODUCER = 1
    PUSH_CONSUMER = 2
    SIMPLE_CONSUMER = 3
    PULL_CONSUMER = 4
    LITE_PUSH_CONSUMER = 5
    LITE_SIMPLE_CONSUMER = 6


class Encoded(IntEnum):
    """How a body is written."""

    IDENTITY = 1
    GZIP = 2


class FilterKind(IntEnum):
    """Which messages a consumer wants."""

    TAG = 1
    SQL = 2


class Resolution(IntEnum):
    """What shall become of a half message."""

    COMMIT = 1
    ROLLBACK = 2


READ_WRITE = 4
"""The permission of every queue."""
MD5 = 2
"""The one digest that all clients read alike, in upper-case hex."""
