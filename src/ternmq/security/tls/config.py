"""What an operator sets for TLS: on or off, three files, who has to show a certificate.

The same files are used towards clients (server certificate), towards other servers (the same
certificate, shown by who connects) and to judge what others show (the CA). This module reads no
file; `contexts` does.
"""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from ternmq.core.errors import BadConfig
from ternmq.core.settings import about, check
from ternmq.security.tls.certificate_files import CertificateFiles

HOW = "`tern secure init DIR` makes all three and says what to write"


class ClientCertificates(StrEnum):
    """Who connects may, or must, show a certificate of the CA."""

    OPTIONAL = "optional"
    REQUIRED = "required"


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsConfig:
    """TLS of one server, on all ports that it has for clients and servers."""

    tls: Annotated[
        bool, about("every connection is TLS 1.3, in and out; urls begin with terns://")
    ] = False
    tls_certificate_file: Annotated[
        str, about("certificate (PEM) of this server, with its chain if there is one")
    ] = ""
    tls_key_file: Annotated[str, about("its private key (PEM), which only this user may read")] = ""
    tls_ca_file: Annotated[
        str, about("certificates (PEM) of the authorities that servers and clients are checked by")
    ] = ""
    tls_client_certificates: Annotated[
        ClientCertificates,
        about("`required`: nobody comes in without a certificate of `tls_ca_file`; or `optional`"),
    ] = ClientCertificates.OPTIONAL
    tls_reload_ms: Annotated[
        int, about("how often the files are looked at; SIGHUP looks at once", 100, 3_600_000)
    ] = 30_000

    def __post_init__(self) -> None:
        check(self)
        missing = [name for name in self._files if not getattr(self, name)]
        if self.tls and missing:
            raise BadConfig(f"tls = true needs {', '.join(missing)} as well: {HOW}")
        if not self.tls and len(missing) < len(self._files):
            written = next(name for name in self._files if name not in missing)
            raise BadConfig(
                f"{written} is set and tls is not: nothing would be encrypted. Write tls = true "
                "(TERN_TLS=true), or leave the file out"
            )

    @property
    def _files(self) -> tuple[str, ...]:
        return ("tls_certificate_file", "tls_key_file", "tls_ca_file")

    @property
    def files(self) -> CertificateFiles:
        return CertificateFiles(
            certificate=Path(self.tls_certificate_file),
            key=Path(self.tls_key_file),
            ca=Path(self.tls_ca_file),
        )

    @property
    def proves_clients(self) -> bool:
        """Nobody comes in who was not given a certificate."""
        return self.tls and self.tls_client_certificates is ClientCertificates.REQUIRED
