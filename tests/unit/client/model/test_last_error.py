"""What a consumer reports when a handler fails: always something, never too much."""

from ternmq.client.model.last_error import TRACEBACK_SIZE_MAX, cut, report


class Odd(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


def raised(error: Exception) -> Exception:
    try:
        raise error
    except Exception as caught:
        return caught


def test_an_exception_is_reported_with_its_type_text_and_traceback() -> None:
    found = report(raised(ValueError("bad amount")), "")

    assert found is not None
    kind, text, traceback = found
    assert (kind, text) == ("ValueError", "bad amount")
    assert "in raised" in traceback
    assert traceback.rstrip().endswith("ValueError: bad amount")


def test_a_reason_alone_is_a_text_and_nothing_is_nothing() -> None:
    assert report(None, "not yet") == ("", "not yet", "")
    assert report(None, "") is None


def test_an_exception_that_cannot_be_shown_is_reported_all_the_same() -> None:
    found = report(raised(Odd()), "")

    assert found is not None
    assert "Odd" in found[0]
    assert "cannot be shown" in found[1]


def test_what_utf_8_cannot_write_is_escaped() -> None:
    found = report(raised(ValueError("a\udc80b")), "")

    assert found is not None
    "".join(found).encode()


def test_of_a_long_traceback_the_end_is_kept_within_4_kib() -> None:
    short = cut("é" * 10_000 + "the end")

    assert len(short.encode()) <= TRACEBACK_SIZE_MAX
    assert short.startswith("…")
    assert short.endswith("the end")
    assert cut("whole") == "whole"
