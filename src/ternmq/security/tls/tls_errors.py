"""What went wrong in TLS, in words that say what to do."""

import ssl

from ternmq.core.errors import BadConfig, TernError, Unavailable

SPEAKS_TLS = (
    "this port speaks TLS: use terns:// in the url, and name its CA (terns://HOST:PORT?ca=FILE)"
)
SPEAKS_PLAIN = (
    "this port does not speak TLS: use tern:// in the url, or set tls = true on the server"
)
NO_CERTIFICATE = (
    "this server lets in only who shows a certificate: terns://…?cert=FILE&key=FILE "
    "(`tern secure cert DIR NAME` makes them)"
)
_PLAIN_ANSWERS = ("WRONG_VERSION_NUMBER", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE")
RECORD_HANDSHAKE = 0x16


def begins_tls(first: bytes | memoryview) -> bool:
    """Are these the first three bytes of TLS? A frame of ours before HELLO is answered is short,
    so its third byte, of its size, is 0."""
    return len(first) >= 3 and first[0] == RECORD_HANDSHAKE and first[1] == 3 and first[2] != 0


def why_not_connected(address: str, error: ssl.SSLError) -> TernError:
    """For who connects: the handshake failed here, or the server has refused it."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return Unavailable(
            f"the certificate of {address} is not trusted: {error.verify_message}; "
            + _advice(error, address)
        )
    reason = error.reason or ""
    if reason in _PLAIN_ANSWERS:
        return BadConfig(f"{address}: {SPEAKS_PLAIN}")
    return Unavailable(f"no TLS with {address}: {reason_of(error)}")


def lost_early(address: str) -> str:
    """The server hung up between handshake and welcome: TLS 1.3 judges our certificate last, and
    does not say so."""
    return (
        f"{address} hung up after the TLS handshake: if a certificate was shown it may not take "
        "it, its log says why"
    )


def reason_of(error: Exception) -> str:
    """What OpenSSL means, without its file names and line numbers."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return str(error.verify_message)
    if isinstance(error, ssl.SSLError) and error.reason:
        return str(error.reason).replace("_", " ").lower()
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


def _advice(error: ssl.SSLCertVerificationError, address: str) -> str:
    text = error.verify_message
    if "mismatch" in text or "not valid for" in text:
        return (
            "connect by a name that is in it, or make one for this address: "
            f"tern secure cert … --host {address.rpartition(':')[0]}"
        )
    if "expired" in text or "not yet valid" in text:
        return "is the clock right here and there? Else make a new one: tern secure cert"
    return "name the CA file of that cluster: terns://…?ca=FILE"
