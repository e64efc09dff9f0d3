"""TLS of one server while it runs: the contexts of now, and others when the files are others.

`look` compares the files with those that were loaded, makes and tries new contexts where they
differ, and puts them in the place of the old ones in one assignment; connections that stand keep
theirs, so nothing is lost. Files that are of no use leave the old contexts where they are: that is
logged, counted and told (`trouble`) until they are good. A new certificate has to be for the same
servers as the old one: a running server does not become another one.
"""

import asyncio
import ssl
from functools import partial
from typing import Any

from ternmq.core.errors import BadConfig
from ternmq.core.log import get_logger
from ternmq.core.units import SECOND_MS
from ternmq.metrics.samples import Samples
from ternmq.security.tls.certificate_files import CertificateFiles, FileStamp
from ternmq.security.tls.contexts import ServerContexts, server_contexts
from ternmq.security.tls.door import IncomingTls
from ternmq.security.tls.node_name import NodeName, cluster_of, node_names
from ternmq.security.tls.peer_certificate import PeerCertificate

log = get_logger()


class ServerTls:
    """Made at start, where bad files raise `BadConfig`; handed to listeners and connections."""

    def __init__(self, files: CertificateFiles, *, clients_must_show: bool = False) -> None:
        self._files = files
        self.clients_must_show = clients_must_show
        self._loaded: tuple[FileStamp, ...] = files.stamps()
        self._refused: tuple[FileStamp, ...] | None = None
        self._now = self._load()
        self.names = node_names(self._now.certificate)
        """Which servers this one is, as its certificate has it; none: it proves nothing by it."""
        self.cluster = cluster_of(self.names)
        self.swaps = 0
        """So often other files were taken."""
        self.trouble = ""
        """Why the files of now are not used; empty: they are."""

    @property
    def files(self) -> CertificateFiles:
        return self._files

    @property
    def certificate(self) -> PeerCertificate:
        """The server's own certificate."""
        return self._now.certificate

    @property
    def now(self) -> ServerContexts:
        """For the next one who comes."""
        return self._now

    def context(self) -> ssl.SSLContext:
        """For the next connection to another server."""
        return self._now.outgoing

    def speaks_for(self, kind: str, broker_group: str) -> bool:
        return NodeName(self.cluster, kind, broker_group) in self.names

    def check_server(self, certificate: PeerCertificate, address: str) -> None:
        """Who answers there has to be a server of this cluster; raises `BadConfig`."""
        if self.cluster and self.cluster not in {n.cluster for n in node_names(certificate)}:
            raise BadConfig(
                f"{address} shows a certificate of {certificate.common_name!r}, which is no server "
                f"of the cluster {self.cluster!r}"
            )

    def look(self, *, again: bool = False) -> None:
        """Take the files if they are others; `again`: also those that were refused before."""
        stamps = self._files.stamps()
        if stamps == self._loaded:
            self._settled()
            return
        if stamps == self._refused and not again:
            return
        try:
            found = self._load()
            self._check_same_server(found.certificate)
        except BadConfig as error:
            self._refused, self.trouble = stamps, error.message
            log.error("the new TLS files are not used, the old ones are", reason=error.message)
            return
        self._now, self._loaded = found, stamps
        self.swaps += 1
        self._settled()
        log.info(
            "new TLS files are used from now on",
            certificate=found.certificate.fingerprint,
            not_after=int(found.certificate.not_after),
        )

    def _settled(self) -> None:
        self._refused, self.trouble = None, ""

    def _load(self) -> ServerContexts:
        return server_contexts(self._files)

    def _check_same_server(self, certificate: PeerCertificate) -> None:
        lacking = [name.uri for name in self.names if name not in node_names(certificate)]
        if lacking:
            raise BadConfig(
                f"the certificate {self._files.certificate} is not for {', '.join(lacking)}, which "
                "this server is"
            )

    async def figures(self, out: Samples) -> None:
        """What Prometheus is shown of it."""
        out.add("tern_tls_certificate_expires_at_seconds", self._now.certificate.not_after)
        out.add("tern_tls_swaps_total", self.swaps)
        out.add("tern_tls_files_refused", int(bool(self.trouble)))


def tls_facts(tls: IncomingTls | None) -> dict[str, Any]:
    """The fields that STATUS has of it."""
    if tls is None:
        return {}
    expires_at_ms = int(tls.now.certificate.not_after * SECOND_MS)
    return {"tls_trouble": tls.trouble, "tls_expires_at_ms": expires_at_ms}


class TlsWatch:
    """Looks at the files again and again, and at once when it is woken."""

    def __init__(self, tls: ServerTls, *, interval_s: float) -> None:
        self._tls = tls
        self._interval_s = interval_s
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """An operator asks to look now."""
        self._woken.set()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            asked = await self._next()
            await loop.run_in_executor(None, partial(self._tls.look, again=asked))

    async def _next(self) -> bool:
        """Until the next look; true: it was asked for."""
        try:
            async with asyncio.timeout(self._interval_s):
                await self._woken.wait()
        except TimeoutError:
            return False
        self._woken.clear()
        return True
