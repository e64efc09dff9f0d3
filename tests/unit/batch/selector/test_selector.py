"""SQL92 selectors: what parses, where it does not, and which messages are kept."""

import contextlib
import struct
from typing import Any
from unittest.mock import patch

import pytest
from crc32c import crc32c
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ternmq.batch.check import check_incoming
from ternmq.batch.encoder import Outgoing
from ternmq.batch.layout import Column, ColumnPart
from ternmq.batch.selector import columns
from ternmq.batch.selector.builder import DEPTH_MAX, ITEMS_MAX, TERMS_MAX
from ternmq.batch.selector.grammar import LENGTH_MAX
from ternmq.batch.selector.selector import Selector
from ternmq.batch.view import BatchView
from ternmq.core.errors import BadFilter, Corrupt, ProtocolError
from tests.unit.batch.builders import a_batch
from tests.unit.batch.selector import selector_model
from tests.unit.batch.selector.selector_model import (
    Expression,
    expressions,
    known,
    messages,
    render,
    truth,
)

LOOP, NUMPY = 1_000_000, 0  # Values of SMALL that force one way of finding properties.


def kept(text: str, *rows: dict[str, Any]) -> list[int]:
    """Which of these properties the selector keeps."""
    batch = a_batch([Outgoing(body=b"x", properties=properties) for properties in rows])
    return spread(Selector.parse(text).rows(BatchView(batch)))


def spread(ranges: list[tuple[int, int]]) -> list[int]:
    return [row for first, end in ranges for row in range(first, end)]


def position_of(text: str) -> int:
    with pytest.raises(BadFilter) as raised:
        Selector.parse(text)
    return int(raised.value.details["position"])


@settings(max_examples=400, deadline=None)
@given(
    expression=expressions,
    rows=st.lists(messages, min_size=1, max_size=12),
    small=st.sampled_from([LOOP, NUMPY]),
)
def test_a_selector_keeps_what_the_rules_say(
    expression: Expression, rows: list[Outgoing], small: int
) -> None:
    """R10, with three-valued logic for missing properties and for types that do not fit."""
    selector = Selector.parse(render(expression))
    with patch.object(columns, "SMALL", small):
        found = spread(selector.rows(BatchView(a_batch(rows))))

    assert found == [at for at, row in enumerate(rows) if truth(expression, known(row)) is True]


@settings(max_examples=150, deadline=None)
@example(
    (
        "or",
        [
            ("not", ("or", [("name", "a"), ("name", "b")])),
            ("not", ("or", [("name", "b"), ("name", "a")])),
        ],
    )
)
@given(expression=expressions)
def test_the_canonical_text_reads_back_as_itself(expression: Expression) -> None:
    selector = Selector.parse(render(expression))

    assert Selector.parse(selector.text) == selector
    assert Selector.parse(f"NOT (NOT ({render(expression)}))") == selector


