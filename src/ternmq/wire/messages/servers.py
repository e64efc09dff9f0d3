"""Requests of servers to meta: routes, registration, news of topics, ids of groups, epochs.

The same questions that `discovery.directory.Directory` has, one record each. Only servers ask them:
their applications begin with '%'.
"""

from typing import Literal

from ternmq.wire.messages.order_keys import Home, Placement
from ternmq.wire.messages.standings import BrokerGroupKind, Standing
from ternmq.wire.messages.topics import Topic
from ternmq.wire.record import Record


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


class Register(Record, frozen=True):
    route: Route
    """Its role is worked out by the meta server when there is a member."""
    member: str = ""
    """The id by which it joined its broker group; empty: it joined none."""
    epoch: int = 0
    """It is ready to serve as master at this epoch; 0: as a replica."""


class Registered(Record, frozen=True):
    heartbeat_ms: int
    """Say it again this often."""
    dead_after_ms: int


class Withdraw(Record, frozen=True):
    route: Route
    for_good: bool = False
    """It holds nothing any more: do not remember it. Address and role do not matter then."""
    member: str = ""


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
    kind: BrokerGroupKind = "realtime"


class Reserved(Record, frozen=True):
    unknown: list[int]
    """Topic ids that have messages or groups and were never heard of."""
