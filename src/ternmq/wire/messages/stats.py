"""How a topic and a group are doing right now: rates, backlog, what was refused."""

from ternmq.wire.record import Number, Record


class TopicStatus(Record, frozen=True):
    """What one broker group holds of a topic."""

    topic: str
    id: Number
    first: Number
    end: Number
    groups: Number


class Status(Record, frozen=True):
    """What a server says about itself, for `tern doctor`, `tern topic show` and the bench."""

    node: str
    role: str
    state: str
    """'ok', or why messages are refused."""
    address: str
    data_dir: str
    started_at_ms: Number
    now_ms: Number
    disk_free: Number
    disk_size: Number
    cpu_s: float
    memory: Number
    connections: Number
    log_start: Number
    log_end: Number
    registry: str = ""
    topics: list[TopicStatus] = []
    cluster: str = ""
    """Meta servers: the cluster's id."""
    clock_jumps: Number = 0
    """Delay servers: how often the wall clock was set since the start, by a second or more."""
    epoch: Number = 0
    """Brokers: which life of the group this is."""
    pid: Number = 0
    member: str = ""
    """Brokers: the id by which it joined its group."""
    lag: Number = 0
    """Replicas: bytes of the message log that the master has and this one has not; -1: unknown."""
    dispatching: dict[str, Number] = {}
    """Delay servers: messages on their way to each broker group, decided and not yet there."""
    untaken: Number = 0
    """Brokers: delayed messages of transactions that their delay servers have not taken yet."""
    registry_at_ms: Number = 0
    """Meta servers: when their registry answered last."""
    keep_ms: Number = 0
    """Brokers: messages that are older go; 0: never by age."""
    insecure: bool = False
    """Meta servers: other machines may reach it, and everybody is let in."""
    tls_trouble: str = ""
    """Why new TLS files are not used and old ones are; empty: nothing is wrong."""
    tls_expires_at_ms: Number = 0
    """When the certificate that it shows expires; 0: no TLS."""
    guarded: bool = False
    """Meta servers: it lets in only who logs in (`security = true`)."""
    guarded_otherwise: list[str] = []
    """Meta servers: addresses of servers of which that is not so, or of which alone it is."""


class StatusQuery(Record, frozen=True):
    topics: list[str] = []  # Which to report on.


class Rates(Record, frozen=True):
    """Messages and bytes a second over the last 10 and 60 seconds, and since the broker started."""

    messages_10s: float = 0.0
    bytes_10s: float = 0.0
    messages_60s: float = 0.0
    bytes_60s: float = 0.0
    messages: Number = 0
    bytes: Number = 0


class TopicFiguresFind(Record, frozen=True):
    topics: list[str]


class TopicFigures(Record, frozen=True):
    topic: str
    sent: Rates
    refused: dict[str, Number]
    """Messages refused since the broker started, by reason."""
    put_aside: Number
    """Refused messages that are kept and nobody has handled yet."""
    broker_group: str = ""
    """Filled in by the client that asked, here and below."""


class AllTopicFigures(Record, frozen=True):
    topics: list[TopicFigures]


class GroupFigures(Record, frozen=True):
    topic: str
    group: str
    lane: str
    backlog: Number
    """Messages that are ready to be handed out."""
    backlog_ms: Number
    """Since when the oldest of them is stored; 0 without one, -1 where that is not known."""
    delivered: Rates
    alarm: bool
    """The backlog is over the group's `backlog_alarm`."""
    held_back: str
    """Why nothing is handed out at the moment, if so: paused, a limit."""
    broker_group: str = ""


class AllGroupFigures(Record, frozen=True):
    groups: list[GroupFigures]
    following: str = ""
    """Ask for more after this; empty: these were the last."""
