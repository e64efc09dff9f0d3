"""The gateway as a process: one client of the cluster, one listener, stopped in order.

It waits for the cluster: while no server answers, calls are answered with "again". It is not in the
way of TernMQ clients: when it dies, what its clients held comes again, and nothing is lost.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial

from ternmq.client.client import Client, connect
from ternmq.core.clock import Clock
from ternmq.core.errors import BadConfig, Unauthorized, Unavailable
from ternmq.core.lifecycle import background
from ternmq.core.log import get_logger
from ternmq.discovery.url_user import split_user
from ternmq.gateway.config import GatewayConfig
from ternmq.gateway.handlers.cluster_facts import ClusterFacts
from ternmq.gateway.handlers.context import GatewayContext
from ternmq.gateway.offered_tls import OfferedTls, can_make_certificates
from ternmq.gateway.protocol.names import GatewayNames
from ternmq.gateway.router import GatewayRouter
from ternmq.gateway.sessions.clients import ClientTable
from ternmq.gateway.sessions.group_consumers import GroupConsumers
from ternmq.gateway.sessions.half_messages import HalfMessages
from ternmq.gateway.sessions.opened_keys import SignerKey
from ternmq.gateway.sessions.recent_sends import RecentSends
from ternmq.gateway.sessions.shared_sends import SharedSends
from ternmq.gateway.signed_router import SignedRouter
from ternmq.rpc.http2.call_server import serving_calls
from ternmq.rpc.http2.calls import CallTable

APP = "tern-gateway"
LOOK_S = 2.0
LEAVE_S = 1.0


log = get_logger()


@asynccontextmanager
async def making_gateway(
    config: GatewayConfig, clock: Clock, key: SignerKey | None = None
) -> AsyncIterator[GatewayRouter]:
    """The calls over a cluster, while a block runs; without a listener. `key`: as its user, in
    place of the gateway's own."""
    async with _looking(config, key) as mq:
        consumers = GroupConsumers(mq, clock, config.start)

        async def gone(client_id: str) -> None:
            await consumers.pushed.client_gone(client_id)

        clients = ClientTable(clock, gone)
        halves = HalfMessages(mq, clock, clients.producers_of)
        mq.transaction_checker(halves.asked)
        gateway = GatewayContext(
            mq=mq,
            clock=clock,
            config=config,
            names=GatewayNames(config.topic_aliases, config.group_aliases),
            known=ClusterFacts(mq, clock, config),
            clients=clients,
            consumers=consumers,
            halves=halves,
            recent=RecentSends(clock),
            sends=SharedSends(mq),
        )
        pushed = consumers.pushed
        async with background(clients=clients.run, consumers=consumers.run, pushed=pushed.run):
            try:
                yield GatewayRouter(gateway)
            finally:
                with suppress(TimeoutError):  # Polls that wait at a broker end with the connection.
                    async with asyncio.timeout(LEAVE_S):
                        await consumers.close()


@asynccontextmanager
async def serving_gateway(config: GatewayConfig, clock: Clock) -> AsyncIterator[str]:
    """Listen while a block runs; yields the address."""
    async with (
        making_router(config, clock) as router,
        serving_calls(router, config.address, tls=_offered_tls(config)),
    ):
        yield config.address


def _offered_tls(config: GatewayConfig) -> OfferedTls | None:
    """Java, Go and C# clients speak TLS unless told otherwise, and trust any certificate."""
    files = config.certificate_files
    if files is None and not can_make_certificates():
        log.warning("plain text only: pip install 'ternmq[security]' for TLS on the same port")
        return None
    return OfferedTls(files, ("h2",), (config.host, "localhost"))


@asynccontextmanager
async def making_router(config: GatewayConfig, clock: Clock) -> AsyncIterator[CallTable]:
    """The calls of one gateway, or of one for each access key."""
    async with making_gateway(config, clock) as own:
        if not config.access_keys:
            yield own
            return
        signed = SignedRouter(own, clock, partial(making_gateway, config, clock))
        async with background(signed=signed.run):
            yield signed


def _client(config: GatewayConfig, key: SignerKey | None) -> Client:
    user, url = split_user(config.url)
    if key is None:
        return connect(config.url, app=user or APP, lazy=True)
    signer = key

    def token() -> str:
        return signer.token.reveal()

    return connect(url.replace("://", f"://{key.user}@", 1), app=key.user, token=token, lazy=True)


@asynccontextmanager
async def _looking(config: GatewayConfig, key: SignerKey | None) -> AsyncIterator[Client]:
    """A client; a cluster that lets nobody in says so before anything listens, one that is away
    is waited for."""
    mq = _client(config, key)
    try:
        try:
            async with asyncio.timeout(LOOK_S):
                await mq
                await mq.admin.topics()
        except (Unavailable, TimeoutError):
            pass
        except Unauthorized as error:
            raise BadConfig(
                f"this cluster has security on: {error.message}. Let the gateway in as one user: "
                "TERN_PASSWORD_FILE=FILE tern gateway serve --url tern://USER@HOST:PORT"
            ) from None
        yield mq
    finally:
        await mq.close()
