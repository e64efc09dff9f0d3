"""Consumer groups: settings, starts, resets, and the ledger of each on its topics."""

from typing import Literal

from ternmq.wire.record import Number, Record

StartAt = Literal["earliest", "latest", "sequence", "time"]


class Start(Record, frozen=True):
    """Where reading begins; `value` is a sequence, or milliseconds since 1970 for a time."""

    at: StartAt = "earliest"
    value: Number = 0


class GroupSettings(Record, frozen=True):
    """What can be changed for a group while it runs."""

    retry: str = "default"
    """See `core.retry`."""
    attempts_max: Number = 17
    """Deliveries that may fail before a message is dead; 0 means no limit."""
    paused: bool = False
    """Nothing is handed out; acks and retries go on."""
    ordered_attempts_max: Number = 0
    """The same limit for ordered consumers, where a failing message holds back its key."""
    rate: Number = 0
    """Messages a second that are handed out; 0 means no limit, here and below."""
    bytes_rate: Number = 0
    in_flight_max: Number = 0
    """Messages handed out and not yet settled, of the whole group and of each consumer."""
    consumer_in_flight_max: Number = 0
    backlog_alarm: Number = 0
    """More ready messages than this are an alarm."""
    paused_sessions: list[str] = []
    """Consumers that are handed nothing."""
    dead_letter_keep_ms: Number = -1
    """How long dead letters are open; 0: as long as messages are kept, -1: what the broker says."""
    on_failure: str = "retry"
    """Ordered consumers: 'retry' in place, or 'stop' the key until an operator lets it go on."""
    priority: bool = False
    """Higher priorities first, within a window; not for ordered consumers."""
    made_by: str = ""
    """The user that it counts for; empty: nobody's."""
    order: str = ""
    """'keys': its consumers are ordered; 'none': they are not; empty: as those there say."""


class GroupSet(Record, frozen=True):
    """Change some settings; None leaves one as it is."""

    topic: str
    group: str
    retry: str | None = None
    attempts_max: Number | None = None
    paused: bool | None = None
    ordered_attempts_max: Number | None = None
    rate: Number | None = None
    bytes_rate: Number | None = None
    in_flight_max: Number | None = None
    consumer_in_flight_max: Number | None = None
    backlog_alarm: Number | None = None
    dead_letter_keep_ms: Number | None = None
    on_failure: str | None = None
    priority: bool | None = None
    order: str | None = None


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
    after: str = ""
    """`following` of the page before."""
    limit: Number = 0
    """At most so many lanes; 0: all of them in one answer."""


class GroupReset(Record, frozen=True):
    topic: str
    group: str
    start: Start
    dry_run: bool = False


class GroupResetDone(Record, frozen=True):
    from_sequence: Number
    to_sequence: Number
    again: Number
    """Messages that will be handed out (again) because of this."""
    skipped: Number
    """Messages that will not be handed out because of this."""


class ConsumerInfo(Record, frozen=True):
    """A consumer that is there now."""

    session: str
    app: str
    host: str
    pid: Number
    address: str
    in_flight: Number
    joined_at_ms: Number


class LedgerLine(Record, frozen=True):
    """Where every message of a lane is, as one group sees it; the states always add up to total."""

    topic: str
    group: str
    lane: str
    """'topic' for the topic's own sequence."""
    start: Number
    end: Number
    total: Number
    ready: Number
    in_flight: Number
    waiting_retry: Number
    acked: Number
    filtered: Number
    skipped: Number
    dead: Number
    expired: Number
    generation: Number = 1
    broker_group: str = ""  # Filled in by the client that asked; empty where it added up.


class Group(Record, frozen=True):
    id: Number
    name: str
    topic: str
    created_at_ms: Number
    ledger: LedgerLine
    members: list[ConsumerInfo]
    settings: GroupSettings = GroupSettings()
    filter: str = ""
    ordered: bool = False
    broker_group: str = ""


class Groups(Record, frozen=True):
    groups: list[Group]
    following: str = ""
    """Ask for more after this; empty: these were the last."""


class HalfLine(Record, frozen=True):
    """Messages of a topic in transactions that have not ended: in no group's line yet."""

    topic: str
    open: Number
    dropped: Number
    broker_group: str = ""


class Ledger(Record, frozen=True):
    lines: list[LedgerLine]
    halves: list[HalfLine] = []
    """With the first page."""
    following: str = ""
    """Ask for more after this; empty: these were the last."""
