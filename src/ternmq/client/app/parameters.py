"""What a handler's parameters ask for, read once where the decorator is written. Pure.

    async def bill(order: Order, message: Message, db: Annotated[Session, Depends(session)]): ...

| a parameter | gets |
|---|---|
| the first one without annotation, or `Message`, `MessageBatch`, `Any` | the message or the batch |
| any other type, once | the body, read as that type; of a batch `list[Order]`, body by body |
| `Annotated[T, Depends(f)]`, or `= Depends(f)` | what `f` returns or yields |

Functions in `Depends` have parameters by the same rules. Each is called once per message however
many ask for it, and what stands behind a `yield` runs when the handler has ended. Refusals name the
parameter. Nothing is called here; `handler_call.py` does.
"""

import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args, get_origin

from ternmq.client.codecs.body_type import BodyType, body_type
from ternmq.client.model.durations import typed
from ternmq.client.model.message import Message, MessageBatch
from ternmq.core.errors import BadRequest

FunctionKind = Literal["plain", "coroutine", "generator", "async generator"]
DEPTH_MAX = 32


class Depends:
    """Marks a parameter: its value is what this function returns or yields for the message."""

    __slots__ = ("function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        if not callable(function):
            raise BadRequest(f"Depends takes a function, not {typed(function)}")
        self.function = function


@dataclass(frozen=True, slots=True)
class WholeUnit:
    """The message or the batch itself."""


@dataclass(frozen=True, slots=True)
class TypedBody:
    """The body, or all bodies of a batch, as a type."""

    type: BodyType


@dataclass(frozen=True, slots=True, eq=False)
class Provider:
    """A function of `Depends`, with what it asks for itself."""

    function: Callable[..., Any]
    kind: FunctionKind
    arguments: "dict[str, Argument]"


Argument = WholeUnit | TypedBody | Provider
WHOLE = WholeUnit()


@dataclass(frozen=True, slots=True)
class Parameters:
    """What one handler is called with."""

    first: Argument | None
    """Given by position; None where all go by name."""
    named: dict[str, Argument]

    @property
    def plain(self) -> bool:
        """Nothing but the message: the handler can be called as it is."""
        return self.first is WHOLE and not self.named

    def all(self) -> list[Argument]:
        return ([] if self.first is None else [self.first]) + list(self.named.values())

    @property
    def providers(self) -> list[Provider]:
        """Every function that is called before the handler, in that order."""
        found: list[Provider] = []
        for argument in self.all():
            _collect(argument, found)
        return found

    @property
    def body(self) -> BodyType | None:
        """The type of the body, where one is asked for."""
        for argument in self.all():
            if isinstance(argument, TypedBody):
                return argument.type
        return None


def parameters_of(handler: Callable[..., Any], *, batch: bool) -> Parameters:
    """Read a handler's signature; raises `BadRequest` where it cannot be called."""
    try:
        signature = inspect.signature(handler)
    except ValueError:  # Not written in Python: nobody can say.
        return Parameters(WHOLE, {})
    found = _Signature(handler, signature, batch, {}, depth=0).arguments(first_is_unit=True)
    if not found:
        raise BadRequest(
            f"a handler is called with ({'batch' if batch else 'message'}): "
            f"{_name(handler)} takes nothing"
        )
    names = list(found)
    position = signature.parameters[names[0]].kind
    if position is inspect.Parameter.KEYWORD_ONLY:
        return Parameters(None, found)
    return Parameters(found[names[0]], {name: found[name] for name in names[1:]})


class _Signature:
    """The parameters of one function: the handler's, or of something it depends on."""

    def __init__(
        self,
        function: Callable[..., Any],
        signature: inspect.Signature,
        batch: bool,
        known: dict[Callable[..., Any], Provider],
        depth: int,
    ) -> None:
        if depth > DEPTH_MAX:
            raise BadRequest(f"{_name(function)} depends on itself")
        self._function = function
        self._signature = signature
        self._batch = batch
        self._known = known
        self._depth = depth

    def arguments(self, *, first_is_unit: bool) -> dict[str, Argument]:
        found: dict[str, Argument] = {}
        for name, parameter in self._signature.parameters.items():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                if first_is_unit and not found and parameter.kind is parameter.VAR_POSITIONAL:
                    found[name] = WHOLE  # def handler(*args)
                continue
            argument = self._argument(
                name, parameter, first=first_is_unit and not found, so_far=found
            )
            if argument is not None:
                found[name] = argument
        return found

    def _argument(
        self,
        name: str,
        parameter: inspect.Parameter,
        *,
        first: bool,
        so_far: dict[str, Argument],
    ) -> Argument | None:
        annotation = self._annotation(parameter)
        marked = _marked(annotation, parameter)
        if marked is not None:
            return self._provider(marked)
        if annotation is inspect.Parameter.empty:
            if first:
                return WHOLE
        elif _is_unit(annotation, batch=self._batch):
            return WHOLE
        elif not any(isinstance(argument, TypedBody) for argument in so_far.values()) and (
            first or parameter.default is inspect.Parameter.empty
        ):
            return TypedBody(self._body(name, annotation))
        if parameter.default is not inspect.Parameter.empty:
            return None
        raise BadRequest(
            f"nobody knows what the parameter {name!r} of {_name(self._function)} gets: annotate "
            "it with Message, with the type of the body (once) or Annotated[…, Depends(function)]"
        )

    def _annotation(self, parameter: inspect.Parameter) -> Any:
        annotation = parameter.annotation
        if not isinstance(annotation, str):
            return annotation
        hinted: Any = self._function
        if inspect.isclass(hinted):
            hinted = hinted.__init__
        elif not inspect.isroutine(hinted):
            hinted = type(hinted).__call__
        try:
            return typing.get_type_hints(hinted, include_extras=True)[parameter.name]
        except Exception as error:
            # Names imported for type checkers only: those of ours are known by themselves.
            if annotation.rpartition(".")[2] in ("Message", "MessageBatch", "Any"):
                return {"Message": Message, "MessageBatch": MessageBatch}.get(
                    annotation.rpartition(".")[2], Any
                )
            raise BadRequest(
                f"the annotation {annotation!r} of {_name(self._function)} cannot be resolved "
                f"({error}): it decides what the parameter gets, so it must be importable"
            ) from error

    def _body(self, name: str, annotation: Any) -> BodyType:
        if not self._batch:
            return body_type(annotation)
        parts = get_args(annotation)
        if get_origin(annotation) is not list or len(parts) != 1:
            raise BadRequest(
                f"the parameter {name!r} of {_name(self._function)} is for a batch: annotate it "
                "with MessageBatch or list[…] of the type of one body"
            )
        return body_type(parts[0])

    def _provider(self, marked: Depends) -> Provider:
        function = marked.function
        if function not in self._known:
            try:
                signature = inspect.signature(function)
            except ValueError as error:
                raise BadRequest(f"{_name(function)} has no signature to read: {error}") from error
            inner = _Signature(function, signature, self._batch, self._known, self._depth + 1)
            arguments = inner.arguments(first_is_unit=False)
            self._known[function] = Provider(function, _kind(function), arguments)
        return self._known[function]


def _marked(annotation: Any, parameter: inspect.Parameter) -> Depends | None:
    if isinstance(parameter.default, Depends):
        return parameter.default
    if get_origin(annotation) is Annotated:
        return next((part for part in get_args(annotation) if isinstance(part, Depends)), None)
    return None


def _is_unit(annotation: Any, *, batch: bool) -> bool:
    """Is the message (or batch) itself asked for? Refuses the one for the other."""
    if annotation in (Any, object) or isinstance(annotation, typing.TypeVar):
        return True
    parts = get_args(annotation) if get_origin(annotation) is not list else ()
    kinds = {part for part in (parts or (annotation,)) if isinstance(part, type)}
    asks_one = any(issubclass(kind, Message) for kind in kinds)
    asks_many = any(issubclass(kind, MessageBatch) for kind in kinds)
    if (asks_many and not asks_one and not batch) or (asks_one and not asks_many and batch):
        wanted, given = ("MessageBatch", "Message") if batch else ("Message", "MessageBatch")
        raise BadRequest(
            f"the handler is annotated with {given} and gets a {wanted}: "
            f"{'leave out' if batch else 'say'} batch=True, or annotate it with {wanted}"
        )
    return asks_one or asks_many


def _kind(function: Callable[..., Any]) -> FunctionKind:
    called = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004
    if inspect.isasyncgenfunction(called):
        return "async generator"
    if inspect.isgeneratorfunction(called):
        return "generator"
    if inspect.iscoroutinefunction(called):
        return "coroutine"
    return "plain"


def _collect(argument: Argument, found: list[Provider]) -> None:
    if not isinstance(argument, Provider) or argument in found:
        return
    for inner in argument.arguments.values():
        _collect(inner, found)
    found.append(argument)


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__)
