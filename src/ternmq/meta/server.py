"""A meta server while a block runs: listens, notices silent servers, answers what was asked."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ternmq.core.clock import Clock
from ternmq.core.lifecycle import background
from ternmq.meta.router import MetaRouter
from ternmq.rpc.limits import ServerLimits
from ternmq.rpc.node_proof import NodeGate, NodeSecret
from ternmq.rpc.server import Listener, listening
from ternmq.security.tls.server_tls import ServerTls


@asynccontextmanager
async def serving_meta(
    host: str,
    port: int,
    router: MetaRouter,
    *,
    limits: ServerLimits,
    clock: Clock,
    secret: NodeSecret | None = None,
    tls: ServerTls | None = None,
) -> AsyncIterator[Listener]:
    """Listen while the block runs; then take no more, answer what was asked, close. Servers that
    know the secret, or whose certificate names them, are let in as such."""
    registrar = router.registrar
    cluster = "" if tls is None else tls.cluster
    gate = NodeGate(secret, "meta", now=clock.monotonic, cluster=cluster)
    async with listening(
        host, port, router.door, limits=limits, clock=clock, gate=gate, tls=tls
    ) as listener:
        try:
            async with background(silent=registrar.run, held=registrar.run_held):
                yield listener
        finally:
            listener.stop_accepting()
            await router.finish()
