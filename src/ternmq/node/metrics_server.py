"""`/metrics` over HTTP: a thread of its own asks the loop for figures and writes the page.

One request at a time. The loop only hands over numbers, in slices (`Source`); making text of them,
compressing it and sending it to a slow reader happen on the thread. When the loop does not answer
in time the reader is told so: no figures are better than old ones.
"""

import asyncio
import gzip
import socket
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import asynccontextmanager
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from ternmq.core.clock import Clock
from ternmq.core.errors import BadConfig
from ternmq.core.lifecycle import background
from ternmq.core.log import get_logger
from ternmq.core.loop_watch import watch_loop
from ternmq.core.process import VERSION
from ternmq.metrics.histogram import Histogram
from ternmq.metrics.samples import Samples, Source
from ternmq.metrics.table import METRICS
from ternmq.node.config import NodeConfig
from ternmq.rpc.server import cannot_listen

log = get_logger()

GATHER_S = 8.0
"""Longest wait for the loop; Prometheus itself gives up after 10 s."""
READER_S = 5.0
"""Longest wait for a reader that does not ask, or does not read."""
POLL_S = 0.2
GZIP_LEVEL = 1


class Gatherer:
    """Asks the loop, from the thread of the page."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = sources
        self._loop = asyncio.get_running_loop()
        self._asked: Future[Samples] | None = None
        self._closed = False

    def ask(self) -> Samples:
        """Every figure as it is now; raises when the loop does not answer."""
        if self._closed:
            raise TimeoutError
        self._asked = asyncio.run_coroutine_threadsafe(self._gather(), self._loop)
        try:
            return self._asked.result(GATHER_S)
        except TimeoutError:
            self._asked.cancel()
            raise

    async def _gather(self) -> Samples:
        samples = Samples()
        for source in self._sources:
            await source(samples)
        return samples

    def close(self) -> None:
        """On the loop: ends a request that waits for figures."""
        self._closed = True
        if self._asked is not None:
            self._asked.cancel()


class NodeFigures(Collector):
    """Our figures as prometheus-client wants them."""

    def __init__(self, gatherer: Gatherer) -> None:
        self._gatherer = gatherer

    def describe(self) -> Iterator[Metric]:
        yield from families(Samples())

    def collect(self) -> Iterator[Metric]:
        return families(self._gatherer.ask())


def families(samples: Samples) -> Iterator[Metric]:
    """Every metric of the table with its series, whether it has any or not."""
    for name, kind, labels, text in METRICS:
        if kind == "histogram":
            buckets = HistogramMetricFamily(name, text, labels=labels)
            for values, histogram in samples.histograms.get(name, {}).items():
                buckets.add_metric(values, histogram.buckets(), histogram.total)
            yield buckets
            continue
        family = GaugeMetricFamily if kind == "gauge" else CounterMetricFamily
        series = family(name, text, labels=labels)
        for values, value in samples.values.get(name, {}).items():
            series.add_metric(values, value)
        yield series


class MetricsHandler(BaseHTTPRequestHandler):
    """Answers `GET /metrics`."""

    timeout = READER_S
    server: "MetricsServer"

    def do_GET(self) -> None:
        if self.path.partition("?")[0] != "/metrics":
            self._say(HTTPStatus.NOT_FOUND, b"figures are at /metrics\n")
            return
        encode, content_type = choose_encoder(self.headers.get("Accept") or "")
        try:
            body = encode(self.server.registry)
        except (TimeoutError, CancelledError):
            self._say(HTTPStatus.SERVICE_UNAVAILABLE, b"the node is too busy or stopping\n")
            return
        except Exception:
            log.exception("metrics failed by a bug")
            self._say(HTTPStatus.INTERNAL_SERVER_ERROR, b"failed; the node's log says why\n")
            return
        self._say(HTTPStatus.OK, body, content_type)

    def _say(self, status: HTTPStatus, body: bytes, content_type: str = "text/plain") -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        if "gzip" in (self.headers.get("Accept-Encoding") or ""):
            body = gzip.compress(body, GZIP_LEVEL)
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """A reader every few seconds is no news."""


class MetricsServer(HTTPServer):
    """The listening socket; `serve_forever` runs on the page's thread."""

    def __init__(self, host: str, port: int, registry: CollectorRegistry) -> None:
        self.registry = registry
        self.address_family = _family(host, port)
        super().__init__((host, port), MetricsHandler)

    def server_bind(self) -> None:
        """Without the question to the name server that the standard library asks here."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def handle_error(self, request: object, client_address: object) -> None:
        """A reader that went away or stood still costs only itself."""
        log.debug("a reader of metrics was cut off")


@asynccontextmanager
async def serving_metrics(
    config: NodeConfig, sources: Sequence[Source], *, clock: Clock
) -> AsyncIterator[None]:
    """Show the figures of these servers while the block runs, if `metrics_port` says so."""
    if not config.metrics_port:
        yield
        return
    lag = Histogram()

    async def node(out: Samples) -> None:
        out.add("tern_node_info", 1, VERSION, config.broker_group)
        out.add("tern_node_insecure", int(config.exposed))
        out.histogram("tern_loop_lag_seconds", lag)

    gatherer = Gatherer([node, *sources])
    registry = CollectorRegistry()
    registry.register(NodeFigures(gatherer))
    ProcessCollector(registry=registry)
    page = open_page(config.host, config.metrics_port, registry)
    serve = partial(page.serve_forever, poll_interval=POLL_S)
    thread = threading.Thread(target=serve, name="tern-metrics", daemon=True)
    thread.start()
    try:
        async with background(watch=lambda: watch_loop(lag.observe, clock.monotonic)):
            log.info("metrics ready", port=config.metrics_port)
            yield
    finally:
        gatherer.close()
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, page.shutdown)
        await loop.run_in_executor(None, thread.join, READER_S)
        page.server_close()


def open_page(host: str, port: int, registry: CollectorRegistry) -> MetricsServer:
    try:
        return MetricsServer(host, port, registry)
    except OSError as error:
        raise BadConfig(cannot_listen(host, port, error)) from error


def _family(host: str, port: int) -> socket.AddressFamily:
    return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
