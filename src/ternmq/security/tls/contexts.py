"""Contexts of the `ssl` module, made from files and tried on themselves before anybody meets them.

TLS 1.3 and nothing older. A context is never changed after it was made: `load_cert_chain` on a live
one would serve the new certificate, but no call takes an authority out again. No session tickets:
a resumed session would bring back a certificate that is not trusted any more.

The trial is a handshake in memory, of a server with these files and a client with them, since a
server is both: what is expired, not signed by the CA, without its key, or not allowed to be one of
the two fails here, with a text that names the file.
"""

import ssl
from collections.abc import Sequence
from dataclasses import dataclass

from ternmq.core.errors import BadConfig
from ternmq.security.tls.certificate_files import CertificateFiles
from ternmq.security.tls.peer_certificate import PeerCertificate, certificate_of
from ternmq.security.tls.tls_errors import reason_of

TRIES_MAX = 10
"""Turns of a handshake; it takes three."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerContexts:
    """What one server has at one time: for who comes, and for where it goes."""

    incoming: ssl.SSLContext
    outgoing: ssl.SSLContext
    certificate: PeerCertificate
    """Its own, as others see it."""


def server_contexts(files: CertificateFiles) -> ServerContexts:
    """Raises `BadConfig` where the files are of no use. Who comes may show a certificate, and a
    wrong one is refused; whether it must is asked of the peer."""
    files.check()
    incoming = _context(ssl.PROTOCOL_TLS_SERVER, files)
    incoming.verify_mode = ssl.CERT_OPTIONAL
    incoming.num_tickets = 0
    outgoing = _context(ssl.PROTOCOL_TLS_CLIENT, files)
    checker = _context(ssl.PROTOCOL_TLS_CLIENT, files)
    checker.check_hostname = False  # Under which name it will be called is not known here.
    certificate = _try_out(incoming, checker, files)
    return ServerContexts(incoming=incoming, outgoing=outgoing, certificate=certificate)


def offered_contexts(files: CertificateFiles, protocols: Sequence[str]) -> ServerContexts:
    """Of a listener for clients of others, who have no certificates of ours and may not know TLS
    1.3; these protocols are offered (ALPN)."""
    files.check()
    incoming = _context(ssl.PROTOCOL_TLS_SERVER, files)
    incoming.minimum_version = ssl.TLSVersion.TLSv1_2
    incoming.num_tickets = 0
    incoming.set_alpn_protocols(list(protocols))
    checker = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    checker.check_hostname = False
    checker.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # Whoever has signed it.
    assert files.certificate is not None
    checker.load_verify_locations(files.certificate)
    certificate = _try_out(incoming, checker, files)
    return ServerContexts(incoming=incoming, outgoing=checker, certificate=certificate)


def client_context(files: CertificateFiles) -> ssl.SSLContext:
    """Of who only connects; raises `BadConfig` where the files are of no use."""
    files.check()
    return _context(ssl.PROTOCOL_TLS_CLIENT, files)


def _context(side: int, files: CertificateFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(side)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    if files.certificate is not None and files.key is not None:
        try:
            context.load_cert_chain(files.certificate, files.key, password=_no_password)
        except (ssl.SSLError, OSError, ValueError) as error:
            raise BadConfig(
                f"the certificate {files.certificate} and the key {files.key} do not fit each "
                f"other, or one is not PEM ({reason_of(error)}); tern secure cert makes a pair"
            ) from error
    if files.ca is None:
        context.load_default_certs()
        return context
    try:
        context.load_verify_locations(files.ca)
    except (ssl.SSLError, OSError) as error:
        raise BadConfig(
            f"the CA file {files.ca} holds no certificates in PEM ({reason_of(error)})"
        ) from error
    return context


def _no_password() -> str:
    raise ValueError("the key is encrypted; a server starts without a person to ask")


def _try_out(
    server: ssl.SSLContext, client: ssl.SSLContext, files: CertificateFiles
) -> PeerCertificate:
    """A whole handshake in memory; what the client saw."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    theirs = server.wrap_bio(to_server, to_client, server_side=True)
    ours = client.wrap_bio(to_client, to_server)
    try:
        for _ in range(TRIES_MAX):
            done = [_step(side) for side in (ours, theirs)]
            if all(done):
                break
    except ssl.SSLError as error:
        raise BadConfig(
            f"the certificate {files.certificate} is of no use with the CA file {files.ca}: "
            f"{reason_of(error)}"
        ) from error
    certificate = certificate_of(ours)
    if certificate is None:
        raise BadConfig(f"the certificate {files.certificate} was not shown in a trial handshake")
    return certificate


def _step(side: ssl.SSLObject) -> bool:
    try:
        side.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True
