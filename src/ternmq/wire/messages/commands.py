"""What can be asked of a server: the shape of each request and answer; numbers are in `command`.

Hot commands carry bytes: PUBLISH's payload is one batch, its answer is `PUBLISHED`; the answers of
PULL and READ are `DELIVERED` followed by delivery envelopes, or by what was left out: a list of
`LeftOut`. Everything else is msgpack of the
classes below (arrays, fields in order), so a field may be added at the end with a default and old
peers go on working. An answer with the ERROR flag carries `Failure`.
"""

import struct
from typing import Any, Literal

from ternmq.core.errors import TernError, from_code
from ternmq.wire.messages.placement import Home, Placement
from ternmq.wire.numbers import Command as Command
from ternmq.wire.numbers import Flag as Flag
from ternmq.wire.record import Record as Record
from ternmq.wire.record import T as T
from ternmq.wire.record import pack as pack
from ternmq.wire.record import unpack as unpack

PROTOCOL_VERSION = 1
DISPATCHER = "%delay"
"""The application that a delay server is, towards the others."""
BROKER = "%broker"
"""And a broker, towards meta servers."""

PUBLISHED = struct.Struct("<QQqII")  # topic id, base sequence, stored at ms, count, flags
PUBLISHED_DUPLICATE = 1  # A repeat was recognised; this is the first one's receipt.
DELIVERED = struct.Struct("<IIQ")  # envelope count, left out (PULL), next sequence (READ)


class Failure(Record, frozen=True):
    code: str
    message: str
    details: dict[str, Any] = {}


class Empty(Record, frozen=True):
    """A request or answer without content."""


ServerRole = Literal["meta", "broker", "delay"]


class Hello(Record, frozen=True):
    """The first frame of every connection."""

    protocol: int
    app: str
    version: str
    session: bytes
    """16 random bytes, kept over reconnects; a forked child has its own."""
    host: str = ""
    pid: int = 0


class Welcome(Record, frozen=True):
    protocol: int
    version: str
    role: ServerRole
    node: str
    broker_group: str = ""
    epoch: int = 0
    heartbeat_ms: int = 3_000
    batch_size_max: int = 0


class Notice(Record, frozen=True):
    kind: Literal["stopping", "leases"]
    """leases: some were taken back (a reset); RENEW says which."""
    text: str = ""


class Route(Record, frozen=True):
    """One server that clients may use."""

    broker_group: str
    address: str
    role: Literal["master", "replica"] = "master"
    kind: Literal["realtime", "delay"] = "realtime"
    draining: bool = False
    """It is about to be stopped for good: send to others."""


class RoutesFind(Record, frozen=True):
    """Answered at once, or when the routes are others than `known`, or after `wait_ms`."""

    known: int = 0
    """The version that was told last."""
    wait_ms: int = 0


class Routes(Record, frozen=True):
    version: int
    servers: list[Route]
    away: list[Route] = []
    """Groups that hold messages and have no master now: not hearing them is no answer."""
    placement: Placement | None = None
    """None: every group takes the same, and nobody has sent with an order key yet."""
    homes: dict[str, Home] = {}
    """Topics that do not live on every group."""


class TopicSettings(Record, frozen=True):
    closed: bool = False
    """Only the applications in `apps` may send or consume."""
    apps: list[str] = []
    body_size_max: int = 4 * 1024 * 1024
    rate: int = 0
    """Messages a second that may be sent to it; 0 means no limit, here and below."""
    bytes_rate: int = 0
    over_limit: Literal["refuse", "dead_letter"] = "refuse"
    """What happens to messages over these limits."""
    paused: bool = False
    """Sending is refused; consuming goes on."""
    consume_paused: bool = False
    """Nothing is handed out to any group; sending, acks and retries go on."""
    keep_ms: int = 0
    """Older messages are gone, though others are kept longer; 0 means as long as everything."""
    broker_groups: int = 0
    """On so many broker groups new messages without order keys are stored; 0 means on all."""
    on_groups: list[str] = []
    """Or on these."""
    placement: Placement | None = None
    """Only of one topic of our own."""


class Topic(Record, frozen=True):
    id: int
    name: str
    created_at_ms: int
    settings: TopicSettings = TopicSettings()


class TopicCreate(Record, frozen=True):
    name: str
    settings: TopicSettings = TopicSettings()


class TopicNamed(Record, frozen=True):
    name: str


class TopicFind(Record, frozen=True):
    """Which topics to list, by name; `limit` 0 means all. Ours only if `prefix` begins with %."""

    prefix: str = ""
    after: str = ""
    limit: int = 0


