"""Names of topics and groups on both sides.

RocketMQ clients allow letters, digits, `%`, `_` and `-`; TernMQ letters, digits, `.`, `_` and `-`.
A topic whose name has a dot is reached by an alias, which the gateway's settings give: nothing is
guessed. A namespace `n` puts `n.` before the name, unless that has an alias. Pure.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ternmq.core.errors import BadConfig, BadName
from ternmq.core.ids import check_name
from ternmq.gateway.protocol.codes import Code, Refused

ROCKETMQ_NAME = re.compile(r"[%A-Za-z0-9_-]{1,127}", re.ASCII)
DEAD_PREFIX = "%DLQ%"


@dataclass(frozen=True, slots=True)
class GatewayNames:
    """The aliases of one gateway: what a client says, and what it means here."""

    topics: Mapping[str, str] = field(default_factory=dict)
    groups: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for aliases in (self.topics, self.groups):
            for alias, name in aliases.items():
                if ROCKETMQ_NAME.fullmatch(alias) is None:
                    raise BadConfig(f"{alias!r} cannot be an alias: RocketMQ clients refuse it")
                check_name("topic", name)
            if len(set(aliases.values())) != len(aliases):
                raise BadConfig("two aliases mean the same name: a message could have either")

    def topic(self, resource: Any, namespace: str = "") -> str:
        """The TernMQ topic that a client means."""
        if resource.name.startswith(DEAD_PREFIX):
            raise Refused(
                Code.ILLEGAL_TOPIC,
                f"dead letters of group {resource.name[len(DEAD_PREFIX) :]!r} are no topic here: "
                "'tern dead list' shows them, 'tern dead resend' sends them again",
            )
        return _meant(self.topics, resource, namespace, Code.ILLEGAL_TOPIC, "topic")

    def group(self, resource: Any, namespace: str = "") -> str:
        """The TernMQ group that a client means."""
        return _meant(self.groups, resource, namespace, Code.ILLEGAL_CONSUMER_GROUP, "group")


def _meant(aliases: Mapping[str, str], resource: Any, namespace: str, code: Code, kind: str) -> str:
    name, space = resource.name, resource.resource_namespace or namespace
    if name in aliases and not space:
        return aliases[name]
    whole = f"{space}.{name}" if space else name
    try:
        return check_name(kind, whole)
    except BadName as error:
        raise Refused(code, error.message) from None
