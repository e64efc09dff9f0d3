"""Joins a server that is its own process to a cluster: its HELLO, its routes, its directory."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from ternmq.discovery.remote_directory import RemoteDirectory, remote_directory
from ternmq.discovery.routes import RouteCache
from ternmq.discovery.server_hello import server_hello
from ternmq.discovery.url import parse_url
from ternmq.wire.messages.hello import Hello


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterJoin:
    """The cluster as a server sees it."""

    addresses: list[str]
    """Of the meta servers."""
    hello: Hello
    directory: RemoteDirectory


@asynccontextmanager
async def joined(url: str, app: str) -> AsyncIterator[ClusterJoin]:
    """Know the names of the cluster while the block runs; raises when no meta server answers."""
    addresses = parse_url(url)
    hello = server_hello(app)
    cache = RouteCache(addresses, hello)
    try:
        async with remote_directory(cache) as directory:
            yield ClusterJoin(addresses=addresses, hello=hello, directory=directory)
    finally:
        await cache.close()
