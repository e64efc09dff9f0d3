"""Builds terms from the rules of the selector's grammar.

lark calls these methods bottom-up, as it recognises rules, so nothing here recurses over the text.
Each piece knows where it starts, for the message if it turns out wrong, and how deep it nests:
brackets and NOTs beyond `DEPTH_MAX` are refused, which is what bounds every recursion over the
terms later. A condition is not a value: `(a > 1) = TRUE` is refused, as is a number used as a
condition. Keeps no state: one builder serves every selector.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

from lark import Token, Transformer

from ternmq.batch.selector.terms import (
    FIELDS,
    MIRRORED,
    Among,
    Compare,
    Constant,
    MissingTerm,
    Name,
    Term,
    TermSearch,
    Truth,
    all_of,
    compare_names,
    negate,
    some_of,
)

DEPTH_MAX = 32  # Brackets and NOTs inside each other.
TERMS_MAX = 128  # Comparisons: each may cost every message some 30 ns.
ITEMS_MAX = 1_024  # Of one IN list, which costs a message the same however long it is.
INTEGER_EXACT = 2**53

Literal = str | int | float | bool | None


class Mistake(Exception):
    """Something wrong at this character; becomes a `BadFilter` where the whole text is known."""

    def __init__(self, at: int, what: str) -> None:
        super().__init__(what)
        self.at = at


@dataclass(frozen=True, slots=True)
class Value:
    """A property or a literal."""

    at: int
    depth: int
    value: Name | Literal


@dataclass(frozen=True, slots=True)
class Condition:
    """Something true, false or unknown."""

    at: int
    depth: int
    count: int
    term: Term


Operand = Value | Condition


class Builder(Transformer[Token, Operand]):
    """One method a rule, called with what the rule's parts became."""

    def either(self, parts: list[Operand]) -> Condition:
        conditions = [condition_of(part) for part in parts]
        return _joined(conditions, some_of(one.term for one in conditions))

    def both(self, parts: list[Operand]) -> Condition:
        conditions = [condition_of(part) for part in parts]
        return _joined(conditions, all_of(one.term for one in conditions))

    def negated(self, parts: list[Any]) -> Condition:
        word, inner = parts[0], condition_of(parts[1])
        _check_depth(_start(word), inner.depth + 1)
        return Condition(_start(word), inner.depth + 1, inner.count, negate(inner.term))

    def grouped(self, parts: list[Operand]) -> Operand:
        (inner,) = parts
        _check_depth(inner.at, inner.depth + 1)
        return replace(inner, depth=inner.depth + 1)

    def compared(self, parts: list[Any]) -> Condition:
        left, right = value_of(parts[0]), value_of(parts[2])
        return _test(left, right, _compare(left, str(parts[1]), right))

    def between(self, parts: list[Any]) -> Condition:
        middle, low, high = value_of(parts[0]), value_of(parts[2]), value_of(parts[3])
        term = all_of((_compare(middle, ">=", low), _compare(middle, "<=", high)))
        return replace(_test(middle, high, negate(term) if parts[1] else term), count=2)

    def among(self, parts: list[Any]) -> Condition:
        name, items = name_of(parts[0]), parts[2:]
        if len(items) > ITEMS_MAX:
            raise Mistake(items[ITEMS_MAX].at, f"more than {ITEMS_MAX:,} items in one list")
        for item in items:
            if isinstance(item.value, str) != isinstance(items[0].value, str):
                raise Mistake(item.at, "a list holds strings or numbers, not both")
        values = frozenset(item.value for item in items)
        if len(values) == 1:
            return self.compared([parts[0], "=" if parts[1] is None else "<>", items[0]])
        return _test(parts[0], parts[0], Among(name, values, parts[1] is not None))

    def search(self, parts: list[Any]) -> Condition:
        needle = _unquoted(parts[3])
        term = TermSearch(name_of(parts[0]), parts[2].upper(), needle, parts[1] is not None)
        return _test(parts[0], parts[0], term)

    def missing(self, parts: list[Any]) -> Condition:
        operand, negated = value_of(parts[0]), parts[1] is not None
        if isinstance(operand.value, Name):
            return _test(operand, operand, MissingTerm(operand.value, negated))
        return _test(operand, operand, Constant((operand.value is None) != negated))

    def name(self, parts: list[Token]) -> Value:
        text = str(parts[0])
        return Value(_start(parts[0]), 0, Name(text, FIELDS.get(text)))

    def quoted(self, parts: list[Token]) -> Value:
        return Value(_start(parts[0]), 0, Name(_unquoted(parts[0])))

    def word(self, parts: list[Token]) -> Value:
        value = {"TRUE": True, "FALSE": False, "NULL": None}[parts[0].upper()]
        return Value(_start(parts[0]), 0, value)

    def string(self, parts: list[Token]) -> Value:
        return Value(_start(parts[0]), 0, _unquoted(parts[0]))

    def number(self, parts: list[Any]) -> Value:
        sign, token = parts
        at = _start(token if sign is None else sign)
        digits = token.rstrip("lL")
        number = int(digits) if digits.isdigit() else float(digits)
        if isinstance(number, float):
            if math.isinf(number):
                raise Mistake(at, "this number is too large")
            if number.is_integer() and number < INTEGER_EXACT:
                number = int(number)
        return Value(at, 0, -number if sign == "-" else number)


