"""What kombu's messages become, and what is read back."""

from datetime import UTC, datetime, timedelta

import pytest

from ternmq import DecodeError
from ternmq.kombu.payload import options_of, pack_payload, unpack_payload

NOW = datetime(2026, 11, 18, 12, 0, tzinfo=UTC)


def message(headers: dict[str, object], **properties: object) -> dict[str, object]:
    return {"body": "[]", "headers": headers, "properties": dict(properties)}


def test_the_body_comes_back_as_it_was_text_or_bytes() -> None:
    for body in ("[[1], {}, null]", b"\x80\x04", ""):
        sent = message({"id": "t-1"}) | {"body": body}
        assert unpack_payload(pack_payload(sent)) == sent


def test_a_task_has_its_id_as_key_its_order_and_its_priority() -> None:
    options = options_of(message({"id": "t-1", "order_key": "o-1"}, priority=300), NOW)

    assert options == {"key": "t-1", "order_key": "o-1", "priority": 255}
    assert options_of(message({}, priority=0), NOW) == {}


def test_an_eta_is_a_moment_of_ours_unless_it_is_over_or_of_no_zone() -> None:
    later = NOW + timedelta(days=400)

    assert options_of(message({"eta": later.isoformat()}), NOW) == {"at": later}
    shifted = "2026-11-18T14:30:00+02:00"
    assert options_of(message({"eta": shifted}), NOW) == {"at": NOW + timedelta(minutes=30)}
    for eta in (NOW - timedelta(seconds=1)).isoformat(), "2027-01-01T00:00:00", "soon", None, 7:
        assert options_of(message({"eta": eta}), NOW) == {}


def test_only_what_is_no_task_expires_unseen() -> None:
    """A worker has to say that a task expired, or who waits for its result waits for ever."""
    assert options_of(message({}, expiration="1500"), NOW) == {"ttl": 1.5}
    assert options_of(message({"task": "add"}, expiration="1500"), NOW) == {}
    assert options_of(message({}, expiration="x"), NOW) == {}


@pytest.mark.parametrize("body", [b"", b"\xc1", b"hello", pack_payload({"a": 1})])
def test_what_no_kombu_has_sent_is_refused(body: bytes) -> None:
    with pytest.raises(DecodeError, match="no message of kombu"):
        unpack_payload(body)
