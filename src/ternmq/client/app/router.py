"""`Router`: handlers by decorator, gathered in one place and put into an app in another.

    billing = ternmq.Router(prefix="shop.")

    @billing.subscriber("order.paid", group="billing")
    async def bill(order: Order): ...

    app.include(billing)

The prefix stands before the names of topics, also of those that `publish=` names; groups stay as
they are. Middlewares of a router are inside those of what includes it. A router starts nothing and
knows no server.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar, Unpack

from ternmq.client.app.subscriber import (
    Middleware,
    Subscriber,
    SubscriberFactory,
    SubscriberOptions,
)
from ternmq.client.model.durations import typed
from ternmq.core.errors import BadRequest
from ternmq.core.ids import check_name

H = TypeVar("H", bound=Callable[..., Any])


class Router:
    """Subscribers, and the routers included, in the order in which they were written."""

    def __init__(self, *, prefix: str = "", middlewares: Iterable[Middleware] = ()) -> None:
        self._prefix = _checked_prefix(prefix)
        self._middlewares = _checked_middlewares(middlewares)
        self._parts: list[Subscriber | tuple[Router, str]] = []

    def subscriber(
        self, topics: str | Sequence[str], *, group: str, **options: Unpack[SubscriberOptions]
    ) -> Callable[[H], H]:
        """Register a handler for one or several topics; options as of `App.subscriber`."""
        factory = SubscriberFactory(topics, group, dict(options))

        def register(handler: H) -> H:
            self._parts.append(factory.of(handler))
            return handler

        return register

    def include(self, router: "Router", *, prefix: str = "") -> None:
        """Take over the handlers of a router, also those that it gets later."""
        if not isinstance(router, Router):
            raise BadRequest(f"include takes a ternmq.Router, not {typed(router)}")
        if router is self or router.includes(self):
            raise BadRequest("a router cannot include itself")
        self._parts.append((router, _checked_prefix(prefix)))

    def includes(self, other: "Router") -> bool:
        """Is the other one in here, at any depth?"""
        inner = [part[0] for part in self._parts if isinstance(part, tuple)]
        return any(router is other or router.includes(other) for router in inner)

    def subscribers(self) -> list[Subscriber]:
        """All of them, with prefixes and middlewares of everything around; raises `BadName`."""
        found: list[Subscriber] = []
        for part in self._parts:
            if isinstance(part, Subscriber):
                found.append(_within(part, self._prefix, self._middlewares))
                continue
            router, prefix = part
            found += [
                _within(inner, self._prefix + prefix, self._middlewares)
                for inner in router.subscribers()
            ]
        return found


def _within(inner: Subscriber, prefix: str, middlewares: tuple[Middleware, ...]) -> Subscriber:
    if not prefix and not middlewares:
        return inner
    return replace(
        inner,
        topics=[check_name("topic", prefix + topic) for topic in inner.topics],
        publish=None if inner.publish is None else check_name("topic", prefix + inner.publish),
        middlewares=middlewares + inner.middlewares,
    )


def _checked_prefix(prefix: Any) -> str:
    if not isinstance(prefix, str):
        raise BadRequest(f"prefix is {typed(prefix)}; it is text, as 'shop.'")
    if prefix:
        check_name("topic", prefix + "x")
    return prefix


def _checked_middlewares(middlewares: Any) -> tuple[Middleware, ...]:
    wanted = (
        "it is a list of functions that take a message or batch and return an async context manager"
    )
    if isinstance(middlewares, str) or not isinstance(middlewares, Iterable):
        raise BadRequest(f"middlewares is {typed(middlewares)}; {wanted}")
    found = tuple(middlewares)
    for middleware in found:
        if not callable(middleware):
            raise BadRequest(f"middlewares has {typed(middleware)}; {wanted}")
    return found