def test_a_large_batch_is_read_like_a_small_one() -> None:
    rows = [{"amount": n, "pad": "x"} if n % 3 else {"pad": "y"} for n in range(2_000)]

    right = [n for n in range(2_000) if n % 3 and n > 1_000]
    assert kept("amount > 1000", *rows) == right


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("a > 5", "a > 5"),
        ("5<a", "a > 5"),
        ("5 = a", "a = 5"),
        ("a >= -1.5e3", "a >= -1500"),
        ("a = +.5", "a = 0.5"),
        ("a = 5.0", "a = 5"),
        ("a = 5L", "a = 5"),
        ("a = 007", "a = 7"),
        ("a = -0.0", "a = 0"),
        ("a = 1e300", "a = 1e+300"),
        ("a = 'it''s'", "a = 'it''s'"),
        ("a = ''", "a = ''"),
        ("a = 'é — ☃'", "a = 'é — ☃'"),
        ("a = TRUE", "a = TRUE"),
        ("a", "a = TRUE"),
        ("NOT a", "a = FALSE"),
        ("a <> true", "a = FALSE"),
        ("a between 1 and 5", "a <= 5 AND a >= 1"),
        ("a NOT BETWEEN 1 AND 5", "a < 1 OR a > 5"),
        ("a BETWEEN 1 AND 5 AND b", "a <= 5 AND a >= 1 AND b = TRUE"),
        ("a in ('y','x','y')", "a IN ('x', 'y')"),
        ("a IN (1)", "a = 1"),
        ("a NOT IN (-1, 2.5)", "a NOT IN (-1, 2.5)"),
        ("a is null", "a IS NULL"),
        ("NOT a IS NULL", "a IS NOT NULL"),
        ("a CONTAINS 'x'", "a CONTAINS 'x'"),
        ("a not startswith 'x'", "a NOT STARTSWITH 'x'"),
        ("NOT (a EndsWith 'x')", "a NOT ENDSWITH 'x'"),
        ("a = 1 OR b = 2 AND c = 3", "(b = 2 AND c = 3) OR a = 1"),
        ("(a = 1 OR b = 2) AND c = 3", "(a = 1 OR b = 2) AND c = 3"),
        ("NOT a = 1 AND b = 2", "a <> 1 AND b = 2"),
        ("NOT (a = 1 AND b > 2)", "a <> 1 OR b <= 2"),
        ("b = 1 and a = 1 and b = 1", "a = 1 AND b = 1"),
        ("a = TRUE OR a = 1", "a = 1 OR a = TRUE"),
        ("b < a", "a > b"),
        ("b < a AND a > b AND NOT b >= a", "a > b"),
        ("a BETWEEN a AND a", "a <= a"),
        ("a.b_c$ = $x", "$x = a.b_c$"),
        ("\"content-type\" = 'x'", "\"content-type\" = 'x'"),
        ('"a" = 1', "a = 1"),
        ('"say ""hi""" = 1', '"say ""hi""" = 1'),
        ('"and" = 1', '"and" = 1'),
        ('"key" = 1', '"key" = 1'),
        ("größe = 1", "größe = 1"),
        ("((a)) = ((1))", "a = 1"),
        ("a = 1 -- why\nOR /* so */ b = 1", "a = 1 OR b = 1"),
        ("1 = 1", "TRUE"),
        ("1 = 2 OR a = 1", "a = 1"),
        ("1 = '1'", "FALSE"),
        ("NOT 1 = '1'", "FALSE"),
        ("a = NULL", "FALSE"),
        ("NOT (a = NULL AND b = 1)", "b <> 1"),
        ("NULL IS NULL", "TRUE"),
        ("NULL", "FALSE"),
        ("NOT FALSE", "TRUE"),
    ],
)
def test_texts_that_mean_the_same_become_the_same(text: str, canonical: str) -> None:
    assert Selector.parse(text).text == canonical


