"""From terms to a Python function that tests all rows of a batch in one comprehension.

    amount > 10 AND (vip OR name STARTSWITH 'a')
    lambda columns: bytes([v0 > k0 and (v1 is True or (v2 is not None and v2.startswith(k1)))
                           for v0, v1, v2 in zip(*columns)])

The source is made of the tokens in this file and of names we number ourselves. Nothing of what a
user wrote gets into it: strings and numbers are handed over as values (k0, k1), property names say
which column is read. The function sees no builtins but `bytes` and `zip`. A value that is missing
or of another type stands as NaN or None in its column (`columns`), so that every
comparison with it is false, which is all that matters: under no NOT, unknown and false are one.
"""

from collections.abc import Callable
from typing import Any

from ternmq.batch.selector.columns import ValueKind
from ternmq.batch.selector.terms import (
    All,
    Among,
    Compare,
    CompareNames,
    Constant,
    MissingTerm,
    Name,
    Some,
    Term,
    TermSearch,
    Truth,
)

Wanted = dict[tuple[Name, ValueKind], str]
Test = Callable[[list[list[Any]]], bytes]

_PYTHON = {"=": "==", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_METHODS = {"STARTSWITH": "startswith", "ENDSWITH": "endswith"}


def compile_test(term: Term) -> tuple[list[tuple[Name, ValueKind]], Test]:
    """The columns this term needs, and what turns them into one byte (0 or 1) a row."""
    scope = _Scope()
    body = scope.source(term)
    assert scope.wanted or isinstance(term, Constant)  # Any other term reads a column.
    row = "".join(f"{variable}, " for variable in scope.wanted.values()) or "_"
    source = f"lambda columns: bytes([{body} for {row} in zip(*columns)])"
    names = {"__builtins__": {}, "bytes": bytes, "zip": zip, **scope.constants}
    test: Test = eval(compile(source, "<selector>", "eval"), names)
    return list(scope.wanted), test


class _Scope:
    """The columns and constants that the source has named so far."""

    def __init__(self) -> None:
        self.wanted: Wanted = {}
        self.constants: dict[str, object] = {}

    def source(self, term: Term) -> str:
        """An expression that is exactly True or False. Recursion ends at the parser's limit."""
        match term:
            case Constant(decided):
                return "True" if decided else "False"
            case Truth(name, wanted):
                return f"{self._column(name, ValueKind.BOOLEAN)} is {wanted is True}"
            case Compare(name, operator, str() as text):
                return self._strings(name, operator, text)
            case Compare(name, operator, number):
                value, k = self._column(name, ValueKind.NUMBER), self._constant(number)
                return _numbers(value, operator, k)
            case CompareNames(left, operator, right):
                return self._two(left, operator, right)
            case Among(name, values, negated):
                return self._among(name, values, negated)
            case TermSearch(name, how, needle, negated):
                return self._search(name, how, needle, negated)
            case MissingTerm(name, negated):
                value = self._column(name, ValueKind.PRESENT)
                return value if negated else f"(not {value})"
            case All(terms):
                return "(" + " and ".join(self.source(one) for one in terms) + ")"
            case Some(terms):
                return "(" + " or ".join(self.source(one) for one in terms) + ")"

    def _column(self, name: Name, kind: ValueKind) -> str:
        return self.wanted.setdefault((name, kind), f"v{len(self.wanted)}")

    def _constant(self, value: object) -> str:
        k = f"k{len(self.constants)}"
        self.constants[k] = value
        return k

    def _strings(self, name: Name, operator: str, text: str) -> str:
        value, k = self._column(name, ValueKind.STRING), self._constant(text.encode())
        if operator == "=":
            return f"{value} == {k}"
        return f"({value} is not None and {value} {_PYTHON[operator]} {k})"

    def _among(self, name: Name, values: frozenset[str | int | float], negated: bool) -> str:
        if any(isinstance(value, str) for value in values):
            value = self._column(name, ValueKind.STRING)
            k = self._constant(frozenset(str(one).encode() for one in values))
            known = f"{value} is not None"
        else:
            value = self._column(name, ValueKind.NUMBER)
            k = self._constant(values)
            known = f"{value} == {value}"  # False for NaN only.
        return f"({known} and {value} not in {k})" if negated else f"{value} in {k}"

    def _search(self, name: Name, how: str, needle: str, negated: bool) -> str:
        value, k = self._column(name, ValueKind.STRING), self._constant(needle.encode())
        found = f"{k} in {value}" if how == "CONTAINS" else f"{value}.{_METHODS[how]}({k})"
        return f"({value} is not None and {'not ' * negated}{found})"

    def _two(self, left: Name, operator: str, right: Name) -> str:
        """Two properties compare where both are numbers, both strings, or (= <>) both booleans."""
        kinds = (ValueKind.NUMBER, ValueKind.STRING, ValueKind.BOOLEAN)
        n0, s0, b0 = (self._column(left, kind) for kind in kinds)
        n1, s1, b1 = (self._column(right, kind) for kind in kinds)
        cases = [
            _numbers(n0, operator, n1),
            f"({s0} is not None and {s1} is not None and {s0} {_PYTHON[operator]} {s1})",
        ]
        if operator in ("=", "<>"):
            same = "is" if operator == "=" else "is not"
            cases.append(f"({b0} is not None and {b1} is not None and {b0} {same} {b1})")
        return "(" + " or ".join(cases) + ")"


def _numbers(one: str, operator: str, other: str) -> str:
    if operator == "<>":  # Not !=, which is true for NaN.
        return f"({one} < {other} or {one} > {other})"
    return f"{one} {_PYTHON[operator]} {other}"
