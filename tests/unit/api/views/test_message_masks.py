"""What masks hide, and that nothing that they cannot be held against is shown."""

import time

import msgspec
import pytest

from ternmq.api.caller_rights import CallerRights
from ternmq.api.views.message_masks import (
    BODY_SIZE_MAX,
    HIDDEN,
    TEXT_SIZE_MAX,
    MaskedView,
    MaskRule,
    masked,
)
from ternmq.core.errors import BadRequest, Forbidden
from ternmq.wire.messages.limits import Grant, OwnRights

CARD = MaskRule(topic="pay.*", pointer="/card/number")
BODY = b'{"card":{"number":"4111","name":"A"},"sum":5}'


def body(rule: MaskRule, given: bytes) -> bytes:
    return masked([rule], given, {}).body


@pytest.mark.parametrize(
    ("rule", "given", "shown"),
    [
        (CARD, BODY, b'{"card":{"number":"***","name":"A"},"sum":5}'),
        (CARD, b'{"sum":5}', b'{"sum":5}'),
        (
            MaskRule(topic="*", pointer="/a/*/b"),
            b'{"a":[{"b":1},{"b":2}]}',
            b'{"a":[{"b":"***"},{"b":"***"}]}',
        ),
        (MaskRule(topic="*", pointer="/0"), b"[1,2]", b'["***",2]'),
        (MaskRule(topic="*", pointer="/a~1b"), b'{"a/b":1}', b'{"a/b":"***"}'),
        (MaskRule(topic="*", pattern=r"\d{4}"), b"card 4111 of A", b"card *** of A"),
        (MaskRule(topic="*", property="ssn"), BODY, BODY),
    ],
)
def test_what_a_mask_names_is_hidden_and_the_rest_is_not(
    rule: MaskRule, given: bytes, shown: bytes
) -> None:
    rule.check()

    assert body(rule, given) == shown


@pytest.mark.parametrize(
    "given",
    [b"not json", b"\xff\xfe", b'{"card":', b"[" * 100_000, b'"' + b"a" * BODY_SIZE_MAX + b'"'],
)
def test_a_body_that_a_mask_cannot_be_held_against_is_hidden_whole(given: bytes) -> None:
    assert body(CARD, given) == HIDDEN.encode()


def test_properties_are_hidden_by_name() -> None:
    found = masked([MaskRule(topic="*", property="ssn")], b"x", {"ssn": 5, "sum": 6})

    assert found.properties == {"ssn": HIDDEN, "sum": 6}
    assert found.masked


@pytest.mark.parametrize(
    "rule",
    [
        MaskRule(topic="*"),
        MaskRule(topic="*", pointer="/a", pattern="b"),
        MaskRule(topic="*", pointer="a"),
        MaskRule(topic="*", pattern="("),
        MaskRule(topic="*", pattern="(a+)+$"),
        MaskRule(topic="*", pattern="(a|aa)*b*c*d*"),
        MaskRule(topic="*", pattern=r"(a)\1"),
        MaskRule(topic="*", pattern=".*=.*"),
        MaskRule(topic="*", pattern="a{0,60}a{0,60}b"),
        MaskRule(topic="*", pattern="a" * 201),
    ],
)
def test_a_mask_that_means_nothing_or_could_take_for_ever_is_refused(rule: MaskRule) -> None:
    with pytest.raises(BadRequest):
        rule.check()


@pytest.mark.parametrize("pattern", ["a+b", "a{1,64}b", "(?:a|aa)a?a?a?b", "(?s).+"])
def test_a_pattern_that_is_taken_is_held_against_a_text_in_time(pattern: str) -> None:
    rule = MaskRule(topic="*", pattern=pattern)
    rule.check()
    began = time.thread_time()

    body(rule, b"a" * TEXT_SIZE_MAX)

    assert time.thread_time() - began < 10
    assert body(rule, b"a" * (TEXT_SIZE_MAX + 1)) == HIDDEN.encode()


def of(user: str, *lines: tuple[str, str]) -> CallerRights:
    grants = [Grant(action=action, resource=resource) for action, resource in lines]
    return CallerRights(OwnRights(user=user, apps=[user], grants=grants))


def test_all_is_shown_to_who_asks_and_may() -> None:
    reader = of("reader", ("read", "topic:pay.*"))
    auditor = of("auditor", ("read", "topic:pay.*"), ("read", "unmasked:pay.*"))

    assert b"4111" not in MaskedView([CARD], auditor).of("pay.in", BODY, {}).body
    assert b"4111" in MaskedView([CARD], auditor, unmask=True).of("pay.in", BODY, {}).body
    assert b"4111" in MaskedView([CARD], reader).of("other", BODY, {}).body
    with pytest.raises(Forbidden, match="unmasked"):
        MaskedView([CARD], reader, unmask=True).of("pay.in", BODY, {})


def test_letters_are_masked_as_messages_of_their_topic() -> None:
    view = MaskedView([CARD], of("reader"))

    assert b"4111" not in view.of("%dead.billing", BODY, {"%topic": "pay.in"}).body
    assert b"4111" not in view.of("%refused.pay.in", BODY, {}).body
    assert b"4111" not in view.of("pay.in", BODY, {"%topic": "other"}).body


def test_while_masks_are_not_known_everything_is_hidden() -> None:
    view = MaskedView(None, of("reader"))

    found = view.of("any", BODY, {"a": 1, "%topic": "any"})

    assert (found.body, found.properties["a"], found.masked) == (b"***", HIDDEN, True)
    with pytest.raises(Forbidden):
        view.check_search("any", text="4", where="")


def test_what_is_hidden_is_not_found_by_guessing() -> None:
    view = MaskedView([CARD], of("reader"))

    with pytest.raises(Forbidden, match="masked"):
        view.check_search("pay.in", text="4111", where="")
    with pytest.raises(Forbidden, match="masked"):
        view.check_search("pay.in", text="", where="ssn > 5")
    view.check_search("pay.in", text="", where="")
    view.check_search("other", text="x", where="a > 5")


def test_a_mask_with_a_field_that_nobody_knows_is_no_mask() -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"topic":"*","ponter":"/a"}', type=MaskRule)
