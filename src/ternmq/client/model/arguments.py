"""Checks what applications pass against the types that a call declares: the front gate.

The annotations of a call are the rule: a new call, or a new option, is checked without a line of
its own. `typed_calls` wraps the public methods of a class; `check_typed_options` checks keywords
that a TypedDict declares, `check_options` their names alone. A refusal names the argument, what was
given and what it can be, before anything is asked of a server. Not for calls that run once per
message. Pure.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import lru_cache, wraps
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

from ternmq.client.model.durations import typed
from ternmq.client.model.request_check import described
from ternmq.core.errors import BadRequest, TernError

C = TypeVar("C")

_hints = lru_cache(maxsize=None)(get_type_hints)


def typed_calls(kind: type[C]) -> type[C]:
    """Check the arguments of every public method that this class defines, and of no property."""
    for name, member in list(vars(kind).items()):
        if not name.startswith("_") and inspect.isfunction(member):
            setattr(kind, name, _checked(member))
    return kind


def check_options(
    call: str, given: Iterable[str], known: Iterable[str], error: type[TernError] = BadRequest
) -> None:
    """Raise for the first keyword of `call` that is not among the known ones."""
    for name in given:
        if name not in known:
            raise error(f"{call}() has no option {name!r}; {_nearest_text(name, sorted(known))}")


def check_typed_options(
    call: str, options: Mapping[str, Any], kind: type, but: Sequence[str] = ()
) -> None:
    """Names and types of the keywords of a call; those in `but` are checked with words of their
    own elsewhere."""
    hints = _hints(kind)
    check_options(call, options, hints)
    for name, value in options.items():
        if name not in but:
            check_value(name, value, hints[name])


def check_value(name: str, value: object, hint: Any) -> None:
    """Raise `BadRequest` unless the value is of that type."""
    if not fits(value, hint):
        raise BadRequest(f"{name} is {typed(value)}; it can be {described(hint)}")


def fits(value: Any, hint: Any) -> bool:
    """Is the value of the type that an annotation says? A whole number is also a number, True is
    neither; what an annotation leaves open fits."""
    origin, parts = get_origin(hint), get_args(hint)
    if hint is Any or isinstance(hint, TypeVar):
        return True
    if hint is None or hint is NoneType:
        return value is None
    if origin is Annotated:
        return fits(value, parts[0])
    if origin in (Union, UnionType):
        return any(fits(value, part) for part in parts)
    if origin is Literal:
        return any(isinstance(value, type(part)) and value == part for part in parts)
    if hint in (int, float):
        number = isinstance(value, int if hint is int else int | float)
        return number and not isinstance(value, bool)
    if origin is not None:
        return _holds(value, origin, parts)
    return not isinstance(hint, type) or isinstance(value, hint)


def _holds(value: Any, origin: Any, parts: tuple[Any, ...]) -> bool:
    """Is it such a collection, of such elements? Lists and tuples stand for each other."""
    if issubclass(origin, Mapping):
        return isinstance(value, Mapping) and all(
            fits(key, parts[0]) and fits(each, parts[1]) for key, each in value.items()
        )
    if issubclass(origin, tuple) and parts[-1] is not ...:
        return (
            isinstance(value, list | tuple)
            and len(value) == len(parts)
            and all(map(fits, value, parts))
        )
    if issubclass(origin, Sequence):
        listed = isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray)
        return listed and all(fits(each, parts[0]) for each in value)
    return isinstance(value, origin)


def _checked(function: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(function)

    def check(given: tuple[Any, ...], named: dict[str, Any]) -> None:
        try:
            bound = signature.bind(*given, **named)
        except TypeError as error:
            raise BadRequest(f"{function.__name__}{signature}: {error}") from None
        hints = _hints(function)
        for name, value in bound.arguments.items():
            hint = hints.get(name, Any)
            if signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
                options = (get_args(hint) or (hint,))[0]
                if is_typeddict(options):
                    check_typed_options(function.__name__, value, options)
            else:
                check_value(name, value, hint)

    @wraps(function)
    async def awaited(*given: Any, **named: Any) -> Any:
        check(given, named)
        return await function(*given, **named)

    @wraps(function)
    def called(*given: Any, **named: Any) -> Any:
        check(given, named)
        return function(*given, **named)

    return awaited if inspect.iscoroutinefunction(function) else called


def _nearest_text(name: str, known: list[str]) -> str:
    close = get_close_matches(name, known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}"
