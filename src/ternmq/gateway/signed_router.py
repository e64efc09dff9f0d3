"""Calls of a gateway where clients prove who they are: each is answered as the user who signed it.

Every access key in use has a whole gateway of its own: one client of the cluster that comes as the
key's user, so brokers decide by that user's rights and count by its quota. A call is let through to
it when its signature is right, and never otherwise. When a key goes, its gateway is closed, and
what its clients wait for ends.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from ternmq.core.clock import Clock
from ternmq.core.errors import TernError, Unavailable
from ternmq.core.lifecycle import Background
from ternmq.gateway.handlers.context import put_status
from ternmq.gateway.protocol import messages
from ternmq.gateway.protocol.codes import Code, Refused, code_of
from ternmq.gateway.protocol.signatures import wrong
from ternmq.gateway.router import SERVICE, GatewayRouter
from ternmq.gateway.sessions.opened_keys import OpenedKeys, SignerKey
from ternmq.rpc.http2.calls import CalledMethod, CallKind, CallRefused, CallStatus, RemoteCall

SIGNERS_MAX = 500
REFUSAL_HELD_S = 1.0
OPEN_S = 10.0

OpenGateway = Callable[[SignerKey], AbstractAsyncContextManager[GatewayRouter]]


@dataclass(slots=True, eq=False)
class SignedGateway:
    """The gateway of one key."""

    ready: "asyncio.Future[GatewayRouter]"
    closed: asyncio.Event
    task: "asyncio.Task[None]"


class SignedRouter:
    """The table that a transport looks calls up in."""

    def __init__(self, own: GatewayRouter, clock: Clock, open_gateway: OpenGateway) -> None:
        """`own`: of a user that may grant access keys; its calls are like those of all others, and
        are never answered."""
        self._shapes = own
        self._open_gateway = open_gateway
        self._open: dict[str, SignedGateway] = {}
        self._background = Background("serving the users of access keys", lambda error: None)
        self._keys = OpenedKeys(own.mq, clock, self._gone)

    async def run(self) -> None:
        """Until it is cancelled; then every gateway is closed."""
        try:
            await self._keys.run()
        finally:
            served = list(self._open.values())
            for each in served:
                each.closed.set()
            await asyncio.gather(*(each.task for each in served), return_exceptions=True)

    def method(self, path: str) -> CalledMethod | None:
        shape = self._shapes.method(path)
        if shape is None:
            return None
        if shape.kind is CallKind.UNARY:
            return CalledMethod(
                kind=shape.kind, request_size_max=shape.request_size_max, unary=self._unary
            )
        if shape.kind is CallKind.STREAMED:
            return CalledMethod(
                kind=shape.kind, request_size_max=shape.request_size_max, streamed=self._streamed
            )
        return CalledMethod(
            kind=shape.kind, request_size_max=shape.request_size_max, both_ways=self._both_ways
        )

    async def _unary(self, call: RemoteCall, payload: bytes) -> bytes:
        try:
            method = await self._method_for(call)
        except (Refused, TernError) as error:
            return _failed(call, error)
        assert method.unary is not None
        return await method.unary(call, payload)

    async def _streamed(self, call: RemoteCall, payload: bytes) -> AsyncIterator[bytes]:
        try:
            method = await self._method_for(call)
        except (Refused, TernError) as error:
            await asyncio.sleep(REFUSAL_HELD_S)  # Some clients ask again at once.
            yield _failed(call, error)
            return
        assert method.streamed is not None
        async for message in method.streamed(call, payload):
            yield message

    async def _both_ways(
        self, call: RemoteCall, incoming: AsyncIterator[bytes]
    ) -> AsyncIterator[bytes]:
        try:
            key = await self._keys.signer(call)
            router = await self._gateway_of(key)
        except (Refused, TernError) as error:
            raise CallRefused(CallStatus.UNAUTHENTICATED, error.message) from None
        method = router.method(call.method)
        assert method is not None and method.both_ways is not None
        async for message in _until(self._open[key.id].closed, method.both_ways(call, incoming)):
            yield message

    async def _method_for(self, call: RemoteCall) -> CalledMethod:
        """The method as the user of the key; raises `Refused` where the signature is wrong."""
        router = await self._gateway_of(await self._keys.signer(call))
        method = router.method(call.method)
        assert method is not None
        return method

    async def _gateway_of(self, key: SignerKey) -> GatewayRouter:
        served = self._open.get(key.id)
        if served is None:
            if len(self._open) >= SIGNERS_MAX:
                raise Refused(Code.TOO_MANY_REQUESTS, f"{SIGNERS_MAX} access keys are in use here")
            ready: asyncio.Future[GatewayRouter] = asyncio.get_running_loop().create_future()
            closed = asyncio.Event()
            task = self._background.task(self._serve(key, ready, closed), name="tern-signer")
            served = self._open[key.id] = SignedGateway(ready, closed, task)
        try:
            async with asyncio.timeout(OPEN_S):
                return await asyncio.shield(served.ready)
        except TimeoutError:
            raise Unavailable("the cluster did not answer in time: try again") from None

    async def _serve(
        self, key: SignerKey, ready: "asyncio.Future[GatewayRouter]", closed: asyncio.Event
    ) -> None:
        """In a task of its own, which opens it and closes it."""
        try:
            async with self._open_gateway(key) as router:
                ready.set_result(router)
                await closed.wait()
        except TernError as error:
            if ready.done():
                raise
            ready.set_exception(error)
            ready.exception()  # Told to who waits, if anybody does.
        finally:
            closed.set()
            self._open.pop(key.id, None)

    def _gone(self, id: str) -> None:
        served = self._open.get(id)
        if served is not None:
            served.closed.set()


def _failed(call: RemoteCall, error: Refused | TernError) -> bytes:
    answer = messages.message_class(f"{call.method.removeprefix(SERVICE)}Response")()
    code = error.code if isinstance(error, Refused) else code_of(error)
    put_status(answer.status, code, error.message)
    return bytes(answer.SerializeToString())


async def _until(closed: asyncio.Event, messages_: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """What comes, until the gateway of its key is closed."""
    closing = asyncio.ensure_future(closed.wait())
    step: asyncio.Future[bytes] | None = None
    try:
        while True:
            step = asyncio.ensure_future(anext(messages_))
            await asyncio.wait({step, closing}, return_when=asyncio.FIRST_COMPLETED)
            if not step.done():
                raise CallRefused(CallStatus.UNAUTHENTICATED, wrong().message)
            try:
                yield step.result()
            except StopAsyncIteration:
                return
    finally:
        closing.cancel()
        if step is not None and not step.done():
            step.cancel()
            await asyncio.wait({step})