@pytest.mark.parametrize(
    ("text", "position", "says"),
    [
        ("", 0, "expected a property"),
        ("   ", 3, "it ends"),
        ("a =", 3, "a string, a number"),
        ("a = = 1", 4, "found ="),
        ("a b", 2, "found b"),
        ("a LIKE 'x'", 2, "CONTAINS, STARTSWITH, ENDSWITH"),
        ("a != 1", 2, "<>"),
        ("a = 1 AND", 9, "it ends"),
        ("AND a", 0, "found AND"),
        ("a = 1 b = 2", 6, "expected AND, OR, the end, found b"),
        ("a < b < c", 6, "expected AND, OR"),
        ("(a = 1", 6, r"expected \)"),
        ("a = 1)", 5, r"found \)"),
        ("a IN ()", 6, "a string, a number"),
        ("a IN 'x'", 5, r"expected \("),
        ("a IN ('x' 'y')", 10, "a comma"),
        ("a IN (b)", 6, "a string, a number"),
        ("a IN ('x', 1)", 11, "strings or numbers"),
        ("'x' IN ('x')", 0, "expected a property"),
        ("a BETWEEN 1", 11, "AND"),
        ("a BETWEEN 1 OR 2", 12, "AND"),
        ("a IS 1", 5, "NULL"),
        ("a CONTAINS 1", 11, "a string"),
        ("a CONTAINS b", 11, "a string"),
        ("1 CONTAINS 'x'", 0, "expected a property"),
        ("a = 'x", 4, "does not end"),
        ('"a = 1', 0, "does not end"),
        ("a /* b", 2, "does not end"),
        ('"" = 1', 0, "does not end"),
        ("a = 1; b", 5, "';'"),
        ("a = 1 + 2", 6, r"found \+"),
        ("-a = 1", 1, "a number"),
        ("a = 12x", 6, "found x"),
        ("a = 1e999", 4, "too large"),
        ("a = 0x1F", 5, "found x1F"),
        ("5", 0, "only a number"),
        ("NOT 'x'", 4, "only a string"),
        ("a = 1 AND 'x'", 10, "only a string"),
        ("(a > 1) = TRUE", 1, "this is a condition"),
        ("(a > 1) IS NULL", 1, "this is a condition"),
        ("a > TRUE", 4, "no order"),
        ("a BETWEEN FALSE AND 1", 10, "no order"),
        ("a = '\ud800'", 5, "half a character"),
        ("a = 1\nAND\n  b >", 15, "line 3, column 6"),
        ("a \uff1d 1", 2, "means nothing"),
    ],
)
def test_a_mistake_is_named_with_its_place(text: str, position: int, says: str) -> None:
    """R10: a bad expression is refused, and the user can see where it is bad."""
    with pytest.raises(BadFilter, match=says) as raised:
        Selector.parse(text)

    assert raised.value.details["position"] == position


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("(" * LENGTH_MAX, LENGTH_MAX),
        (")" * LENGTH_MAX, 0),
        ("(" * 2_000 + "a" + ")" * 2_000, 2_000),
        ("NOT " * 1_000 + "a", 4 * (1_000 - DEPTH_MAX - 1)),
        ("a AND (" * 500, 3_500),
        ("a IN (" + "1," * 2_000 + "1)", 6 + 2 * ITEMS_MAX),
        ("a=1 OR " * 500 + "b", 7 * TERMS_MAX),
        ("a OR " * 800 + "b", 5 * TERMS_MAX),
        ("a BETWEEN 1 AND 2 AND " * 100 + "b", 22 * (TERMS_MAX // 2)),
        ("a" * (LENGTH_MAX + 1), LENGTH_MAX),
        ("a = 'x" * 600, None),
        ("'" * (LENGTH_MAX - 1), LENGTH_MAX - 2),
        ('"' * (LENGTH_MAX - 1), LENGTH_MAX - 2),
        ("/*" * (LENGTH_MAX // 2), None),
        ("-" * LENGTH_MAX, LENGTH_MAX),
        ("- " * (LENGTH_MAX // 2), 2),
        ("1" * LENGTH_MAX, 0),
        ("." * LENGTH_MAX, 0),
        ("\x00" * LENGTH_MAX, 0),
        ("a = 1" * 10_000_000, LENGTH_MAX),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_what_is_made_to_hurt_ends_in_a_refusal(text: str, position: int | None) -> None:
    found = position_of(text)

    assert position is None or found == position


def test_what_is_just_within_the_limits_works() -> None:
    assert kept("(" * DEPTH_MAX + "a = 1" + ")" * DEPTH_MAX, {"a": 1}) == [0]
    assert kept("NOT " * DEPTH_MAX + "a = 1", {"a": 1}) == [0]
    assert kept(" OR ".join(f"a={n}" for n in range(TERMS_MAX)), {"a": 5}, {"a": -5}) == [0]
    assert kept(f"a IN ({','.join(map(str, range(ITEMS_MAX - 100)))})", {"a": 5}) == [0]
    nested = "a = 0"
    for n in range(1, DEPTH_MAX):
        nested = f"({nested}) {'OR' if n % 2 else 'AND'} b = {n}"
    assert kept(nested, {"a": 0}, {"b": 31}) == [1]


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=60) | st.text("ab01 '\"()<>=,.-+/*ANDORTIS", max_size=60))
def test_any_text_is_a_selector_or_refused_within_itself(text: str) -> None:
    try:
        Selector.parse(text)
    except BadFilter as error:
        assert 0 <= error.details["position"] <= len(text)


ROWS: list[dict[str, Any]] = [{"p": True}, {"p": False}, {}, {"p": "true"}, {"p": 1}]
T, F, U = "p", "NOT p", "q"  # For row 0: true, false and (missing) unknown.


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (f"{T} AND {T}", True),
        (f"{T} AND {F}", False),
        (f"{T} AND {U}", None),
        (f"{F} AND {U}", False),
        (f"{U} AND {F}", False),
        (f"{U} AND {U}", None),
        (f"{T} OR {F}", True),
        (f"{F} OR {F}", False),
        (f"{T} OR {U}", True),
        (f"{U} OR {T}", True),
        (f"{F} OR {U}", None),
        (f"{U} OR {U}", None),
        (f"NOT {T}", False),
        (f"NOT ({F})", True),
        (f"NOT {U}", None),
        ("q = 1", None),
        ("q <> 1", None),
        ("q > 1", None),
        ("q BETWEEN 1 AND 2", None),
        ("q NOT BETWEEN 1 AND 2", None),
        ("q IN (1, 2)", None),
        ("q NOT IN ('a', 'b')", None),
        ("q CONTAINS 'a'", None),
        ("q NOT CONTAINS 'a'", None),
        ("q = q", None),
        ("q IS NULL", True),
        ("q IS NOT NULL", False),
        ("p IS NULL", False),
        ("p = 1", None),
        ("p <> 'x'", None),
        ("p > 0", None),
        ("p = q", None),
        ("p = p", True),
        ("p IN (1, 2)", None),
        ("NULL", None),
        ("p = NULL", None),
        ("NULL = NULL", None),
        ("TRUE", True),
        ("FALSE", False),
        ("1 < 2", True),
        ("1 = 'x'", None),
    ],
)
def test_the_truth_table(text: str, value: bool | None) -> None:
    """True is kept; false and unknown are told apart by negating them."""
    assert kept(text, {"p": True}) == ([0] if value is True else [])
    assert kept(f"NOT ({text})", {"p": True}) == ([0] if value is False else [])


def test_only_a_boolean_property_is_a_condition() -> None:
    assert kept("p", *ROWS) == [0]
    assert kept("NOT p", *ROWS) == [1]
    assert kept("p IS NOT NULL", *ROWS) == [0, 1, 3, 4]


def test_types_never_compare_across() -> None:
    rows: list[dict[str, Any]] = [
        {"a": 12},
        {"a": "12"},
        {"a": 12.0},
        {"a": b"12"},
        {"a": float("nan")},
        {"a": True},
    ]

    assert kept("a = 12", *rows) == [0, 2]
    assert kept("a = '12'", *rows) == [1]
    assert kept("a <> 1", *rows) == [0, 2]
    assert kept("NOT (a = 1)", *rows) == [0, 2]
    assert kept("a <> '1'", *rows) == [1]
    assert kept("a IS NOT NULL", *rows) == [0, 1, 2, 3, 4, 5]


def test_large_integers_compare_exactly() -> None:
    rows: list[dict[str, Any]] = [{"a": 2**53}, {"a": 2**53 + 1}, {"a": 10**400}, {"a": 2.0**53}]

    assert kept(f"a > {2**53}", *rows) == [1, 2]
    assert kept(f"a = {2**53}", *rows) == [0, 3]
    assert kept(f"a IN ({2**53 + 1}, 0)", *rows) == [1]
    assert kept("a > 1e300", *rows) == [2]


def test_strings_order_by_code_point() -> None:
    rows = [{"a": "2024-01-31"}, {"a": "2024-02-01"}, {"a": "z"}, {"a": "é"}, {"a": "☃"}]

    assert kept("a BETWEEN '2024-02-01' AND '2024-12-31'", *rows) == [1]
    assert kept("a > 'z'", *rows) == [3, 4]


def test_a_field_answers_where_no_property_has_its_name() -> None:
    batch = a_batch(
        [
            Outgoing(body=b"", key="k1", tag="vip", priority=5),
            Outgoing(body=b"", properties={"key": "k1", "priority": "high"}),
            Outgoing(body=b"", key="k2", properties={"key": "own"}),
        ]
    )

    def found(text: str) -> list[int]:
        return spread(Selector.parse(text).rows(BatchView(batch)))

    assert found("key = 'k1'") == [0, 1]
    assert found("KEYS = 'k1'") == [0]
    assert found("\"key\" = 'k1'") == [1]
    assert found("key = 'k2'") == []
    assert found("KEYS = 'k2'") == [2]
    assert found("tag IN ('vip', 'x') AND TAGS = tag") == [0]
    assert found("tag IS NULL") == [1, 2]
    assert found("priority >= 5") == [0]
    assert found("priority = 0") == [2]
    assert found("priority = 'high'") == [1]
    assert found("priority IS NULL") == []
    assert found("Key IS NULL") == [0, 1, 2]


def test_a_batch_without_properties_has_missing_ones() -> None:
    batch = BatchView(a_batch([Outgoing(body=b"x")] * 3))

    assert Selector.parse("a = 1").rows(batch) == []
    assert Selector.parse("a IS NULL").rows(batch) == [(0, 3)]


def test_only_properties_that_are_named_are_read() -> None:
    assert Selector.parse("a > 1 AND b = c OR a < 0").names == {"a", "b", "c"}
    batch = a_batch([Outgoing(body=b"x", properties={"a": 1, "b": 2})])
    view = BatchView(batch)
    offset, size, *_ = view.parts()[Column.PROPERTIES, ColumnPart.VALUE_DATA]
    assert bytes(batch[offset : offset + size]) == b"12"
    batch[offset + 1] = ord("?")

    assert Selector.parse("a = 1").rows(BatchView(batch)) == [(0, 1)]
    assert Selector.parse("b = 2").rows(BatchView(batch)) == []
    assert Selector.parse("b IS NULL").rows(BatchView(batch)) == []


def test_a_name_given_twice_counts_once_and_for_its_own_row() -> None:
    """No encoder of ours writes that; the last one wins, as it does for a consumer."""
    for small in (LOOP, NUMPY):
        rows = [Outgoing(body=b"x", properties={"a": 1, "b": 2}), Outgoing(body=b"x")]
        batch = a_batch(rows)
        offset, size, *_ = BatchView(batch).parts()[Column.PROPERTIES, ColumnPart.NAME_DATA]
        batch[offset : offset + size] = b"aa"
        view = BatchView(batch)
        with patch.object(columns, "SMALL", small):
            assert view.properties(0) == {"a": 2}
            assert Selector.parse("a = 2").rows(view) == [(0, 1)]
            assert Selector.parse("a = 1").rows(view) == []
            assert Selector.parse("a IS NULL").rows(view) == [(1, 2)]


def test_a_text_is_parsed_once() -> None:
    assert Selector.parse("a = 12345") is Selector.parse("a = 12345")


def test_what_a_user_wrote_is_never_code() -> None:
    trap = "__import__('os')._exit(1)"
    quoted = trap.replace("'", "''")

    assert kept(f"\"{trap}\" = '{quoted}'", {trap: trap}, {trap: "x"}) == [0]
    test = Selector.parse(f"\"{trap}\" = '{quoted}'")._test
    assert test.__globals__["__builtins__"] == {}
    assert not {trap, quoted} & set(test.__code__.co_names)


@settings(max_examples=300, deadline=None)
@given(
    rows=st.lists(messages, min_size=1, max_size=6),
    changes=st.lists(st.tuples(st.integers(0, 5_000), st.integers(0, 255)), max_size=6),
    small=st.sampled_from([LOOP, NUMPY]),
)
def test_a_forged_batch_is_filtered_or_called_corrupt(
    rows: list[Outgoing], changes: list[tuple[int, int]], small: int
) -> None:
    batch = a_batch(rows, stamped=False)
    for at, value in changes:
        batch[132 + at % (len(batch) - 132)] = value
    struct.pack_into("<I", batch, 128, crc32c(memoryview(batch)[132:]))
    try:
        check_incoming(batch)
    except (Corrupt, ProtocolError):
        return
    selector = Selector.parse("a > b OR key = 'x' OR tag = 'x' OR priority > 3 OR b IS NULL")
    with patch.object(columns, "SMALL", small), contextlib.suppress(Corrupt):
        assert all(end <= len(rows) for _, end in selector.rows(BatchView(batch)))


def test_the_slow_way_agrees_with_sql() -> None:
    """The tests' own interpreter, checked by hand where it is easiest to get wrong."""
    assert selector_model.either(None, True) is True
    assert selector_model.both(None, False) is False
    assert selector_model.compare("<>", True, 1) is None
    assert selector_model.compare("<", True, False) is None
