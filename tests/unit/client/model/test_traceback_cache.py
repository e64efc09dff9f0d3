"""Tracebacks that are kept by place say what Python's own say, letter by letter."""

import sys
import traceback
from collections.abc import Callable

import pytest

from ternmq.client.model import traceback_cache
from ternmq.client.model.traceback_cache import KEPT_MAX, formatted


def plain(text: str) -> None:
    raise ValueError(text)


def caused(text: str) -> None:
    try:
        plain(text)
    except ValueError as error:
        raise KeyError(text) from error


def in_passing(text: str) -> None:
    try:
        plain(text)
    except ValueError:
        caused(text)


def silenced(text: str) -> None:
    try:
        plain(text)
    except ValueError:
        raise OSError(text) from None


def noted(text: str) -> None:
    error = ValueError(text)
    error.add_note("a note")
    raise error


def circular(text: str) -> None:
    first, second = ValueError(text), KeyError(text)
    first.__cause__, second.__cause__ = second, first
    raise first


def deep(text: str, left: int = 10) -> None:
    if left:
        deep(text, left - 1)
    raise ValueError(text)


def grouped(text: str) -> None:
    raise ExceptionGroup(text, [ValueError(text)])


def misnamed(text: str) -> None:
    text.uper()  # type: ignore[attr-defined]


def unparsed(text: str) -> None:
    compile(f"{text} =", "somewhere", "exec")


def generated(text: str) -> None:
    exec(f"raise ValueError({text!r})")


class Odd(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


def odd(text: str) -> None:
    raise Odd(text)


WAYS = [
    plain,
    caused,
    in_passing,
    silenced,
    noted,
    circular,
    deep,
    grouped,
    misnamed,
    unparsed,
    generated,
    odd,
]


def raised(way: Callable[[str], None], text: str) -> BaseException:
    try:
        way(text)
    except Exception as caught:
        return caught
    raise AssertionError("it raises")


@pytest.mark.parametrize("way", WAYS)
def test_the_text_is_pythons_own_the_first_time_and_later(way: Callable[[str], None]) -> None:
    for text in ("one", "two", "", "three\nlines\n"):
        error = raised(way, text)

        assert formatted(error) == "".join(traceback.format_exception(error))


@pytest.mark.parametrize("depth", [1, 2, 3, 4, 5])
def test_repeated_lines_are_folded_where_python_folds_them(depth: int) -> None:
    error = raised(lambda text: deep(text, depth), "x")

    assert formatted(error) == "".join(traceback.format_exception(error))


def test_an_exception_that_was_never_raised_is_shown_too() -> None:
    error = ValueError("new")

    assert formatted(error) == "".join(traceback.format_exception(error))


def either(first: Callable[[str], None], second: Callable[[str], None]) -> None:
    (first("a"), second("b"))  # type: ignore[func-returns-value]


def test_two_places_in_one_line_are_told_apart() -> None:
    errors = [
        raised(lambda _: either(plain, print), ""),
        raised(lambda _: either(print, plain), ""),
    ]
    found = [formatted(error) for error in errors]

    assert found == ["".join(traceback.format_exception(error)) for error in errors]
    assert found[0].replace('"a"', '"b"') != found[1]


def test_a_frame_is_formatted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    first = formatted(raised(plain, "the first"))
    monkeypatch.setattr(traceback, "format_tb", None)

    assert formatted(raised(plain, "the second")) == first.replace("the first", "the second")


def test_what_is_kept_is_bounded() -> None:
    for number in range(KEPT_MAX + 10):
        code = compile("raise ValueError", f"file-{number}", "exec")
        error = raised(lambda _, code=code: exec(code), "")  # type: ignore[misc]
        assert f"file-{number}" in formatted(error)

    assert len(traceback_cache._kept) <= KEPT_MAX


def test_the_limit_of_the_interpreter_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "tracebacklimit", 1, raising=False)
    error = raised(deep, "x")

    assert formatted(error) == "".join(traceback.format_exception(error))
