"""TLS of a process that runs servers: loaded before they start, looked at while they run.

SIGHUP looks at the files at once, where there is TLS; without it the signal means what it always
does.
"""

import asyncio
import signal
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from ternmq.core.lifecycle import background
from ternmq.core.log import get_logger
from ternmq.core.units import SECOND_MS
from ternmq.metrics.samples import Source
from ternmq.node.addresses import advertised_host
from ternmq.node.config import NodeConfig
from ternmq.security.tls.server_tls import ServerTls, TlsWatch

log = get_logger()


@asynccontextmanager
async def using_tls(config: NodeConfig) -> AsyncIterator[ServerTls | None]:
    """What the settings say, while the block runs; None: no TLS. Raises `BadConfig`."""
    security = config.tls
    if not security.tls:
        yield None
        return
    tls = ServerTls(security.files, clients_must_show=security.proves_clients)
    host = advertised_host(config)
    if not tls.certificate.is_for(host):
        log.warning(
            "clients are told to come to a host that the certificate is not for, and will not: "
            "tern secure cert … --host makes one that is, advertised_host tells them another",
            host=host,
            certificate=str(security.tls_certificate_file),
        )
    watch = TlsWatch(tls, interval_s=security.tls_reload_ms / SECOND_MS)
    with _heard(watch):
        async with background(tls=watch.run):
            yield tls


def tls_figures(tls: ServerTls | None) -> list[Source]:
    """What the page of metrics shows of it."""
    return [] if tls is None else [tls.figures]


@contextmanager
def _heard(watch: TlsWatch) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    before: Any = signal.getsignal(signal.SIGHUP)
    loop.add_signal_handler(signal.SIGHUP, watch.wake)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGHUP)
        signal.signal(signal.SIGHUP, before)
