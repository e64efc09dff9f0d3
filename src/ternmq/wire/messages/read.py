"""Reading without a lease: ranges of a topic, delivery records, and replays into one group."""

from ternmq.wire.messages.groups import Start
from ternmq.wire.record import Number, Record


class Read(Record, frozen=True):
    """Stateless reading by sequence; `end` 0 means no end."""

    topic: str
    sequence: Number
    rows_max: Number
    size_max: Number
    wait_ms: Number = 0
    end: Number = 0
    columns: list[Number] = []
    """Only these columns of the batches (see `batch.layout`); empty means all."""


class Seek(Record, frozen=True):
    topic: str
    start: Start
    size: Number = 0
    """Above 0: not the start itself but the sequence so many stored bytes after it."""
    group: str = ""
    """Of a consumer group: not the start but its first message that is not settled."""


class Sought(Record, frozen=True):
    sequence: Number
    first: Number
    end: Number
    size: Number = 0
    """Of whole batches before `sequence`, as they are stored. Less than was asked for: there are no
    more, or there were too many to look at; ask on from there."""
    group: str = ""
    """Whose position it is; empty: nobody's, or of a server that knows no positions of groups."""
    settled: list[tuple[Number, Number]] = []
    """Sequences behind it that the group has settled."""


class DeliveriesRead(Record, frozen=True):
    """Records from `position` on, an offset in the broker's pull log; -1 asks for bounds only."""

    position: Number
    size_max: Number
    end: Number = 0
    """Not beyond this offset; 0 means no end."""


class DeliveriesNames(Record, frozen=True):
    """Whose records they are."""

    group_id: Number
    group: str
    topic: str
    lane: str
    """'topic', or 'private' for what is meant for the group alone."""


class DeliveriesPage(Record, frozen=True):
    first: Number
    """Where the log begins now; records before it are gone."""
    end: Number
    """Where its safe part ends now."""
    following: Number
    """Where the next read goes on."""
    records: bytes
    """Whole pull records, one after the other, snapshots left out."""
    names: list[DeliveriesNames]
    damaged: Number = 0
    """Bytes of these that cannot be read any more, and were passed over."""


class GroupReplay(Record, frozen=True):
    """Copy some stored messages of a topic into the private lane of one of its groups.

    Asked again and again from the answer's `next` on until that is `end`. `replay` names the whole
    of it: what a replay of this name has copied already is passed over, so a step whose answer was
    lost may be asked again. A dry run copies nothing and looks at everything.
    """

    topic: str
    into: str
    first: Number
    end: Number
    replay: str
    """26 characters, as a message id."""
    rows_max: Number = 1_000
    tag: str = ""
    filter: str = ""
    dry_run: bool = False


class GroupReplayed(Record, frozen=True):
    next: Number
    """Where the next step goes on."""
    copied: Number
    filtered: Number
    unreadable: Number
    """Messages that are gone or damaged."""


class ReplayOpen(Record, frozen=True):
    """Begin, or go on with, a replay whose messages the client has (from an archive).

    Its batches are then published as the answer says. `replay` and `source` together name one line
    of messages that rise in number; the broker remembers how far each line is.
    """

    topic: str
    """Where they go; with `into`, the topic of that group."""
    replay: str
    source: str
    into: str = ""
    """A group of the topic: they go into its private lane. Empty: into the topic itself."""
    dry_run: bool = False
    """Only check, and tell how far it is; nothing is made."""


class ReplayOpened(Record, frozen=True):
    topic: str
    """What batches are published to; empty in a dry run."""
    start_ms: Number
    random: Number
    """Start and random: the producer that batches are published as."""
    position: Number
    """The number after the highest that is stored; 0: none is."""


class GroupRetry(Record, frozen=True):
    """What waits for a retry is ready at once, as attempt 1."""

    topic: str
    group: str
    dry_run: bool = False


class GroupRetried(Record, frozen=True):
    rows: Number
