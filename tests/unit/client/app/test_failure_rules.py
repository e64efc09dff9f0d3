"""What becomes of messages by the exception that their handler raised."""

from typing import Any

import pytest

import ternmq
from ternmq import App
from ternmq.client.app.failure_rules import FailureRules

URL = "tern://127.0.0.1:1"


def test_the_nearest_class_decides_and_the_rest_is_tried_again() -> None:
    rules = FailureRules({"reject_on": Exception, "retry_on": (OSError,), "ignore": [KeyError]})

    assert rules.verdict(ValueError()) == "reject"
    assert rules.verdict(ConnectionResetError()) == "retry"
    assert rules.verdict(KeyError()) == "ignore"
    assert FailureRules({}).verdict(ValueError()) == "retry"
    assert FailureRules({}).verdict(ternmq.DecodeError("no")) == "reject"
    assert FailureRules({"retry_on": ternmq.DecodeError}).verdict(ternmq.DecodeError("")) == "retry"


def test_one_class_in_two_rules_and_what_is_no_exception_are_refused() -> None:
    with pytest.raises(ternmq.BadRequest, match="OSError is in reject_on and in retry_on"):
        FailureRules({"reject_on": OSError, "retry_on": OSError})
    for wrong in ("OSError", 3, (OSError, 3), KeyboardInterrupt):
        with pytest.raises(ternmq.BadRequest, match="exception classes"):
            App(URL).subscriber("orders", group="billing", ignore=wrong)  # type: ignore[arg-type]


async def test_rejected_and_ignored_failures_are_not_tried_in_place() -> None:
    app = App(URL)
    calls: list[str] = []

    @app.subscriber(
        "orders", group="billing", local_retries=2, reject_on=ValueError, ignore=KeyError
    )
    def bill(kind: str) -> None:
        calls.append(kind)
        raise {"value": ValueError, "key": KeyError}.get(kind, OSError)(kind)

    verdicts = [(await app.deliver(kind)).verdict for kind in ("value", "key", "other")]

    assert verdicts == ["reject", "ack", "retry"]
    assert calls == ["value", "key", "other", "other", "other"]


async def test_a_verdict_of_the_handler_itself_stays() -> None:
    app = App(URL)

    @app.subscriber("orders", group="billing", reject_on=ValueError)
    def bill(message: Any) -> None:
        message.retry(after=5, reason="later")
        raise ValueError("too late")

    delivered = await app.deliver(b"1", attempt=3)

    assert (delivered.verdict, delivered.after, delivered.reason) == ("retry", 5.0, "later")
