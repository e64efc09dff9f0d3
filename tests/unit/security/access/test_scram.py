"""SCRAM-SHA-256 against the RFC's own example, and everything that is nearly a proof."""

import base64

import pytest

from ternmq.core.errors import BadRequest, Unauthorized
from ternmq.security.access import scram
from ternmq.wire.messages.limits import Verifier

ROUNDS = scram.ITERATIONS_MIN
TALK = b"everything that was said so far"

# RFC 7677, section 3: user "user", password "pencil".
RFC_SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
RFC_TALK = (
    b"n=user,r=rOprNGfwEbeRWgbNEkqO,"
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,"
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
)
RFC_PROOF = base64.b64decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
RFC_SIGNATURE = base64.b64decode("6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


def test_the_example_of_the_rfc_gives_its_proofs() -> None:
    key = scram.salted("pencil", RFC_SALT, 4096)

    assert scram.client_proof(key, RFC_TALK) == RFC_PROOF
    assert scram.is_server(key, RFC_TALK, RFC_SIGNATURE)


def test_who_knows_the_password_proves_it_and_the_server_proves_that_it_knew_the_user() -> None:
    verifier = scram.make_verifier("correct horse", bytes(16), iterations=ROUNDS)
    key = scram.salted("correct horse", verifier.salt, verifier.iterations)

    assert scram.proves(verifier, TALK, scram.client_proof(key, TALK))
    assert scram.is_server(key, TALK, scram.server_proof(verifier.server_key, TALK))


@pytest.mark.parametrize("size", [0, 1, 31, 33, 64])
def test_a_proof_of_another_size_is_none(size: int) -> None:
    verifier = scram.make_verifier("correct horse", bytes(16), iterations=ROUNDS)

    assert not scram.proves(verifier, TALK, bytes(size))


def test_what_was_heard_is_no_proof_elsewhere() -> None:
    verifier = scram.make_verifier("correct horse", bytes(16), iterations=ROUNDS)
    key = scram.salted("correct horse", verifier.salt, verifier.iterations)
    heard = scram.client_proof(key, TALK)

    assert not scram.proves(verifier, TALK + b"!", heard)
    assert not scram.proves(verifier, TALK, scram.server_proof(verifier.server_key, TALK))
    assert not scram.is_server(key, TALK, heard)


def test_a_verifier_does_not_prove_its_own_user() -> None:
    """Who steals the registry cannot log in with it."""
    verifier = scram.make_verifier("correct horse", bytes(16), iterations=ROUNDS)

    for stolen in (verifier.stored_key, verifier.server_key):
        assert not scram.proves(verifier, TALK, stolen)
        assert not scram.proves(verifier, TALK, scram.client_proof(stolen, TALK))


def test_nobody_looks_like_a_user_and_always_the_same() -> None:
    one, same = scram.nobody(b"secret", "eve"), scram.nobody(b"secret", "eve")
    other = scram.nobody(b"secret", "mallory")

    assert one == same
    assert one.salt != other.salt
    assert len(one.salt) == scram.SALT_SIZE
    assert one.iterations == scram.ITERATIONS
    scram.check_verifier(one)


@pytest.mark.parametrize("rounds", [0, 1, 4095, 10_000_001])
def test_a_server_cannot_make_a_password_cheap_or_a_client_busy(rounds: int) -> None:
    with pytest.raises(Unauthorized, match="rounds"):
        scram.salted("correct horse", bytes(16), rounds)


@pytest.mark.parametrize("password", ["", "short", "x" * 1_025])
def test_a_password_that_is_too_short_or_too_long_is_refused(password: str) -> None:
    with pytest.raises(BadRequest, match="characters"):
        scram.make_verifier(password, bytes(16), iterations=ROUNDS)


@pytest.mark.parametrize(
    "verifier",
    [
        Verifier(salt=b"x", iterations=4096, stored_key=bytes(32), server_key=bytes(32)),
        Verifier(salt=bytes(16), iterations=1, stored_key=bytes(32), server_key=bytes(32)),
        Verifier(salt=bytes(16), iterations=4096, stored_key=b"", server_key=bytes(32)),
        Verifier(salt=bytes(16), iterations=4096, stored_key=bytes(32), server_key=b""),
    ],
)
def test_what_cannot_be_a_verifier_is_refused(verifier: Verifier) -> None:
    with pytest.raises(BadRequest, match="no verifier"):
        scram.check_verifier(verifier)
