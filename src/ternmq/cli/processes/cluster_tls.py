"""Certificates of a cluster on one machine: a CA and a pair for each server, below its folder.

Made at the first start with `--secure`, and for servers that come later; used from then on without
asking, because servers with and without TLS do not talk. Every server is told its files by its
environment. `admin.pem` is the admin's: whoever has this folder may do everything.
"""

from collections.abc import Mapping
from pathlib import Path

from ternmq.cli.processes.child_console import ConsoleFiles
from ternmq.cli.processes.cluster_folder import is_secured
from ternmq.cli.processes.cluster_plan import TLS_FOLDER, ClusterPlan, Planned
from ternmq.discovery.url import with_tls_files
from ternmq.node.console_user import CONSOLE_USER
from ternmq.security.tls.authority import Authority, CertificateOrder, CertificatePair
from ternmq.security.tls.node_name import NodeName, make_node_name

ADMIN = "admin"
CLUSTER = "main"
HOSTS = ("localhost", "127.0.0.1", "::1")
DAYS = 365
KINDS = {"meta": "meta", "broker": "realtime", "delay": "delay"}


class ClusterTls:
    """The files of one cluster."""

    def __init__(self, folder: Path) -> None:
        """Makes the CA, where there is none."""
        self._folder = folder / TLS_FOLDER
        there = is_secured(folder)
        self._authority = (
            Authority.open(self._folder) if there else Authority.make(self._folder, CLUSTER)
        )

    def prepare(self, plan: ClusterPlan) -> Mapping[str, Mapping[str, str]]:
        """A pair for every server that has none; what each is told, by its name."""
        self._pair(CertificateOrder(name=ADMIN, days=DAYS))
        return {each.name: self._settings(each) for each in plan.everybody}

    def admin_url(self, plan: ClusterPlan) -> str:
        """By which the admin of this cluster comes in."""
        return self._url(plan, ADMIN, _files(self._folder, ADMIN))

    def console_files(self, plan: ClusterPlan) -> ConsoleFiles:
        """Of the console's own user, and for browsers."""
        pair = self._pair(CertificateOrder(name=CONSOLE_USER, hosts=HOSTS, days=DAYS))
        return ConsoleFiles(
            url=self._url(plan, CONSOLE_USER, pair), certificate=pair.certificate, key=pair.key
        )

    def _url(self, plan: ClusterPlan, user: str, pair: CertificatePair) -> str:
        files = {"cert": str(pair.certificate), "key": str(pair.key)}
        url = with_tls_files(plan.url, {"ca": str(self._authority.file), **files})
        return url.replace("://", f"://{user}@", 1)

    def _settings(self, server: Planned) -> dict[str, str]:
        order = CertificateOrder(name=server.name, hosts=HOSTS, nodes=[_name(server)], days=DAYS)
        pair = self._pair(order)
        return {
            "TERN_SECURITY": "true",
            "TERN_TLS": "true",
            "TERN_TLS_CERTIFICATE_FILE": str(pair.certificate),
            "TERN_TLS_KEY_FILE": str(pair.key),
            "TERN_TLS_CA_FILE": str(self._authority.file),
        }

    def _pair(self, order: CertificateOrder) -> CertificatePair:
        pair = _files(self._folder, order.name)
        if pair.certificate.exists() and pair.key.exists():
            return pair
        return self._authority.issue(order, replace=True)


def _files(folder: Path, name: str) -> CertificatePair:
    return CertificatePair(folder / f"{name}.pem", folder / f"{name}-key.pem")


def _name(server: Planned) -> NodeName:
    return make_node_name(CLUSTER, KINDS[server.role], server.group)
