"""Who a peer is without a password: by its certificate, or by a token. Server side.

Finds the rights of whom the proof names, or raises why there are none. Never trusts a name that a
peer only says, and never takes a server of the cluster for a user. What is wrong with a proof is
summed in the audit log.
"""

from ternmq.core.errors import Forbidden, Unauthorized, Unavailable
from ternmq.rpc.guarded.guard import Guard, state_of
from ternmq.rpc.peer import Peer
from ternmq.security.access.rights import Rights, lost
from ternmq.wire.messages.hello import BY_SCRAM, BY_TOKEN, BY_USER_CERTIFICATE, Hello, TokenStart
from ternmq.wire.record import unpack

WHO = (
    "this cluster wants to know who comes: connect to tern://USER@HOST with password=, "
    "password_file=, token_file=, or TERN_PASSWORD or TERN_TOKEN in the environment"
)


def methods_of(peer: Peer) -> list[str]:
    """How a user may prove here who it is; the text of a refusal."""
    return [BY_SCRAM, BY_TOKEN, *([BY_USER_CERTIFICATE] if peer.tls is not None else [])]


def check_fresh(guard: Guard) -> None:
    """Nobody logs in by what was true long ago."""
    if guard.stale:
        raise Unavailable("for a day nobody could say who may log in; is meta running?")


def by_certificate(guard: Guard, peer: Peer, hello: Hello) -> Rights:
    """The user that the certificate names."""
    check_fresh(guard)
    shown = peer.certificate
    named = "" if shown is None else shown.user
    expected = hello.proof.decode("utf-8", "replace")
    rights = guard.book.rights(named)
    if rights is not None and expected in ("", named):
        return rights
    guard.audit.note_summed(
        "login", who="", address=peer.address[0], result="unauthorized", user=named[:80]
    )
    if shown is None:
        reason = "no certificate was shown"
    elif not named:
        reason = "this certificate names no user (one of a server never does)"
    elif rights is None:
        reason = (
            f"this certificate names {named[:80]!r}, and there is no such user ('tern user add "
            "NAME --no-password' makes one)"
        )
    else:
        reason = f"this certificate is of {named!r}, not of {expected[:80]!r}"
    raise Unauthorized(f"{reason}; {WHO}", methods=methods_of(peer))


def by_token(guard: Guard, peer: Peer, hello: Hello, *, private: bool) -> Rights:
    """The user that the token of a HELLO names."""
    check_fresh(guard)
    if not private:
        raise Unauthorized(
            "a token is used over TLS only, or on the machine of the server: connect by terns://…, "
            "and revoke this one: others could have heard it",
            methods=methods_of(peer),
        )
    start = unpack(hello.proof, TokenStart)
    return _token_rights(guard, peer, start.token, start.user)


def by_next_token(guard: Guard, peer: Peer, token: bytes) -> Rights:
    """The user of before, by the next token."""
    check_fresh(guard)
    assert peer.rights is not None
    try:
        now = _token_rights(guard, peer, token.decode("ascii", "replace"), peer.rights.name)
    except Unavailable as error:  # Of a server that is there: it is asked again.
        raise Unauthorized(error.message, **error.details) from None
    gone = lost(state_of(peer).used, now)
    if gone is not None:
        raise Forbidden(f"this connection needs {gone[0]}, which the next token does not have")
    return now


def _token_rights(guard: Guard, peer: Peer, token: str, expected: str) -> Rights:
    """Not slowed down after failures, as passwords are: nobody guesses a signature."""
    try:
        claims = guard.token_claims(token)
        if expected not in ("", claims.sub):
            raise Unauthorized(f"this token is of {claims.sub!r}, not of {expected[:80]!r}")
        rights = guard.book.rights(claims.sub, claims)
        assert rights is not None, "token_claims has looked"
    except (Unauthorized, Unavailable) as error:
        guard.audit.note_summed(
            "login", who="", address=peer.address[0], result=error.code, user=expected[:80]
        )
        error.details["methods"] = methods_of(peer)
        raise
    return rights
