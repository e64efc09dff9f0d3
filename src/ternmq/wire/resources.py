"""What each command is about: where in a request stand the topics and groups that it wants.

The other half of `wire/actions.py`: the action says what somebody wants to do, the finder here to
what. An empty name is "all of them". A line without a finder is about nothing that belongs to
somebody (the connection itself, lists, of which only what may be seen is shown), or about what was
checked before (a subscription). A command without a line keeps every server from starting. Pure.
"""

from collections.abc import Callable, Mapping

from ternmq.batch.layout import FIXED_SIZE, PRODUCER, PRODUCER_CRC_AT, Attribute
from ternmq.core.errors import ProtocolError
from ternmq.wire.actions import ACTIONS, Action
from ternmq.wire.inspection import rows, sessions, trace
from ternmq.wire.messages import dead_letters, delays, groups, limits, pull, read, standings
from ternmq.wire.messages.order_keys import KeyResume, PlaceChange
from ternmq.wire.messages.publish import Confirm, Find
from ternmq.wire.messages.servers import Withdraw
from ternmq.wire.messages.stats import StatusQuery, TopicFiguresFind
from ternmq.wire.messages.topics import (
    KeyErase,
    TopicCreate,
    TopicKeyFind,
    TopicKeyMake,
    TopicKeyQuery,
    TopicKeyRewrap,
    TopicNamed,
    asked_once,
)
from ternmq.wire.numbers import Command
from ternmq.wire.record import Record, unpack
from ternmq.wire.registry import documents

Buffer = bytes | bytearray | memoryview
Resource = tuple[str, str]
"""A kind and a name: ("topic", "orders"), ("group", "billing"), ("document", "job"); ("letters",
"billing") are the dead letters of a group, which are its and those topics' that they are from."""
Finder = Callable[[Buffer], list[Resource]]

_MERGED = int(Attribute.MERGED)


def batch_names(batch: Buffer) -> tuple[str, str, bool]:
    """Topic, application, and whether other applications' messages are in it. Of bytes that nobody
    has checked yet."""
    if len(batch) < FIXED_SIZE:
        raise ProtocolError(f"{len(batch)} bytes cannot be a batch")
    header = PRODUCER.unpack_from(batch, PRODUCER_CRC_AT)
    attributes, topic_size, app_size = header[1], header[10], header[11]
    topic_end = FIXED_SIZE + topic_size
    try:
        topic = str(batch[FIXED_SIZE:topic_end], "utf-8")
        app = str(batch[topic_end : topic_end + app_size], "utf-8")
    except UnicodeDecodeError:
        raise ProtocolError("the topic or application name is not UTF-8") from None
    return topic, app, bool(attributes & _MERGED)


def _batch_topic(payload: Buffer) -> list[Resource]:
    return [("topic", batch_names(payload)[0])]


def _named(kind: type[Record], **fields: str) -> Finder:
    """The resources that stand in fields of a record: kind of resource = name of the field."""

    def find(payload: Buffer) -> list[Resource]:
        request = unpack(payload, kind)
        return [(each, str(getattr(request, name))) for each, name in fields.items()]

    return find


def _join(payload: Buffer) -> list[Resource]:
    request = unpack(payload, pull.Join)
    return [("group", request.group), *(("topic", name) for name in asked_once(request.topics))]


def _listed(kind: type[StatusQuery] | type[TopicFiguresFind]) -> Finder:
    def find(payload: Buffer) -> list[Resource]:
        return [("topic", name) for name in asked_once(unpack(payload, kind).topics)]

    return find


def _replay(payload: Buffer) -> list[Resource]:
    request = unpack(payload, read.ReplayOpen)
    found = [("topic", request.topic)]
    return [*found, ("group", request.into)] if request.into else found


_EVERYBODY = "*"
ACCESS_KEY = "access-key"
"""Keys by which RocketMQ clients sign: who may grant one is a gateway."""


def _user(payload: Buffer) -> list[Resource]:
    """A password alone is changed by its owner, too."""
    wanted = unpack(payload, limits.UserSet)
    alone = limits.UserSet(name=wanted.name, verifier=wanted.verifier)
    if wanted == alone:
        return [("password", wanted.name)]
    return [("user", "" if wanted.name == _EVERYBODY else wanted.name)]


