"""Hidden topics: the cluster's own, kept beside those of applications. Their names begin with '%'.

A hidden topic needs no place of its own in the registry and no code of its own on disk: dead
letters, refused messages and private lanes are stored as messages of one, placement and limits are
the settings of one. Every server finds them, like every topic, in memory. No application can make
one: `core.ids.check_name` refuses the '%'.
"""

RESERVED = "%"
PLACEMENT = "%placement"
"""Its settings hold the `Placement` of the cluster."""
DEAD_PREFIX = "%dead."
REFUSED_PREFIX = "%refused."
LANE_PREFIX = "%lane."
LATER_PREFIX = "%later."
LIMIT_PREFIX = "%limit."
ACCESS_PREFIX = "%access."
"""Its settings hold one identity: how it proves itself, and what it may do."""

ORIGIN_PREFIX = "%origin."
"""Its settings name one topic that a group has dead letters from."""
KEY_PREFIX = "%key."
"""Its settings hold one wrapped data key of an encrypted topic."""

ACCESS_KEY_PREFIX = "%accesskey."
"""Its settings hold one access key and its secret, by which RocketMQ clients sign."""

SECRET_PREFIXES = (KEY_PREFIX, ACCESS_KEY_PREFIX)
"""Told to nobody by lists, brokers included: meta servers alone answer for them."""
TOLD_PREFIXES = (ACCESS_PREFIX, ORIGIN_PREFIX, *SECRET_PREFIXES)
"""Parts of servers that keep such topics in tables of their own hear of new ones, too."""


def dead_topic(group: str) -> str:
    """The topic that keeps a group's dead letters. It may be read."""
    return f"{DEAD_PREFIX}{group}"


def origin_topic(topic_id: int, group: str) -> str:
    """The topic that says: this group has dead letters from there."""
    return f"{ORIGIN_PREFIX}{topic_id}.{group}"


def origin_group(name: str) -> str:
    """Whose letters such a topic speaks of."""
    return name.removeprefix(ORIGIN_PREFIX).partition(".")[2]


def refused_topic(topic: str) -> str:
    """The topic that keeps what was over a topic's limit; deleted together with it."""
    return f"{REFUSED_PREFIX}{topic}"


def lane_topic(topic_id: int, group: str) -> str:
    """The topic that is one group's private lane beside a topic."""
    return f"{LANE_PREFIX}{topic_id}.{group}"


def lane_owner(name: str) -> int:
    """The id of the topic that a private lane lies beside; -1 for any other topic."""
    if not name.startswith(LANE_PREFIX):
        return -1
    return int(name.removeprefix(LANE_PREFIX).partition(".")[0])


def later_topic(delay_server: str) -> str:
    """The topic whose messages this delay server takes; deleted when the server is forgotten."""
    return f"{LATER_PREFIX}{delay_server}"


def send_limit(app: str) -> str:
    """The topic whose rates say how much an application may send; no topic, no limit."""
    return f"{LIMIT_PREFIX}send.{app}"


def consume_limit(app: str) -> str:
    """The topic whose rates say how much an application may consume."""
    return f"{LIMIT_PREFIX}consume.{app}"


def access_topic(identity: str) -> str:
    """The topic that keeps an identity, or a pattern of identities; '*' is no letter of a name."""
    return f"{ACCESS_PREFIX}{identity.replace('*', RESERVED)}"


def access_identity(topic: str) -> str:
    """Whom such a topic is about."""
    return topic.removeprefix(ACCESS_PREFIX).replace(RESERVED, "*")


def key_topic(topic: str, label: str) -> str:
    """The topic that keeps a data key; '%' is no letter of a topic's name."""
    return f"{KEY_PREFIX}{topic}{RESERVED}{label}"


def key_owner(name: str) -> tuple[str, str]:
    """Topic and label of the data key that such a topic keeps."""
    topic, _, label = name.removeprefix(KEY_PREFIX).partition(RESERVED)
    return topic, label


def access_key_topic(id: str) -> str:
    """The topic that keeps an access key."""
    return f"{ACCESS_KEY_PREFIX}{id}"


def plain_name(topic: str) -> str:
    """The group or topic that a hidden topic is for; other names as they are."""
    return topic.removeprefix(DEAD_PREFIX).removeprefix(REFUSED_PREFIX)