def _compare(left: Value, operator: str, right: Value) -> Term:
    """With a literal on the right, if there is one; decided at once where both are literals."""
    one, other = left.value, right.value
    for side in (left, right):
        if isinstance(side.value, bool) and operator not in ("=", "<>"):
            raise Mistake(side.at, f"TRUE and FALSE have no order; {operator} needs one")
    if isinstance(one, Name) and isinstance(other, Name):
        return compare_names(one, operator, other)
    if isinstance(other, Name):
        one, operator, other = other, MIRRORED[operator], one
    if one is None or other is None:
        return Constant(None)
    if isinstance(one, Name):
        if isinstance(other, bool):
            return Truth(one, other == (operator == "="))
        assert not isinstance(other, Name)
        return Compare(one, operator, other)
    return _decided(one, operator, other)


def _decided(one: str | float, operator: str, other: str | float | Name) -> Constant:
    """Two literals; of different types they cannot be compared."""
    if _kind(one) is not _kind(other):
        return Constant(None)
    less, equal = one < other, one == other  # type: ignore[operator]  # Same kind, checked above.
    results = {
        "=": equal,
        "<>": not equal,
        "<": less,
        "<=": less or equal,
        ">": not less and not equal,
        ">=": not less,
    }
    return Constant(results[operator])


def _kind(value: object) -> type:
    return next(kind for kind in (bool, str, object) if isinstance(value, kind))


def condition_of(piece: Operand) -> Condition:
    """As something that is true or false: a boolean property is, a number is not."""
    if isinstance(piece, Condition):
        return piece
    value = piece.value
    if isinstance(value, Name):
        return Condition(piece.at, piece.depth, 1, Truth(value, True))
    if value is None or isinstance(value, bool):
        return Condition(piece.at, piece.depth, 1, Constant(value))
    kind = "string" if isinstance(value, str) else "number"
    raise Mistake(piece.at, f"expected a condition, and this is only a {kind}")


def value_of(piece: Operand) -> Value:
    if isinstance(piece, Condition):
        raise Mistake(piece.at, "expected a property or a literal, and this is a condition")
    return piece


def name_of(piece: Operand) -> Name:
    value = value_of(piece).value
    if not isinstance(value, Name):
        raise Mistake(piece.at, "expected a property, and this is a literal")
    return value


def _test(first: Value, last: Value, term: Term) -> Condition:
    return Condition(first.at, max(first.depth, last.depth), 1, term)


def _joined(conditions: list[Condition], term: Term) -> Condition:
    count = 0
    for one in conditions:
        count += one.count
        if count > TERMS_MAX:
            raise Mistake(one.at, f"more than {TERMS_MAX} comparisons")
    return Condition(conditions[0].at, max(one.depth for one in conditions), count, term)


def _check_depth(at: int, depth: int) -> None:
    if depth > DEPTH_MAX:
        raise Mistake(at, f"more than {DEPTH_MAX} brackets and NOTs inside each other")


def _unquoted(token: Token) -> str:
    quote = token[0]
    return token[1:-1].replace(quote * 2, quote)


def _start(token: Token) -> int:
    assert token.start_pos is not None
    return token.start_pos