def _everything(payload: Buffer) -> list[Resource]:
    return [("topic", "")]


def _whole_cluster(payload: Buffer) -> list[Resource]:
    return [("cluster", "")]


def _nothing(payload: Buffer) -> list[Resource]:
    return []


_OF_GROUP = {"topic": "topic", "group": "group"}
_CLUSTER = {"cluster": "broker_group"}

RESOURCES: dict[Command, Finder] = {
    **{command: _nothing for command, action in ACTIONS.items() if action is Action.CONNECT},
    **{command: _nothing for command, action in ACTIONS.items() if action is Action.REPLICATE},
    Command.PUBLISH: _batch_topic,
    Command.PUBLISH_ONCE: _batch_topic,
    Command.HALF: _batch_topic,
    Command.CONFIRM: _named(Confirm, topic="topic"),
    # Whose transaction it is knows the broker: `HalfBatches.check_ending`.
    Command.HALF_END: _nothing,
    Command.DETACHED_END: _nothing,
    Command.CHECKER: _nothing,
    Command.JOIN: _join,
    # By the number of a subscription, which JOIN gave.
    Command.PULL: _nothing,
    Command.ACK: _nothing,
    Command.RENEW: _nothing,
    Command.LEAVE: _nothing,
    Command.SETTLE: _named(pull.Settle, **_OF_GROUP),
    Command.EXTEND: _named(pull.Extend, **_OF_GROUP),
    Command.READ: _named(read.Read, topic="topic"),
    Command.SEEK: _named(read.Seek, topic="topic"),
    Command.FIND: _named(Find, topic="topic"),
    Command.READ_DELIVERIES: _everything,
    Command.REPLAY_OPEN: _replay,
    Command.ROW_STATE: _named(rows.MessageStateFind, topic="topic"),
    Command.WAITING: _named(rows.WaitingFind, topic="topic"),
    Command.TRACE: _named(trace.TraceFind, topic="topic"),
    Command.LEASES: _named(rows.LeaseFind, topic="topic"),
    Command.GROUP_TIMES: _named(groups.GroupNamed, topic="topic"),
    Command.SENDERS: _named(sessions.SenderFind, topic="topic"),
    Command.SESSIONS: _whole_cluster,
    Command.FIGURES: _whole_cluster,
    Command.DISCONNECT: _whole_cluster,
    Command.DELAY_SHOW: _named(delays.DelayShow, topic="topic"),
    Command.DELAY_CHANGE: _named(delays.DelayChange, topic="topic"),
    Command.DELAY_FIND: _named(delays.DelayFind, topic="topic"),
    Command.DELAY_COUNT: _named(delays.DelayCountQuery, topic="topic"),
    Command.DELAY_LEDGER: _named(delays.DelayLedgerQuery, topic="topic"),
    Command.GROUP_CREATE: _named(groups.GroupCreate, **_OF_GROUP),
    Command.GROUP_DELETE: _named(groups.GroupNamed, **_OF_GROUP),
    Command.GROUP_RESET: _named(groups.GroupReset, **_OF_GROUP),
    Command.GROUP_SET: _named(groups.GroupSet, **_OF_GROUP),
    Command.GROUP_RETRY: _named(read.GroupRetry, **_OF_GROUP),
    Command.GROUP_REPLAY: _named(read.GroupReplay, topic="topic", group="into"),
    Command.GROUP_KEYS: _named(groups.GroupNamed, **_OF_GROUP),
    Command.KEY_RESUME: _named(KeyResume, **_OF_GROUP),
    Command.CONSUMER_PAUSE: _named(limits.ConsumerPause, **_OF_GROUP),
    Command.DEAD_OPEN: _named(dead_letters.DeadFind, letters="group"),
    Command.DEAD_RESEND: _named(dead_letters.DeadHandle, letters="group"),
    Command.DEAD_DELETE: _named(dead_letters.DeadHandle, letters="group"),
    Command.DEAD_GROUPS: lambda payload: [("group", "")],
    Command.DEAD_RECALL: _named(dead_letters.DeadRecall, topic="topic", letters="group"),
    Command.REFUSED_OPEN: _named(dead_letters.RefusedFind, topic="topic"),
    Command.REFUSED_RESEND: _named(dead_letters.RefusedHandle, topic="topic"),
    Command.REFUSED_DELETE: _named(dead_letters.RefusedHandle, topic="topic"),
    Command.TOPIC_CREATE: _named(TopicCreate, topic="name"),
    Command.TOPIC_SET: _named(limits.TopicSet, topic="name"),
    Command.TOPIC_DELETE: _named(TopicNamed, topic="name"),
    Command.LIMIT_SET: _named(limits.LimitSet, app="app"),
    Command.TOPIC_KEY_MAKE: _named(TopicKeyMake, topic="topic"),
    Command.TOPIC_KEY_FIND: _named(TopicKeyFind, topic="topic"),
    Command.TOPIC_KEY_LIST: _named(TopicKeyQuery, topic="topic"),
    Command.KEY_ERASE: _named(KeyErase, topic="topic"),
    Command.TOPIC_KEY_REWRAP: _named(TopicKeyRewrap, topic="topic"),
    # Rights are given by kind.
    Command.DOC_LIST: _named(documents.DocumentQuery, document="kind"),
    Command.DOC_GET: _named(documents.DocumentNamed, document="kind"),
    Command.DOC_PUT: _named(documents.DocumentPut, document="kind"),
    Command.DOC_DELETE: _named(documents.DocumentDelete, document="kind"),
    # Lists, of which only what may be seen is shown: `rpc/guarded/answer_filter.py`.
    Command.ROUTES: _nothing,
    Command.STANDINGS: _nothing,
    Command.TOPIC_LIST: _nothing,
    Command.LIMIT_LIST: _nothing,
    Command.GROUP_LIST: _nothing,
    Command.HALF_LIST: _nothing,
    Command.LEDGER: _nothing,
    Command.GROUP_FIGURES: _nothing,
    Command.FIGURES_PAGE: _nothing,
    Command.STATUS: _listed(StatusQuery),
    Command.TOPIC_FIGURES: _listed(TopicFiguresFind),
    Command.MEMBER_LEAD: _named(standings.MemberLead, **_CLUSTER),
    Command.MEMBER_FORGET: _named(standings.MemberForget, **_CLUSTER),
    Command.BROKER_GROUP_DRAIN: _named(standings.BrokerGroupDrain, **_CLUSTER),
    Command.HANDOVER: _named(standings.Handover, **_CLUSTER),
    Command.PLACE: _named(PlaceChange, **_CLUSTER),
    Command.WITHDRAW: lambda payload: [("cluster", unpack(payload, Withdraw).route.broker_group)],
    Command.USER_SET: _user,
    Command.USER_LIST: lambda payload: [("user", unpack(payload, limits.UserFind).name)],
    Command.USER_REMOVE: _named(limits.UserNamed, user="name"),
    Command.GRANT_SET: lambda payload: [("user", "")],
    # One's own, like one's own password.
    Command.TOKEN_CREATE: _named(limits.TokenCreate, password="user"),
    Command.TOKEN_LIST: _named(limits.TokenFind, password="user"),
    Command.TOKEN_REVOKE: _named(limits.TokenRevoke, password="user"),
    Command.ACCESS_KEY_SET: _named(limits.AccessKeySet, password="user"),
    Command.ACCESS_KEY_LIST: _named(limits.AccessKeyFind, password="user"),
    Command.ACCESS_KEY_OPEN: lambda payload: [
        (ACCESS_KEY, unpack(payload, limits.AccessKeyOpen).id)
    ],
}


def without_resources(table: Mapping[Command, Finder]) -> list[str]:
    """The names of the commands that have no line."""
    return [command.name for command in Command if command not in table]


if without_resources(RESOURCES):
    raise RuntimeError(f"commands without resources: {', '.join(without_resources(RESOURCES))}")
