"""Who a peer is without a password: by the certificate that it showed. Server side.

Finds the rights of whom the proof names, or raises why there are none. Never trusts a name that a
peer only says, and never takes a server of the cluster for a user. What is wrong with a proof is
summed in the audit log.
"""

from ternmq.core.errors import Unauthorized, Unavailable
from ternmq.rpc.guarded.guard import Guard, address_of
from ternmq.rpc.peer import Peer
from ternmq.security.access.rights import Rights
from ternmq.wire.messages.hello import BY_SCRAM, BY_USER_CERTIFICATE, Hello

WHO = (
    "this cluster wants to know who comes: connect to tern://USER@HOST with password=, "
    "password_file=, or TERN_PASSWORD in the environment"
)


def methods_of(peer: Peer) -> list[str]:
    """How somebody may prove here who it is; told to who was refused."""
    return [BY_SCRAM, *([BY_USER_CERTIFICATE] if peer.tls is not None else [])]


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
        "login", who="", address=address_of(peer), result="unauthorized", user=named[:80]
    )
    if shown is None:
        said = "no certificate was shown"
    elif not named:
        said = "this certificate names no user (one of a server never does)"
    elif rights is None:
        said = (
            f"this certificate names {named[:80]!r}, and there is no such user ('tern user add "
            "NAME --no-password' makes one)"
        )
    else:
        said = f"this certificate is of {named!r}, not of {expected[:80]!r}"
    raise Unauthorized(f"{said}; {WHO}", methods=methods_of(peer))
