"""What RocketMQ clients are told about our errors."""

import pytest

from ternmq.core.errors import (
    BadFilter,
    Conflict,
    LeaseLost,
    NotMaster,
    OverLimit,
    SendUnknown,
    TernError,
    TopicNotFound,
)
from ternmq.gateway.protocol.codes import Code, code_of, text_of


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (TopicNotFound("x"), Code.TOPIC_NOT_FOUND),
        (LeaseLost("x"), Code.INVALID_RECEIPT_HANDLE),
        (OverLimit("x"), Code.TOO_MANY_REQUESTS),
        (NotMaster("x"), Code.PROXY_TIMEOUT),
        (SendUnknown("x"), Code.PROXY_TIMEOUT),
        (BadFilter("x"), Code.ILLEGAL_FILTER_EXPRESSION),
        (Conflict("x"), Code.INTERNAL_SERVER_ERROR),
    ],
)
def test_every_error_has_the_code_by_which_clients_act(error: TernError, code: Code) -> None:
    assert code_of(error) == code


def test_a_text_has_the_name_of_its_code() -> None:
    """Users, and the clients' own tests, look for it."""
    assert text_of(Code.OK) == "OK"
    assert text_of(Code.TOPIC_NOT_FOUND, "no") == "TOPIC_NOT_FOUND: no"
