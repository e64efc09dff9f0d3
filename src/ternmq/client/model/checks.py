"""Keywords that a call does not have: refused by name, with the nearest one that it has."""

from collections.abc import Iterable
from difflib import get_close_matches

from ternmq.core.errors import BadRequest, TernError


def check_options(
    call: str, given: Iterable[str], known: Iterable[str], error: type[TernError] = BadRequest
) -> None:
    """Raise for the first keyword of `call` that is not among the known ones."""
    for name in given:
        if name not in known:
            raise error(f"{call}() has no option {name!r}; {_nearest_text(name, sorted(known))}")


def _nearest_text(name: str, known: list[str]) -> str:
    close = get_close_matches(name, known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}"
