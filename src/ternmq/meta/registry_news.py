"""Follows the changes of a registry, and wakes the requests that wait for more of them.

Other meta servers may change the same registry. `run` looks what they did: when the registry wakes
it, when this meta server changed something itself, or every `NEWS_S`. What was found goes to
`learn` on the loop. Servers that ask for news wait here until memory has followed.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from ternmq.core.errors import TernError
from ternmq.core.log import get_logger
from ternmq.meta.registries.registry import News, Registry
from ternmq.meta.registries.registry_worker import RegistryWorker
from ternmq.wire.messages.servers import Route

NEWS_S = 0.3
"""A registry that cannot tell when it has changed is asked this often."""
NEWS_SLOW_S = 5.0
"""And one that can, in case it forgot."""

Learn = Callable[[News, list[Route] | None, bool], None]
"""The news, the servers if they changed, and whether this is another registry than before."""

log = get_logger()


class RegistryNews:
    """Follows the versions of one registry."""

    def __init__(self, registry: Registry, worker: RegistryWorker, learn: Learn) -> None:
        self._registry = registry
        self._worker = worker
        self._learn = learn
        self.version = 0
        """Of the registry, as far as memory has followed it."""
        self._woken = asyncio.Event()
        self._learnt = asyncio.Event()

    async def start(self) -> None:
        """What is read from the registry after this is at least as new as `version`."""
        self.version = await self._worker.run(self._registry.version)

    def wake(self) -> None:
        """Look at once: this meta server changed something."""
        self._woken.set()

    async def run(self) -> None:
        """Learn what changed in the registry, again and again."""
        loop = asyncio.get_running_loop()

        def wake() -> None:
            loop.call_soon_threadsafe(self._woken.set)

        watched = await self._worker.run(lambda: self._registry.watch(wake))
        away = False
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(NEWS_SLOW_S if watched else NEWS_S):
                    await self._woken.wait()
            self._woken.clear()
            try:
                await self.look()
                away = False
            except TernError as error:
                if not away:
                    log.warning("the registry does not answer", reason=error.message)
                away = True

    async def wait(self, since: int, seconds: float) -> None:
        """Until memory has followed beyond that version, or the time is over."""
        learnt = self._learnt
        if self.version == since:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await learnt.wait()

    async def find(self, since: int) -> News:
        """What changed in the registry after that version."""
        return await asyncio.shield(self._worker.run(lambda: self._registry.news(since)))

    async def look(self) -> None:
        """Follow the registry once; raises what it raises."""
        since = self.version

        def look() -> tuple[News, list[Route] | None]:
            news = self._registry.news(since)
            return news, self._registry.servers() if news.servers else None

        await asyncio.shield(self._worker.run(look, self._follow))

    def _follow(self, found: tuple[News, list[Route] | None]) -> None:
        news, servers = found
        another = news.version < self.version
        if self.version != news.version:
            self.version = news.version
            self._learnt.set()
            self._learnt = asyncio.Event()
        self._learn(news, servers, another)
