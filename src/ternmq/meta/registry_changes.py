"""Follows the changes of a registry, and wakes the requests that wait for more of them.

Other meta servers may change the same registry. `run` looks what they did: when the registry wakes
it, when this meta server changed something itself, or now and then. What was found goes to
`learn` on the loop. Servers that ask for news wait here until memory has followed.

Who asks a registry meets its outages first: when it answered last, and why it does not, is known
here. Changes that somebody waits for give up in time (`in_time`), with that said.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from ternmq.core.clock import Clock
from ternmq.core.errors import TernError, Unavailable
from ternmq.core.log import get_logger
from ternmq.meta.registries.registry import News, Registry
from ternmq.meta.registries.registry_worker import RegistryWorker
from ternmq.wire.messages.servers import Route

NEWS_S = 0.3
"""A registry that cannot tell when it has changed is asked this often."""
CHECK_S = 2.0
"""So long a registry may take to answer when somebody asks whether it does."""
CHANGE_S = 4.0
"""And so long for a change: clients wait for 5 s."""

T = TypeVar("T")
Learn = Callable[[News, list[Route] | None, bool], None]
"""The news, the servers if they changed, and whether this is another registry than before."""

log = get_logger()


class RegistryChanges:
    """Follows the versions of one registry."""

    def __init__(
        self,
        registry: Registry,
        worker: RegistryWorker,
        learn: Learn,
        clock: Clock,
        refresh_ms: int,
    ) -> None:
        """`refresh_ms`: a registry that says when it has changed is asked so often all the same, in
        case it forgot."""
        self._registry = registry
        self._refresh_s = refresh_ms / 1000
        self._clock = clock
        self.answered_at_ms = 0
        """When the registry answered last."""
        self.silence = ""
        """Why it does not answer; empty while it does."""
        self._worker = worker
        self._learn = learn
        self.version = 0
        """Of the registry, as far as memory has followed it."""
        self._woken = asyncio.Event()
        self._learnt = asyncio.Event()

    async def start(self) -> None:
        """What is read from the registry after this is at least as new as `version`."""
        self.version = await self._worker.run(self._registry.version)
        self.answered_at_ms = self._clock.now_ms()

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
                async with asyncio.timeout(self._refresh_s if watched else NEWS_S):
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

    async def check(self) -> None:
        """Ask the registry now, for a while; `silence` says what came of it."""
        try:
            async with asyncio.timeout(CHECK_S):
                await self.look()
        except TimeoutError:
            self.silence = f"no answer within {CHECK_S:g} s"
        except TernError:
            pass  # `look` has noted it.

    async def in_time(self, change: Awaitable[T]) -> T:
        """The result of a change; told in time if the registry does not answer."""
        try:
            async with asyncio.timeout(CHANGE_S):
                return await change
        except TimeoutError:
            name = self._registry.description
            raise Unavailable(
                f"the registry ({name}) did not answer within {CHANGE_S:g} s; what was asked may "
                "still be done: look, then ask again. `tern doctor` says since when it is away"
            ) from None

    async def look(self) -> None:
        """Follow the registry once; raises what it raises."""
        since = self.version

        def look() -> tuple[News, list[Route] | None]:
            news = self._registry.news(since)
            return news, self._registry.servers() if news.servers else None

        try:
            await asyncio.shield(self._worker.run(look, self._follow))
        except TernError as error:
            self.silence = error.message
            raise

    def _follow(self, found: tuple[News, list[Route] | None]) -> None:
        self.answered_at_ms, self.silence = self._clock.now_ms(), ""
        news, servers = found
        another = news.version < self.version
        if self.version != news.version:
            self.version = news.version
            self._learnt.set()
            self._learnt = asyncio.Event()
        self._learn(news, servers, another)
