"""Wrong calls, made from the signatures of the public classes: each argument of each wrong type.

`GOOD` has one good value for every name that a public call takes. A call with a name that is not in
it makes the test fail, so nothing public is added without a line here. What is wrong for an
argument is worked out from its annotation, with rules of this file alone.
"""

import collections.abc
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from sqlalchemy import create_engine

import ternmq
from ternmq.wire.messages.groups import GroupSet
from ternmq.wire.messages.limits import LimitSet, TopicSet
from ternmq.wire.record import Record

SAMPLES: list[Any] = [
    None,
    True,
    5,
    1.5,
    "text",
    b"bytes",
    ["text"],
    [5],
    [(1, 2)],
    {"name": 5},
    {"name": "text"},
    datetime(2030, 1, 1, tzinfo=UTC),
    timedelta(seconds=5),
    Path("path"),
    object(),
]
"""One of each kind; those that an annotation does not allow are wrong."""

GOOD: dict[str, Any] = {
    "prefetch": 10,
    "quota": {"rate": 5},
    "master_key": "office",
    "accept_loss": False,
    "action": "commit",
    "address": "127.0.0.1:1",
    "after": 5,
    "app": "shop",
    "apps": ["shop"],
    "at": datetime(2030, 1, 1, tzinfo=UTC),
    "attempts": [1],
    "bodies": [b"x"],
    "body": b"x",
    "broker_group": "main",
    "connections_max": 10,
    "delay": 5,
    "deny": False,
    "clock": None,
    "codec": None,
    "drain_timeout": 5,
    "dry_run": True,
    "engine": create_engine("sqlite://"),
    "end": datetime(2030, 1, 1, tzinfo=UTC),
    "error": None,
    "exact": False,
    "exist_ok": False,
    "expires": 60,
    "force": False,
    "function": lambda check: "unknown",
    "group": "g",
    "handler": lambda message: None,
    "identity": "shop",
    "id": "01M7FCD80ZA6JWJ00W00000000",
    "immunity": 5,
    "iterations": 4_096,
    "job": lambda mq: None,
    "key": "k",
    "keys": {"shop": "env:SHOP_KEY"},
    "kind": "realtime",
    "later": "",
    "leaving": [],
    "lifespan": None,
    "limit": 10,
    "member": "m-1",
    "middlewares": [],
    "mq": None,
    "message": "01M7FCD80ZA6JWJ00W00000000",
    "name": "orders",
    "names": ["tern_broker_topics"],
    "narrow": [("publish", "orders")],
    "messages": ["01M7FCD80ZA6JWJ00W00000000"],
    "older_than": 5,
    "on_progress": lambda progress: None,
    "order_key": "k",
    "pages_max": 1,
    "password": "not a secret",
    "paused": True,
    "prefix": "",
    "ranges": [(0, 1)],
    "reason": "why",
    "resource": "orders",
    "rows": [ternmq.Outgoing(body=b"x", explicit_id=b"one")],
    "rows_max": 10,
    "seconds": 1,
    "schema": None,
    "sequence": 0,
    "sequences": [0],
    "session": "5e55",
    "session_maker": None,
    "settings": ternmq.TopicSettings(),
    "newest": 10,
    "skip": False,
    "sort": "name",
    "slots": [1],
    "subject": "customer-17",
    "start": "earliest",
    "stored_at": datetime(2030, 1, 1, tzinfo=UTC),
    "table": "tern_table",
    "timeout": 5,
    "told": lambda progress: None,
    "token_id": "0",
    "topic": "orders",
    "topics": ["orders"],
    "transaction": "00" * 16,
    "undo": False,
    "unreadable": False,
    "user": "shop",
    "key_id": "AK0",
    "version": 0,
    "Admin.figures_page.kind": "groups",
    "Admin.figures_page.keys": [("orders", "g")],
    "Admin.figures_page.after": "",
    "Admin.create_topic.name": "wrong.calls",
    "Delays.change.action": "cancel",
    "Delays.change_many.action": "cancel",
    "Delays.counts.start": None,
    "Delays.page.after": "",
    "Delays.page.start": None,
    "Delays.rows.start": None,
    "Inbox.key": None,
    "Message.decode.kind": dict,
    "Inbox.session": True,
    "Outbox.settings": None,
    "RegistryDocuments.list.after": "",
    "RegistryDocuments.page.after": "",
    "RegistryDocuments.page.bodies": False,
    "url": "tern://127.0.0.1:1",
    "wait": 0,
    "wanted": ternmq.Replay(topic="orders", into="g"),
    "text": "x",
    "weight": 100,
    "where": "amount > 10",
    "working": 5,
}
SETTINGS: dict[str, type[Record]] = {
    "set_topic": TopicSet,
    "set_group": GroupSet,
    "set_limit": LimitSet,
}
"""Calls that take the fields of a record as keywords."""
LENIENT = {"reason", "error"}
"""Any reason is written as text: who gives a message back must not fail a second time."""
TEXTS_FOR_NUMBERS = {"rate", "bytes_rate", "consume_rate", "consume_bytes_rate", "body_size_max"}
"""May also be written as on the command line; times (`…_ms`) may, too."""


@dataclass(frozen=True, slots=True)
class WrongCall:
    """A call of which one argument is wrong."""

    name: str
    argument: str
    value: Any
    given: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.name}({self.argument}={self.value!r})"


