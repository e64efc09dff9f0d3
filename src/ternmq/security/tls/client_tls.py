"""TLS of one client: the context for its next connection, made again when the files are others.

Asked at every connection, so there is nothing to watch: three looks at files cost nothing beside a
handshake. Files that are of no use leave the old context where it is, logged once. A context made
at start from bad files raises `BadConfig`.
"""

import ssl
from typing import Protocol

from ternmq.core.errors import BadConfig
from ternmq.core.log import get_logger
from ternmq.security.tls.certificate_files import CertificateFiles, FileStamp
from ternmq.security.tls.contexts import client_context
from ternmq.security.tls.peer_certificate import PeerCertificate

log = get_logger()


class OutgoingTls(Protocol):
    """What a connection that is opened needs of TLS; never kept as a global."""

    def context(self) -> ssl.SSLContext:
        """For one connection that begins now."""

    def check_server(self, certificate: PeerCertificate, address: str) -> None:
        """More than that the certificate is good for this address; raises what is wrong."""


class ClientTls:
    """TLS of an application or a command; it trusts every server that its authority has signed."""

    def __init__(self, files: CertificateFiles) -> None:
        self._files = files
        self._looked: tuple[FileStamp, ...] = files.stamps()
        self._context = client_context(files)

    def context(self) -> ssl.SSLContext:
        stamps = self._files.stamps()
        if stamps != self._looked:
            self._looked = stamps
            try:
                self._context = client_context(self._files)
                log.info("new TLS files are used from now on")
            except BadConfig as error:
                log.error("the new TLS files are not used, the old ones are", reason=error.message)
        return self._context

    def check_server(self, certificate: PeerCertificate, address: str) -> None:
        """The handshake has compared the server's name with the address; a client asks no more."""
