"""Signed calls: who a RocketMQ client says that it is, and whether it knows the secret. Pure.

A client sends `authorization: MQv2-HMAC-SHA1 Credential=KEY, SignedHeaders=x-mq-date-time,
Signature=HEX`, with HMAC-SHA1 over the text of the header `x-mq-date-time`. Clients write the hex
in large or small letters, and some put `/…` behind the key. The time is their local one, whatever
it claims, so it cannot be held against a clock: who heard a call may repeat its signature, and only
TLS keeps that from happening. Some clients send the header without a key where they have none.
"""

import hashlib
import hmac
import re
from collections.abc import Mapping
from typing import NamedTuple

from ternmq.gateway.protocol.codes import Code, Refused

AUTHORIZATION = "authorization"
SIGNED_HEADER = "x-mq-date-time"
ALGORITHM = "MQv2-HMAC-SHA1"
HEADER_SIZE_MAX = 1_024
TEXT_SIZE_MAX = 128
SIGNATURE_SIZE = 20
_KEY = re.compile(r"[A-Za-z0-9_-]{1,64}")


class CallSignature(NamedTuple):
    """What a call was signed with."""

    access_key: str
    text: str
    """What was signed."""
    digest: bytes


def read_signature(metadata: Mapping[str, str]) -> CallSignature:
    """Of the headers of a call; raises `Refused` where there is none that could be right."""
    header, text = metadata.get(AUTHORIZATION, ""), metadata.get(SIGNED_HEADER, "")
    word, _, rest = header.partition(" ")
    if not header or len(header) > HEADER_SIZE_MAX or word != ALGORITHM:
        raise refused("calls are signed here: give the client an access key and its secret")
    fields: dict[str, str] = {}
    for part in rest.split(","):
        name, _, value = part.strip().partition("=")
        if name in fields:
            raise refused("the authorization says something twice")
        fields[name] = value
    access_key = fields.get("Credential", "").partition("/")[0]
    if not access_key:
        raise refused("calls are signed here: give the client an access key and its secret")
    if fields.get("SignedHeaders", "").lower() != SIGNED_HEADER or not text:
        raise refused(f"what is signed is the header {SIGNED_HEADER}, and nothing else")
    if _KEY.fullmatch(access_key) is None or len(text) > TEXT_SIZE_MAX:
        raise wrong()
    try:
        digest = bytes.fromhex(fields.get("Signature", ""))
    except ValueError:
        raise wrong() from None
    if len(digest) != SIGNATURE_SIZE:
        raise wrong()
    return CallSignature(access_key, text, digest)


def check_signature(signature: CallSignature, secret: str) -> None:
    """Was it made with this secret? Raises `Refused`, in the same words as for no such key."""
    if not secret or not hmac.compare_digest(sign(secret, signature.text), signature.digest):
        raise wrong()


def sign(secret: str, text: str) -> bytes:
    """As clients do."""
    return hmac.digest(secret.encode(), text.encode("utf-8", "replace"), hashlib.sha1)


def wrong() -> Refused:
    return refused("this access key does not exist, or the signature is not by its secret")


def refused(message: str) -> Refused:
    return Refused(Code.UNAUTHORIZED, message)
