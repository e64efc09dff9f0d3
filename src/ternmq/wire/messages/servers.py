"""Requests of servers to meta: routes, registration, news of topics, ids of groups, epochs.

The same questions that `discovery.directory.Directory` has, one record each. Only servers ask them:
their applications begin with '%'.
"""

from typing import Literal

from ternmq.wire.messages.order_keys import Home, Placement
from ternmq.wire.messages.standings import BrokerGroupKind, Standing
from ternmq.wire.messages.topics import Topic
from ternmq.wire.record import Number, Record


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

    known: Number = 0
    """The version that was told last."""
    wait_ms: Number = 0


class Encryption(Record, frozen=True):
    """How bodies of a topic are encrypted."""

    master_key: str
    period_ms: Number


class Routes(Record, frozen=True):
    version: Number
    servers: list[Route]
    away: list[Route] = []
    """Groups that hold messages and have no master now: not hearing them is no answer."""
    placement: Placement | None = None
    """None: every group takes the same, and nobody has sent with an order key yet."""
    homes: dict[str, Home] = {}
    """Topics that do not live on every group."""
    body_sizes: dict[str, Number] = {}
    """Topics that take only smaller bodies than all do, so that producers say so at once; of many
    such topics some, the brokers know them all."""
    encrypted: dict[str, Encryption] = {}
    """Topics whose bodies are encrypted by producers: all of them."""


class Register(Record, frozen=True):
    route: Route
    """Its role is worked out by the meta server when there is a member."""
    member: str = ""
    """The id by which it joined its broker group; empty: it joined none."""
    epoch: Number = 0
    """It is ready to serve as master at this epoch; 0: as a replica."""


class Registered(Record, frozen=True):
    heartbeat_ms: Number
    """Say it again this often."""
    dead_after_ms: Number


class Withdraw(Record, frozen=True):
    route: Route
    for_good: bool = False
    """It holds nothing any more: do not remember it. Address and role do not matter then."""
    member: str = ""


class TopicNewsFind(Record, frozen=True):
    """Answered when there is news, or after `wait_ms`."""

    since: Number = -1
    """The version that is known; -1: none, tell me where to begin."""
    wait_ms: Number = 0


class TopicNews(Record, frozen=True):
    version: Number
    topics: list[Topic] = []
    """New or changed, our own included."""
    deleted: list[Number] = []
    everything: bool = False
    """Too much to tell: ask TOPIC_LIST for all of them, and STANDINGS."""
    standings: list[Standing] = []
    """Those that may have changed."""


class GroupIdFind(Record, frozen=True):
    topic_id: Number
    name: str


class GroupId(Record, frozen=True):
    id: Number


class EpochNew(Record, frozen=True):
    broker_group: str


class EpochGiven(Record, frozen=True):
    epoch: Number


class Reserve(Record, frozen=True):
    """Numbers that the data of a broker uses, whatever the registry says."""

    broker_group: str
    topic_ids: list[Number]
    group_id: Number
    epoch: Number
    kind: BrokerGroupKind = "realtime"
    names: list[str] = []
    """Of the topics, in the order of `topic_ids`; empty: not known."""


class Reserved(Record, frozen=True):
    unknown: list[Number]
    """Topic ids that have messages or groups and were never heard of."""
