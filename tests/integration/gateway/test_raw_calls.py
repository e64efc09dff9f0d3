"""Calls that no official client makes: broken bytes, missing headers, unserved methods."""

import random
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from ternmq.gateway.protocol.codes import Code
from ternmq.gateway.protocol.messages import (
    QueryRouteRequest,
    QueryRouteResponse,
    ReceiveMessageResponse,
    SendMessageRequest,
    SendMessageResponse,
    message_class,
)
from tests.integration.gateway.clients import GatewayServer
from tests.integration.processes import Node, tern

SERVICE = "/apache.rocketmq.v2.MessagingService/"
HEADERS = (("x-mq-client-id", "raw"), ("x-mq-language", "JAVA"))
UNARY = [
    "QueryRoute",
    "QueryAssignment",
    "Heartbeat",
    "SendMessage",
    "RecallMessage",
    "EndTransaction",
    "AckMessage",
    "ChangeInvisibleDuration",
    "ForwardMessageToDeadLetterQueue",
    "NotifyClientTermination",
]


@pytest.fixture
def channel(gateway: GatewayServer) -> Iterator[Any]:
    with grpc.insecure_channel(gateway.endpoint) as found:
        yield found


def call(channel: Any, method: str, payload: bytes, headers: Any = HEADERS) -> bytes:
    answer = channel.unary_unary(SERVICE + method)(payload, metadata=headers, timeout=10)
    assert isinstance(answer, bytes)
    return answer


@pytest.mark.parametrize("method", UNARY)
def test_bytes_that_are_no_request_are_refused_with_a_code(channel: Any, method: str) -> None:
    answer = message_class(f"{method}Response").FromString(call(channel, method, b"\xff" * 9))

    assert answer.status.code == Code.BAD_REQUEST


@pytest.mark.parametrize("method", UNARY)
def test_random_requests_are_answered_and_harm_nobody(
    channel: Any, gateway: GatewayServer, method: str
) -> None:
    """Seeded; whatever they say, there is a status, and never a bug of ours."""
    draw = random.Random(method)
    for _ in range(100):
        payload = draw.randbytes(draw.randrange(60))
        answer = message_class(f"{method}Response").FromString(call(channel, method, payload))
        assert answer.status.code
        assert answer.status.code != Code.INTERNAL_SERVER_ERROR

    assert gateway.running


def test_a_broken_poll_ends_with_a_status(channel: Any) -> None:
    stream = channel.unary_stream(SERVICE + "ReceiveMessage")
    answers = list(stream(b"\xff\xff", metadata=HEADERS, timeout=10))

    assert [ReceiveMessageResponse.FromString(each).status.code for each in answers] == [
        Code.BAD_REQUEST
    ]


def test_broken_settings_end_their_stream(channel: Any) -> None:
    stream = channel.stream_stream(SERVICE + "Telemetry")
    with pytest.raises(grpc.RpcError) as refused:
        list(stream(iter([b"\xff\xff"]), metadata=HEADERS, timeout=10))

    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_a_caller_says_who_it_is(channel: Any) -> None:
    answer = QueryRouteResponse.FromString(call(channel, "QueryRoute", b"", headers=()))

    assert answer.status.code == Code.CLIENT_ID_REQUIRED


@pytest.mark.parametrize("method", ["PullMessage", "GetOffset", "SyncLiteSubscription", "Nothing"])
def test_what_is_not_served_is_unimplemented(channel: Any, method: str) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        call(channel, method, b"")

    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_a_request_that_is_too_large_is_refused(channel: Any) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        call(channel, "QueryRoute", bytes(300_000))

    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_a_route_leads_to_where_the_client_dialled(channel: Any, rocket_node: Node) -> None:
    assert tern("topic", "create", "routed", url=rocket_node.url).code == 0
    request = QueryRouteRequest()
    request.topic.name = "routed"
    request.endpoints.addresses.add(host="mapped.example", port=12345)

    answer = QueryRouteResponse.FromString(call(channel, "QueryRoute", request.SerializeToString()))

    [queue] = answer.message_queues
    assert (queue.id, queue.broker.id) == (0, 0)
    assert queue.broker.endpoints.addresses[0].host == "mapped.example"
    assert list(queue.accept_message_types) == [1, 2, 3, 4, 6]


def test_a_resend_is_stored_once_and_each_message_has_its_own_answer(
    channel: Any, rocket_node: Node
) -> None:
    """The same id twice, as after a lost answer; beside one that is refused."""
    assert tern("topic", "create", "resent", url=rocket_node.url).code == 0
    request = SendMessageRequest()
    for body in (b"x", b"x", b""):
        message = request.messages.add(body=body)
        message.topic.name = "resent"
        message.system_properties.message_id = f"01{0:032X}"
        message.system_properties.message_type = 1

    answer = SendMessageResponse.FromString(
        call(channel, "SendMessage", request.SerializeToString())
    )

    codes = [entry.status.code for entry in answer.entries]
    assert codes == [Code.OK, Code.OK, Code.MESSAGE_BODY_EMPTY]
    assert answer.status.code == Code.MULTIPLE_RESULTS
    assert answer.entries[0].offset == answer.entries[1].offset
    assert tern("group", "create", "resent", "counted", url=rocket_node.url).code == 0
    [line] = tern("ledger", "resent", "--json", url=rocket_node.url).json()
    assert line["total"] == 1
