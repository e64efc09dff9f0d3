"""Every error of the tree has a status, and says whether trying again helps."""

import msgspec

from ternmq.api.problems import headers_of, problem, status_of
from ternmq.core.errors import ERRORS, BadFilter, OverLimit, Paused, TernError


def test_every_error_is_a_problem_with_its_code() -> None:
    for code, cls in ERRORS.items():
        shown = problem(cls("words", thing=object(), ids=["a"]))

        assert shown["code"] == code
        assert 400 <= shown["status"] < 600
        msgspec.json.encode(shown)


def test_the_nearest_class_decides() -> None:
    assert status_of(BadFilter("x")) == 400
    assert status_of(Paused("x")) == 423
    assert status_of(TernError("x")) == 500


def test_who_may_try_again_is_told_when() -> None:
    assert headers_of(OverLimit("x", wait_ms=7_000)) == {"Retry-After": "7"}
    assert headers_of(Paused("x")) == {"Retry-After": "1"}
    assert headers_of(BadFilter("x")) == {}
