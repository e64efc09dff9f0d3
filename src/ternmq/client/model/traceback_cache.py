"""Tracebacks as text, exactly as Python's `traceback` writes them, with cached frames.

Formatting a frame reads its source line and parses it to place the carets: about 40 µs. A handler
that fails mostly fails where it failed before, so the text of a frame is kept by its place in the
code and only the last line, which has the message, is made anew. What is rare and looks different
(groups, syntax errors, suggestions, deep recursion) is left to `traceback` as a whole.
"""

import sys
import traceback
from types import CodeType, TracebackType

KEPT_MAX = 1_000  # Frames; beyond that all are forgotten and made again.
REPEATS_MAX = 3  # `traceback` folds more than so many equal lines.
HEAD = "Traceback (most recent call last):\n"
CAUSE = "\nThe above exception was the direct cause of the following exception:\n\n"
CONTEXT = "\nDuring handling of the above exception, another exception occurred:\n\n"
OTHERS = (BaseExceptionGroup, SyntaxError, NameError, AttributeError, ImportError)

_kept: dict[tuple[int, int], tuple[CodeType, str]] = {}


def formatted(error: BaseException) -> str:
    """What `traceback.format_exception` says."""
    chain = _chain(error)
    parts: list[str] = []
    for link, one in reversed(chain):
        usual = not isinstance(one, OTHERS) and "tracebacklimit" not in sys.__dict__
        frames = _frames(one.__traceback__) if usual else None
        if frames is None:
            return "".join(traceback.format_exception(error))
        parts += [HEAD, *frames, _last_line(one), link]
    return "".join(parts)


def _last_line(error: BaseException) -> str:
    """What `traceback.format_exception_only` says, without its work for what is rare."""
    kind = type(error)
    if hasattr(error, "__notes__"):
        return "".join(traceback.format_exception_only(error))
    module = "" if kind.__module__ in ("__main__", "builtins") else f"{kind.__module__}."
    try:
        text = str(error)
    except Exception:
        return "".join(traceback.format_exception_only(error))
    return f"{module}{kind.__qualname__}: {text}\n" if text else f"{module}{kind.__qualname__}\n"


def _chain(error: BaseException) -> list[tuple[str, BaseException]]:
    """The exception and those before it, newest first; with the words that lead on from each."""
    found = [("", error)]
    seen = {id(error)}
    while True:
        cause, context = error.__cause__, error.__context__
        if cause is not None and id(cause) not in seen:
            found.append((CAUSE, cause))
        elif context is not None and not error.__suppress_context__ and id(context) not in seen:
            found.append((CONTEXT, context))
        else:
            return found
        error = found[-1][1]
        seen.add(id(error))


def _frames(trace: TracebackType | None) -> list[str] | None:
    """One text per frame; None where `traceback` would fold some of them."""
    found: list[str] = []
    before, number, repeats = trace, 0, 1
    while trace is not None:
        code = trace.tb_frame.f_code
        if number != id(code):
            number, repeats = id(code), 1
        else:  # It calls itself: perhaps by the same line.
            assert before is not None
            repeats = repeats + 1 if trace.tb_lineno == before.tb_lineno else 1
            if repeats > REPEATS_MAX:
                return None
        kept = _kept.get((number, trace.tb_lasti))
        found.append(kept[1] if kept is not None else _frame(trace, code))
        before, trace = trace, trace.tb_next
    return found or None


def _frame(trace: TracebackType, code: CodeType) -> str:
    text = "".join(traceback.format_tb(trace, limit=1))
    if len(_kept) >= KEPT_MAX:
        _kept.clear()
    _kept[id(code), trace.tb_lasti] = (code, text)  # With the code: its number stays its own.
    return text
