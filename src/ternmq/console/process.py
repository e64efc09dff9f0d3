"""The console as a process: one client, one watch, one listener, stopped in order.

It waits for the cluster: while no server answers its pages say so, and go on when one does. It is
never part of the data path: when it hangs or dies, nothing that is sent or consumed notices.

A cluster with security on lets nobody look who does not log in. The console has no logins of its
own yet, so it shows what one user may see and do, whose name stands in the url, and only on
loopback: whoever may open a port of this machine may do what that user may.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import uvicorn
from starlette.types import ASGIApp

from ternmq.api.app import make_api
from ternmq.api.http_consumers import HttpConsumers
from ternmq.api.service import ApiService
from ternmq.api.views.browse import MessageBrowser
from ternmq.api.views.watch import Watch
from ternmq.client.client import Client, connect
from ternmq.console.app import make_site
from ternmq.console.live import LivePages
from ternmq.console.page import Console
from ternmq.core.clock import Clock
from ternmq.core.errors import BadConfig, Unauthorized, Unavailable
from ternmq.core.lifecycle import background
from ternmq.discovery.url_user import split_user
from ternmq.jobs.runner import JobRunner
from ternmq.rpc.address import is_loopback, join_address

APP = "tern-console"
LEAVE_S = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleConfig:
    """Where it listens, and what it shows."""

    url: str
    host: str = "127.0.0.1"
    port: int = 7780

    def __post_init__(self) -> None:
        if not is_loopback(self.host):
            raise BadConfig(
                f"host is {self.host!r}: the console has no logins yet, so whoever reaches it may "
                "do everything. It listens on loopback only: use 127.0.0.1, and reach it from "
                f"elsewhere by a tunnel (ssh -L {self.port}:127.0.0.1:{self.port} HOST)"
            )

    @property
    def origin(self) -> str:
        return f"http://{join_address(self.host, self.port)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningSite:
    """The application, and how its endless answers are ended."""

    app: ASGIApp
    live: LivePages
    watch: Watch

    async def end_streams(self) -> None:
        await self.live.close()
        await self.watch.stop()


@asynccontextmanager
async def making_site(config: ConsoleConfig, clock: Clock) -> AsyncIterator["RunningSite"]:
    """The application over a cluster, while a block runs; without a listener."""
    user, url = split_user(config.url)
    async with _looking(config, user or APP) as mq:
        watch = Watch(mq, clock)
        browser = MessageBrowser(mq, clock)
        consumers = HttpConsumers(mq, clock)
        service = ApiService(mq=mq, watch=watch, browser=browser, consumers=consumers, clock=clock)
        console = Console(
            mq=mq, watch=watch, browser=browser, clock=clock, url=url, origin=config.origin
        )
        site, live = make_site(console, make_api(service))
        jobs = JobRunner(mq, clock)
        async with background(watch=watch.run, http_consumers=consumers.run, jobs=jobs.run):
            running = RunningSite(app=site, live=live, watch=watch)
            try:
                yield running
            finally:
                await running.end_streams()
                await consumers.close()


@asynccontextmanager
async def _looking(config: ConsoleConfig, app: str) -> AsyncIterator[Client]:
    """A client; a cluster that lets nobody in says so before anything listens, one that is away
    is waited for."""
    mq = connect(config.url, app=app, lazy=True)
    try:
        try:
            async with asyncio.timeout(LEAVE_S):
                await mq
                await mq.admin.topics()
        except (Unavailable, TimeoutError):
            pass
        except Unauthorized as error:
            raise BadConfig(
                f"this cluster has security on: {error.message}. The console has no logins of its "
                "own yet; let it look as one user: TERN_PASSWORD_FILE=FILE tern console --url "
                "tern://USER@HOST:PORT. Everybody who can open a port of this machine then has "
                "that user's rights: choose one that may only read"
            ) from None
        yield mq
    finally:
        await mq.close()


@asynccontextmanager
async def serving_console(config: ConsoleConfig, clock: Clock) -> AsyncIterator[str]:
    """Listen while a block runs; yields the address for browsers."""
    async with making_site(config, clock) as site:
        settings = uvicorn.Config(
            site.app,
            host=config.host,
            port=config.port,
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            timeout_graceful_shutdown=LEAVE_S,
        )
        server = QuietServer(settings)
        serving = asyncio.create_task(server.serve(), name="console")
        try:
            while not server.started:
                if serving.done():
                    await serving
                    raise BadConfig(f"cannot listen on {config.host}:{config.port}: it is taken")
                await asyncio.sleep(0.01)
            yield config.origin
        finally:
            await site.end_streams()
            server.should_exit = True
            await asyncio.wait([serving])


class QuietServer(uvicorn.Server):
    """Signals belong to whoever started it; and it never ends the process."""

    @contextlib.contextmanager
    def capture_signals(self):  # type: ignore[no-untyped-def]
        yield

    async def startup(self, sockets=None) -> None:  # type: ignore[no-untyped-def]
        try:
            await super().startup(sockets)
        except SystemExit:
            self.should_exit = True