def wrong_calls(kind: type, but: Mapping[str, str]) -> Iterator[WrongCall]:
    """Every public method of a class, every argument, every wrong type."""
    for name in dir(kind):
        function = inspect.getattr_static(kind, name)
        if name.startswith("_") or not inspect.isfunction(function):
            continue
        if f"{kind.__name__}.{name}" not in but:
            yield from wrong_calls_of(f"{kind.__name__}.{name}", function)


def wrong_calls_of(name: str, function: Callable[..., Any]) -> Iterator[WrongCall]:
    """The same of one function, method or class."""
    made = function.__init__ if isinstance(function, type) else function  # type: ignore[misc]
    hints = get_type_hints(made, include_extras=True)
    found = inspect.signature(function).parameters.values()
    parameters = [each for each in found if each.name != "self"]
    plain = [each for each in parameters if each.kind is not each.VAR_KEYWORD]
    given = {each.name: good_value(name, each.name, hints.get(each.name, Any)) for each in plain}
    for each in plain:
        for value in wrong_values(each.name, hints.get(each.name, Any)):
            yield WrongCall(name, each.name, value, {**given, each.name: value})
    needed = {each.name: given[each.name] for each in plain if each.default is each.empty}
    for option, hint in _options(name, parameters, hints).items():
        for value in wrong_values(option, hint):
            yield WrongCall(name, option, value, {**needed, option: value})


def good_value(call: str, argument: str, hint: Any) -> Any:
    assert argument in GOOD, f"{call} takes {argument}=: write a good value into GOOD"
    value = GOOD.get(f"{call}.{argument}", GOOD[argument])
    assert allowed(value, hint), f"{value!r} is no good value of {argument}= for {call}"
    return value


def _options(name: str, parameters: list[Any], hints: dict[str, Any]) -> dict[str, Any]:
    """What the keywords of a call can be."""
    record = SETTINGS.get(name.rpartition(".")[2])
    if record is not None:
        own = get_type_hints(record, include_extras=True)
        return {
            field: hint for field, hint in own.items() if field not in ("topic", "group", "name")
        }
    for each in parameters:
        if each.kind is each.VAR_KEYWORD:
            [options] = get_args(hints[each.name])
            assert is_typeddict(options), f"{name} takes keywords that nobody has declared"
            return get_type_hints(options, include_extras=True)
    return {}


def wrong_values(name: str, hint: Any) -> list[Any]:
    if name in LENIENT:
        return []
    written = name in TEXTS_FOR_NUMBERS or name.endswith("_ms")
    return [
        value
        for value in SAMPLES
        if not allowed(value, hint) and not (written and isinstance(value, timedelta))
    ]


def allowed(value: Any, hint: Any) -> bool:
    """Does the annotation allow it? By rules of our own, so that those of the client are tested."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return allowed(value, parts[0])
    if origin in (Union, UnionType):
        return any(allowed(value, part) for part in parts)
    if hint in (Any, object):
        return True
    if hint in (None, NoneType):
        return value is None
    if origin is Literal:
        return value in [part for part in parts if type(part) is type(value)]
    if hint is float:
        return type(value) in (int, float)
    if hint in (int, str, bytes, bool, datetime, timedelta):
        return type(value) is hint
    if origin in (list, collections.abc.Sequence, collections.abc.Iterable):
        return isinstance(value, list) and all(allowed(each, parts[0]) for each in value)
    if origin is tuple:
        return isinstance(value, tuple) and all(map(allowed, value, parts))
    if origin in (dict, collections.abc.Mapping):
        return isinstance(value, dict) and all(allowed(each, parts[1]) for each in value.values())
    if origin is collections.abc.Callable:
        return callable(value)
    if origin is type:
        kind = parts[0]
        return isinstance(value, type) and (isinstance(kind, TypeVar) or issubclass(value, kind))
    if getattr(hint, "_is_protocol", False):
        return False
    return isinstance(value, hint)


EDGES: dict[type, tuple[Any, ...]] = {
    str: ("", " ", "\0", "%", "x" * 70_000, "\ud800", "ü" * 200),
    int: (-1, 0, 2**31, 2**63, 2**70),
    float: (-1.0, 0.0, 1e300, float("nan"), float("inf")),
    bytes: (b"",),
    list: ([],),
    dict: ({}, {"": -1}),
}
"""Of a type that is right: at the edge of what there is, or beyond it."""


def edge_calls(kind: type, but: Mapping[str, str]) -> Iterator[WrongCall]:
    """Every public method of a class, every argument, every value at an edge of its type."""
    for name in dir(kind):
        function = inspect.getattr_static(kind, name)
        called = f"{kind.__name__}.{name}"
        if name.startswith("_") or not inspect.isfunction(function) or called in but:
            continue
        hints = get_type_hints(function, include_extras=True)
        plain = [
            each
            for each in inspect.signature(function).parameters.values()
            if each.name != "self" and each.kind is not each.VAR_KEYWORD
        ]
        given = {each.name: good_value(called, each.name, hints[each.name]) for each in plain}
        for each in plain:
            for value in (edge for edges in EDGES.values() for edge in edges):
                if allowed(value, hints[each.name]):
                    yield WrongCall(called, each.name, value, {**given, each.name: value})
