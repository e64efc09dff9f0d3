"""Live pages: one stream of server-sent events per tab, one rendering per URL and look.

However many tabs show a page, it is made once after each look of the watch and the same bytes go to
all of them; what did not change is not sent. A tab that does not read is left behind, not waited
for: it gets the newest state when it reads again. The last tab that leaves ends the work.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

from ternmq.api.callers import Caller
from ternmq.api.views.watch import LooksShared
from ternmq.core.log import get_logger

URLS_MAX = 200
TABS_MAX = 1_000
KEEP_ALIVE_S = 15.0
GONE = b"event: gone\ndata: too many tabs are open; reload later\n\n"

log = get_logger()

Render = Callable[[str, Caller | None], Awaitable[str]]
"""From a URL to the live part of its page, as a caller sees it."""


@dataclass(slots=True)
class SharedPage:
    """One URL that some tabs show."""

    tabs: int = 0
    number: int = 0
    """Rises when the page changed."""
    event: bytes = b""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    task: "asyncio.Task[None] | None" = None


class LivePages:
    """All live pages of one console."""

    def __init__(self, watch: LooksShared, render: Render) -> None:
        self._watch = watch
        self._render = render
        self._shared: dict[tuple[str, str], SharedPage] = {}
        self._tabs = 0
        self._stopping = False

    @property
    def tabs(self) -> int:
        return self._tabs

    async def stream(self, url: str, caller: Caller | None = None) -> AsyncIterator[bytes]:
        """Events for one tab, until it goes; tabs of one caller share what they show."""
        key = ("" if caller is None else caller.key, url)
        if (
            self._stopping
            or self._tabs >= TABS_MAX
            or (key not in self._shared and len(self._shared) >= URLS_MAX)
        ):
            yield GONE
            return
        shared = self._shared.setdefault(key, SharedPage())
        shared.tabs += 1
        self._tabs += 1
        if shared.task is None:
            following = self._follow(url, caller, shared)
            shared.task = asyncio.create_task(following, name=f"live {url}")
        try:
            yield b"retry: 2000\n\n"
            seen = 0
            while not self._stopping:
                if shared.number > seen:
                    seen = shared.number
                    yield shared.event
                try:
                    async with asyncio.timeout(KEEP_ALIVE_S):
                        await shared.changed.wait()
                except TimeoutError:
                    yield b": still here\n\n"
        finally:
            self._tabs -= 1
            shared.tabs -= 1
            if not shared.tabs and shared.task is not None:
                shared.task.cancel()
                self._shared.pop(key, None)

    async def close(self) -> None:
        """End all streams and all work."""
        self._stopping = True
        for shared in self._shared.values():
            shared.changed.set()
        tasks = [shared.task for shared in self._shared.values() if shared.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._shared.clear()

    async def _follow(self, url: str, caller: Caller | None, shared: SharedPage) -> None:
        looked = self._watch.snapshot.number
        before = ""
        while True:
            self._watch.wanted()
            looked = (await self._watch.after(looked)).number
            try:
                html = await self._render(url, caller)
            except Exception as bug:
                log.error("a live page failed by a bug", url=url, exc_info=bug)
                continue
            if html != before:
                before = html
                shared.event = event_of(html)
                shared.number += 1
                shared.changed.set()
                shared.changed = asyncio.Event()


def event_of(html: str) -> bytes:
    """One server-sent event; a line break would end a data line."""
    return b"".join(b"data: %b\n" % line.encode() for line in html.splitlines() or [""]) + b"\n"
