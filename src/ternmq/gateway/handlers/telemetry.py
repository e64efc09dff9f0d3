"""Telemetry, Heartbeat, NotifyClientTermination: the client tells of itself, and is told.

The stream carries settings: what a client says of itself is answered with what it shall do. Later
the gateway asks producers over it what became of a half message. Nothing needs a stream: a client
that lost it (some open it again after minutes only) sends and receives all the same.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress
from typing import Any

from ternmq.core.errors import BadRequest, TernError
from ternmq.core.log import get_logger
from ternmq.gateway.handlers.context import GatewayContext, put_status
from ternmq.gateway.handlers.settings import complete_consumer, complete_producer
from ternmq.gateway.protocol.codes import Code, Refused, code_of
from ternmq.gateway.protocol.enums import ClientKind
from ternmq.gateway.protocol.messages import (
    HeartbeatResponse,
    NotifyClientTerminationResponse,
    TelemetryCommand,
    parse,
)
from ternmq.gateway.sessions.callers import RocketCaller
from ternmq.gateway.sessions.clients import TOPICS_MAX, RocketClient
from ternmq.rpc.http2.calls import CallRefused, CallStatus, RemoteCall

SUBSCRIPTIONS_MAX = 1_000

log = get_logger()


class TelemetryCalls:
    """The streams of clients."""

    def __init__(self, gateway: GatewayContext) -> None:
        self._gateway = gateway

    async def telemetry(
        self, caller: RocketCaller, incoming: AsyncIterator[bytes], _call: RemoteCall
    ) -> AsyncGenerator[Any, None]:
        """Until the client closes it."""
        client, outbox = self._gateway.clients.open_stream(caller)
        reading = asyncio.create_task(
            self._read(caller, client, outbox, incoming), name="tern-telemetry"
        )
        try:
            while True:
                waiting = asyncio.create_task(outbox.get(), name="tern-telemetry-out")
                try:
                    await asyncio.wait({waiting, reading}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    if not waiting.done():
                        waiting.cancel()
                if waiting.done() and not waiting.cancelled():
                    yield waiting.result()
                elif reading.done():
                    reading.result()
                    return
        finally:
            reading.cancel()
            with suppress(asyncio.CancelledError, CallRefused):
                await reading
            self._gateway.clients.close_stream(client, outbox)

    async def _read(
        self,
        caller: RocketCaller,
        client: RocketClient,
        outbox: "asyncio.Queue[Any]",
        incoming: AsyncIterator[bytes],
    ) -> None:
        async for payload in incoming:
            self._gateway.clients.seen(caller)
            try:
                command = parse(TelemetryCommand, payload)
                if command.HasField("settings"):
                    await outbox.put(await self._answer(caller, client, command.settings))
            except BadRequest as error:
                raise CallRefused(CallStatus.INVALID_ARGUMENT, error.message) from None
            except Refused as refused:
                raise CallRefused(CallStatus.INVALID_ARGUMENT, refused.message) from None

    async def _answer(self, caller: RocketCaller, client: RocketClient, settings: Any) -> Any:
        answer = TelemetryCommand()
        try:
            made = await self._complete(caller, client, settings)
        except TernError as error:
            put_status(answer.status, code_of(error), error.message)
            answer.settings.CopyFrom(settings)
        else:
            put_status(answer.status, Code.OK)
            answer.settings.CopyFrom(made)
        return answer

    async def _complete(self, caller: RocketCaller, client: RocketClient, settings: Any) -> Any:
        gateway = self._gateway
        if settings.WhichOneof("pub_sub") == "publishing":
            for topic in settings.publishing.topics[:TOPICS_MAX]:
                client.sends_to(gateway.names.topic(topic, caller.namespace))
            return complete_producer(settings)
        subscription = settings.subscription
        if settings.client_type in (
            ClientKind.LITE_PUSH_CONSUMER,
            ClientKind.LITE_SIMPLE_CONSUMER,
            ClientKind.PULL_CONSUMER,
        ):
            raise Refused(
                Code.UNRECOGNIZED_CLIENT_TYPE,
                "this gateway serves producers, push consumers and simple consumers",
            )
        group = gateway.names.group(subscription.group, caller.namespace)
        policy = None
        for entry in subscription.subscriptions[:SUBSCRIPTIONS_MAX]:
            topic = gateway.names.topic(entry.topic, caller.namespace)
            found = await gateway.known.policy(topic, group)
            policy = policy or found
            if found.fifo != policy.fifo:
                raise Refused(
                    Code.BAD_REQUEST,
                    f"group {group!r} is ordered on some of these topics and not on others: a "
                    "RocketMQ client is one or the other; use a group for each",
                )
        policy = policy or await gateway.known.policy("", group)
        return complete_consumer(settings, policy, caller.habits, gateway.config.poll_ms)

    async def heartbeat(self, _caller: RocketCaller, _request: Any, _call: RemoteCall) -> Any:
        """That it came was noted already."""
        answer = HeartbeatResponse()
        put_status(answer.status, Code.OK)
        return answer

    async def notify_client_termination(
        self, caller: RocketCaller, _request: Any, _call: RemoteCall
    ) -> Any:
        await self._gateway.clients.forget(caller.client_id)
        answer = NotifyClientTerminationResponse()
        put_status(answer.status, Code.OK)
        return answer
