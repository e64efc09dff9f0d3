"""A bug that a client can trigger at will does not fill the log (security finding H2)."""

import pytest
import structlog

from ternmq.rpc.bug_log import BugLog


def failing(text: str) -> Exception:
    try:
        raise ValueError(text)
    except ValueError as error:
        return error


def test_a_place_that_fails_again_and_again_is_one_line_a_second() -> None:
    now = 100.0
    bugs = BugLog(lambda: now)

    with structlog.testing.capture_logs() as lines:
        for _ in range(1_000):
            bugs.report(failing("the same line of code"), command=40)
        now += 1
        bugs.report(failing("a second later"), command=40)

    assert [(line["command"], line["left_out"]) for line in lines] == [(40, 0), (40, 999)]


def test_two_places_have_a_line_each() -> None:
    bugs = BugLog(lambda: 0.0)
    other: dict[str, int] = {}

    with structlog.testing.capture_logs() as lines:
        bugs.report(failing("one"))
        try:
            other["missing"]
        except KeyError as error:
            bugs.report(error)

    assert len(lines) == 2


def test_places_are_not_kept_without_bound() -> None:
    bugs = BugLog(lambda: 0.0)

    with structlog.testing.capture_logs() as lines:
        for number in range(1_000):
            kind = type(f"Error{number}", (Exception,), {})
            bugs.report(kind())

    assert len(lines) == 1_000
    assert len(bugs._places) <= 256


def test_what_a_request_held_is_in_no_line(caplog: pytest.LogCaptureFixture) -> None:
    """Values of variables are not drawn: a body or a password may be among them."""

    secret = "-".join(("canary", "1f7c"))  # The line itself is in a traceback.

    def handle(password: str) -> None:
        raise ValueError(f"{len(password)} letters")

    try:
        handle(secret)
    except ValueError as error:
        BugLog(lambda: 0.0).report(error, command=40)

    assert "letters" in caplog.text
    assert secret not in caplog.text
