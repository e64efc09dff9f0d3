"""What becomes of a message whose handler raised: by the kind of the exception. Pure.

`reject_on`, `retry_on` and `ignore` of a subscriber name classes. The nearest one decides: the
exception's own class, then its bases in order. So `reject_on=(Exception,), retry_on=(OSError,)`
tries again what may pass and gives up the rest. What nobody names is tried again, but a body that
cannot be read (`DecodeError`): it would be the same after seventeen attempts.
"""

from typing import Any, Literal

from ternmq.client.model.durations import typed
from ternmq.core.errors import BadRequest, DecodeError

FailureVerdict = Literal["retry", "reject", "ignore"]
ExceptionTypes = type[BaseException] | tuple[type[BaseException], ...]
NAMES: dict[str, FailureVerdict] = {"reject_on": "reject", "retry_on": "retry", "ignore": "ignore"}


class FailureRules:
    """The three options of one subscriber, checked."""

    def __init__(self, given: dict[str, Any]) -> None:
        self._rules: dict[type, FailureVerdict] = {DecodeError: "reject"}
        named_by: dict[type, str] = {}
        for option, verdict in NAMES.items():
            for kind in _classes(option, given.get(option, ())):
                if named_by.setdefault(kind, option) != option:
                    raise BadRequest(f"{kind.__name__} is in {named_by[kind]} and in {option}")
                self._rules[kind] = verdict

    def verdict(self, error: BaseException) -> FailureVerdict:
        for kind in type(error).__mro__:
            if kind in self._rules:
                return self._rules[kind]
        return "retry"


def _classes(option: str, given: Any) -> tuple[type[BaseException], ...]:
    kinds = given if isinstance(given, tuple | list) else (given,)
    for kind in kinds:
        if not (isinstance(kind, type) and issubclass(kind, Exception)):
            raise BadRequest(
                f"{option} has {typed(kind)}; it takes exception classes, one or a tuple of them"
            )
    return tuple(kinds)
