"""The SQL92 filter on message properties: `amount > 10 AND region IN ('north', 'west')`.

A selector is parsed once and then asked batch by batch. The way of one: text -> `grammar`
(with `builder`) -> `terms` -> `code`, which makes one Python function;
per batch `columns` reads the few columns it needs. docs/filters.md says what it means.
Never evaluates what a user wrote as code, never reads a body.
"""

import functools
from dataclasses import dataclass, field

from ternmq.batch.rows.runs import runs
from ternmq.batch.selector.code import Test, compile_test
from ternmq.batch.selector.columns import ValueKind, read_columns
from ternmq.batch.selector.terms import Constant, Name, closed, text_of
from ternmq.batch.view import BatchView

CACHED_MAX = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Selector:
    """A parsed filter; equal to another that differs in writing only."""

    text: str
    """For comparing and showing. Parse again what the user wrote: this may be longer than that."""
    _wanted: list[tuple[Name, ValueKind]] = field(compare=False, repr=False)
    _test: Test = field(compare=False, repr=False)
    _always: bool | None = field(compare=False, repr=False)

    @staticmethod
    def parse(text: str) -> "Selector":
        """The selector; `BadFilter` says where the text is wrong and what was expected there."""
        return _parsed(text)

    @property
    def names(self) -> frozenset[str]:
        """The properties (and fields) that this selector reads."""
        return frozenset(name.text for name, _ in self._wanted)

    def rows(self, view: BatchView) -> list[tuple[int, int]]:
        """The ranges of rows for which this is true; `Corrupt` where columns cannot be read."""
        if self._always is not None:
            return [(0, view.count)] if self._always else []
        return runs(self._test(read_columns(view, self._wanted)))


@functools.lru_cache(maxsize=CACHED_MAX)
def _parsed(text: str) -> Selector:
    from ternmq.batch.selector.grammar import parse  # A parser, for those who filter by SQL.

    term = closed(parse(text))
    wanted, test = compile_test(term)
    always = term.value if isinstance(term, Constant) else None
    return Selector(text=text_of(term), _wanted=wanted, _test=test, _always=always)
