"""A handler and its options: the checked keywords of `app.subscriber`. Pure; starts nothing.

Every refusal happens where the decorator is written and names the option.
"""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypedDict

from ternmq.client.app.failure_rules import NAMES as FAILURE_RULE_NAMES
from ternmq.client.app.failure_rules import ExceptionTypes, FailureRules
from ternmq.client.app.handler_call import bound_handler
from ternmq.client.app.parameters import parameters_of
from ternmq.client.codecs.body_type import BodyType
from ternmq.client.consuming.subscription_plan import PREFETCH_MAX, ConsumerOptions, make_plan
from ternmq.client.model.arguments import check_options, check_value
from ternmq.client.model.delivery import AFTER_MAX_S
from ternmq.client.model.durations import Duration, maybe_seconds_of, seconds_of, typed
from ternmq.client.model.times import shown
from ternmq.core.errors import BadRequest
from ternmq.core.ids import check_name

Middleware = Callable[[Any], Any]
"""A function of a message or batch that returns an async context manager."""
HandlerFunction = Callable[[Any], Any]
PoolName = Literal["tasks", "threads"]

CONCURRENCY_MAX = 10_000
LOCAL_RETRIES_MAX = 100
BATCH_SIZE = 100
BATCH_SIZE_MAX = 65_535
BATCH_WAIT_MAX_S = 60.0
TIMEOUT_MAX_S = 7 * 24 * 3600.0
PREFETCH_MIN = 100


class HandledOnce(Protocol):
    """What `inbox=` takes: something that calls a handler only for messages not yet handled."""

    def guard(self, handler: Callable[..., Any], group: str, /) -> HandlerFunction: ...


class HandlerOptions(TypedDict, total=False):
    """The keywords of `subscriber` that `consumer` does not have."""

    concurrency: int
    pool: PoolName | None
    batch: bool
    batch_size: int
    batch_wait: Duration
    auto_ack: bool
    timeout: Duration | None
    local_retries: int
    retry_after: Duration | None
    inbox: HandledOnce | None
    reject_on: ExceptionTypes
    retry_on: ExceptionTypes
    ignore: ExceptionTypes
    publish: str | None


class SubscriberOptions(ConsumerOptions, HandlerOptions, total=False):
    """The keywords of `subscriber` besides topics and group, for type checkers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscriber:
    """One handler and the messages it is for."""

    handler: HandlerFunction
    topics: list[str]
    group: str
    concurrency: int
    pool: PoolName
    batch_size: int
    """0: message by message."""
    batch_wait: float
    auto_ack: bool
    timeout: float | None
    local_retries: int
    retry_after: float | None
    rules: FailureRules
    """What becomes of a message whose handler raised."""
    publish: str | None
    """The topic that gets what the handler returns."""
    body: BodyType | None
    """What the handler reads bodies as; None: it takes the message."""
    options: ConsumerOptions
    middlewares: tuple[Middleware, ...] = ()

    @property
    def name(self) -> str:
        return getattr(self.handler, "__name__", type(self.handler).__name__)


class SubscriberFactory:
    """The options of one decorator, checked; `of` a handler makes the subscriber."""

    def __init__(self, topics: str | Sequence[str], group: str, options: dict[str, Any], /) -> None:
        given = dict(options)
        check_options("subscriber", given, SubscriberOptions.__annotations__)
        own = {name: given.pop(name) for name in HandlerOptions.__annotations__ if name in given}
        self._pool: PoolName | None = own.get("pool")
        check_value("pool", self._pool, PoolName | None)
        self._batch = _yes_or_no("batch", own.get("batch", False))
        if not self._batch and ("batch_size" in own or "batch_wait" in own):
            raise BadRequest("batch_size and batch_wait are for batch=True")
        self._inbox: HandledOnce | None = own.get("inbox")
        if self._inbox is not None and not callable(getattr(self._inbox, "guard", None)):
            raise BadRequest(
                f"inbox is {typed(self._inbox)}; it is an Inbox(engine) of ternmq.inbox"
            )
        if self._inbox is not None and (self._batch or own.get("auto_ack") is False):
            raise BadRequest(
                "inbox= handles message by message and acks after its own commit: "
                "leave out batch= and auto_ack="
            )
        self._checked = {
            "concurrency": _whole("concurrency", own.get("concurrency", 1), 1, CONCURRENCY_MAX),
            "batch_size": self._batch_size(own.get("batch_size", BATCH_SIZE)),
            "batch_wait": seconds_of("batch_wait", own.get("batch_wait", 0.0), 0, BATCH_WAIT_MAX_S),
            "auto_ack": _yes_or_no("auto_ack", own.get("auto_ack", True)),
            "timeout": maybe_seconds_of("timeout", own.get("timeout"), 0.001, TIMEOUT_MAX_S),
            "local_retries": _whole(
                "local_retries", own.get("local_retries", 0), 0, LOCAL_RETRIES_MAX
            ),
            "retry_after": maybe_seconds_of("retry_after", own.get("retry_after"), 0, AFTER_MAX_S),
        }
        self._rules = FailureRules({name: own[name] for name in FAILURE_RULE_NAMES if name in own})
        publish = own.get("publish")
        self._publish = None if publish is None else check_name("topic", publish)
        at_once = self._checked["concurrency"] * max(1, self._checked["batch_size"])
        given.setdefault("prefetch", min(max(2 * at_once, PREFETCH_MIN), PREFETCH_MAX))
        self._options = given
        self._group = group
        self._topics = make_plan(topics, group, given, timeout=1).topics  # type: ignore[arg-type]

    def of(self, handler: Callable[..., Any]) -> Subscriber:
        """The subscriber; refuses a pool that this kind of handler cannot run in."""
        if not callable(handler):
            raise BadRequest(f"a handler is a function of a message, not {typed(handler)}")
        waits = is_coroutine(handler)
        body: BodyType | None = None
        if self._inbox is not None:
            handler = self._inbox.guard(handler, self._group)
        else:
            parameters = parameters_of(handler, batch=self._batch)
            body = parameters.body
            handler = bound_handler(handler, parameters, waits=waits)
        pool: PoolName = self._pool or ("tasks" if waits else "threads")
        if waits and pool == "threads":
            raise BadRequest("a coroutine runs as a task; for pool='threads' write a plain 'def'")
        if not waits and pool == "tasks" and self._checked["timeout"] is not None:
            raise BadRequest(
                "a plain function on the event loop cannot be timed out: leave pool= out, so that "
                "it runs in a thread, or write 'async def'"
            )
        return Subscriber(
            handler=handler,
            topics=self._topics,
            group=self._group,
            pool=pool,
            rules=self._rules,
            publish=self._publish,
            body=body,
            options=self._options,  # type: ignore[arg-type]
            **self._checked,
        )

    def _batch_size(self, size: Any) -> int:
        return int(_whole("batch_size", size, 1, BATCH_SIZE_MAX)) if self._batch else 0


def is_coroutine(handler: HandlerFunction) -> bool:
    """Is it an `async def`, or an object whose call is one?"""
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
        getattr(handler, "__call__", None)  # noqa: B004
    )


def _whole(name: str, value: Any, low: int, high: int) -> Any:
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadRequest(f"{name} is {typed(value)}; it is a whole number")
    if not low <= value <= high:
        raise BadRequest(f"{name} is {shown(value)}; it can be {low} to {high}")
    return value


def _yes_or_no(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise BadRequest(f"{name} is {typed(value)}; it is True or False")
    return value
