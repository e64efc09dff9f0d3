"""Certificates for tests: a CA in a folder, and what servers and clients of it have."""

from collections.abc import Sequence
from pathlib import Path

from ternmq.security.tls.authority import Authority, CertificateOrder
from ternmq.security.tls.certificate_files import CertificateFiles
from ternmq.security.tls.client_tls import ClientTls
from ternmq.security.tls.node_name import NodeName
from ternmq.security.tls.server_tls import ServerTls

HOSTS = ("localhost", "127.0.0.1")
ALL_IN_ONE = (
    NodeName("shop", "meta"),
    NodeName("shop", "realtime", "main"),
    NodeName("shop", "delay", "main"),
)


class TlsFiles:
    """A CA, and certificates that it signs."""

    def __init__(self, folder: Path, cluster: str = "shop") -> None:
        self.folder = folder
        self.authority = Authority.make(folder, cluster)
        self.ca = self.authority.file

    def server(
        self,
        name: str = "node",
        *,
        hosts: Sequence[str] = HOSTS,
        nodes: Sequence[NodeName] = ALL_IN_ONE,
        days: int = 30,
        replace: bool = False,
    ) -> CertificateFiles:
        order = CertificateOrder(name=name, hosts=hosts, nodes=nodes, days=days)
        pair = self.authority.issue(order, replace=replace)
        return CertificateFiles(certificate=pair.certificate, key=pair.key, ca=self.ca)

    def client(self, name: str = "eve", *, days: int = 30) -> CertificateFiles:
        pair = self.authority.issue(CertificateOrder(name=name, days=days))
        return CertificateFiles(certificate=pair.certificate, key=pair.key, ca=self.ca)

    @property
    def trusting(self) -> CertificateFiles:
        """Of a client that shows nothing."""
        return CertificateFiles(ca=self.ca)

    def serving(self, *, must_show: bool = False) -> ServerTls:
        return ServerTls(self.server(), clients_must_show=must_show)

    def asking(self) -> ClientTls:
        return ClientTls(self.trusting)

    def settings(self, name: str = "node") -> dict[str, str]:
        """Of a server with that certificate, as environment."""
        return {
            "TERN_TLS": "true",
            "TERN_TLS_CERTIFICATE_FILE": str(self.folder / f"{name}.pem"),
            "TERN_TLS_KEY_FILE": str(self.folder / f"{name}-key.pem"),
            "TERN_TLS_CA_FILE": str(self.ca),
        }
