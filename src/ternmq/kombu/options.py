"""The `broker_transport_options` of TernMQ, checked."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ternmq.client.model.arguments import check_value
from ternmq.core.errors import BadConfig, BadRequest
from ternmq.core.ids import check_name

# Exchanges of Celery itself that are no fanouts and that everybody listens to all the same.
EVERYBODYS = ("celeryev", ".pidbox")


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportOptions:
    """How queues are topics here."""

    app: str = "celery"
    """The name under which everything is sent and consumed."""
    group: str = "celery"
    """The consumer group of all queues."""
    topic_prefix: str = ""
    ordered: bool = False
    """Tasks with the same `order_key` header run one after the other."""
    confirm: Literal["stored", "nowait"] = "stored"
    """`delay()` returns when the task is safe on disk, or at once."""
    broadcast_exchanges: tuple[str, ...] = ()
    """More exchanges whose messages reach every queue that is bound anywhere."""

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> "TransportOptions":
        """What is ours of the options; kombu and Celery have their own beside them."""
        own = {name: given[name] for name in cls.__annotations__ if name in given}
        if isinstance(own.get("broadcast_exchanges"), list):
            own["broadcast_exchanges"] = tuple(own["broadcast_exchanges"])
        try:
            for name, value in own.items():
                check_value(name, value, cls.__annotations__[name])
            options = cls(**own)
            check_name("app", options.app)
            check_name("group", options.group)
            if options.topic_prefix:
                check_name("topic", options.topic_prefix + "x")
        except BadRequest as error:
            raise BadConfig(f"broker_transport_options: {error.message}") from error
        return options

    def is_everybodys(self, exchange: str, kind: str) -> bool:
        """Is it read along by everybody, instead of shared?"""
        return (
            kind == "fanout"
            or exchange.endswith(EVERYBODYS)
            or exchange in self.broadcast_exchanges
        )
