"""The console as a process: one client, one watch, one listener, stopped in order.

It waits for the cluster: while no server answers its pages say so, and go on when one does. It is
never part of the data path: when it hangs or dies, nothing that is sent or consumed notices.

On a cluster with security on it looks as a user of its own, whose name stands in the url, and
people log in (`console/login`): each sees and does what the cluster lets that person. Without
security whoever reaches it may do everything, so it listens on loopback only.
"""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import uvicorn
from starlette.types import ASGIApp

from ternmq.api.app import make_api
from ternmq.api.callers import Callers
from ternmq.api.http_consumers import HttpConsumers
from ternmq.api.service import ApiService
from ternmq.api.views.browse import MessageBrowser
from ternmq.api.views.message_masks import MessageMasks
from ternmq.api.views.watch import Watch
from ternmq.client.client import Client, connect
from ternmq.console.app import ConsoleSite, make_site
from ternmq.console.config import ConsoleConfig
from ternmq.console.live_pages import LivePages
from ternmq.console.login.attempts import LoginAttempts
from ternmq.console.login.authentication import ConsoleLogins, Cookies
from ternmq.console.login.login_site import LoginSite
from ternmq.console.login.oidc_login import OidcLogin
from ternmq.console.login.password_login import PasswordLogin
from ternmq.console.login.sessions import ConsoleSessions
from ternmq.console.page import Console
from ternmq.core.clock import Clock
from ternmq.core.errors import BadConfig, Unauthorized, Unavailable
from ternmq.core.lifecycle import background
from ternmq.core.log import get_logger
from ternmq.discovery.url_user import split_user
from ternmq.jobs.runner import JobRunner

APP = "tern-console"
LEAVE_S = 2
RELOAD_S = 30.0

log = get_logger()


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
    async with AsyncExitStack() as stack:
        mq = await stack.enter_async_context(_looking(config, user or APP))
        watch = Watch(mq, clock)
        consumers = HttpConsumers(mq, clock)
        masks = MessageMasks(mq.admin.documents, clock)
        service = ApiService(
            mq=mq,
            masks=masks,
            watch=watch,
            browser=MessageBrowser(mq, clock),
            consumers=consumers,
            clock=clock,
        )
        console = Console(
            mq=mq,
            watch=watch,
            browser=service.browser,
            clock=clock,
            documents=mq.admin.documents,
            masks=masks,
            url=url,
            origin=config.origin,
        )
        site = ConsoleSite(console)
        login = None
        if user:
            login = await stack.enter_async_context(_logging_in(config, url, service, site))
        app = make_site(site, make_api(service), login)
        jobs = JobRunner(mq, clock)
        loops = {"watch": watch.run, "http_consumers": consumers.run, "jobs": jobs.run}
        await stack.enter_async_context(background(**loops))
        running = RunningSite(app=app, live=site.live, watch=watch)
        try:
            yield running
        finally:
            await running.end_streams()
            await consumers.close()


@asynccontextmanager
async def _logging_in(
    config: ConsoleConfig, url: str, service: ApiService, site: ConsoleSite
) -> AsyncIterator[LoginSite]:
    """Logins, sessions, and a client for everybody who asks."""
    clock = service.clock
    sessions = ConsoleSessions(clock, idle_s=config.idle_s, lasts_s=config.lasts_s)
    callers = Callers(url, service)
    oidc = config.oidc
    back = f"{config.origin}/login/back"
    doors = ConsoleLogins(
        sessions=sessions,
        callers=callers,
        attempts=LoginAttempts(clock.monotonic),
        cookies=Cookies(secure=config.origin.startswith("https://")),
        oidc=None if oidc is None else OidcLogin(oidc, clock, redirect=back),
        user_claim="sub" if oidc is None else oidc.user_claim,
    )
    passwords = PasswordLogin(url, clock, lasts_s=config.lasts_s)
    login = LoginSite(doors, passwords, site.renderer)
    async with background(callers=callers.run, sessions=login.run):
        try:
            yield login
        finally:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LEAVE_S):
                    await login.close()
            await callers.close()


@asynccontextmanager
async def _looking(config: ConsoleConfig, app: str) -> AsyncIterator[Client]:
    """A client; a cluster that lets nobody in says so before anything listens, one that is away
    is waited for."""
    mq = connect(config.url, app=app, lazy=True, password_file=config.password_file or None)
    try:
        try:
            async with asyncio.timeout(LEAVE_S):
                await mq
                await mq.admin.whoami()
        except (Unavailable, TimeoutError):
            pass
        except Unauthorized as error:
            raise BadConfig(
                f"this cluster has security on: {error.message}. The console looks as a user of "
                "its own, and people log in: tern user add tern-console; tern grant add "
                "tern-console describe '*'; tern grant add tern-console delay '*'; tern grant add "
                "tern-console read 'document:mask'; then "
                "TERN_PASSWORD_FILE=FILE tern console --url tern://tern-console@HOST:PORT"
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
            proxy_headers=False,
            timeout_graceful_shutdown=LEAVE_S,
            ssl_certfile=config.certificate_file or None,
            ssl_keyfile=config.key_file or None,
        )
        try:
            settings.load()
        except (OSError, ssl.SSLError) as error:
            raise BadConfig(
                f"the certificate {config.certificate_file} and the key {config.key_file} are of "
                f"no use: {error}; 'tern secure cert' makes a pair"
            ) from None
        server = QuietServer(settings)
        serving = asyncio.create_task(server.serve(), name="console")
        try:
            while not server.started:
                if serving.done():
                    await serving
                    raise BadConfig(f"cannot listen on {config.host}:{config.port}: it is taken")
                await asyncio.sleep(0.01)
            if config.exposed:
                log.warning("insecure: whoever can listen on the way sees what is sent here")
            async with background(**_certificate_watch(config, settings.ssl)):
                yield config.origin
        finally:
            await site.end_streams()
            server.stop()
            await asyncio.wait([serving])


def _certificate_watch(config: ConsoleConfig, context: ssl.SSLContext | None):  # type: ignore[no-untyped-def]
    """Other files are taken for those who come after."""
    if context is None:
        return {}

    async def look() -> None:
        seen = config.tls_stamps()
        while True:
            await asyncio.sleep(RELOAD_S)
            now = config.tls_stamps()
            if now == seen:
                continue
            try:
                context.load_cert_chain(config.certificate_file, config.key_file)
            except (OSError, ssl.SSLError) as error:
                log.error("the new TLS files are not used, the old ones are", reason=str(error))
            seen = now

    return {"certificate": look}


class QuietServer(uvicorn.Server):
    """Signals belong to whoever started it; and it never ends the process."""

    @contextlib.contextmanager
    def capture_signals(self):  # type: ignore[no-untyped-def]
        yield

    async def startup(self, sockets=None) -> None:  # type: ignore[no-untyped-def]
        try:
            await super().startup(sockets)
        except SystemExit:
            self.stop()

    def stop(self) -> None:
        """End `serve` soon."""
        self.should_exit = True
