"""The classes of the messages in messages.proto, made from its descriptors when first imported.

They live in a pool of their own: nothing that another package of this process registers can clash
with them. To type checkers they are `Any`. `parse` is the only way in for bytes from outside.
"""

from functools import cache
from importlib.resources import files
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from ternmq.core.errors import BadRequest

PACKAGE = "ternmq.gateway"
DESCRIPTORS = "messages.desc"


@cache
def _pool() -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    stored = files(__package__).joinpath(DESCRIPTORS).read_bytes()
    for file in descriptor_pb2.FileDescriptorSet.FromString(stored).file:
        pool.Add(file)
    return pool


def message_class(name: str) -> Any:
    """The class of a message by its name in messages.proto."""
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(f"{PACKAGE}.{name}"))


def parse(kind: Any, payload: bytes) -> Any:
    """A message from bytes; `BadRequest` where they are none."""
    try:
        return kind.FromString(payload)
    except DecodeError as error:
        name = kind.DESCRIPTOR.name
        raise BadRequest(f"these {len(payload)} bytes are not a {name}: {error}") from None


AckMessageRequest = message_class("AckMessageRequest")
AckMessageResponse = message_class("AckMessageResponse")
ChangeInvisibleDurationRequest = message_class("ChangeInvisibleDurationRequest")
ChangeInvisibleDurationResponse = message_class("ChangeInvisibleDurationResponse")
EndTransactionRequest = message_class("EndTransactionRequest")
EndTransactionResponse = message_class("EndTransactionResponse")
ForwardRequest = message_class("ForwardMessageToDeadLetterQueueRequest")
ForwardResponse = message_class("ForwardMessageToDeadLetterQueueResponse")
HeartbeatRequest = message_class("HeartbeatRequest")
HeartbeatResponse = message_class("HeartbeatResponse")
NotifyClientTerminationRequest = message_class("NotifyClientTerminationRequest")
NotifyClientTerminationResponse = message_class("NotifyClientTerminationResponse")
QueryAssignmentRequest = message_class("QueryAssignmentRequest")
QueryAssignmentResponse = message_class("QueryAssignmentResponse")
QueryRouteRequest = message_class("QueryRouteRequest")
QueryRouteResponse = message_class("QueryRouteResponse")
RecallMessageRequest = message_class("RecallMessageRequest")
RecallMessageResponse = message_class("RecallMessageResponse")
ReceiveMessageRequest = message_class("ReceiveMessageRequest")
ReceiveMessageResponse = message_class("ReceiveMessageResponse")
SendMessageRequest = message_class("SendMessageRequest")
SendMessageResponse = message_class("SendMessageResponse")
TelemetryCommand = message_class("TelemetryCommand")

RocketMessage = message_class("Message")
"""One message as RocketMQ clients send and get it."""
RocketSettings = message_class("Settings")
RouteQueue = message_class("MessageQueue")
