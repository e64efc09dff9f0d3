"""Errors that differ in numbers, ids and names only are one kind."""

from ternmq.api.views.error_kinds import KEPT_MAX, alike, last_place, plain_text

TRACE = """Traceback (most recent call last):
  File "/app/billing.py", line 40, in handle
  File "/usr/lib/site-packages/httpx/client.py", line 9, in send
ConnectionError: away"""


def test_what_differs_from_message_to_message_is_left_out() -> None:
    first = plain_text("order 17 of 'ann' failed after 3.5s: 01M7FD0PJFVMSYZCK800000000")
    other = plain_text("order 4711 of 'bob' failed after 12s: 01M7FD0PJFVMSYZCK800000009")

    assert first == other
    assert "order" in first and "17" not in first


def test_the_place_is_the_last_frame_of_the_application() -> None:
    assert last_place(TRACE) == "billing.py:40 in handle"
    assert last_place("") == ""


def test_kinds_are_counted_the_commonest_first() -> None:
    letters = [
        ("a", {"%error_type": "ValueError", "%error_text": "no 1", "%died_at": 5}),
        ("b", {"%error_type": "KeyError", "%error_text": "'x'", "%died_at": 9, "%resent": 1}),
        ("c", {"%error_type": "ValueError", "%error_text": "no 2", "%died_at": 3}),
    ]
    first, second = alike(letters)

    assert (first.mark, first.count, first.first_ms, first.last_ms) == ("ValueError: no …", 2, 3, 5)
    assert (second.count, second.resent, second.examples) == (1, 1, ["b"])


def test_there_are_so_many_kinds_at_most() -> None:
    words = ["".join(chr(97 + int(digit)) for digit in str(at)) for at in range(500)]
    found = alike((word, {"%reason": word}) for word in words)

    assert len(found) == KEPT_MAX + 1
    assert sum(kind.count for kind in found) == 500
