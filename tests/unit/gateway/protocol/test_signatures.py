"""Signed calls: as every official client writes them, and as somebody who has no secret might."""

import hashlib
import hmac
from random import Random

import pytest

from ternmq.gateway.protocol.codes import Code, Refused
from ternmq.gateway.protocol.signatures import (
    HEADER_SIZE_MAX,
    TEXT_SIZE_MAX,
    check_signature,
    read_signature,
)

KEY, SECRET, WHEN = "AK0123456789abcdef", "s3cret-of-the-shop", "20261118T081446Z"
DIGEST = hmac.new(SECRET.encode(), WHEN.encode(), hashlib.sha1).hexdigest()


def headers(
    key: str = KEY, digest: str = DIGEST, signed: str = "x-mq-date-time", when: str = WHEN
) -> dict[str, str]:
    text = f"MQv2-HMAC-SHA1 Credential={key}, SignedHeaders={signed}, Signature={digest}"
    return {"authorization": text, "x-mq-date-time": when}


def check(metadata: dict[str, str], secret: str = SECRET) -> str:
    signature = read_signature(metadata)
    check_signature(signature, secret)
    return signature.access_key


@pytest.mark.parametrize(
    ("client", "metadata"),
    [
        ("Python, Go, Rust", headers()),
        ("Java, Node, C#", headers(digest=DIGEST.upper())),
        ("Go", headers(key=f"{KEY}//Rocketmq")),
        ("another spelling of the header", headers(signed="X-MQ-Date-Time")),
    ],
)
def test_a_call_is_known_by_its_signature(client: str, metadata: dict[str, str]) -> None:
    assert check(metadata) == KEY, client


@pytest.mark.parametrize(
    ("why", "metadata"),
    [
        ("nothing", {}),
        ("a header without keys", {"authorization": "", "x-mq-date-time": WHEN}),
        ("an empty key, as Python sends it without one", headers(key="")),
        ("a slash alone", headers(key="//Rocketmq")),
        ("another algorithm", {"authorization": "Bearer x", "x-mq-date-time": WHEN}),
        ("the digest of another time", headers(when="20261118T081447Z")),
        ("no time", headers(when="")),
        ("a time without end", headers(when="1" * (TEXT_SIZE_MAX + 1))),
        ("another header is signed", headers(signed="x-mq-client-id")),
        ("more is signed", headers(signed="x-mq-date-time;host")),
        ("no digest", headers(digest="")),
        ("a short one", headers(digest=DIGEST[:-2])),
        ("a long one", headers(digest=DIGEST + "00")),
        ("one that is no hex", headers(digest="x" * 40)),
        ("one of zeros", headers(digest="0" * 40)),
        ("a key with blanks", headers(key="a b")),
        ("a key with an escape", headers(key="\x1b[2J")),
        ("a key without end", headers(key="A" * 65)),
        ("a header without end", headers(key="A" * HEADER_SIZE_MAX)),
        ("a field twice", headers(digest=f"{DIGEST}, Credential=admin")),
        ("letters that no header has", headers(when="é\ud800")),
    ],
)
def test_a_call_that_is_not_signed_right_is_refused(why: str, metadata: dict[str, str]) -> None:
    with pytest.raises(Refused) as refused:
        check(metadata)

    assert refused.value.code is Code.UNAUTHORIZED, why
    assert SECRET not in refused.value.message


def test_no_key_and_a_wrong_secret_sound_the_same() -> None:
    said = set()
    for secret in ("", "another", SECRET[:-1], f"{SECRET} "):
        with pytest.raises(Refused) as refused:
            check(headers(), secret)
        said.add(refused.value.message)

    assert len(said) == 1


def test_whatever_a_header_says_it_is_refused_or_right() -> None:
    random, good = Random(3), headers()["authorization"]
    for _ in range(3_000):
        changed = list(good)
        for _ in range(random.choice((1, 2, 5))):
            changed[random.randrange(len(changed))] = chr(
                random.choice((0, 32, 44, 61, 97, 0x20AC))
            )
        metadata = {"authorization": "".join(changed), "x-mq-date-time": WHEN}
        try:
            assert check(metadata) != "", "only what is signed right comes through"
        except Refused:
            continue
        assert metadata["authorization"].partition("Signature=")[2].lower() == DIGEST
