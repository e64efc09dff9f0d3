"""The parts of a running gateway that its calls share."""

from dataclasses import dataclass
from typing import Any

from ternmq.client.client import Client
from ternmq.core.clock import Clock
from ternmq.gateway.config import GatewayConfig
from ternmq.gateway.handlers.cluster_facts import ClusterFacts
from ternmq.gateway.protocol.codes import Code, text_of
from ternmq.gateway.protocol.names import GatewayNames
from ternmq.gateway.sessions.clients import ClientTable
from ternmq.gateway.sessions.group_consumers import GroupConsumers
from ternmq.gateway.sessions.half_messages import HalfMessages
from ternmq.gateway.sessions.recent_sends import RecentSends
from ternmq.gateway.sessions.shared_sends import SharedSends


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayContext:
    """One gateway over one cluster."""

    mq: Client
    clock: Clock
    config: GatewayConfig
    names: GatewayNames
    known: ClusterFacts
    clients: ClientTable
    consumers: GroupConsumers
    halves: HalfMessages
    recent: RecentSends
    sends: SharedSends


def put_status(target: Any, code: Code, message: str = "") -> None:
    """Write how a call ended into its answer."""
    target.code = int(code)
    target.message = text_of(code, message)


def put_whole_status(answer: Any) -> None:
    """How a call went whose entries have statuses of their own."""
    codes = {entry.status.code for entry in answer.entries}
    if len(codes) == 1:
        answer.status.CopyFrom(answer.entries[0].status)
    else:
        put_status(answer.status, Code.MULTIPLE_RESULTS)
