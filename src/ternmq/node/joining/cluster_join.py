"""Joins a server that is its own process to a cluster: its HELLO, its routes, its directory."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from ternmq.core.errors import BadConfig
from ternmq.discovery.cluster_access import ClusterAccess
from ternmq.discovery.cluster_identity import ClusterIdentity
from ternmq.discovery.routes import RouteCache
from ternmq.discovery.url import parse_url
from ternmq.node.joining.remote_directory import RemoteDirectory, remote_directory
from ternmq.rpc.node_proof import Greeting, NodeCredential, NodeIdentity, NodeSecret
from ternmq.security.tls.node_name import NodeName
from ternmq.security.tls.server_tls import ServerTls
from ternmq.wire.messages.servers import Route


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterJoin:
    """The cluster as a server sees it."""

    addresses: list[str]
    """Of the meta servers."""
    greeting: Greeting
    directory: RemoteDirectory
    known: ClusterIdentity


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


def access_of(
    route: Route, url: str, secret: NodeSecret | None, tls: ServerTls | None
) -> ClusterAccess:
    """How the server of this route reaches the others, and proves that it is it: by its
    certificate, where that names servers, else by the secret."""
    identity = NodeIdentity(route.kind, route.broker_group)
    if tls is not None and tls.cluster:
        if not tls.speaks_for(route.kind, route.broker_group):
            wanted = NodeName(tls.cluster, route.kind, route.broker_group)
            names = ", ".join(name.uri for name in tls.names)
            raise BadConfig(
                f"the certificate {tls.files.certificate} is for {names}, and this server is "
                f"{wanted.uri}: tern secure cert makes one for it"
            )
        secret = None
    elif secret is None:
        raise BadConfig(
            "the certificate of this server names no server of a cluster, and there is no node "
            "secret: tern secure cert makes a certificate that does, or set node_secret_file"
        )
    return ClusterAccess(url=url, credential=NodeCredential(secret, identity), tls=tls)
