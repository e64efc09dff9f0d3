"""Selectors the slow way: random expressions, and what they mean for one message's dict.

An expression is a tuple whose first item says what it is. `render` writes it as SQL, `truth` says
True, False or None (unknown), straight from the rules in docs/filters.md.
"""

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from hypothesis import strategies as st

from ternmq.batch.encoder import Outgoing
from ternmq.batch.properties import PropertyValue

Expression = tuple[Any, ...]

OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
NAMES = [
    "a",
    "b",
    "a.b_$1",
    '"odd ""name"',
    "é",
    "key",
    "tag",
    "TAGS",
    "priority",
    '"key"',
    "$none",
]
STRINGS = ["", "x", "xy", "yx", "it's", "é", "1"]
NUMBERS = [0, 1, -1, 5, 2**53, 2**53 + 1, 2**70, 0.5, -2.25, 1e300, 5.0]

strings = st.sampled_from(STRINGS)
numbers = st.sampled_from(NUMBERS)
names = st.sampled_from(NAMES).map(lambda name: ("name", name))
negated = st.booleans()
literals = (strings | numbers | st.none()).map(lambda value: ("literal", value))
truths = st.sampled_from([True, False, None]).map(lambda value: ("literal", value))
operands = names | literals
lists = st.lists(strings, min_size=1, max_size=4) | st.lists(numbers, min_size=1, max_size=4)
simple = st.one_of(
    names,
    truths,
    st.tuples(st.just("compare"), st.sampled_from(list(OPERATORS)), operands, operands),
    st.tuples(st.just("compare"), st.sampled_from(["=", "<>"]), names, truths),
    st.tuples(st.just("compare"), st.sampled_from(["=", "<>"]), truths, operands),
    st.tuples(st.just("between"), negated, operands, operands, operands),
    st.tuples(st.just("in"), negated, names, lists),
    st.tuples(
        st.just("search"),
        negated,
        names,
        st.sampled_from(["CONTAINS", "STARTSWITH", "ENDSWITH"]),
        strings,
    ),
    st.tuples(st.just("null"), negated, operands),
)
expressions = st.recursive(
    simple,
    lambda inner: st.one_of(
        st.tuples(st.just("not"), inner),
        st.tuples(st.just("and"), st.lists(inner, min_size=2, max_size=4)),
        st.tuples(st.just("or"), st.lists(inner, min_size=2, max_size=4)),
    ),
    max_leaves=12,
)

values = st.one_of(
    strings,
    numbers,
    st.booleans(),
    st.sampled_from([math.nan, math.inf, -math.inf]),
    st.sampled_from([b"", b"x"]),
)
property_names = st.sampled_from(["a", "b", "a.b_$1", 'odd "name', "é", "key", "priority", "other"])
messages = st.builds(
    Outgoing,
    body=st.just(b"body"),
    key=st.none() | strings,
    tag=st.none() | strings,
    priority=st.sampled_from([0, 1, 5]),
    properties=st.none() | st.dictionaries(property_names, values, max_size=5),
)


def known(message: Outgoing) -> dict[str, PropertyValue | None]:
    """Everything a name may mean for this message; double quotes say: the property alone."""
    properties: Mapping[str, PropertyValue] = message.properties or {}
    fields: dict[str, PropertyValue | None] = {
        "key": message.key,
        "KEYS": message.key,
        "tag": message.tag,
        "TAGS": message.tag,
        "priority": message.priority,
    }
    quoted = {'"' + name.replace('"', '""') + '"': value for name, value in properties.items()}
    return {**fields, **properties, **quoted}


def render(expression: Expression) -> str:
    match expression:
        case ("name", name):
            return str(name)
        case ("literal", value):
            return literal(value)
        case ("compare", symbol, left, right):
            return f"{render(left)} {symbol} {render(right)}"
        case ("between", no, middle, low, high):
            return f"{render(middle)}{' not' * no} between {render(low)} AND {render(high)}"
        case ("in", no, name, items):
            inside = ",".join(literal(item) for item in items)
            return f"({render(name)}){' NOT' * no} IN({inside})"
        case ("search", no, name, how, needle):
            return f"{render(name)}{' NOT' * no} {how.lower()} {literal(needle)}"
        case ("null", no, operand):
            return f"{render(operand)} Is{' NOT' * no} Null"
        case ("not", inner):
            return f"NOT ({render(inner)})"
        case (("and" | "or") as word, parts):
            return f" {word} ".join(f"({render(part)})" for part in parts)
    raise AssertionError(expression)


def literal(value: PropertyValue | None) -> str:
    if value is None or isinstance(value, bool):
        return {None: "NULL", True: "true", False: "FALSE"}[value]
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return repr(value)


def truth(expression: Expression, row: Mapping[str, PropertyValue | None]) -> bool | None:
    match expression:
        case ("name", name):
            return compare("=", row.get(name), True)
        case ("literal", value):
            return value  # type: ignore[no-any-return]
        case ("compare", symbol, left, right):
            return compare(symbol, value_of(left, row), value_of(right, row))
        case ("between", no, middle, low, high):
            value = value_of(middle, row)
            inside = both(
                compare(">=", value, value_of(low, row)), compare("<=", value, value_of(high, row))
            )
            return opposite(inside) if no else inside
        case ("in", no, (_, name), items):
            found: bool | None = False
            for item in items:
                found = either(found, compare("=", row.get(name), item))
            return opposite(found) if no else found
        case ("search", no, (_, name), how, needle):
            value = row.get(name)
            if not isinstance(value, str):
                return None
            hits = {
                "CONTAINS": needle in value,
                "STARTSWITH": value.startswith(needle),
                "ENDSWITH": value.endswith(needle),
            }
            return bool(hits[how] != no)
        case ("null", no, operand):
            return (value_of(operand, row) is None) is not no
        case ("not", inner):
            return opposite(truth(inner, row))
        case ("and", parts):
            result: bool | None = True
            for part in parts:
                result = both(result, truth(part, row))
            return result
        case ("or", parts):
            result = False
            for part in parts:
                result = either(result, truth(part, row))
            return result
    raise AssertionError(expression)


def value_of(operand: Expression, row: Mapping[str, Any]) -> PropertyValue | None:
    return row.get(operand[1]) if operand[0] == "name" else operand[1]


def compare(symbol: str, one: PropertyValue | None, other: PropertyValue | None) -> bool | None:
    kinds = {kind(one), kind(other)}
    if len(kinds) > 1 or kinds <= {None}:
        return None
    if kinds == {"boolean"} and symbol not in ("=", "<>"):
        return None
    return bool(OPERATORS[symbol](one, other))


def kind(value: PropertyValue | None) -> str | None:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, str):
        return "string"
    if isinstance(value, int | float) and not math.isnan(value):
        return "number"
    return None


def opposite(one: bool | None) -> bool | None:
    return None if one is None else not one


def both(one: bool | None, other: bool | None) -> bool | None:
    if one is False or other is False:
        return False
    return None if one is None or other is None else True


def either(one: bool | None, other: bool | None) -> bool | None:
    return opposite(both(opposite(one), opposite(other)))