class Topics(Record, frozen=True):
    topics: list[Topic]


StartAt = Literal["earliest", "latest", "sequence", "time"]


class Start(Record, frozen=True):
    """Where reading begins; `value` is a sequence, or milliseconds since 1970 for a time."""

    at: StartAt = "earliest"
    value: int = 0


class GroupSettings(Record, frozen=True):
    """What can be changed for a group while it runs."""

    retry: str = "default"
    """See `core.retry`."""
    attempts_max: int = 17
    """Deliveries that may fail before a message is dead; 0 means no limit."""
    paused: bool = False
    """Nothing is handed out; acks and retries go on."""
    ordered_attempts_max: int = 0
    """The same limit for ordered consumers, where a failing message holds back its key."""
    rate: int = 0
    """Messages a second that are handed out; 0 means no limit, here and below."""
    bytes_rate: int = 0
    in_flight_max: int = 0
    """Messages handed out and not yet settled, of the whole group and of each consumer."""
    consumer_in_flight_max: int = 0
    backlog_alarm: int = 0
    """More ready messages than this are an alarm."""
    paused_sessions: list[str] = []
    """Consumers that are handed nothing."""
    dead_letter_keep_ms: int = -1
    """How long dead letters are open; 0: as long as messages are kept, -1: what the broker says."""
    on_failure: str = "retry"
    """Ordered consumers: 'retry' in place, or 'stop' the key until an operator lets it go on."""
    priority: bool = False
    """Higher priorities first, within a window; not for ordered consumers."""


class GroupSet(Record, frozen=True):
    """Change some settings; None leaves one as it is."""

    topic: str
    group: str
    retry: str | None = None
    attempts_max: int | None = None
    paused: bool | None = None
    ordered_attempts_max: int | None = None
    rate: int | None = None
    bytes_rate: int | None = None
    in_flight_max: int | None = None
    consumer_in_flight_max: int | None = None
    backlog_alarm: int | None = None
    dead_letter_keep_ms: int | None = None
    on_failure: str | None = None
    priority: bool | None = None


class GroupCreate(Record, frozen=True):
    topic: str
    group: str
    start: Start = Start()


class GroupNamed(Record, frozen=True):
    topic: str
    group: str


class GroupFind(Record, frozen=True):
    """Empty means any."""

    topic: str = ""
    group: str = ""


class GroupReset(Record, frozen=True):
    topic: str
    group: str
    start: Start
    dry_run: bool = False


class GroupResetDone(Record, frozen=True):
    from_sequence: int
    to_sequence: int
    again: int
    """Messages that will be handed out (again) because of this."""
    skipped: int
    """Messages that will not be handed out because of this."""


class ConsumerInfo(Record, frozen=True):
    """A consumer that is there now."""

    session: str
    app: str
    host: str
    pid: int
    address: str
    in_flight: int
    joined_at_ms: int


class LedgerLine(Record, frozen=True):
    """Where every message of a lane is, as one group sees it; the states always add up to total."""

    topic: str
    group: str
    lane: str
    """'topic' for the topic's own sequence."""
    start: int
    end: int
    total: int
    ready: int
    in_flight: int
    waiting_retry: int
    acked: int
    filtered: int
    skipped: int
    dead: int
    expired: int
    generation: int = 1
    broker_group: str = ""  # Filled in by the client that asked; empty where it added up.


class Group(Record, frozen=True):
    id: int
    name: str
    topic: str
    created_at_ms: int
    ledger: LedgerLine
    members: list[ConsumerInfo]
    settings: GroupSettings = GroupSettings()
    filter: str = ""
    ordered: bool = False
    broker_group: str = ""


class Groups(Record, frozen=True):
    groups: list[Group]


class HalfLine(Record, frozen=True):
    """Messages of a topic in transactions that have not ended: in no group's line yet."""

    topic: str
    open: int
    dropped: int
    broker_group: str = ""


class Ledger(Record, frozen=True):
    lines: list[LedgerLine]
    halves: list[HalfLine] = []


class Join(Record, frozen=True):
    """Take part in a group; `held` are the leases the client still has from before a reconnect."""

    group: str
    topics: list[str]
    start: Start = Start()
    held: list[int] = []
    tag: str = ""
    filter: str = ""
    ordered: bool = False
    attempts_max: int | None = None  # Of a starting consumer: binds its group, the last one wins.
    picks: bool = False  # This consumer reads picked batches (see `batch.picked`).


