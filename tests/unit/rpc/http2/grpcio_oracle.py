"""Carries calls with the asyncio server of the package grpcio: the judge of our own transport.

It does what `rpc.http2.calls` asks of one, takes plain text only, and costs several times as much.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import grpc
import grpc.aio

from ternmq.core.errors import BadConfig
from ternmq.core.log import get_logger
from ternmq.rpc.http2.calls import (
    CalledMethod,
    CallKind,
    CallRefused,
    CallStatus,
    CallTable,
    RemoteCall,
)

REQUEST_SIZE_MAX = 9 * 1024 * 1024
CALLS_MAX = 20_000
"""Under way at one time, streams and polls included."""
METADATA_SIZE_MAX = 64 * 1024
STOP_S = 1.0
OPTIONS = (
    ("grpc.max_receive_message_length", REQUEST_SIZE_MAX),
    ("grpc.max_metadata_size", METADATA_SIZE_MAX),
    ("grpc.so_reuseport", 1),
    # Clients ping every few minutes, also when nothing is under way.
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_ping_strikes", 0),
)
_STATUS = {int(each.value[0]): each for each in grpc.StatusCode}

log = get_logger()


class _Handlers(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Looks calls up in the table."""

    def __init__(self, table: CallTable) -> None:
        self._table = table

    def service(self, details: Any) -> Any:
        method = self._table.method(details.method)
        if method is None:
            return None
        path = details.method
        if method.kind is CallKind.UNARY:
            return grpc.unary_unary_rpc_method_handler(_unary(method, path))
        if method.kind is CallKind.STREAMED:
            return grpc.unary_stream_rpc_method_handler(_streamed(method, path))
        return grpc.stream_stream_rpc_method_handler(_both_ways(method, path))


def _call(path: str, context: Any) -> RemoteCall:
    metadata = {
        str(name): value if isinstance(value, str) else value.decode("latin-1")
        for name, value in context.invocation_metadata() or ()
    }
    left = context.time_remaining()
    now = asyncio.get_running_loop().time()
    deadline = None if left is None else now + left
    return RemoteCall(method=path, metadata=metadata, deadline=deadline, peer=context.peer())


def _unary(method: CalledMethod, path: str) -> Callable[[bytes, Any], Awaitable[bytes]]:
    handler = method.unary
    assert handler is not None

    async def handle(request: bytes, context: Any) -> bytes:
        await _check_size(method, request, context)
        try:
            return await handler(_call(path, context), request)
        except CallRefused as refused:
            await context.abort(_STATUS[refused.status], refused.message)
            raise
        except asyncio.CancelledError:
            raise
        except Exception as bug:
            await _abort_for(bug, path, context)
            raise

    return handle


def _streamed(method: CalledMethod, path: str) -> Callable[[bytes, Any], AsyncIterator[bytes]]:
    handler = method.streamed
    assert handler is not None

    async def handle(request: bytes, context: Any) -> AsyncIterator[bytes]:
        await _check_size(method, request, context)
        async for message in _guarded(handler(_call(path, context), request), path, context):
            yield message

    return handle


def _both_ways(
    method: CalledMethod, path: str
) -> Callable[[AsyncIterator[bytes], Any], AsyncIterator[bytes]]:
    handler = method.both_ways
    assert handler is not None

    async def handle(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        async def checked() -> AsyncIterator[bytes]:
            async for request in requests:
                if len(request) > method.request_size_max:
                    raise _too_large(method, request)
                yield request

        async for message in _guarded(handler(_call(path, context), checked()), path, context):
            yield message

    return handle


async def _guarded(messages: AsyncIterator[bytes], path: str, context: Any) -> AsyncIterator[bytes]:
    try:
        async for message in messages:
            yield message
    except CallRefused as refused:
        await context.abort(_STATUS[refused.status], refused.message)
    except (asyncio.CancelledError, GeneratorExit):
        raise
    except Exception as bug:
        await _abort_for(bug, path, context)
    finally:
        close = getattr(messages, "aclose", None)
        if close is not None:
            await close()


def _too_large(method: CalledMethod, request: bytes) -> CallRefused:
    return CallRefused(
        CallStatus.RESOURCE_EXHAUSTED,
        f"a request of {len(request)} bytes; at most {method.request_size_max}",
    )


async def _check_size(method: CalledMethod, request: bytes, context: Any) -> None:
    if len(request) > method.request_size_max:
        refused = _too_large(method, request)
        await context.abort(_STATUS[refused.status], refused.message)


async def _abort_for(bug: Exception, path: str, context: Any) -> None:
    if isinstance(bug, grpc.aio.AbortError):
        raise bug
    log.error("a call failed by a bug of ours", method=path, error=repr(bug), exc_info=bug)
    await context.abort(grpc.StatusCode.INTERNAL, "a bug of ours; the log of the server has it")


@asynccontextmanager
async def serving_calls(table: CallTable, address: str) -> AsyncIterator[int]:
    """Listen while a block runs; yields the port."""
    server = grpc.aio.server(options=OPTIONS, maximum_concurrent_rpcs=CALLS_MAX)
    server.add_generic_rpc_handlers((_Handlers(table),))
    try:
        port = server.add_insecure_port(address)
    except RuntimeError:
        raise BadConfig(f"cannot listen on {address}: it is taken") from None
    await server.start()
    try:
        yield port
    finally:
        with suppress(asyncio.CancelledError):
            await server.stop(STOP_S)
