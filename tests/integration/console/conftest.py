"""A seeded node, and the console over it: as an application, and as a server for browsers."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx
import pytest

from ternmq.console.config import ConsoleConfig
from ternmq.console.process import making_site, serving_console
from ternmq.core.clock import SystemClock
from ternmq.testing import node
from tests.integration.console.seeded import seed
from tests.integration.processes import free_ports


@dataclass(frozen=True, slots=True)
class SeededConsole:
    """Where it is, what is in it, and a client of it."""

    url: str
    origin: str
    ids: dict[str, str]
    http: httpx.AsyncClient


@asynccontextmanager
async def seeded(*, listens: bool, large: bool = True) -> AsyncIterator[SeededConsole]:
    async with node() as url:
        ids = await seed(url, large=large)
        config = ConsoleConfig(url=url, port=free_ports(1))
        if listens:
            async with (
                serving_console(config, SystemClock()) as origin,
                httpx.AsyncClient(base_url=origin, timeout=30) as http,
            ):
                yield SeededConsole(url, origin, ids, http)
            return
        async with making_site(config, SystemClock()) as site:
            transport = httpx.ASGITransport(site.app)
            async with httpx.AsyncClient(transport=transport, base_url=config.origin) as http:
                yield SeededConsole(url, config.origin, ids, http)


@pytest.fixture
async def console() -> AsyncIterator[SeededConsole]:
    """Without a listener: requests go straight into the application."""
    async with seeded(listens=False) as found:
        yield found
