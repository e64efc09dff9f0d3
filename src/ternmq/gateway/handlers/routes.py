"""QueryRoute, QueryAssignment: where messages are.

TernMQ has no partitions, so a topic is one queue, number 0, at the very address that the client
dialled: whatever stands between the two, it works again. A push consumer of an ordered group is
given several assignments: most clients handle one after the other what one of them brings.
"""

from typing import Any

from ternmq.gateway.handlers.context import GatewayContext, put_status
from ternmq.gateway.protocol.codes import Code, Refused
from ternmq.gateway.protocol.enums import READ_WRITE, TAKEN_KINDS
from ternmq.gateway.protocol.messages import QueryAssignmentResponse, QueryRouteResponse
from ternmq.gateway.sessions.callers import RocketCaller
from ternmq.rpc.http2.calls import RemoteCall

BROKER_NAME = "ternmq"
ORDERED_ASSIGNMENTS = 8
ADDRESSES_MAX = 64


class RouteCalls:
    """Answers where a topic is."""

    def __init__(self, gateway: GatewayContext) -> None:
        self._gateway = gateway

    async def query_route(self, caller: RocketCaller, request: Any, _call: RemoteCall) -> Any:
        topic = self._gateway.names.topic(request.topic, caller.namespace)
        await self._gateway.known.check_topic(topic)
        answer = QueryRouteResponse()
        _put_queue(answer.message_queues.add(), request.topic, request.endpoints, 0)
        put_status(answer.status, Code.OK)
        return answer

    async def query_assignment(self, caller: RocketCaller, request: Any, _call: RemoteCall) -> Any:
        gateway = self._gateway
        topic = gateway.names.topic(request.topic, caller.namespace)
        group = gateway.names.group(request.group, caller.namespace)
        await gateway.known.check_topic(topic)
        policy = await gateway.known.policy(topic, group)
        answer = QueryAssignmentResponse()
        for number in range(ORDERED_ASSIGNMENTS if policy.fifo else 1):
            queue = answer.assignments.add().message_queue
            _put_queue(queue, request.topic, request.endpoints, number)
        put_status(answer.status, Code.OK)
        return answer


def _put_queue(queue: Any, topic: Any, endpoints: Any, number: int) -> None:
    if not 0 < len(endpoints.addresses) <= ADDRESSES_MAX:
        raise Refused(Code.BAD_REQUEST, "the request does not say which endpoints it was sent to")
    queue.topic.CopyFrom(topic)
    queue.id = number
    queue.permission = READ_WRITE
    queue.broker.name = BROKER_NAME
    queue.broker.id = 0
    queue.broker.endpoints.CopyFrom(endpoints)
    queue.accept_message_types.extend(TAKEN_KINDS)
