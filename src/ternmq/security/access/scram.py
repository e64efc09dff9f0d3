"""SCRAM-SHA-256 (RFC 5802, 7677): proving that one knows a password without saying it; pure.

The server keeps a *verifier*: salt, iterations, and two keys that come of the password and do not
lead back to it. Both sides agree on the *talk*: every byte of this conversation so far. A client
proves that it knows the password by a key mixed with a signature of the talk; the server proves by
another key that it had the verifier. What was heard is of no use in another talk. The formulas are
the RFC's; the talk is made of our own frames (HELLO and Challenge), so nothing can be taken out.
"""

import hashlib
import hmac

from ternmq.core.errors import BadRequest, Unauthorized
from ternmq.wire.messages.limits import Verifier

ITERATIONS = 600_000
"""Of passwords that people made up."""
ITERATIONS_MIN, ITERATIONS_MAX = 4_096, 10_000_000
"""Fewer and a server that is not ours could make us give away what is soon guessed; more and it
could keep us busy."""
SALT_SIZE = 16
NONCE_SIZE = 32
KEY_SIZE = 32
PASSWORD_SIZE_MIN, PASSWORD_SIZE_MAX = 8, 1_024


def salted(password: str, salt: bytes, iterations: int) -> bytes:
    """The slow step; everything else is quick."""
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise Unauthorized(
            f"the server wants {iterations} rounds of hashing; {ITERATIONS_MIN} to "
            f"{ITERATIONS_MAX} are accepted: is it the right server?"
        )
    return hashlib.pbkdf2_hmac("sha256", password.encode(), salt, iterations)


def make_verifier(password: str, salt: bytes, *, iterations: int = ITERATIONS) -> Verifier:
    """What a server keeps of a password, with a salt that was drawn for it alone; raises
    `BadRequest` for a password that is too short."""
    if not PASSWORD_SIZE_MIN <= len(password) <= PASSWORD_SIZE_MAX:
        raise BadRequest(
            f"a password has {PASSWORD_SIZE_MIN} to {PASSWORD_SIZE_MAX} characters, this one "
            f"{len(password)}"
        )
    key = salted(password, salt, iterations)
    return Verifier(
        salt=salt,
        iterations=iterations,
        stored_key=hashlib.sha256(_client_key(key)).digest(),
        server_key=_server_key(key),
    )


def check_verifier(verifier: Verifier) -> None:
    """Made elsewhere; raises `BadRequest` where it cannot be one."""
    if (
        len(verifier.salt) < SALT_SIZE
        or len(verifier.stored_key) != KEY_SIZE
        or len(verifier.server_key) != KEY_SIZE
        or not ITERATIONS_MIN <= verifier.iterations <= ITERATIONS_MAX
    ):
        raise BadRequest(
            f"no verifier: a salt of {SALT_SIZE} bytes, keys of {KEY_SIZE}, and {ITERATIONS_MIN} "
            f"to {ITERATIONS_MAX} iterations"
        )


def client_proof(salted_password: bytes, talk: bytes) -> bytes:
    """Proves that the password is known, in this conversation."""
    key = _client_key(salted_password)
    signature = hmac.digest(hashlib.sha256(key).digest(), talk, "sha256")
    return _mixed(key, signature)


def proves(verifier: Verifier, talk: bytes, proof: bytes) -> bool:
    """Is this the proof of who knows the password?"""
    if len(proof) != KEY_SIZE:
        proof = bytes(KEY_SIZE)
    key = _mixed(proof, hmac.digest(verifier.stored_key, talk, "sha256"))
    return hmac.compare_digest(hashlib.sha256(key).digest(), verifier.stored_key)


def server_proof(server_key: bytes, talk: bytes) -> bytes:
    """Proves that the verifier is known, in this conversation."""
    return hmac.digest(server_key, talk, "sha256")


def is_server(salted_password: bytes, talk: bytes, proof: bytes) -> bool:
    """Did the other side know the verifier?"""
    return hmac.compare_digest(server_proof(_server_key(salted_password), talk), proof)


def nobody(secret: bytes, user: str) -> Verifier:
    """For a user that does not exist: looks like one, always the same, and is proven by nobody."""

    def derived(what: bytes) -> bytes:
        return hmac.digest(secret, what + user.encode(errors="replace"), "sha256")

    return Verifier(
        salt=derived(b"salt")[:SALT_SIZE],
        iterations=ITERATIONS,
        stored_key=derived(b"stored"),
        server_key=derived(b"server"),
    )


def _client_key(salted_password: bytes) -> bytes:
    return hmac.digest(salted_password, b"Client Key", "sha256")


def _server_key(salted_password: bytes) -> bytes:
    return hmac.digest(salted_password, b"Server Key", "sha256")


def _mixed(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))
