"""What a server far from meta asks about names: which topics changed, ids of groups, epochs.

The same questions that `discovery.directory.Directory` has, one record each. Only servers ask them:
their applications begin with '%'.
"""

from ternmq.wire.messages.commands import Record, Topic
from ternmq.wire.messages.standings import GroupKind, Standing


class TopicNewsFind(Record, frozen=True):
    """Answered when there is news, or after `wait_ms`."""

    since: int = -1
    """The version that is known; -1: none, tell me where to begin."""
    wait_ms: int = 0


class TopicNews(Record, frozen=True):
    version: int
    topics: list[Topic] = []
    """New or changed, our own included."""
    deleted: list[int] = []
    everything: bool = False
    """Too much to tell: ask TOPIC_LIST for all of them, and STANDINGS."""
    standings: list[Standing] = []
    """Those that may have changed."""


class GroupIdFind(Record, frozen=True):
    topic_id: int
    name: str


class GroupId(Record, frozen=True):
    id: int


class EpochNew(Record, frozen=True):
    broker_group: str


class EpochGiven(Record, frozen=True):
    epoch: int


class Reserve(Record, frozen=True):
    """Numbers that the data of a broker uses, whatever the registry says."""

    broker_group: str
    topic_ids: list[int]
    group_id: int
    epoch: int
    kind: GroupKind = "realtime"


class Reserved(Record, frozen=True):
    unknown: list[int]
    """Topic ids that have messages or groups and were never heard of."""
