"""Joins a server that is its own process to a cluster: its HELLO, its routes, its directory."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from ternmq.discovery.cluster_access import ClusterAccess
from ternmq.discovery.known_cluster import KnownCluster
from ternmq.discovery.remote_directory import RemoteDirectory, remote_directory
from ternmq.discovery.routes import RouteCache
from ternmq.discovery.url import parse_url
from ternmq.rpc.node_proof import Greeting, NodeCredential, NodeIdentity, NodeSecret
from ternmq.wire.messages.servers import Route


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterJoin:
    """The cluster as a server sees it."""

    addresses: list[str]
    """Of the meta servers."""
    greeting: Greeting
    directory: RemoteDirectory
    known: KnownCluster


@asynccontextmanager
async def joined(access: ClusterAccess, app: str) -> AsyncIterator[ClusterJoin]:
    """Know the names of the cluster while the block runs; raises when no meta server answers."""
    addresses = parse_url(access.url)
    greeting = access.greeting(app)
    cache = RouteCache(addresses, greeting)
    try:
        async with remote_directory(cache) as directory:
            yield ClusterJoin(
                addresses=addresses, greeting=greeting, directory=directory, known=cache.cluster
            )
    finally:
        await cache.close()


def access_of(route: Route, url: str, secret: NodeSecret) -> ClusterAccess:
    """How the server of this route reaches the others, and proves that it is it."""
    identity = NodeIdentity(route.kind, route.broker_group)
    return ClusterAccess(url=url, credential=NodeCredential(secret, identity))
