"""Every call of the protocol that the gateway answers, in one table.

Bytes come in and go out here: a request that cannot be read, a refusal and a bug of ours all become
a status inside the answer, as clients expect; only a stream of settings ends with one of its own.
No call ends the process.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from ternmq.client.client import Client
from ternmq.core.errors import TernError
from ternmq.core.log import get_logger
from ternmq.gateway.handlers.context import GatewayContext, put_status
from ternmq.gateway.handlers.receive import ReceiveCalls
from ternmq.gateway.handlers.routes import RouteCalls
from ternmq.gateway.handlers.send import SendCalls
from ternmq.gateway.handlers.telemetry import TelemetryCalls
from ternmq.gateway.protocol import messages
from ternmq.gateway.protocol.codes import Code, Refused, code_of
from ternmq.gateway.sessions.callers import RocketCaller, read_caller
from ternmq.rpc.http2.calls import CalledMethod, CallKind, CallRefused, CallStatus, RemoteCall

SERVICE = "/apache.rocketmq.v2.MessagingService/"
SMALL = 256 * 1024
"""Bytes of a request that holds no bodies."""
LARGE = 8 * 1024 * 1024
"""Of one that does; several messages may be in it."""

Answering = Callable[[RocketCaller, Any, RemoteCall], Awaitable[Any]]

log = get_logger()


class GatewayRouter:
    """The table that a transport looks calls up in."""

    def __init__(self, gateway: GatewayContext) -> None:
        self._gateway = gateway
        routes, sends = RouteCalls(gateway), SendCalls(gateway)
        receives, self._telemetry = ReceiveCalls(gateway), TelemetryCalls(gateway)
        self._receives = receives
        self._methods = {
            "QueryRoute": self._unary("QueryRoute", routes.query_route),
            "QueryAssignment": self._unary("QueryAssignment", routes.query_assignment),
            "Heartbeat": self._unary("Heartbeat", self._telemetry.heartbeat),
            "SendMessage": self._unary("SendMessage", sends.send_message, LARGE),
            "RecallMessage": self._unary("RecallMessage", sends.recall_message),
            "EndTransaction": self._unary("EndTransaction", sends.end_transaction),
            "AckMessage": self._unary("AckMessage", receives.ack_message, LARGE),
            "ChangeInvisibleDuration": self._unary(
                "ChangeInvisibleDuration", receives.change_invisible_duration
            ),
            "ForwardMessageToDeadLetterQueue": self._unary(
                "ForwardMessageToDeadLetterQueue", receives.forward_to_dead_letters
            ),
            "NotifyClientTermination": self._unary(
                "NotifyClientTermination", self._telemetry.notify_client_termination
            ),
            "ReceiveMessage": CalledMethod(
                kind=CallKind.STREAMED, request_size_max=SMALL, streamed=self._receive
            ),
            "Telemetry": CalledMethod(
                kind=CallKind.BOTH_WAYS, request_size_max=SMALL, both_ways=self._stream
            ),
        }

    @property
    def mq(self) -> Client:
        """By which it is in the cluster."""
        return self._gateway.mq

    def method(self, path: str) -> CalledMethod | None:
        if not path.startswith(SERVICE):
            return None
        return self._methods.get(path[len(SERVICE) :])

    def _unary(self, name: str, answer: Answering, size_max: int = SMALL) -> CalledMethod:
        request_kind = messages.message_class(f"{name}Request")
        response_kind = messages.message_class(f"{name}Response")

        async def handle(call: RemoteCall, payload: bytes) -> bytes:
            try:
                caller = self._caller(call)
                request = messages.parse(request_kind, payload)
                answered = await answer(caller, request, call)
            except (Refused, TernError) as error:
                answered = response_kind()
                _put_error(answered.status, error)
            except Exception as bug:
                answered = response_kind()
                _put_bug(answered.status, call, bug)
            return bytes(answered.SerializeToString())

        return CalledMethod(kind=CallKind.UNARY, request_size_max=size_max, unary=handle)

    async def _receive(self, call: RemoteCall, payload: bytes) -> AsyncIterator[bytes]:
        try:
            caller = self._caller(call)
            request = messages.parse(messages.ReceiveMessageRequest, payload)
            answers = self._receives.receive_message(caller, request, call)
            try:
                async for answer in answers:
                    yield answer.SerializeToString()
            finally:
                await answers.aclose()
        except (Refused, TernError) as error:
            failed = messages.ReceiveMessageResponse()
            _put_error(failed.status, error)
            yield failed.SerializeToString()
        except Exception as bug:
            failed = messages.ReceiveMessageResponse()
            _put_bug(failed.status, call, bug)
            yield failed.SerializeToString()

    async def _stream(
        self, call: RemoteCall, incoming: AsyncIterator[bytes]
    ) -> AsyncIterator[bytes]:
        try:
            caller = self._caller(call)
        except Refused as refused:
            raise CallRefused(CallStatus.INVALID_ARGUMENT, refused.message) from None
        commands = self._telemetry.telemetry(caller, incoming, call)
        try:
            async for command in commands:
                yield command.SerializeToString()
        finally:
            await commands.aclose()

    def _caller(self, call: RemoteCall) -> RocketCaller:
        caller = read_caller(call)
        self._gateway.clients.seen(caller)
        return caller


def _put_error(status: Any, error: Refused | TernError) -> None:
    code = error.code if isinstance(error, Refused) else code_of(error)
    put_status(status, code, error.message)


def _put_bug(status: Any, call: RemoteCall, bug: Exception) -> None:
    log.error("a call failed by a bug of ours", method=call.method, error=repr(bug), exc_info=bug)
    put_status(status, Code.INTERNAL_SERVER_ERROR, "a bug of ours; the gateway's log has it")
