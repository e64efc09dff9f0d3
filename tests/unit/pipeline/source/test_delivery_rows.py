"""Why a message failed, as delivery records say it to people (R23)."""

import pytest

from ternmq.broker.groups.failure_notes import pack_failure
from ternmq.pipeline.source.delivery_rows import text_of
from ternmq.storage.pull.record import PullKind, PullRecord


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            pack_failure("TimeoutError", "bank 7", "Traceback …\n"),
            "TimeoutError: bank 7\nTraceback …",
        ),
        (pack_failure("", "no such bank", ""), "no such bank"),
        (pack_failure("KeyError", "", ""), "KeyError"),
        (b"plain words", "plain words"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        (b"", ""),
    ],
)
def test_a_reason_is_text(text: bytes, shown: str) -> None:
    assert text_of(PullRecord(kind=PullKind.RETRY, group_id=1, text=text)) == shown
