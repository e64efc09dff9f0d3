"""Who is connected to a server, who sends to which topic, and hanging up on one."""

from ternmq.wire.record import Number, Record


class SessionFind(Record, frozen=True):
    app: str = ""
    """Only of this application."""
    after: Number = 0
    limit: Number = 100


class Consuming(Record, frozen=True):
    """A topic that a client consumes, and in which group."""

    topic: str
    group: str


class SessionInfo(Record, frozen=True):
    """One connection."""

    number: Number
    """Of the connection, since the server started."""
    session: str
    app: str
    host: str
    pid: Number
    version: str
    address: str
    role: str
    """'consumer', 'server' (of the cluster), or 'client': everybody else."""
    user: str
    """With security on: who logged in."""
    connected_s: float
    """Since so many seconds."""
    unanswered: Number
    """Bytes of requests that are under way."""
    consuming: list[Consuming] = []
    """At most 20."""
    broker_group: str = ""


class Sessions(Record, frozen=True):
    sessions: list[SessionInfo]
    total: Number
    """Connections to this server."""
    following: Number = 0


class SenderFind(Record, frozen=True):
    topic: str = ""


class SenderCount(Record, frozen=True):
    """What one application has sent to one topic since the broker started."""

    app: str
    """Empty: others, when there were too many to count apart."""
    topic: str
    messages: Number
    bytes: Number
    broker_group: str = ""


class SenderCounts(Record, frozen=True):
    senders: list[SenderCount]


class Disconnect(Record, frozen=True):
    session: str
    """Its first letters will do where they mean one client."""
    reason: str = ""


class Disconnected(Record, frozen=True):
    connections: Number
