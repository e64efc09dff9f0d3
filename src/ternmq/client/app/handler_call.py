"""A handler as the app calls it: with one message or batch, whatever its own parameters are.

Bodies are read as the type that a parameter asks for; in a batch, a message whose body is no such
thing is rejected alone and the rest is handled. Functions of `Depends` are called first, each once,
and generators are finished when the handler has ended, with what it raised. A handler that asks for
the message alone is called as it is, at no cost.
"""

import contextlib
from collections.abc import Callable
from typing import Any

from ternmq.client.app.parameters import Argument, Parameters, Provider, TypedBody, WholeUnit
from ternmq.client.codecs.body_type import BodyType
from ternmq.client.model.message import Message, MessageBatch
from ternmq.core.errors import BadRequest, DecodeError

Unit = Message | MessageBatch


class NothingReadable(Exception):
    """No message of the batch could be read: all of them are rejected by now."""


def bound_handler(
    handler: Callable[..., Any], parameters: Parameters, *, waits: bool
) -> Callable[[Any], Any]:
    """The handler as a function of a message or batch; `waits`: it is a coroutine."""
    if parameters.plain:
        return handler
    providers = parameters.providers
    if not waits:
        _refuse_async(handler, providers)
    call = _AsyncCall(handler, parameters) if waits else _PlainCall(handler, parameters)
    # The app's log lines name the handler.
    call.__name__ = getattr(handler, "__name__", type(handler).__name__)
    return call


class _Call:
    """What both ways of calling share."""

    def __init__(self, handler: Callable[..., Any], parameters: Parameters) -> None:
        self._handler = handler
        self._parameters = parameters
        self._providers = parameters.providers
        self.__name__ = ""

    def _read(self, unit: Unit) -> Any:
        """The typed body, or the bodies of a batch that can be read."""
        kind = self._parameters.body
        if kind is None:
            return None
        if isinstance(unit, Message):
            return unit.decode(kind.kind)
        values = _readable(unit, kind)
        if not values:
            raise NothingReadable
        return values

    def _given(self, argument: Argument, unit: Unit, body: Any, made: dict[Provider, Any]) -> Any:
        if isinstance(argument, WholeUnit):
            return unit
        if isinstance(argument, TypedBody):
            return body
        return made[argument]

    def _named(
        self, asked: dict[str, Argument], unit: Unit, body: Any, made: dict[Provider, Any]
    ) -> dict[str, Any]:
        return {name: self._given(each, unit, body, made) for name, each in asked.items()}

    def _start(self, unit: Unit, body: Any, made: dict[Provider, Any]) -> Any:
        parameters = self._parameters
        named = self._named(parameters.named, unit, body, made)
        if parameters.first is None:
            return self._handler(**named)
        return self._handler(self._given(parameters.first, unit, body, made), **named)


class _PlainCall(_Call):
    """Calls a plain function, in a thread or on the loop."""

    def __call__(self, unit: Unit) -> Any:
        try:
            body = self._read(unit)
        except NothingReadable:
            return None
        made: dict[Provider, Any] = {}
        with contextlib.ExitStack() as stack:
            for provider in self._providers:
                named = self._named(provider.arguments, unit, body, made)
                if provider.kind == "generator":
                    around = contextlib.contextmanager(provider.function)(**named)
                    made[provider] = stack.enter_context(around)
                else:
                    made[provider] = provider.function(**named)
            return self._start(unit, body, made)


class _AsyncCall(_Call):
    """Calls a coroutine."""

    async def __call__(self, unit: Unit) -> Any:
        try:
            body = self._read(unit)
        except NothingReadable:
            return None
        made: dict[Provider, Any] = {}
        async with contextlib.AsyncExitStack() as stack:
            for provider in self._providers:
                named = self._named(provider.arguments, unit, body, made)
                made[provider] = await _provide(provider, named, stack)
            return await self._start(unit, body, made)


async def _provide(
    provider: Provider, named: dict[str, Any], stack: contextlib.AsyncExitStack
) -> Any:
    if provider.kind == "async generator":
        manager = contextlib.asynccontextmanager(provider.function)(**named)
        return await stack.enter_async_context(manager)
    if provider.kind == "generator":
        return stack.enter_context(contextlib.contextmanager(provider.function)(**named))
    value = provider.function(**named)
    return await value if provider.kind == "coroutine" else value


def _readable(batch: MessageBatch, kind: BodyType) -> list[Any]:
    values = []
    for message in batch:
        try:
            values.append(message.decode(kind.kind))
        except DecodeError as error:
            message.reject(error=error)
    return values


def _refuse_async(handler: Callable[..., Any], providers: list[Provider]) -> None:
    for provider in providers:
        if provider.kind in ("coroutine", "async generator"):
            raise BadRequest(
                f"{getattr(handler, '__name__', 'the handler')} is a plain function and runs in a "
                f"thread; it cannot depend on an async one ({provider.function.__name__}): "
                "write 'async def' for both, or for none"
            )
