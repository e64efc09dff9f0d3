"""What a selector means: terms over properties, joined by AND and OR.

The parser builds these. NOT never appears: `negate` moves it down to the terms, each of which has
an opposite (`a > 1` and `a <= 1`), both unknown for the same messages. A selector keeps a message
only where it is true, so once nothing is left to negate, unknown may count as false: `closed` does
that, and evaluation has two values instead of three. `BETWEEN` and a property used as a condition
become comparisons here. Two selectors that differ in order, spaces, brackets, the side of a
literal or the place of a NOT have the same `text_of`. Pure.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

FIELDS: Final = {
    "key": "key",
    "KEYS": "key",
    "tag": "tag",
    "TAGS": "tag",
    "priority": "priority",
}
"""Names that mean a field of the message where it has no property of that name."""

KEYWORDS: Final = frozenset(
    (
        "AND",
        "OR",
        "NOT",
        "BETWEEN",
        "IN",
        "IS",
        "NULL",
        "TRUE",
        "FALSE",
        "CONTAINS",
        "STARTSWITH",
        "ENDSWITH",
    )
)
NAME_PATTERN: Final = r"(?:[^\W\d]|\$)[\w.$]*"
OPPOSITE: Final = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
MIRRORED: Final = {"=": "=", "<>": "<>", "<": ">", ">": "<", "<=": ">=", ">=": "<="}

_BARE = re.compile(NAME_PATTERN)


@dataclass(frozen=True, slots=True)
class Name:
    """A property, or a field of the message where `field` says which."""

    text: str
    field: str | None = None


@dataclass(frozen=True, slots=True)
class Constant:
    """True, false, or None: unknown."""

    value: bool | None


@dataclass(frozen=True, slots=True)
class Truth:
    """A property that is TRUE, or FALSE."""

    name: Name
    value: bool


@dataclass(frozen=True, slots=True)
class Compare:
    """A property against a number or a string."""

    name: Name
    operator: str
    value: str | int | float


@dataclass(frozen=True, slots=True)
class CompareNames:
    """A property against another one of the same message."""

    left: Name
    operator: str
    right: Name


@dataclass(frozen=True, slots=True)
class Among:
    """IN: numbers only or strings only."""

    name: Name
    values: frozenset[str | int | float]
    negated: bool = False


@dataclass(frozen=True, slots=True)
class TermSearch:
    """CONTAINS, STARTSWITH or ENDSWITH."""

    name: Name
    how: str
    needle: str
    negated: bool = False


@dataclass(frozen=True, slots=True)
class MissingTerm:
    """IS NULL; the one term that is never unknown."""

    name: Name
    negated: bool = False


@dataclass(frozen=True, slots=True)
class All:
    """AND."""

    terms: tuple["Term", ...]


@dataclass(frozen=True, slots=True)
class Some:
    """OR."""

    terms: tuple["Term", ...]


Term = Constant | Truth | Compare | CompareNames | Among | TermSearch | MissingTerm | All | Some


def compare_names(left: Name, operator: str, right: Name) -> CompareNames:
    """Always the same side first, so that `a < b` and `b > a` are one term."""
    if (name_text(left), operator) <= (name_text(right), MIRRORED[operator]):
        return CompareNames(left, operator, right)
    return CompareNames(right, MIRRORED[operator], left)


def all_of(terms: Iterable[Term]) -> Term:
    """AND: flat, each term once, decided already where a constant decides it."""
    kept = _flat(terms, All, neutral=Constant(True))
    if Constant(False) in kept:
        return Constant(False)
    return _joined(kept, All, neutral=Constant(True))


def some_of(terms: Iterable[Term]) -> Term:
    """OR: likewise."""
    kept = _flat(terms, Some, neutral=Constant(False))
    if Constant(True) in kept:
        return Constant(True)
    return _joined(kept, Some, neutral=Constant(False))


def negate(term: Term) -> Term:
    """The opposite: true where this is false, unknown where this is unknown."""
    match term:
        case Constant(value):
            return Constant(None if value is None else not value)
        case Truth(name, wanted):
            return Truth(name, not wanted)
        case Compare(name, operator, value):
            return Compare(name, OPPOSITE[operator], value)
        case CompareNames(left, operator, right):
            return compare_names(left, OPPOSITE[operator], right)
        case Among(name, values, negated):
            return Among(name, values, not negated)
        case TermSearch(name, how, needle, negated):
            return TermSearch(name, how, needle, not negated)
        case MissingTerm(name, negated):
            return MissingTerm(name, not negated)
        case All(terms):
            return some_of(negate(one) for one in terms)
        case Some(terms):
            return all_of(negate(one) for one in terms)


def closed(term: Term) -> Term:
    """For a whole selector, under no NOT any more: unknown counts as false."""
    match term:
        case Constant(value):
            return Constant(value is True)
        case All(terms):
            return all_of(closed(one) for one in terms)
        case Some(terms):
            return some_of(closed(one) for one in terms)
    return term


def text_of(term: Term) -> str:
    """SQL again, in one form for all selectors that differ in writing only."""
    match term:
        case Constant(value):
            return literal_text(value)
        case Truth(name, wanted):
            return f"{name_text(name)} = {literal_text(wanted)}"
        case Compare(name, operator, value):
            return f"{name_text(name)} {operator} {literal_text(value)}"
        case CompareNames(left, operator, right):
            return f"{name_text(left)} {operator} {name_text(right)}"
        case Among(name, values, negated):
            items = ", ".join(sorted(literal_text(value) for value in values))
            return f"{name_text(name)} {'NOT ' * negated}IN ({items})"
        case TermSearch(name, how, needle, negated):
            return f"{name_text(name)} {'NOT ' * negated}{how} {literal_text(needle)}"
        case MissingTerm(name, negated):
            return f"{name_text(name)} IS {'NOT ' * negated}NULL"
        case All(terms):
            return " AND ".join(sorted(_bracketed(one) for one in terms))
        case Some(terms):
            return " OR ".join(sorted(_bracketed(one) for one in terms))


def name_text(name: Name) -> str:
    """Bare where that reads back as the same name, else in double quotes."""
    bare = _BARE.fullmatch(name.text) is not None and name.text.upper() not in KEYWORDS
    if bare and (name.field is not None or name.text not in FIELDS):
        return name.text
    return '"' + name.text.replace('"', '""') + '"'


def literal_text(value: str | int | float | None) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return repr(value)


def _flat(
    terms: Iterable[Term], kind: type[All] | type[Some], *, neutral: Constant
) -> dict[Term, None]:
    kept: dict[Term, None] = {}
    for term in terms:
        inner = term.terms if isinstance(term, All | Some) and isinstance(term, kind) else (term,)
        kept.update(dict.fromkeys(one for one in inner if one != neutral))
    return kept


def _joined(kept: dict[Term, None], kind: type[All] | type[Some], *, neutral: Constant) -> Term:
    if not kept:
        return neutral
    if len(kept) == 1:
        return next(iter(kept))
    return kind(tuple(sorted(kept, key=text_of)))  # So that `a AND b` and `b AND a` are one term.


def _bracketed(term: Term) -> str:
    text = text_of(term)
    return f"({text})" if isinstance(term, All | Some) else text
