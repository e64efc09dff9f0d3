"""TLS of a listener for clients of others: a certificate is shown, and nobody has to show one.

From the files that an operator gives, looked at whenever somebody comes: others hold for the next
connection, and files that are of no use leave the old ones where they are. Without files a
certificate is made at every start and is never on a disk for longer than loading takes: clients
that trust any certificate, as RocketMQ's do by themselves, are kept from those who only listen. TLS
1.2 is taken too: which version such a client speaks is not ours to choose.
"""

import ssl
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ternmq.core.errors import BadConfig
from ternmq.core.log import get_logger
from ternmq.security.tls.certificate_files import CertificateFiles
from ternmq.security.tls.contexts import ServerContexts, offered_contexts

MADE_NAME = "made-at-start"

log = get_logger()


class OfferedTls:
    """What a listener shows to who speaks TLS, asked for every connection."""

    clients_must_show = False
    trouble = ""

    def __init__(
        self, files: CertificateFiles | None, protocols: Sequence[str], hosts: Sequence[str]
    ) -> None:
        """`protocols` are offered by ALPN; `hosts` are for a certificate that is made here.
        Raises `BadConfig` where the files are of no use."""
        self._protocols = protocols
        self._files = files
        if files is None:
            self._loaded = None
            self._now = _made(protocols, hosts)
        else:
            self._loaded = files.stamps()
            self._now = offered_contexts(files, protocols)

    @property
    def now(self) -> ServerContexts:
        if self._files is not None:
            stamps = self._files.stamps()
            if stamps != self._loaded:
                self._loaded = stamps
                self._take(self._files)
        return self._now

    def _take(self, files: CertificateFiles) -> None:
        try:
            self._now = offered_contexts(files, self._protocols)
            log.info("new TLS files are used from now on")
        except BadConfig as error:
            log.error("the new TLS files are not used, the old ones are", reason=error.message)


def _made(protocols: Sequence[str], hosts: Sequence[str]) -> ServerContexts:
    from ternmq.security.tls.authority import Authority, CertificateOrder

    with tempfile.TemporaryDirectory(prefix="tern-tls-") as folder:
        authority = Authority.make(Path(folder), MADE_NAME)
        pair = authority.issue(CertificateOrder(name=MADE_NAME, hosts=hosts))
        files = CertificateFiles(certificate=pair.certificate, key=pair.key)
        return offered_contexts(files, protocols)


def can_make_certificates() -> bool:
    """Is what that needs installed?"""
    try:
        return ssl.HAS_ALPN and bool(__import__("cryptography"))
    except ModuleNotFoundError:
        return False
