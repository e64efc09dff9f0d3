"""What each command is as an action: the one table by which it is decided who may send it.

It tells apart what only servers of the cluster may ask (`REPLICATE`), which have to prove who they
are (`rpc/node_proof.py`), from the rest. With security on, rights of people and applications are
given by the same actions; what each command is about stands in `wire/resources.py`. A command
without a line here is a bug that keeps every server from starting.
"""

from collections.abc import Mapping
from enum import StrEnum

from ternmq.wire.numbers import Command


class Action(StrEnum):
    """What a user wants to do."""

    CONNECT = "connect"
    """The connection's own frames, and what servers send unasked."""
    PUBLISH = "publish"
    SUBSCRIBE = "subscribe"
    READ = "read"
    """Messages without a lease, and what became of them; documents."""
    DELAY = "delay"
    """Find, cancel and move messages that are for later."""
    OPERATE = "operate"
    """Groups, dead letters, refused messages, stopped keys, transactions of others."""
    MANAGE = "manage"
    """Topics, limits and documents."""
    DESCRIBE = "describe"
    CLUSTER = "cluster"
    """Which server leads, is drained, is forgotten: people decide that, and servers."""
    GRANT = "grant"
    """Users, and who may do what."""
    REPLICATE = "replicate"
    """Of servers only."""


