"""Topics: their settings, making, finding and deleting them, and the keys of encrypted ones."""

from typing import Literal

from ternmq.core.errors import BadRequest
from ternmq.wire.messages.order_keys import Placement
from ternmq.wire.record import Number, Record

KEY_PERIOD_MS = 30 * 86_400_000
ASKED_MAX = 1_000
"""Topics that one request is about."""


def asked_once(names: list[str]) -> list[str]:
    """Each of them once; raises `BadRequest` for more than one request is answered about: a frame
    has room for so many that a server would do nothing else for seconds."""
    if len(names) > ASKED_MAX:
        raise BadRequest(
            f"a request is about at most {ASKED_MAX} topics, this one names {len(names)}: ask in "
            "parts"
        )
    return list(dict.fromkeys(names))


class TopicSettings(Record, frozen=True):
    closed: bool = False
    """Only the applications in `apps` may send or consume."""
    apps: list[str] = []
    body_size_max: Number = 4 * 1024 * 1024
    rate: Number = 0
    """Messages a second that may be sent to it; 0 means no limit, here and below."""
    bytes_rate: Number = 0
    over_limit: Literal["refuse", "dead_letter"] = "refuse"
    """What happens to messages over these limits."""
    paused: bool = False
    """Sending is refused; consuming goes on."""
    consume_paused: bool = False
    """Nothing is handed out to any group; sending, acks and retries go on."""
    keep_ms: Number = 0
    """Older messages are gone, though others are kept longer; 0 means as long as everything."""
    broker_groups: Number = 0
    """On so many broker groups new messages without order keys are stored; 0 means on all."""
    on_groups: list[str] = []
    """Or on these."""
    placement: Placement | None = None
    """Only of one topic of our own."""
    master_key: str = ""
    """Bodies are encrypted, under data keys that this master key of its clients wraps."""
    key_period_ms: Number = 0
    """After so long another data key; 0 means `KEY_PERIOD_MS`."""
    made_by: str = ""
    """The user that made it, where security is on: it counts against that one's quota."""


class Topic(Record, frozen=True):
    id: Number
    name: str
    created_at_ms: Number
    settings: TopicSettings = TopicSettings()


class TopicCreate(Record, frozen=True):
    name: str
    settings: TopicSettings = TopicSettings()


class TopicNamed(Record, frozen=True):
    name: str


class TopicIds(Record, frozen=True):
    """Topics by number."""

    ids: list[Number]


class TopicFind(Record, frozen=True):
    """Which topics to list, by name; `limit` 0 means all. Ours only if `prefix` begins with %."""

    prefix: str = ""
    after: str = ""
    limit: Number = 0


class Topics(Record, frozen=True):
    topics: list[Topic]


class TopicKeyMake(Record, frozen=True):
    """A data key for what `label` says, wrapped, if there is none yet: `p`, the start of its period
    and eight digits of the master key's digest, or `s` and the digest of a subject."""

    topic: str
    label: str
    master_key: str
    wrapped: bytes


class TopicKeyFind(Record, frozen=True):
    """Data keys of a topic by number."""

    topic: str
    ids: list[Number]


class TopicKey(Record, frozen=True):
    """A data key as the registry keeps it: wrapped."""

    id: Number
    topic: str
    label: str = ""
    master_key: str = ""
    wrapped: bytes = b""
    erased: bool = False
    """It was deleted; nothing opens it any more."""
    made_at_ms: Number = 0


class TopicKeys(Record, frozen=True):
    keys: list[TopicKey]


class TopicKeyQuery(Record, frozen=True):
    """The keys that a topic has, without what is wrapped."""

    topic: str
    limit: Number = 1_000
    before: Number = 0
    """Only keys with lower numbers; 0: all."""


class TopicKeyRewrap(Record, frozen=True):
    """The same data key, wrapped by another master key; only if it is wrapped as `known` says."""

    topic: str
    id: Number
    known: bytes
    """What was wrapped, as the registry had it."""
    master_key: str
    wrapped: bytes


class KeyErase(Record, frozen=True):
    """Delete the keys of a subject, by its digest, in one topic or (empty) in all."""

    digest: str
    topic: str = ""


class KeyErased(Record, frozen=True):
    topics: list[str]
    """In which a key was deleted now."""