class Joined(Record, frozen=True):
    subscription: int
    topics: list[Topic]
    new: list[bool]
    """Per topic: was the group made by this call (so that `start` counted)."""
    kept: list[int]
    """Which of the `held` leases are still this client's."""
    lease_ms: int


class Done(Record, frozen=True):
    """Rows of one lease that are settled: handled, to be retried later, refused for good, or given
    back untouched."""

    lease: int
    first: int
    end: int
    kind: Literal["ack", "retry", "reject", "back"] = "ack"
    after_ms: int = -1
    """For a retry; -1 leaves it to the group's policy."""
    reason: str = ""
    error: tuple[str, str, str] | None = None
    """Type, text, traceback."""


class Pull(Record, frozen=True):
    subscription: int
    rows_max: int
    size_max: int
    wait_ms: int
    done: list[Done] = []
    cold: bool = False
    """Bytes of old messages may be left out: this consumer gets them from a replica."""


class LeftOut(Record, frozen=True):
    """Rows of one stored batch that are handed out without their bytes."""

    lease: int
    lane: int
    base: int
    """Sequence of the batch's first row."""
    stored_at_ms: int
    """Of the batch: what READ gives has to have the same."""
    ranges: list[tuple[int, int]]
    """Rows of the batch."""
    attempts: list[int] = []
    """Per row; none: every row is at its first."""
    errors: list[tuple[int, int, str, str, str, int]] = []
    """Why rows failed the last time, as in an envelope."""


class Ack(Record, frozen=True):
    subscription: int
    done: list[Done]


class Acked(Record, frozen=True):
    settled: int
    """Rows that changed state because of this call."""
    late: int
    """Rows that were no longer this consumer's, or were settled before."""


class Renew(Record, frozen=True):
    subscription: int
    leases: list[int]
    started: list[tuple[int, int, int]] = []
    """Lease, first, end: rows that the consumer began to handle and has not settled."""


class Renewed(Record, frozen=True):
    lost: list[int]


class Leave(Record, frozen=True):
    """Everything un-acked goes back to the group at once."""

    subscription: int


class Read(Record, frozen=True):
    """Stateless reading by sequence; `end` 0 means no end."""

    topic: str
    sequence: int
    rows_max: int
    size_max: int
    wait_ms: int = 0
    end: int = 0
    columns: list[int] = []
    """Only these columns of the batches (see `batch.layout`); empty means all."""


class Seek(Record, frozen=True):
    topic: str
    start: Start
    size: int = 0
    """Above 0: not the start itself but the sequence so many stored bytes after it."""


class Sought(Record, frozen=True):
    sequence: int
    first: int
    end: int
    size: int = 0
    """Of whole batches before `sequence`, as they are stored. Less than was asked for: there are no
    more, or there were too many to look at; ask on from there."""


class TopicStatus(Record, frozen=True):
    """What one broker group holds of a topic."""

    topic: str
    id: int
    first: int
    end: int
    groups: int


class Status(Record, frozen=True):
    """What a server says about itself, for `tern doctor`, `tern topic show` and the bench."""

    node: str
    role: str
    state: str
    """'ok', or why messages are refused."""
    address: str
    data_dir: str
    started_at_ms: int
    now_ms: int
    disk_free: int
    disk_size: int
    cpu_s: float
    memory: int
    connections: int
    log_start: int
    log_end: int
    registry: str = ""
    topics: list[TopicStatus] = []
    cluster: str = ""
    """Meta servers: the cluster's id."""
    clock_jumps: int = 0
    """Delay servers: how often the wall clock was set since the start, by a second or more."""
    epoch: int = 0
    """Brokers: which life of the group this is."""
    pid: int = 0
    member: str = ""
    """Brokers: the id by which it joined its group."""
    lag: int = 0
    """Replicas: bytes of the message log that the master has and this one has not; -1: unknown."""
    dispatching: dict[str, int] = {}
    """Delay servers: messages on their way to each broker group, decided and not yet there."""
    untaken: int = 0
    """Brokers: delayed messages of transactions that their delay servers have not taken yet."""


class StatusQuery(Record, frozen=True):
    topics: list[str] = []  # Which to report on.


def failure(error: TernError) -> bytes:
    return pack(Failure(code=error.code, message=error.message, details=error.details))


def read_failure(payload: bytes | bytearray | memoryview) -> TernError:
    """The error a peer answered with, ready to be raised."""
    said = unpack(payload, Failure)
    error = from_code(said.code, said.message)
    error.details = said.details  # Not as keywords: a peer's names may be our parameters' names.
    return error