ACTIONS: dict[Command, Action] = {
    Command.HELLO: Action.CONNECT,
    Command.PING: Action.CONNECT,
    Command.NOTICE: Action.CONNECT,
    Command.AUTH: Action.CONNECT,
    Command.WHO_AM_I: Action.CONNECT,
    Command.TOKEN_END: Action.CONNECT,
    Command.CHECK: Action.CONNECT,
    Command.REPLICATE: Action.CONNECT,
    Command.PUBLISH: Action.PUBLISH,
    Command.PUBLISH_ONCE: Action.PUBLISH,
    Command.CONFIRM: Action.PUBLISH,
    Command.HALF: Action.PUBLISH,
    Command.HALF_END: Action.PUBLISH,
    Command.DETACHED_END: Action.PUBLISH,
    Command.CHECKER: Action.PUBLISH,
    Command.TOPIC_KEY_MAKE: Action.PUBLISH,
    Command.JOIN: Action.SUBSCRIBE,
    Command.PULL: Action.SUBSCRIBE,
    Command.ACK: Action.SUBSCRIBE,
    Command.RENEW: Action.SUBSCRIBE,
    Command.LEAVE: Action.SUBSCRIBE,
    Command.SETTLE: Action.SUBSCRIBE,
    Command.EXTEND: Action.SUBSCRIBE,
    Command.READ: Action.READ,
    Command.SEEK: Action.READ,
    Command.FIND: Action.READ,
    Command.READ_DELIVERIES: Action.READ,
    Command.REPLAY_OPEN: Action.READ,
    Command.ROW_STATE: Action.READ,
    Command.WAITING: Action.READ,  # Texts of errors may say what is in messages.
    Command.TRACE: Action.READ,
    Command.DELAY_SHOW: Action.READ,
    Command.TOPIC_KEY_FIND: Action.READ,
    Command.DOC_LIST: Action.READ,
    Command.DOC_GET: Action.READ,
    Command.DELAY_CHANGE: Action.DELAY,
    Command.DELAY_FIND: Action.DELAY,
    Command.DELAY_COUNT: Action.DELAY,
    Command.DELAY_LEDGER: Action.DELAY,
    Command.GROUP_CREATE: Action.OPERATE,
    Command.GROUP_DELETE: Action.OPERATE,
    Command.GROUP_RESET: Action.OPERATE,
    Command.GROUP_SET: Action.OPERATE,
    Command.GROUP_RETRY: Action.OPERATE,
    Command.GROUP_REPLAY: Action.OPERATE,
    Command.GROUP_KEYS: Action.OPERATE,
    Command.KEY_RESUME: Action.OPERATE,
    Command.CONSUMER_PAUSE: Action.OPERATE,
    Command.DEAD_OPEN: Action.OPERATE,
    Command.DEAD_RESEND: Action.OPERATE,
    Command.DEAD_DELETE: Action.OPERATE,
    Command.DEAD_GROUPS: Action.OPERATE,
    Command.DEAD_RECALL: Action.OPERATE,
    Command.REFUSED_OPEN: Action.OPERATE,
    Command.REFUSED_RESEND: Action.OPERATE,
    Command.REFUSED_DELETE: Action.OPERATE,
    Command.TOPIC_CREATE: Action.MANAGE,
    Command.TOPIC_SET: Action.MANAGE,
    Command.TOPIC_DELETE: Action.MANAGE,
    Command.LIMIT_SET: Action.MANAGE,
    Command.TOPIC_KEY_LIST: Action.MANAGE,
    Command.KEY_ERASE: Action.MANAGE,
    Command.TOPIC_KEY_REWRAP: Action.MANAGE,
    Command.DOC_PUT: Action.MANAGE,
    Command.DOC_DELETE: Action.MANAGE,
    Command.ROUTES: Action.DESCRIBE,
    Command.STANDINGS: Action.DESCRIBE,
    Command.TOPIC_LIST: Action.DESCRIBE,
    Command.LIMIT_LIST: Action.DESCRIBE,
    Command.GROUP_LIST: Action.DESCRIBE,
    Command.HALF_LIST: Action.DESCRIBE,
    Command.LEDGER: Action.DESCRIBE,
    Command.STATUS: Action.DESCRIBE,
    Command.TOPIC_FIGURES: Action.DESCRIBE,
    Command.GROUP_FIGURES: Action.DESCRIBE,
    Command.FIGURES_PAGE: Action.DESCRIBE,
    Command.GROUP_TIMES: Action.DESCRIBE,
    Command.LEASES: Action.DESCRIBE,
    Command.SENDERS: Action.DESCRIBE,
    Command.MEMBER_LEAD: Action.CLUSTER,
    Command.MEMBER_FORGET: Action.CLUSTER,
    Command.BROKER_GROUP_DRAIN: Action.CLUSTER,
    Command.HANDOVER: Action.CLUSTER,
    Command.FIGURES: Action.CLUSTER,
    Command.SESSIONS: Action.CLUSTER,
    Command.DISCONNECT: Action.CLUSTER,
    Command.PLACE: Action.CLUSTER,  # "stopped" and "settled" are said by servers only.
    Command.WITHDRAW: Action.CLUSTER,  # By people for good; that a server leaves says it itself.
    Command.USER_SET: Action.GRANT,
    Command.USER_LIST: Action.GRANT,
    Command.USER_REMOVE: Action.GRANT,
    Command.GRANT_SET: Action.GRANT,
    Command.TOKEN_CREATE: Action.GRANT,
    Command.TOKEN_LIST: Action.GRANT,
    Command.TOKEN_REVOKE: Action.GRANT,
    Command.ACCESS_KEY_SET: Action.GRANT,
    Command.ACCESS_KEY_LIST: Action.GRANT,
    Command.ACCESS_KEY_OPEN: Action.GRANT,  # Who has a key is its user.
    Command.REGISTER: Action.REPLICATE,
    Command.MEMBER_JOIN: Action.REPLICATE,
    Command.IN_SYNC_CHANGE: Action.REPLICATE,
    Command.IN_SYNC_LEAVE: Action.REPLICATE,
    Command.TOPIC_NEWS: Action.REPLICATE,
    Command.GROUP_ID: Action.REPLICATE,
    Command.GROUP_FORGET: Action.REPLICATE,
    Command.EPOCH: Action.REPLICATE,
    Command.RESERVE: Action.REPLICATE,
    Command.TOPICS_GONE: Action.REPLICATE,
    Command.FOLLOW: Action.REPLICATE,
    Command.REPLICATED: Action.REPLICATE,
    Command.BASE_OPEN: Action.REPLICATE,
    Command.BASE_READ: Action.REPLICATE,
    Command.SLOTS_OPEN: Action.REPLICATE,
}

ALSO_BY: dict[int, Action] = {
    Command.READ: Action.SUBSCRIBE,
    Command.TOPIC_KEY_FIND: Action.SUBSCRIBE,
    Command.GROUP_CREATE: Action.SUBSCRIBE,
    Command.GROUP_SET: Action.SUBSCRIBE,
}
"""What consumers do besides consuming: they fetch old messages from replicas, and bring their group
with its settings to a broker group that has not heard of it. Either right will do."""

OF_NODES = frozenset(
    int(command) for command, action in ACTIONS.items() if action is Action.REPLICATE
)
"""Refused from everybody who did not prove to be a server of the cluster."""


def without_action(actions: Mapping[Command, Action]) -> list[str]:
    """The names of the commands that have no line."""
    return [command.name for command in Command if command not in actions]


if without_action(ACTIONS):
    raise RuntimeError(f"commands without an action: {', '.join(without_action(ACTIONS))}")
